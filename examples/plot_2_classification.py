"""
Decision regions and the neurons behind them
============================================

A classifier of two inputs. The default method finds its activation patterns by itself; because there are only some
thousand of them here, it can also prove that its network is optimal.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_moons

from bidual import ReLUClassifier
from bidual.plots import DecisionDisplay, HistoryDisplay, NeuronsDisplay

X, y = make_moons(80, noise=0.15, random_state=0)
est = ReLUClassifier(beta=0.003, random_state=0).fit(X, y)
print(est.certificate_)
print(f"{est.n_neurons_} neurons, accuracy {est.score(X, y):.3f}")

# %%
# Regions by predicted class; dashed lines are where a neuron switches on.

DecisionDisplay.from_estimator(est, X, y)
plt.show()

# %%
# The neurons alone, coloured by the class they vote for; a tick points to the side where a neuron is active, and the
# wider the line, the more it weighs.

NeuronsDisplay.from_estimator(est, X, y)
plt.show()

# %%
# What happened during training: the objective falls, the lower bound rises, and training ends when they meet.

HistoryDisplay.from_estimator(est)
plt.show()
