"""
Batch normalisation
===================

Batch normalisation whitens the rows before the neurons see them (000 Theorem 2.2): the program is the same on other
features, and what comes back is an ordinary network with its statistics. Directions of small variance are then as
loud as the others; ``rank`` leaves them out (000 sec. 4.2).
"""

import matplotlib.pyplot as plt
import numpy as np

from bidual import BatchNorm, ReLURegressor

rng = np.random.default_rng(4)


def draw(n):
    signal = rng.normal(size=(n, 2))
    noise = 0.05 * rng.normal(size=(n, 20))  # many directions of small variance
    X = np.column_stack([signal, noise])
    return X, np.abs(signal[:, 0]) - np.maximum(signal[:, 1], 0) + 0.2 * rng.normal(size=n)


X, y = draw(100)
X_new, y_new = draw(1000)
names, scores = [], []
for name, architecture in (
    ("plain", "two_layer"),
    ("batch norm", "batch_norm"),
    ("batch norm, rank 2", BatchNorm(rank=2)),
):
    est = ReLURegressor(beta=0.01, architecture=architecture, tol=1e-2, random_state=0).fit(X, y)
    names.append(name)
    scores.append(est.score(X_new, y_new))
    print(f"{name:20s} R² {scores[-1]:.3f} on new rows, {est.n_neurons_} neurons, likely gap {est.likely_gap_:.1e}")

# %%

plt.barh(names[::-1], scores[::-1], color="#2f7ed8")
plt.xlabel("R² on new rows")
plt.show()
