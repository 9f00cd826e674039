"""
The smallest network that fits exactly
======================================

``beta=0`` asks for the network of smallest weights among those that pass through every point (003 eq. 6), the limit of
vanishing weight decay. The objective is then the size of the weights.
"""

import matplotlib.pyplot as plt
import numpy as np

from bidual import ReLURegressor
from bidual.plots import FitDisplay

X = np.array([[-2.0], [-1.0], [0.0], [1.0], [2.0]])
y = np.array([1.0, -1.0, 1.0, 1.0, -1.0])

figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True, layout="constrained")
for beta, ax in ((0.05, axes[0]), (0.0, axes[1])):
    est = ReLURegressor(beta=beta, method="exact").fit(X, y)
    FitDisplay.from_estimator(est, X, y, ax=ax)
    error = np.abs(est.predict(X) - y).max()
    ax.set_title(f"beta = {beta:g}: {est.n_neurons_} neurons, largest error {error:.1e}", fontsize=10)
    print(est.certificate_)
plt.show()
