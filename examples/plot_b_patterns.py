"""
Activation patterns
===================

A neuron sees the data through the signs of ``X u``. There are finitely many such patterns, far fewer than 2^n, and on
each of them the network is linear: this is what makes the training problem convex.
"""

import matplotlib.pyplot as plt
import numpy as np

from bidual import count_patterns, enumerate_patterns, sample_patterns

rng = np.random.default_rng(7)
X = rng.normal(size=(7, 2))
patterns = enumerate_patterns(X)
print(f"7 rows in the plane: {len(patterns)} patterns of {2**7} sign vectors, as counted: {count_patterns(7, 2)}")

# %%
# Every row cuts the plane of directions u; between two cuts the pattern is the same.

for row in X:
    across = 1.2 * np.array([-row[1], row[0]]) / np.linalg.norm(row)
    plt.plot(*np.array([-across, across]).T, color="0.6", lw=1)
angles = np.linspace(0, 2 * np.pi, 721)
directions = np.column_stack([np.cos(angles), np.sin(angles)])
codes = (directions @ X.T >= 0) @ (2 ** np.arange(7))
plt.scatter(*directions.T, c=np.unique(codes, return_inverse=True)[1], cmap="tab20", s=12)
plt.gca().set_aspect("equal")
plt.title("directions u by their pattern")
plt.show()

# %%
# How many there are grows with the number of rows and, quickly, with the rank.

rows = np.arange(2, 60)
for rank in (1, 2, 3, 4):
    plt.plot(rows, [count_patterns(int(n), min(rank, int(n))) for n in rows], label=f"rank {rank}")
plt.yscale("log")
plt.xlabel("rows")
plt.ylabel("patterns")
plt.legend(frameon=False)
plt.show()

# %%
# When they are too many, some are drawn at random.

print(len(sample_patterns(rng.normal(size=(100, 20)), 200, random_state=0)), "of many")
