"""
A fit of one input, proven optimal
==================================

With one input every activation pattern can be listed, so that ``method="exact"`` solves the whole convex program and
proves that no network of any width does better.
"""

import matplotlib.pyplot as plt
import numpy as np

from bidual import ReLURegressor
from bidual.plots import FitDisplay, RunsDisplay

rng = np.random.default_rng(0)
X = np.sort(rng.uniform(-2, 2, size=(40, 1)), axis=0)
y = np.sin(2 * X[:, 0]) + 0.25 * rng.normal(size=40)

est = ReLURegressor(beta=0.005, method="exact").fit(X, y)
print(est.certificate_)
print(est.certificate_.sentence)

# %%
# The function is piecewise linear. Its kinks are the neurons, and there are few of them: weight decay is a convex
# regulariser that prefers networks of few neurons.

FitDisplay.from_estimator(est, X, y)
plt.show()

# %%
# The usual way, beside it: Adam on the same objective, from eight random starts.

display = RunsDisplay.from_estimator(est, X, y, n_runs=8, width=6, steps=3000)
print(f"{sum(display.stuck)} of 8 runs end more than 1 % above the optimum")
plt.show()
