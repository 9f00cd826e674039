"""
Choosing beta: the path, and cross-validation
=============================================

Above ``beta_max`` the best network has no neurons. Below, each network starts from the one before, so that a whole
path costs little more than one fit.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import r2_score

from bidual import ReLURegressorCV, beta_max, solution_path
from bidual.plots import PathDisplay

rng = np.random.default_rng(1)


def draw(n):
    X = rng.normal(size=(n, 3))
    return X, np.maximum(X[:, 0], 0) - np.maximum(X[:, 1] - X[:, 2], 0) + 0.3 * rng.normal(size=n)


X, y = draw(80)
X_new, y_new = draw(400)

path = solution_path(X, y, n_betas=12, tol=1e-2, random_state=0)
print(f"beta_max = {beta_max(X, y):.4g}; {path.elapsed:.1f} s for {len(path)} networks")

# %%
# Neurons, objective, and R² on new rows, for every beta of the path.

scores = [r2_score(y_new, network.predict(X_new)) for network in path.networks]
PathDisplay.from_path(path, scores=scores)
plt.show()

# %%
# Without new rows: cross-validation over the same betas. ``beta_`` is what it chose.

cv = ReLURegressorCV(n_betas=12, cv=4, tol=1e-2, random_state=0).fit(X, y)
print(f"beta = {cv.beta_:.4g}, {cv.n_neurons_} neurons, R² on new rows {cv.score(X_new, y_new):.3f}")
PathDisplay.from_estimator(cv)
plt.show()
