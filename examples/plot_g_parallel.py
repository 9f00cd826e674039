"""
Three layers: branches with the path regulariser
================================================

Branches of two hidden layers side by side, charged by the product of weights along their paths (002), are atoms as
well: the same convexity, the same certificate. Two layers need more neurons for the same function.
"""

import matplotlib.pyplot as plt
import numpy as np

from bidual import Parallel, ReLURegressor

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (30, 1))
y = np.maximum(np.abs(2 * X[:, 0]) - 0.8, 0) + rng.normal(0, 0.03, 30)

two = ReLURegressor(beta=2e-3, method="exact").fit(X, y)
three = ReLURegressor(beta=2e-3, architecture=Parallel(2), tol=0.05, random_state=0).fit(X, y)
print(three.certificate_)

# %%
grid = np.linspace(-1, 1, 400)[:, None]
_, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
axes.plot(X[:, 0], y, ".", color="0.5")
axes.plot(grid, two.predict(grid), label=f"two layers, {two.n_neurons_} neurons")
axes.plot(grid, three.predict(grid), "--", label=f"three layers, {three.n_neurons_} branches")
axes.legend()
plt.show()
