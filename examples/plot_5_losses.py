"""
Other losses: outliers and quantiles
====================================

Every loss of the library has a conjugate, and with it a certificate. Here the absolute loss, which an outlier does not
impress, and quantiles, which draw a band around the data.
"""

import matplotlib.pyplot as plt
import numpy as np

from bidual import ReLURegressor
from bidual.losses import Quantile

rng = np.random.default_rng(2)
X = np.sort(rng.uniform(-2, 2, size=(80, 1)), axis=0)
y = np.abs(X[:, 0]) + (0.1 + 0.25 * np.abs(X[:, 0])) * rng.normal(size=80)
y[[10, 40]] += 4.0  # two outliers
grid = np.linspace(-2.1, 2.1, 300)[:, None]

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
for loss, colour in (("squared", "#e0813a"), ("absolute", "#2f7ed8"), ("huber", "#2e9e6b")):
    est = ReLURegressor(beta=0.005, loss=loss, method="exact").fit(X, y)
    left.plot(grid, est.predict(grid), color=colour, label=f"{loss}, proven gap {est.gap_:.0e}")
for tau in (0.1, 0.5, 0.9):
    est = ReLURegressor(beta=0.005, loss=Quantile(tau), method="exact").fit(X, y)
    right.plot(grid, est.predict(grid), color="#2f7ed8", lw=1 + (tau == 0.5), label=f"quantile {tau}")
for axes in (left, right):
    axes.scatter(X, y, s=10, color="0.6")
    axes.legend(frameon=False)
plt.show()
