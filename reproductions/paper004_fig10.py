"""004 Fig. 10: extreme points of image patches as filters."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np

from bidual import ConvexRF
from bidual.plots import plot_filters
from reproductions.framework import Context, Outcome, experiment, judge


@experiment(
    "004-fig10",
    title="Filters of Convex-RF from patches of CIFAR-10, without whitening",
    claim="Without whitening the filters found by (10) resemble actual image patches.",
    paper="a picture of filters",
)
def run(context: Context) -> Outcome:
    """Cosine of each filter to the patch it comes closest to, beside that of random filters."""
    count = context.pick(quick=100, default=400)
    images = context.data.images("cifar10")["X_train"][:2000].astype(np.float64)
    model = ConvexRF(count, patch_size=6, whiten=False, random_state=0).fit(images)
    figure, axis = plt.subplots(figsize=(5, 5), layout="constrained")
    plot_filters(model, 100, ax=axis)
    context.save(figure, "004-fig10.png")
    rng = np.random.default_rng(0)
    places = np.lib.stride_tricks.sliding_window_view(images[:400], (6, 6), axis=(1, 2))  # (n, 27, 27, 3, 6, 6)
    patches = places[:, ::3, ::3].transpose(0, 1, 2, 4, 5, 3).reshape(-1, 108)
    patches = patches - patches.mean(axis=1, keepdims=True)
    patches /= np.maximum(np.linalg.norm(patches, axis=1, keepdims=True), 1e-9)

    def nearest(filters: np.ndarray) -> float:
        rows = filters - filters.mean(axis=1, keepdims=True)
        return float(np.median((rows / np.linalg.norm(rows, axis=1, keepdims=True) @ patches.T).max(axis=1)))

    found, noise = nearest(model.filters_.reshape(len(model.filters_), -1)), nearest(rng.standard_normal((count, 108)))
    mixed = nearest(patches[rng.permutation(len(patches))[:count]] * rng.choice([-1.0, 1.0], (count, 108)))
    return Outcome(
        judge(found > 0.6, found > noise + 0.2),
        ours=f"{model.n_filters_} filters of {count} patches; median cosine to the nearest of {len(patches)} other "
        f"patches {found:.3f} (random filters {noise:.3f})",
        sizes=f"patches of 6 x 6 pixels from 2000 images, {count} drawn",
        details=f"Patches with the signs of their entries mixed at random have {mixed:.3f}.",
    )
