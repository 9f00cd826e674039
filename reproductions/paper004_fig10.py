"""004 Fig. 10: extreme points of image patches as filters."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

from bidual import ConvexRF
from bidual.plots import plot_filters
from reproductions.framework import Context, Outcome, experiment, judge, table

Floats = NDArray[np.float64]


def patches_of(images: Floats) -> Floats:
    """All patches of 6 x 6 pixels on a grid of step three, as rows."""
    places = np.lib.stride_tricks.sliding_window_view(images, (6, 6), axis=(1, 2))  # (n, 27, 27, 3, 6, 6)
    return places[:, ::3, ::3].transpose(0, 1, 2, 4, 5, 3).reshape(-1, 108)


def normalised(rows: Floats) -> Floats:
    """Rows without their mean, of length one."""
    rows = rows - rows.mean(axis=1, keepdims=True)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)


@experiment(
    "004-fig10",
    title="Filters of Convex-RF from patches of CIFAR-10, without whitening",
    claim="Without whitening the filters found by (10) resemble actual image patches.",
    paper="a picture of filters",
)
def run(context: Context) -> Outcome:
    """Cosine of each filter to the nearest patch of other images, beside that of such patches and of random filters."""
    count, rng = context.pick(quick=100, default=400), np.random.default_rng(0)
    images = context.data.images("cifar10")["X_train"][:2800].astype(np.float64)
    model = ConvexRF(count, patch_size=6, whiten=False, random_state=0).fit(images[:2000])
    figure, axis = plt.subplots(figsize=(5, 5), layout="constrained")
    plot_filters(model, 100, ax=axis)
    context.save(figure, "004-fig10.png")
    reference = normalised(patches_of(images[2000:2400]))
    fresh = rng.choice(normalised(patches_of(images[2400:])), count, replace=False)

    def nearest(rows: Floats) -> float:
        return float(np.median((normalised(rows) @ reference.T).max(axis=1)))

    found = nearest(model.filters_.reshape(len(model.filters_), -1))
    ceiling, mixed = nearest(fresh), nearest(fresh * rng.choice([-1.0, 1.0], fresh.shape))
    floor = nearest(rng.standard_normal(fresh.shape))
    way = (found - floor) / (ceiling - floor)
    return Outcome(
        judge(way > 0.5),
        ours=f"median cosine of {model.n_filters_} filters to the nearest patch of other images {found:.3f}; "
        f"{floor:.3f} for random filters, {ceiling:.3f} for real patches: {100 * way:.0f} % of the way",
        sizes=f"patches of 6 x 6 pixels, {count} drawn from 2000 images; the paper does not publish its numbers",
        details=table(
            ["rows", f"median cosine to the nearest of {len(reference)} patches"],
            [
                ("filters", f"{found:.3f}"),
                ("real patches of further images", f"{ceiling:.3f}"),
                ("the same with signs of entries mixed at random", f"{mixed:.3f}"),
                ("random filters", f"{floor:.3f}"),
            ],
        )
        + "\n\nThe patches that are compared with come from 400 images that no filter was made of. Filters resemble "
        "patches if they are closer to what real patches reach than to what random filters reach.",
    )
