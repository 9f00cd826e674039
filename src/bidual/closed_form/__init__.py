"""Networks in closed form: the formulas of 000, 001 and 004."""

from bidual.closed_form.batch_norm import ClosedForm, ConditionError, one_neuron, white_features

__all__ = ["ClosedForm", "ConditionError", "one_neuron", "white_features"]
