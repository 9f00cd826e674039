"""
How good is the network you have?
=================================

``certify`` takes a network that somebody trained with something, and proves how far from the best possible network it
is. ``polish`` returns a better one.
"""

import warnings

import matplotlib.pyplot as plt
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from bidual import certify, polish

X, y = load_iris(return_X_y=True)
X = (X[:, 2:] - X[:, 2:].mean(axis=0)) / X[:, 2:].std(axis=0)  # petals

objectives, bounds, steps = [], [], (30, 100, 300, 1000)
for n_steps in steps:
    mlp = MLPClassifier((30,), alpha=1.5, max_iter=n_steps, tol=0, n_iter_no_change=10_000, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        mlp.fit(X, y)
    certificate = certify(mlp, X, y, beta=0.01, tol=1e-2, time_limit=10, random_state=0)
    print(f"{n_steps:5d} epochs: {certificate.sentence}")
    objectives.append(certificate.objective)
    bounds.append(certificate.lower_bound)

# %%
# The objective of scikit-learn's network falls towards the bound as it trains, and cannot pass it.

plt.plot(steps, objectives, "o-", color="#e0813a", label="MLPClassifier")
plt.plot(steps, bounds, "--", color="#2e9e6b", label="no network is below")
plt.xscale("log")
plt.xlabel("epochs")
plt.ylabel("objective")
plt.legend(frameon=False)
plt.show()

# %%
# From where it ended, ``polish`` walks the rest of the way.

better = polish(mlp, X, y, beta=0.01, tol=1e-2, time_limit=10, random_state=0)
print(better.certificate)
