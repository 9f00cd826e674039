"""The picture at the top of the README: the global optimum beside gradient descent, and what proves it.

Five points on a line (the example of "Neural Networks are Convex Regularizers"), beta = .01. Twelve Adam runs of five
neurons each minimise the same objective from different starts; the lower bound holds for networks of any width.

    python docs/hero.py docs/fit.png
"""

from __future__ import annotations

import sys

import matplotlib.pyplot as plt
import numpy as np

from bidual import ReLURegressor
from bidual.plots._style import BOUND, MARK, OTHERS, OURS, QUIET
from bidual.study.descent import iterate
from bidual.training.routing import pose_data

X, Y = np.array([[-2.0], [-1.0], [0.0], [1.0], [2.0]]), np.array([1.0, -1.0, 1.0, 1.0, -1.0])
BETA, WIDTH, STEPS, RUNS = 0.01, 5, 3000, 12


def main(path: str) -> int:
    """Draw it; how many runs end more than 1 % above the optimum."""
    best = ReLURegressor(beta=BETA, method="exact", scale=False).fit(X, Y)
    data = pose_data(X, Y, loss="squared").at(BETA)
    how = {"width": WIDTH, "steps": STEPS, "learning_rate": 0.02, "optimiser": "adam", "every": 20}
    states = list(iterate(data.problem, list(range(RUNS)), **how))
    objectives, steps = np.array([s.objectives for s in states]), np.array([s.step for s in states])
    networks = [data.lift.recover(neurons) for neurons in states[-1].neurons]
    stuck = objectives[-1] > 1.01 * best.objective_
    print(
        f"optimum {best.objective_:.6f}, bound {best.lower_bound_:.6f}; {stuck.sum()} of {RUNS} runs end 1 % above it"
    )
    print("ends:", *np.sort(objectives[-1]).round(4))

    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.3), layout="constrained")
    grid = np.linspace(-2.6, 2.6, 400)[:, None]
    for k, network in enumerate(networks):
        if stuck[k]:
            left.plot(grid, network.predict(grid), color=OTHERS, lw=1.3, alpha=0.8)
    left.plot(grid, best.predict(grid), color=OURS, lw=3)
    left.plot(X, Y, "o", color=MARK, ms=7, zorder=5)
    left.set(ylim=(-2.2, 3.0), xlabel="x", ylabel="y")
    left.plot([], [], color=OURS, lw=3, label="bidual: the optimum")
    left.plot([], [], color=OTHERS, lw=1.3, label=f"Adam, {WIDTH} neurons: {stuck.sum()} of {RUNS} runs end elsewhere")
    left.legend(frameon=False, fontsize=8.5, loc="upper center")
    right.plot(steps, objectives, color=OTHERS, lw=1.2, alpha=0.8)
    right.axhline(best.objective_, color=OURS, lw=3)
    right.axhspan(0.03, best.lower_bound_, color=BOUND, alpha=0.18, lw=0)
    right.text(0.97 * STEPS, 0.052, "proven: no network of any width is here", ha="right", color=BOUND, fontsize=9)
    right.set(yscale="log", ylim=(0.03, 2.0), xlim=(0, STEPS), xlabel="steps of Adam", ylabel="training objective")
    for ax in (left, right):
        ax.tick_params(colors=QUIET)
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return int(stuck.sum())


if __name__ == "__main__":
    main(sys.argv[1])
