"""
The gap of your own training
============================

``certify_callback`` watches a network while you train it by whatever you like: how far is it from the best network of
any width, and when is it time to stop? Here scikit-learn's MLP learns in steps.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.neural_network import MLPRegressor

from bidual import certify_callback

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (60, 2))
y = np.abs(X[:, 0]) - X[:, 1]
beta = 0.01

mlp = MLPRegressor(hidden_layer_sizes=(30,), alpha=beta * len(X), learning_rate_init=0.01, random_state=0)
callback = certify_callback(mlp, X, y, beta=beta, every=20, time_limit=2, random_state=0)
for epoch in range(1, 201):
    mlp.partial_fit(X, y)
    callback(epoch)

# %%
# The objective falls; below the line there is no network.
epochs = [checked.epoch for checked in callback.history]
_, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
axes.plot(epochs, [checked.certificate.objective for checked in callback.history], "o-", label="the MLP")
bound = callback.history[-1].certificate.lower_bound
axes.axhspan(0, bound, color="0.85", label="proven: no network of any width")
axes.set(yscale="log", ylim=(bound / 2, None), xlabel="epoch", ylabel="objective")
axes.legend()
plt.show()
