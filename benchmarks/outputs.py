"""Several outputs: our objective beside torch's Adam and L-BFGS and scikit-learn's MLP on the same network, in one run.

python benchmarks/outputs.py --data FOLDER [--quick] [--sets a,b] [--tiny N]

Softmax on standardised columns with biases and an output intercept (raw pixels in [0, 1]). Adam: 200 neurons (MNIST:
1000), three seeds at the best of three rates, a cosine rate; up to 5,000 rows full batches, 2000 steps on one thread
(two are slower there), above them 40 passes of batches of 256 on two threads. L-BFGS: the same network, at most 1000
gradients, up to 5,000 rows. MLP: scikit-learn's at its defaults but for 200 neurons, alpha = beta n and 500 iterations,
its network evaluated by the same objective; up to 5,000 rows. Ours: the default method, stopped after twice the time of
one run of Adam (at least ten seconds up to 5,000 rows). "Reached" is when our network was first as good as the best of
Adam's three (to 1e-5), as a share of one of them; "to 1e-3" is when our likely gap was that small, in seconds.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from report import machine, table, write_section
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning

from bidual import ReLUClassifier, ReLURegressor
from bidual.networks import from_sklearn

JOURNAL = Path(__file__).parent / "results" / "outputs.jsonl"

WIDTH, STEPS, GRADIENTS, RATES, SEEDS = 200, 2000, 1000, (3e-3, 1e-2, 3e-2), 3
#: Rows from which peers are trained on batches, of this size and in so many passes.
MANY, BATCH, EPOCHS = 5_000, 256, 40
#: Sets of scikit-learn, names of files ``uci_<name>.npz``, and images with the number of rows.
BUNDLED = {"iris": load_iris, "wine": load_wine, "digits": load_digits}
FILES = (
    "cardiotocography-10clases",
    "wine-quality-white",
    "yeast",
    "waveform",
    "semeion",
    "page-blocks",
    "wall-following",
    "plant-margin",
)
FILES += ("optical", "statlog-landsat", "letter")
IMAGES = {"cifar10": 3_000, "fashion-mnist": 20_000, "mnist": 60_000}
#: Neurons of Adam's network, where they are not :data:`WIDTH`.
WIDTHS = {"mnist": 1000}
#: What is as good, relative to the objective.
SAME = 1e-5
COLUMNS = ["set", "rows x columns, classes", "beta", "Adam, best of 3", "one, s", "L-BFGS", "s", "MLP", "s"]
COLUMNS += ["ours", "s", "reached / Adam's time", "likely gap", "to 1e-3, s", "neurons"]


def read(name: str, folder: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """Rows with standardised columns, constant ones dropped, and classes 0, 1, ..."""
    if name in BUNDLED:
        X, y = BUNDLED[name](return_X_y=True)
    elif name in IMAGES:
        assert folder is not None
        n = IMAGES[name]
        with np.load(folder / f"{name}.npz") as file:
            X, y = file["X_train"][:n].reshape(n, -1), file["y_train"][:n].ravel().astype(int)
        if name == "cifar10":  # 16 x 16 pixels
            X = X.reshape(n, 16, 2, 16, 2, 3).mean(axis=(2, 4)).reshape(n, -1)
        return X[:, X.std(axis=0) > 0] / 255.0, y
    else:
        assert folder is not None
        with np.load(folder / f"uci_{name}.npz") as file:
            X, y = file["X"].astype(float), file["y"]
    X = X[:, X.std(axis=0) > 0]
    return (X - X.mean(axis=0)) / X.std(axis=0), np.unique(y, return_inverse=True)[1]


class Peer:
    """One network and its objective in torch, as one would write it."""

    def __init__(self, X: np.ndarray, y: np.ndarray, beta: float, seed: int, width: int = WIDTH) -> None:
        torch.manual_seed(seed)
        self.hidden = torch.nn.Linear(X.shape[1], width)
        self.output = torch.nn.Linear(width, int(y.max()) + 1)
        self.X, self.y, self.beta = torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(y), beta
        self.decayed = [self.hidden.weight, self.hidden.bias, self.output.weight]
        self.parameters = [*self.decayed, self.output.bias]

    def loss(self, rows: torch.Tensor | slice = slice(None)) -> torch.Tensor:
        """Mean cross-entropy and weight decay, on all but the output intercept."""
        logits = self.output(torch.relu(self.hidden(self.X[rows])))
        decay = sum(w.square().sum() for w in self.decayed)
        return torch.nn.functional.cross_entropy(logits, self.y[rows]) + 0.5 * self.beta * decay

    def batches(self, share: float) -> Iterator[torch.Tensor | slice]:
        """The rows of each step, of a share of a run."""
        n = len(self.X)
        if n <= MANY:
            yield from (slice(None) for _ in range(int(share * STEPS)))
        else:
            for _ in range(max(1, int(share * EPOCHS))):
                yield from torch.randperm(n).split(BATCH)

    def adam(self, rate: float, share: float = 1.0) -> float:
        """A cosine rate; the last value."""
        optimiser = torch.optim.Adam(self.parameters, lr=rate)
        batches = list(self.batches(share))
        for step, rows in enumerate(batches):
            optimiser.param_groups[0]["lr"] = 0.5 * rate * (1.0 + math.cos(math.pi * step / len(batches)))
            optimiser.zero_grad()
            self.loss(rows).backward()
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


def mlp(X: np.ndarray, y: np.ndarray, beta: float) -> tuple[float, float]:
    """Objective and seconds of scikit-learn's network."""
    from sklearn.neural_network import MLPClassifier

    model = MLPClassifier((WIDTH,), alpha=beta * len(X), max_iter=500, random_state=0)
    _, seconds = timed(lambda: model.fit(X, y))
    net = from_sklearn(model)
    return float(net.objective(X, y, beta=beta, loss="softmax" if y.max() > 1 else "logistic")), seconds


