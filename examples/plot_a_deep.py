"""
Deep networks in closed form
============================

For linear networks, and for deep ReLU networks on whitened rows, the optimum is a formula (001). The rank of a linear
network falls as beta grows: each singular value of the data's projection disappears at its own beta.
"""

import matplotlib.pyplot as plt
import numpy as np

from bidual import DeepReLUClassifier, LinearNetRegressor

rng = np.random.default_rng(6)
X = rng.normal(size=(60, 8))
Y = X @ rng.normal(size=(8, 3)) @ np.diag([3.0, 1.5, 0.7]) @ rng.normal(size=(3, 5)) + 0.1 * rng.normal(size=(60, 5))

betas = np.geomspace(1e-3, 30, 40)
ranks = [np.linalg.matrix_rank(LinearNetRegressor(beta=b, depth=2).fit(X, Y).network_.layers[0]) for b in betas]
plt.step(betas, ranks, where="post", color="#2f7ed8", lw=2)
plt.xscale("log")
plt.xlabel("beta")
plt.ylabel("rank of the hidden layer")
plt.show()

# %%
# A classifier of four layers, trained by a formula.

X, y = rng.normal(size=(60, 90)), np.repeat([0, 1, 2], 20)
est = DeepReLUClassifier(beta=0.001, depth=4).fit(X, y)
print(est.network_)
print(est.certificate_)
