"""Several outputs: our objective beside torch's Adam and L-BFGS on the same network, in one run.

python benchmarks/outputs.py --data FOLDER [--quick]

Softmax on standardised columns with biases and an output intercept. Adam: 200 neurons, full batches, 2000 steps with a
cosine rate, three seeds at the better of two rates, on one thread (two are slower at most of these sizes); L-BFGS: the
same network, at most 1000 gradients. Ours: the default method, stopped after as long as one run of Adam took (at least
two seconds). "Reached" is when our network was first at least as good as the best of Adam's runs, as a share of one.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from report import machine, table, write_section
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning

from bidual import ReLUClassifier

WIDTH, STEPS, GRADIENTS, RATES, SEEDS = 200, 2000, 1000, (1e-2, 3e-2), 3
#: Sets of scikit-learn, and names of files ``uci_<name>.npz``.
BUNDLED = {"iris": load_iris, "wine": load_wine, "digits": load_digits}
FILES = ("yeast", "waveform", "semeion", "page-blocks", "wall-following", "optical", "statlog-landsat")
COLUMNS = ["set", "rows x columns, classes", "beta", "Adam, best of 3", "s", "L-BFGS", "s"]
COLUMNS += ["ours", "s", "reached / Adam's time", "likely gap", "neurons"]


def read(name: str, folder: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """Rows with standardised columns, constant ones dropped, and classes 0, 1, ..."""
    if name in BUNDLED:
        X, y = BUNDLED[name](return_X_y=True)
    else:
        assert folder is not None
        with np.load(folder / f"uci_{name}.npz") as file:
            X, y = file["X"].astype(float), file["y"]
    X = X[:, X.std(axis=0) > 0]
    return (X - X.mean(axis=0)) / X.std(axis=0), np.unique(y, return_inverse=True)[1]


class Peer:
    """One network and its objective in torch, as one would write it."""

    def __init__(self, X: np.ndarray, y: np.ndarray, beta: float, seed: int) -> None:
        torch.manual_seed(seed)
        self.hidden = torch.nn.Linear(X.shape[1], WIDTH)
        self.output = torch.nn.Linear(WIDTH, int(y.max()) + 1)
        self.X, self.y, self.beta = torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(y), beta
        self.decayed = [self.hidden.weight, self.hidden.bias, self.output.weight]
        self.parameters = [*self.decayed, self.output.bias]

    def loss(self) -> torch.Tensor:
        """Mean cross-entropy and weight decay, on all but the output intercept."""
        logits = self.output(torch.relu(self.hidden(self.X)))
        decay = sum(w.square().sum() for w in self.decayed)
        return torch.nn.functional.cross_entropy(logits, self.y) + 0.5 * self.beta * decay

    def adam(self, rate: float, steps: int = STEPS) -> float:
        """Full batches, cosine rate; the last value."""
        optimiser = torch.optim.Adam(self.parameters, lr=rate)
        for step in range(steps):
            optimiser.param_groups[0]["lr"] = 0.5 * rate * (1.0 + math.cos(math.pi * step / steps))
            optimiser.zero_grad()
            self.loss().backward()
            optimiser.step()
        return self.loss().item()

    def lbfgs(self) -> float:
        """torch's L-BFGS with a strong Wolfe search."""
        optimiser = torch.optim.LBFGS(
            self.parameters, max_iter=GRADIENTS, max_eval=GRADIENTS, history_size=20, line_search_fn="strong_wolfe"
        )

        def closure() -> torch.Tensor:
            optimiser.zero_grad()
            value = self.loss()
            value.backward()
            return value

        optimiser.step(closure)
        return self.loss().item()


def timed(run: Any) -> tuple[float, float]:
    """Value and wall-clock seconds."""
    began = time.perf_counter()
    value = run()
    return value, time.perf_counter() - began


def row(name: str, beta: float, folder: Path | None) -> list[object]:
    """One line of the table."""
    X, y = read(name, folder)
    pilots = {rate: Peer(X, y, beta, 0).adam(rate, STEPS // 8) for rate in RATES}
    rate = min(pilots, key=pilots.__getitem__)
    runs = [timed(lambda seed=seed: Peer(X, y, beta, seed).adam(rate)) for seed in range(SEEDS)]
    adam, seconds = min(value for value, _ in runs), float(np.median([s for _, s in runs]))
    lbfgs, lbfgs_seconds = timed(lambda: Peer(X, y, beta, 0).lbfgs())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        limit = max(2.0, seconds)
        ours = ReLUClassifier(beta=beta, tol=1e-3, time_limit=limit, prove=False, random_state=0).fit(X, y)
    reached = [h.elapsed for h in ours.history_ if h.objective <= adam]
    return [
        name,
        f"{len(X)} x {X.shape[1]}, {int(y.max()) + 1}",
        f"{beta:g}",
        f"{adam:.6f}",
        f"{seconds:.1f}",
        f"{lbfgs:.6f}",
        f"{lbfgs_seconds:.1f}",
        f"{ours.objective_:.6f}",
        f"{ours.history_[-1].elapsed:.1f}",
        f"{reached[0] / seconds:.2f}" if reached else "not",
        f"{ours.likely_gap_:.1e}",
        ours.n_neurons_,
    ]


def main() -> None:
    """Measure and write the section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of uci_<name>.npz; without it only the sets of scikit-learn")
    parser.add_argument("--quick", action="store_true", help="iris only, nothing written")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    names = ("iris",) if arguments.quick else (*BUNDLED, *(FILES if arguments.data else ()))
    if not arguments.quick:  # kernels are compiled or loaded before anything is timed
        ReLUClassifier(beta=0.1, time_limit=5, random_state=0).fit(*read("iris", None))
    rows = []
    for name in names:
        for beta in (1e-2, 1e-3):
            rows.append(row(name, beta, arguments.data))
            print(*rows[-1], flush=True)
            if not arguments.quick:
                text = f"## Several outputs (`benchmarks/outputs.py`; {machine()})\n\n" + table(COLUMNS, rows)
                write_section("outputs", text)


if __name__ == "__main__":
    main()