def row(name: str, beta: float, folder: Path | None) -> list[object]:
    """One line of the table."""
    X, y = read(name, folder)
    many, width = len(X) > MANY, WIDTHS.get(name, WIDTH)
    torch.set_num_threads(2 if many else 1)
    pilots = {rate: Peer(X, y, beta, 0, width).adam(rate, 0.1) for rate in RATES}
    rate = min(pilots, key=pilots.__getitem__)
    runs = [timed(lambda seed=seed: Peer(X, y, beta, seed, width).adam(rate)) for seed in range(SEEDS)]
    adam, seconds = min(value for value, _ in runs), float(np.median([s for _, s in runs]))
    peers: list[object] = []
    for peer in (lambda: timed(lambda: Peer(X, y, beta, 0).lbfgs()), lambda: mlp(X, y, beta)):
        value, took = (math.nan, math.nan) if many else peer()
        peers += ["-", "-"] if many else [f"{value:.6f}", f"{took:.1f}"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        limit = 2 * seconds if many else max(10.0, 2 * seconds)
        ours = ReLUClassifier(beta=beta, tol=1e-3, time_limit=limit, prove=False, random_state=0).fit(X, y)
    reached = [h.elapsed for h in ours.history_ if h.objective <= adam * (1.0 + SAME)]
    closed = [h.elapsed for h in ours.history_ if h.gap <= 1e-3]
    return [
        name,
        f"{len(X)} x {X.shape[1]}, {int(y.max()) + 1}",
        f"{beta:g}",
        f"{adam:.6f}",
        f"{seconds:.1f}",
        *peers,
        f"{ours.objective_:.6f}",
        f"{ours.history_[-1].elapsed:.1f}",
        f"{reached[0] / seconds:.2f}" if reached else "not",
        f"{ours.likely_gap_:.1e}",
        f"{closed[0]:.1f}" if closed else "not",
        ours.n_neurons_,
    ]


def tiny(count: int) -> str:
    """How many random problems of few rows are proven, and how long that takes."""
    gaps, seconds = [], []
    for k in range(count):
        rng = np.random.default_rng(k)
        n, d, C = int(rng.integers(4, 11)), int(rng.integers(1, 4)), int(rng.integers(2, 4))
        X, Y = rng.standard_normal((n, d)), rng.standard_normal((n, C))
        beta, bias = float(rng.choice([0.003, 0.01, 0.03, 0.1])), bool(rng.integers(2)) and d < 3
        model = ReLURegressor(beta=beta, method="exact", tol=1e-4, bias=bias, time_limit=60, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            fit, took = timed(lambda model=model, X=X, Y=Y: model.fit(X, Y))
        gaps.append(fit.gap_)
        seconds.append(took)
    proven = int((np.array(gaps) <= 1e-4).sum())
    return (
        f"Tiny data (4 to 10 rows of rank at most 3, 2 or 3 outputs, squared loss, `method='exact'`): {proven} of "
        f"{count} proven to 1e-4, median {np.median(seconds):.2f} s, slowest {max(seconds):.1f} s, largest gap "
        f"{max(gaps):.1e}."
    )


def main() -> None:
    """Measure and write the section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of uci_<name>.npz; without it only the sets of scikit-learn")
    parser.add_argument("--quick", action="store_true", help="iris only, nothing written")
    parser.add_argument("--sets", default="", help="only these, comma-separated; the others keep their rows")
    parser.add_argument("--tiny", type=int, default=200, help="random problems of few rows")
    arguments = parser.parse_args()
    everything = (*BUNDLED, *((*FILES, *IMAGES) if arguments.data else ()))
    names = tuple(arguments.sets.split(",")) if arguments.sets else everything
    # kernels are compiled or loaded before anything is timed
    ReLUClassifier(beta=0.01, time_limit=5, random_state=0).fit(*read("wine", None))
    if arguments.quick:
        print(*row("iris", 1e-2, None))
        return
    kept = [json.loads(line) for line in JOURNAL.read_text().splitlines()] if JOURNAL.exists() else []
    rows = {(name, beta): cells for name, beta, cells in kept}
    for name in names:
        for beta in (1e-4,) if name == "mnist" else (1e-2, 1e-3):
            rows[name, f"{beta:g}"] = row(name, beta, arguments.data)
            print(*rows[name, f"{beta:g}"], flush=True)
            JOURNAL.write_text("".join(json.dumps([*key, cells]) + "\n" for key, cells in rows.items()))
    order = sorted(rows, key=lambda key: ([*BUNDLED, *FILES, *IMAGES].index(key[0]), -float(key[1])))
    text = f"## Several outputs (`benchmarks/outputs.py`; {machine()})\n\n{(__doc__ or '').split(chr(10) * 2, 2)[2]}\n"
    write_section("outputs", text + table(COLUMNS, [rows[key] for key in order]) + "\n\n" + tiny(arguments.tiny))


if __name__ == "__main__":
    main()
