"""Training on image-size data: time, memory, gap and accuracy, beside scikit-learn and torch.

python benchmarks/scale.py [--data DIR] [--quick] [--rows TEXT ...] [--cache DIR] [--fresh]

Every row is measured in a process of its own (its peak memory is then its own) and kept in a journal: a run that was
stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from report import machine, table, write_section

JOURNAL = Path(__file__).parent / "results" / "scale.jsonl"
Row = dict[str, Any]

#: Beta is given for rows of mean square norm one, the column of ones included (see PrincipalAxes: constant = 0.3).
CONSTANT = 0.3
UNIT = float(np.sqrt(1.0 / CONSTANT**2 + 1.0))
BETAS = (1e-5, 3e-5, 1e-4)
#: Kinds of gates, and what the names of their rows end with.
GATES = {None: "", "trained": ", trained gates"}

INTRODUCTION = """\
MNIST has 60,000 training rows; CIFAR-10 here 25,000. Rows are centred, rotated to principal axes (`PrincipalAxes`) and
cut to a rank; beta is for rows of mean square norm one. "gated" is `ReLUClassifier(activation="gated")`: softmax,
quantile gates or `gates="trained"` (the training is counted), proven gap over networks with these gates. "relu" is
`ReLUClassifier()`, whose gap rests on local search. Adam: torch, batches of 256, cosine rate, the same objective
(weight decay of both layers, hidden biases included); objectives are after balancing the layers, which costs nothing.
MLP: scikit-learn, 20 epochs, its own objective. Memory is the peak of the process, with the libraries (about 0.3 GB)
and the data. Compiling is not counted.
"""


# ---- data ------------------------------------------------------------------------------------------------


class Data:
    """Images and their principal axes, cached as .npy files."""

    def __init__(self, folder: Path, cache: Path, quick: bool) -> None:
        self.folder, self.cache, self.quick = folder, cache, quick

    def load(self, name: str) -> tuple[np.ndarray, ...]:
        """X_train (a memory map of bytes), y_train, X_test, y_test."""
        self.cache.mkdir(parents=True, exist_ok=True)
        files = [self.cache / f"{name}_{part}.npy" for part in ("X_train", "y_train", "X_test", "y_test")]
        if not all(f.exists() for f in files):
            with np.load(self.folder / f"{name}.npz") as stored:
                for f in files:
                    values = stored[f.stem.removeprefix(f"{name}_")]
                    np.save(f, values.reshape(len(values), -1) if values.ndim > 1 else values)
        X, y, Xt, yt = (np.load(f, mmap_mode="r" if "X" in f.stem else None) for f in files)
        return (X[:10_000], y[:10_000], Xt, yt) if self.quick else (X, y, Xt, yt)

    def axes(self, name: str, rank: int | None, rows: int | None = None) -> tuple[np.ndarray, ...]:
        """The same in principal axes."""
        from bidual import PrincipalAxes

        X, y, Xt, yt = self.load(name)
        X, y = X[:rows], y[:rows]
        pipeline = PrincipalAxes(rank, constant=CONSTANT).fit(X)
        single = np.float32
        return pipeline.transform(X).astype(single), y, pipeline.transform(Xt).astype(single), yt


# ---- rows ------------------------------------------------------------------------------------------------


def gated(P: int, beta: float, **options: Any) -> Any:
    from bidual import ReLUClassifier

    common = {"activation": "gated", "backend": "numpy", "n_patterns": P, "random_state": 0}
    return ReLUClassifier(beta=beta * UNIT, **{**common, **options})


def warm_up() -> None:
    """Compile, or load what was compiled."""
    rng = np.random.default_rng(0)
    gated(8, 0.1, tol=0.5).fit(rng.standard_normal((200, 3)), np.arange(200) % 5)


def fitted(model: Any, X: np.ndarray, y: np.ndarray, Xt: np.ndarray, yt: np.ndarray) -> Row:
    wall, cpu = time.perf_counter(), time.process_time()
    model.fit(X, y)
    row = {"seconds": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    row["accuracy"] = float(model.score(Xt, yt))
    if hasattr(model, "certificate_"):
        row |= {"gap": model.gap_, "objective": model.objective_, "neurons": model.n_neurons_}
        for target in (0.1, 0.05, 0.01):
            met = [h.elapsed for h in model.history_ if h.objective - h.lower_bound <= target * h.objective]
            row[f"to {target:g}"] = met[0] if met else None
    return row


def row_gradient(data: Data, rank: int | None, P: int) -> Row:
    """One gradient by bytes of gates, beside 4 n p P C operations at the measured rate of a matrix product."""
    from threadpoolctl import threadpool_limits

    from bidual import quantile_gates
    from bidual.programs.gated.products import ByteProducts, MatrixProducts, pack_gates

    X, _, _, _ = data.axes("mnist", rank)
    X = np.column_stack([X, np.ones(len(X), dtype=np.float32)])[:15_000]
    n, p = X.shape
    gates = quantile_gates(X[:4096, :-1], P, 0)
    bits = pack_gates(X.astype(np.float64) @ gates.T >= 0)
    C = 10
    rng = np.random.default_rng(0)
    W, V = rng.standard_normal((P, p, C)).astype(np.float32), rng.standard_normal((n, C)).astype(np.float32)
    D, flat = np.unpackbits(bits[:2048], axis=1, count=P, bitorder="little").astype(np.float32), W.reshape(P, p * C)
    ways = {"bytes": ByteProducts(X, bits, P), "matrices": MatrixProducts(X, bits, P)}
    times: dict[str, list[float]] = {"gemm": [], "bytes": [], "matrices": []}
    with threadpool_limits(1):
        for _ in range(7):  # in turn, so that both see the same machine
            began = time.process_time()
            D @ flat
            times["gemm"].append(time.process_time() - began)
            for way, products in ways.items():
                began = time.process_time()
                products.outputs(W)
                products.correlations(V)
                times[way].append(time.process_time() - began)
    rate = 2.0 * len(D) * P * p * C / float(np.median(times["gemm"]))
    measured = {way: float(np.median(times[way])) for way in ways}
    return {"rank": p - 1, "P": P, "rate": rate / 1e9, "gemm": 4.0 * n * p * P * C / rate, "rows": n} | measured


def row_beta(data: Data, P: int, rank: int, gates: str | None) -> Row:
    """The beta of the best accuracy on the last sixth of the training rows."""
    X, y, _, _ = data.axes("mnist", rank)
    cut = 5 * len(X) // 6
    began = time.perf_counter()
    models = [gated(P, beta, tol=0.3, gates=gates).fit(X[:cut], y[:cut]) for beta in BETAS]
    scores = [model.score(X[cut:], y[cut:]) for model in models]
    return {"beta": BETAS[int(np.argmax(scores))], "scores": scores, "seconds": time.perf_counter() - began}


def row_accuracy(data: Data, P: int, rank: int, tol: float, limit: float, beta: float, gates: str | None) -> Row:
    model = gated(P, beta, tol=tol, time_limit=limit, gates=gates)
    return {"P": P, "rank": rank, "beta": beta} | fitted(model, *data.axes("mnist", rank))


def row_filters(data: Data, n_filters: int, rank: int, P: int, beta: float) -> Row:
    """A gated head on convolutional features without labels (`ConvexRF`); the time is that of everything."""
    from bidual import ConvexRF, PrincipalAxes

    X, y, Xt, yt = data.load("mnist")
    began = time.perf_counter()
    bank = ConvexRF(n_filters, cells=3, image_shape=(28, 28), random_state=0).fit(X[:10_000])
    features = bank.transform(np.asarray(X))
    axes = PrincipalAxes(rank, constant=CONSTANT).fit(features)
    before = time.perf_counter() - began
    Z, Zt = axes.transform(features), axes.transform(bank.transform(np.asarray(Xt)))
    row = fitted(gated(P, beta, tol=0.1, time_limit=60.0), Z, y, Zt, yt)
    return {"P": P, "rank": rank, "beta": beta} | row | {"seconds": before + row["seconds"]}


def row_gap(data: Data, P: int, tol: float, rows: int | None = None, rank: int = 50) -> Row:
    X, y, Xt, yt = data.axes("mnist", rank, rows)
    return {"P": P, "rank": rank, "beta": 1e-4, "n": len(X)} | fitted(
        gated(P, 1e-4, tol=tol, time_limit=150.0), X, y, Xt, yt
    )


def row_mapped(data: Data, P: int) -> Row:
    """All 784 pixels as bytes from the disk, none of them kept in memory."""
    from bidual._util.tuning import tuned

    X, y, Xt, yt = data.load("mnist")
    size = float(np.sqrt((np.asarray(X[::10], dtype=np.float64) ** 2).sum(axis=1).mean() + 1.0))
    from bidual import ReLUClassifier

    model = ReLUClassifier(
        beta=1e-4 * size, activation="gated", backend="numpy", n_patterns=P, tol=0.3, time_limit=120.0, random_state=0
    )
    with tuned(kept_bytes=0):
        return {"P": P, "rank": 784, "beta": 1e-4} | fitted(model, X, y, np.asarray(Xt), yt)


def row_mlp(data: Data, width: int) -> Row:
    from sklearn.neural_network import MLPClassifier

    X, y, Xt, yt = data.load("mnist")
    X, Xt = X.astype(np.float32) / 255, Xt.astype(np.float32) / 255
    epochs = 5 if data.quick else 20
    return {"width": width} | fitted(MLPClassifier((width,), max_iter=epochs, random_state=0), X, y, Xt, yt)


def adam(X: np.ndarray, y: np.ndarray, beta: float, width: int, epochs: int, rate: float) -> tuple[Any, float]:
    """Torch's Adam on the objective; the network and seconds."""
    import torch

    torch.manual_seed(0)
    A, b = torch.from_numpy(X), torch.from_numpy(y.astype(np.int64))
    net = torch.nn.Sequential(torch.nn.Linear(X.shape[1], width), torch.nn.ReLU(), torch.nn.Linear(width, 10))
    decayed = [net[0].weight, net[0].bias, net[2].weight]
    optimiser = torch.optim.Adam(net.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs * -(-len(X) // 256))
    began = time.perf_counter()
    for _ in range(epochs):
        for index in torch.randperm(len(X)).split(256):
            optimiser.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(A[index]), b[index])
            (loss + 0.5 * beta * sum((p**2).sum() for p in decayed)).backward()
            optimiser.step()
            schedule.step()
    return net, time.perf_counter() - began


def row_adam(data: Data, rank: int, beta: float, rate: float) -> Row:
    import torch

    from bidual.networks import from_torch

    X, y, Xt, yt = data.axes("mnist", rank)
    net, seconds = adam(X, y, beta * UNIT, 1000, 5 if data.quick else 30, rate)
    network = from_torch(net)
    objective = network.objective(X.astype(np.float64), np.eye(10)[y], beta=beta * UNIT, loss="softmax")
    network_balanced = _balanced(network, X, y, beta * UNIT)
    with torch.no_grad():
        accuracy = float((net(torch.from_numpy(Xt)).argmax(dim=1).numpy() == yt).mean())
    return {
        "beta": beta,
        "rate": rate,
        "seconds": seconds,
        "objective": min(objective, network_balanced),
        "accuracy": accuracy,
    }


def _balanced(network: Any, X: np.ndarray, y: np.ndarray, beta: float) -> float:
    """The objective with both layers of every neuron of the same norm."""
    U = np.column_stack([network.hidden_weights, network.bias_vector])
    cost = (np.linalg.norm(U, axis=1) * np.linalg.norm(network.output_weights, axis=1)).sum()
    F = network.forward(X.astype(np.float64))
    top = F.max(axis=1)
    loss = np.log(np.exp(F - top[:, None]).sum(axis=1)) + top - F[np.arange(len(y)), y]
    return float(loss.mean() + beta * cost)


def row_relu(data: Data, rank: int, beta: float, limit: float) -> Row:
    from bidual import ReLUClassifier

    model = ReLUClassifier(beta=beta * UNIT, tol=1e-2, time_limit=limit, random_state=0)
    return {"beta": beta} | fitted(model, *data.axes("mnist", rank))


def row_cifar(data: Data, P: int, limit: float, gates: str | None) -> Row:
    model = gated(P, 3e-4, tol=0.1, time_limit=limit, gates=gates)
    return {"P": P, "rank": 215, "beta": 3e-4} | fitted(model, *data.axes("cifar10", 215))


def row_dask(data: Data, workers: int, P: int, tol: float) -> Row:
    """Workers of one thread each, beside as many threads in this process (-1, -2), on the same blocks and gates."""
    from bidual import quantile_gates

    X, y, _, _ = data.axes("mnist", 50)
    model = gated(P, 1e-4, tol=tol, gates=quantile_gates(X[:4096], P, 0))

    def measured(rows: Any, labels: np.ndarray) -> Row:
        began = time.perf_counter()
        model.fit(rows, labels)
        seconds = time.perf_counter() - began
        return {"workers": workers, "P": P, "seconds": seconds, "gap": model.gap_, "steps": model.n_iter_}

    if workers < 0:
        warm_up()
        return measured(X, y)
    import dask.array as da
    from distributed import Client, LocalCluster

    chunk = -(-len(X) // 4)
    model.set_params(backend="auto")
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0", silence_logs=40) as cluster,
        Client(cluster),
    ):
        gated(8, 0.1, tol=0.5, backend="auto").fit(da.from_array(X[:400], chunks=(200, -1)), np.arange(400) % 5)
        mixed = np.argsort(np.arange(len(X)) % 4, kind="stable")  # the rows of the blocks of the process
        return measured(da.from_array(X[mixed], chunks=(chunk, -1)), y[mixed])


def plan(quick: bool, beta: float) -> dict[str, Callable[[Data], Row]]:
    """Names of the rows, and how they are measured."""
    rows: dict[str, Callable[[Data], Row]] = {}
    for rank, P in ((50, 104), (150, 104), (None, 104), (50, 504)):
        rows[f"gradient rank {rank or 784} P {P}"] = lambda d, rank=rank, P=P: row_gradient(d, rank, P)
    for gates, end in GATES.items():
        rows[f"beta{end}"] = lambda d, g=gates: row_beta(d, 100 if quick else 500, 50, g)
        for P, rank, tol, limit in ((100, 50, 0.05, 60.0), (500, 50, 0.1, 60.0), (2000, 50, 0.3, 280.0)):
            if not quick or P < 2000:
                rows[f"gated P {P}{end}"] = lambda d, P=P, r=rank, t=tol, s=limit, g=gates: row_accuracy(
                    d, P, r, t, s, beta, g
                )
    rows["200 filters, gated P 100"] = lambda d: row_filters(d, 200, 100, 100, 1e-4)
    for P, tol in ((100, 1e-2), (500, 5e-2)):
        rows[f"gap P {P}"] = lambda d, P=P, tol=tol: row_gap(d, P, tol)
    for width in (100, 500):
        rows[f"MLP {width}"] = lambda d, width=width: row_mlp(d, width)
    for rate in (1e-3, 3e-3):
        rows[f"Adam rate {rate:g}"] = lambda d, rate=rate: row_adam(d, 50, 1e-4, rate)
    rows["relu"] = lambda d: row_relu(d, 50, 1e-4, 40.0 if quick else 120.0)
    rows["mapped"] = lambda d: row_mapped(d, 24 if quick else 100)
    if not quick:
        for gates, end in GATES.items():
            rows[f"CIFAR-10 P 500{end}"] = lambda d, g=gates: row_cifar(d, 500, 120.0, g)
        for n in (15_000, 30_000):
            rows[f"growth n {n}"] = lambda d, n=n: row_gap(d, 100, 1e-2, n)
        rows["growth rank 150"] = lambda d: row_gap(d, 100, 5e-2, rank=150)
    for workers in (-1, 1, -2, 2):
        rows[f"dask {workers}"] = lambda d, w=workers: row_dask(d, w, 100 if quick else 500, 0.1)
    return rows


# ---- running and reporting -------------------------------------------------------------------------------


def measure(name: str, data: Data, beta: float) -> Row:
    """One row, in this process."""
    warnings.simplefilter("ignore")
    if not name.startswith(("MLP", "Adam", "dask", "gradient")):
        warm_up()
    row = plan(data.quick, beta)[name](data)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {"row": name, "memory": peak / 2**30, **row}


def report(found: dict[str, Row]) -> str:
    """Tables of what there is."""

    def number(row: Row, key: str, form: str) -> str:
        return "-" if row.get(key) is None else format(row[key], form)

    text = [INTRODUCTION, "\nOne gradient, one thread (CPU time, 15,000 rows, 10 outputs):\n"]
    gradients = [r for name, r in found.items() if name.startswith("gradient")]
    text.append(
        table(
            ["rank", "gates", "GEMM rate", "4npPC operations at this rate", "matrix products, measured",
             "by bytes of gates", "faster"],
            [
                [r["rank"], r["P"], f"{r['rate']:.0f} GFlop/s", f"{r['gemm']:.3f} s", f"{r['matrices']:.3f} s",
                 f"{r['bytes']:.3f} s", f"{r['gemm'] / r['bytes']:.1f}, {r['matrices'] / r['bytes']:.1f} x"]
                for r in gradients
            ],
        )
    )  # fmt: skip
    text.append("\nTraining:\n")
    trained = [r for name, r in found.items() if not name.startswith(("gradient", "dask", "beta"))]
    columns = ["row", "test %", "seconds", "CPU s", "memory", "objective", "gap", "s to gap .1", ".05", ".01", "beta"]
    lines = []
    for r in trained:
        accuracy = "-" if r.get("accuracy") is None else f"{100 * r['accuracy']:.2f}"
        times = [number(r, f"to {t:g}", ".0f") for t in (0.1, 0.05, 0.01)]
        lines.append(
            [r["row"], accuracy, number(r, "seconds", ".0f"), number(r, "cpu", ".0f"), f"{r['memory']:.1f} GiB",
             number(r, "objective", ".5f"), number(r, "gap", ".1e"), *times, number(r, "beta", "g")]
        )  # fmt: skip
    text.append(table(columns, lines))
    for name in (f"beta{end}" for end in GATES.values()):
        if name in found:
            scores = ", ".join(f"{b:g}: {100 * s:.2f} %" for b, s in zip(BETAS, found[name]["scores"], strict=True))
            text.append(
                f"\n{name}: chosen on a sixth of the training rows ({scores}; {found[name]['seconds']:.0f} s).\n"
            )
    clusters = [r for name, r in found.items() if name.startswith("dask")]
    labels = {-1: "in process, one thread", 1: "one worker", -2: "in process, two threads", 2: "two workers"}
    text.append("\nRows on a Dask cluster of this machine, P and rank as above:\n")
    text.append(
        table(
            ["", "seconds", "Newton steps", "gap"],
            [[labels[r["workers"]], f"{r['seconds']:.1f}", r["steps"], f"{r['gap']:.1e}"] for r in clusters],
        )
    )
    return "\n".join(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("BIDUAL_DATA", "data")), help="npz files")
    parser.add_argument("--cache", type=Path, default=None, help="folder for .npy copies; default: beside the journal")
    parser.add_argument("--quick", action="store_true", help="10,000 rows, about four minutes; prints only")
    parser.add_argument("--rows", nargs="*", default=[], help="only rows whose name has one of these")
    parser.add_argument("--fresh", action="store_true", help="forget what was measured before")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--beta", type=float, default=3e-5, help=argparse.SUPPRESS)
    args = parser.parse_args()
    cache = args.cache or JOURNAL.parent / "cache"
    data = Data(args.data, cache, args.quick)
    if args.measure:
        print(json.dumps(measure(args.measure, data, args.beta)))
        return
    if not (args.data / "mnist.npz").exists() and not (cache / "mnist_y_test.npy").exists():
        sys.exit(f"no mnist.npz in {args.data}: give its folder by --data or BIDUAL_DATA")
    journal = JOURNAL.with_name("scale-quick.jsonl") if args.quick else JOURNAL
    journal.parent.mkdir(parents=True, exist_ok=True)
    if args.fresh:
        journal.unlink(missing_ok=True)
    known = journal.read_text(encoding="utf-8").splitlines() if journal.exists() else []
    found: dict[str, Row] = {row["row"]: row for row in map(json.loads, known)}
    for name in plan(args.quick, 0.0):
        if name in found or (args.rows and not any(part in name for part in args.rows)):
            continue
        chosen = "beta, trained gates" if name.endswith("trained gates") else "beta"
        beta = found[chosen]["beta"] if chosen in found else 3e-5
        command = [sys.executable, __file__, "--measure", name, "--data", str(args.data), "--cache", str(cache)]
        began = time.perf_counter()
        one_thread = {"OMP_NUM_THREADS": "1"} if name in ("dask -1", "dask 1") else {}
        child = subprocess.run(
            [*command, "--beta", str(beta), *(["--quick"] if args.quick else [])],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **one_thread},
        )
        if child.returncode:
            print(f"{name}: failed", flush=True)
            continue
        found[name] = json.loads(child.stdout.splitlines()[-1])
        with journal.open("a", encoding="utf-8") as handle:
            print(json.dumps(found[name]), file=handle)
        print(f"{name}: {time.perf_counter() - began:.0f} s  {found[name]}", flush=True)
    text = report({name: found[name] for name in plan(args.quick, 0.0) if name in found})
    print(text)
    if not args.quick and not args.rows:
        write_section("scale", f"## Image-size data (`benchmarks/scale.py`)\n\n{machine()}\n\n{text}")


if __name__ == "__main__":
    main()
