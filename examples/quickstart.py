"""Train a network to proven optimality on real data, and write a report about it.

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
from sklearn.datasets import load_diabetes

from bidual import Model, ReLURegressor
from bidual._util.files import write_atomically
from bidual.plots import FitDisplay
from bidual.report import write_report
from bidual.study.descent import descend

BETA = 0.001


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("run"), help="folder for the report, pictures and the model")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)

    data = load_diabetes(as_frame=True)
    X = data.data[["bmi"]].iloc[:120]
    X = (X - X.mean()) / X.std(ddof=0)
    y = (data.target[:120] - data.target.mean()) / data.target.std(ddof=0)

    est = ReLURegressor(beta=BETA, method="exact").fit(X, y)
    print(est.certificate_)
    print(f"  neurons                      {est.n_neurons_}")
    print(f"  time                         {est.certificate_.elapsed:.2f} s")

    runs = descend(X, y, beta=BETA, n_runs=5, width=20)
    objectives = [run.objective for run in runs]
    print(f"Adam on the same objective, 20 neurons, 5 seeds: {min(objectives):.6f} to {max(objectives):.6f}")

    _, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    grid = np.linspace(X.to_numpy().min(), X.to_numpy().max(), 500)[:, None]
    for i, run in enumerate(runs):
        axes.plot(grid, run.network.predict(grid), color="#e0813a", lw=1.2, label=None if i else "Adam, 5 seeds")
    figure = FitDisplay.from_estimator(est, X, y, ax=axes).figure_
    axes.set(xlabel="body-mass index (standardised)", ylabel="disease progression (standardised)")

    write_atomically(out / "fit.png", lambda path: figure.savefig(path, dpi=130))
    Model.of(est, len(y), target="disease progression").save(out / "model.json")
    numbers = {**est.certificate_.to_dict(), "n_neurons": est.n_neurons_, "adam_objectives": objectives}
    write_atomically(out / "certificate.json", lambda path: path.write_text(json.dumps(numbers, indent=1)))
    report = write_report(
        out / "report.html", est, X, y, target="disease progression", source="scikit-learn's diabetes data"
    )
    print(f"open {report} in a browser; also there: fit.png, model.json, certificate.json")


if __name__ == "__main__":
    main()
