"""
Several outputs share their neurons
===================================

With several targets, or more than two classes, a neuron has one output weight for each. The optimum is proven here too,
by a search over cones of directions.
"""

import matplotlib.pyplot as plt
import numpy as np

from bidual import ReLUClassifier
from bidual.plots import DecisionDisplay

rng = np.random.default_rng(5)
centres = np.array([[-1.4, -0.6], [1.4, -0.7], [0.0, 1.1]])
X = np.concatenate([c + 0.45 * rng.normal(size=(20, 2)) for c in centres])
y = np.repeat(["left", "right", "top"], 20)

est = ReLUClassifier(beta=0.01, loss="softmax", method="exact", tol=1e-3, random_state=0).fit(X, y)
print(est.certificate_)
print(np.round(est.network_.output_weights, 2))

# %%

DecisionDisplay.from_estimator(est, X, y)
plt.show()
