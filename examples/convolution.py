"""Convolutional networks on the digits that come with scikit-learn: trained to a gap, compared, handed to torch.

python examples/convolution.py [--out DIR]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from bidual import Convolutional, LinearConvRegressor, ReLUClassifier

#: Two digits that are often confused.
DIGITS = (3, 5)


def data() -> tuple[np.ndarray, ...]:
    """Images 8 x 8 of two digits, as (n, 8, 8), and their labels."""
    images, labels = load_digits(return_X_y=True)
    rows = np.isin(labels, DIGITS)
    X = (images[rows].reshape(-1, 8, 8) - images.mean()) / images.std()
    return train_test_split(X, labels[rows], train_size=120, random_state=0, stratify=labels[rows])


def main() -> None:
    """Train three convolutional networks and a linear one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("run"), help="folder for the figure")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    X, X_test, y, y_test = data()
    print(f"digits {DIGITS[0]} and {DIGITS[1]}: {len(X)} images to train on, {len(X_test)} to test\n")
    head = f"{'filters 3 x 3, stride 2':34s} {'objective':>10s} {'likely gap':>10s} {'filters':>8s}"
    print(f"{head} {'test':>6s} {'seconds':>8s}")
    trained = {}
    for name, architecture in {
        "sum over all positions": Convolutional((3, 3), stride=2),
        "the same with batch normalisation": Convolutional((3, 3), stride=2, batch_norm=True),
        "fully connected output": Convolutional((3, 3), stride=2, pooling="flatten"),
    }.items():
        began = time.perf_counter()
        est = ReLUClassifier(0.01, architecture=architecture, tol=0.02, time_limit=60, random_state=0).fit(X, y)
        took = time.perf_counter() - began
        numbers = f"{est.objective_:10.5f} {est.likely_gap_:10.1e} {est.n_neurons_:8d}"
        print(f"{name:34s} {numbers} {est.score(X_test, y_test):6.3f} {took:8.1f}")
        trained[name] = est
    linear = LinearConvRegressor((3, 3), stride=2, beta=0.01).fit(X, np.where(y == DIGITS[1], 1.0, -1.0))
    right = np.mean((linear.predict(X_test) > 0) == (y_test == DIGITS[1]))
    numbers = f"{linear.objective_:10.5f} {linear.gap_:10.1e} {linear.n_neurons_:8d}"
    print(f"{'linear filters (squared loss)':34s} {numbers} {right:6.3f}   proven\n")
    first = trained["sum over all positions"]
    compare_with_torch(first, X_test)
    draw(first, out / "filters.png")


def compare_with_torch(est: ReLUClassifier, X: np.ndarray) -> None:
    """The same outputs from a torch module, if there is torch."""
    try:
        import torch
    except ImportError:
        print("without torch there is nothing to compare with: pip install 'bidual[torch]'")
        return
    module = est.network_.to_torch()
    with torch.no_grad():
        F = module(torch.tensor(X[:, None]))[:, 0].numpy()
    print(
        f"{module}\nlargest difference between its outputs and ours: {np.abs(F - est.decision_function(X)).max():.1e}"
    )


def draw(est: ReLUClassifier, path: Path) -> None:
    """The filters with the largest weights, if there is matplotlib."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        print("without matplotlib there is no figure: pip install 'bidual[plot]'")
        return
    network = est.network_
    order = np.argsort(-np.abs(network.output_weights[:, 0]))[:12]
    figure, axes = plt.subplots(2, 6, figsize=(8, 3), layout="constrained")
    for axis in axes.ravel():
        axis.set_axis_off()
    for axis, j in zip(axes.ravel(), order, strict=False):
        axis.imshow(network.filters[j, :, :, 0], cmap="gray")
        axis.set_title(f"{DIGITS[1] if network.output_weights[j, 0] > 0 else DIGITS[0]}", fontsize=9)
    figure.suptitle("the strongest filters, and the digit they speak for")
    figure.savefig(path, dpi=110)
    plt.close(figure)
    print(f"figure: {path}")


if __name__ == "__main__":
    main()
