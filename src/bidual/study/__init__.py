"""Studies: gradient descent, neural collapse, implicit bias, tangent kernels, fewest neurons, low rank."""
