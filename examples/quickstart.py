"""Train a network to proven optimality on a real data set, print the certificate, draw the fit.

Body-mass index against the progression of diabetes (scikit-learn's data): with one input every activation
pattern can be enumerated, and the optimum is proven. Networks trained by Adam on the same objective, from
several seeds, are shown beside it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import StandardScaler

from bidual import ReLURegressor
from bidual._files import write_atomically
from bidual.networks import TwoLayerNetwork, from_torch
from bidual.plots import plot_fit_1d

BETA = 0.001


def train_with_adam(X: np.ndarray, y: np.ndarray, seed: int, width: int = 20, steps: int = 2000) -> TwoLayerNetwork:
    """The usual way: the same regularised objective, minimised by Adam from a random start."""
    torch.manual_seed(seed)
    inputs, targets = torch.as_tensor(X), torch.as_tensor(y)[:, None]
    net = torch.nn.Sequential(torch.nn.Linear(1, width), torch.nn.ReLU(), torch.nn.Linear(width, 1)).double()
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        optimiser.zero_grad()
        decay = (net[0].weight ** 2).sum() + (net[0].bias ** 2).sum() + (net[2].weight ** 2).sum()
        (0.5 * ((net(inputs) - targets) ** 2).mean() + 0.5 * BETA * decay).backward()
        optimiser.step()
        scheduler.step()
    return from_torch(net)


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("run"), help="folder for the pictures and the model")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)

    data = load_diabetes()
    X = StandardScaler().fit_transform(data.data[:120, 2:3])  # body-mass index
    y = (data.target[:120] - data.target.mean()) / data.target.std()

    est = ReLURegressor(beta=BETA, method="exact").fit(X, y)
    print(est.certificate_)
    print(f"  neurons                      {est.n_neurons_}")
    print(f"  time                         {est.certificate_.elapsed:.2f} s")

    others = [train_with_adam(X, y, seed) for seed in range(5)]
    objectives = [net.objective(X, y, beta=BETA) for net in others]
    print(f"Adam on the same objective, 20 neurons, 5 seeds: {min(objectives):.6f} to {max(objectives):.6f}")

    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    grid = np.linspace(X.min(), X.max(), 500)[:, None]
    for i, net in enumerate(others):
        axes.plot(grid, net.predict(grid), color="C1", lw=1.2, label=None if i else "Adam, 5 seeds")
    plot_fit_1d(est, X, y, ax=axes)
    axes.set(xlabel="body-mass index (standardised)", ylabel="disease progression (standardised)")
    write_atomically(out / "fit.png", lambda path: figure.savefig(path, dpi=130))
    est.network_.save(out / "network.json")
    report = {**est.certificate_.to_dict(), "n_neurons": est.n_neurons_, "adam_objectives": objectives}
    write_atomically(out / "certificate.json", lambda path: path.write_text(json.dumps(report, indent=1)))
    print(f"picture: {out / 'fit.png'}   network: {out / 'network.json'}   certificate: {out / 'certificate.json'}")


if __name__ == "__main__":
    main()
