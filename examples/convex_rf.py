"""Filters from image patches without labels, and a convex head on top: handwritten digits.

Least squares on the pixels, then on features of Convex-RF: the filters are extreme points of random patches (one small
convex problem each), the head is least squares with a ridge or an l1 penalty. All convex, nothing depends on luck but
the choice of patches. The same without the extreme points (the patches themselves as filters) is shown beside it.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.linear_model import Lasso, RidgeClassifier
from sklearn.model_selection import train_test_split
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bidual import ConvexRF
from bidual._util.files import write_atomically
from bidual.plots import plot_filters


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("run"), help="folder for the picture")
    parser.add_argument("--filters", type=int, default=200, help="number of filters")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)

    digits = load_digits()
    X, X_test, y, y_test = train_test_split(digits.images, digits.target, test_size=0.5, random_state=0)
    flat, flat_test = X.reshape(len(X), -1), X_test.reshape(len(X_test), -1)
    print(f"{len(X)} images of 8 x 8 to train on, {len(X_test)} to test")
    print(f"least squares on pixels            {100 * RidgeClassifier().fit(flat, y).score(flat_test, y_test):6.2f} %")

    rf = ConvexRF(args.filters, patch_size=4, random_state=0)
    models = {
        "Convex-RF, ridge head": make_pipeline(rf, StandardScaler(), RidgeClassifier(10.0)),
        "Convex-RF, l1 head": make_pipeline(rf, StandardScaler(), OneVsRestClassifier(Lasso(1e-3, tol=1e-2))),
        "patches as filters, ridge head": make_pipeline(
            ConvexRF(args.filters, patch_size=4, filters="patches", random_state=0),
            StandardScaler(),
            RidgeClassifier(10.0),
        ),
    }
    for name, model in models.items():
        began = time.perf_counter()
        model.fit(X, y)
        print(f"{name:<34} {100 * model.score(X_test, y_test):6.2f} %   {time.perf_counter() - began:5.2f} s")

    learned = models["Convex-RF, ridge head"][0]
    figure, axes = plt.subplots(1, 2, figsize=(8, 4.2), layout="constrained")
    plot_filters(learned, ax=axes[0]).set_title("extreme points of patches")
    plot_filters(models["patches as filters, ridge head"][0], ax=axes[1]).set_title("the patches themselves")
    write_atomically(args.out / "filters.png", lambda path: figure.savefig(path, dpi=130))
    print(f"{learned.n_filters_} filters, the first 100 drawn in {args.out / 'filters.png'}")


if __name__ == "__main__":
    main()
