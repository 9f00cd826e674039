"""Networks in closed form: the formulas of 000, 001 and 004."""
