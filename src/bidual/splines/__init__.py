"""Networks with free hidden biases on data on a line: linear splines (004 sec. 3, 5, A.7)."""
