"""Neurons as hyperplanes over the data, and what a classifier makes of the plane."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from bidual._util.typing import Array, FloatArray
from bidual.networks import Network
from bidual.plots._style import CLASSES, MANY, MARKERS, OTHERS, OURS, axes, claim


class NeuronsDisplay:
    r"""The lines :math:`u_j^T x + b_j = 0` of the hidden neurons over two features of the data.

    A tick on each line points to the side where the neuron is active; its width is the cost
    :math:`\|u_j\| \|\alpha_j\|` of the neuron, its colour the sign of its output: with one output, orange neurons
    raise it (they vote for class 1), blue ones lower it.

    Parameters
    ----------
    X : array of shape (n, 2)
    y : array of shape (n,) or None
        Labels or numbers: the colours of the points.
    lines : array of shape (m, 3)
        Rows (u_1, u_2, b).
    costs : array of shape (m,)
    signs : array of shape (m,) or None
    names : pair of str or None
    title : str or None

    Attributes
    ----------
    ax_ : matplotlib axes
    figure_ : matplotlib figure
    """

    def __init__(
        self,
        X: FloatArray,
        y: Array | None,
        lines: FloatArray,
        costs: FloatArray,
        signs: FloatArray | None = None,
        names: tuple[str, str] | None = None,
        title: str | None = None,
    ) -> None:
        self.X, self.y, self.lines, self.costs, self.signs = X, y, lines, costs, signs
        self.names, self.title = names, title

    @classmethod
    def from_network(
        cls,
        network: Network,
        X: Array,
        y: Array | None = None,
        *,
        features: tuple[int, int] = (0, 1),
        names: tuple[str, str] | None = None,
        title: str | None = None,
        plot: bool = True,
        ax: Any = None,
    ) -> NeuronsDisplay:
        """Of a network with two inputs or more; the inputs that are not drawn are held at their means."""
        X = np.asarray(X, dtype=np.float64)
        if network.n_inputs < 2 or X.ndim != 2 or X.shape[1] != network.n_inputs:
            raise ValueError(f"two inputs or more, and data of them, are needed; got {network!r} and {X.shape}")
        gates = network.gate_vectors()
        i, j = features
        at = X.mean(axis=0)
        at[[i, j]] = 0.0
        lines = np.column_stack([gates[:, i], gates[:, j], gates[:, :-1] @ at + gates[:, -1]])
        out = getattr(network, "output_weights", None)
        if out is None:  # gated: what stands behind a gate is a linear map
            out = network.weights()["linear_weights"]
            costs, signs = np.sqrt((np.asarray(out) ** 2).sum(axis=(1, 2))), None
        else:
            costs = np.linalg.norm(gates, axis=1) * np.linalg.norm(out, axis=1)
            signs = np.sign(out[:, 0]) if network.n_outputs == 1 else None
        display = cls(X[:, [i, j]], y, lines, costs, signs, names, title)
        return display.plot(ax=ax) if plot else display

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Array,
        y: Array | None = None,
        *,
        features: tuple[int, int] = (0, 1),
        plot: bool = True,
        ax: Any = None,
    ) -> NeuronsDisplay:
        """Of a fitted estimator, with its certificate in the title."""
        check_is_fitted(estimator)
        title = claim(estimator.certificate_)
        return cls.from_network(estimator.network_, X, y, features=features, title=title, plot=plot, ax=ax)

    def plot(self, ax: Any = None) -> NeuronsDisplay:
        """Draw on ``ax``, or on new axes."""
        ax = axes(ax, size=(5.6, 4.8))
        low, high = frame(self.X)
        widest = self.costs.max(initial=0.0) or 1.0
        signs = np.zeros(len(self.lines)) if self.signs is None else self.signs
        for line, cost, sign in zip(self.lines, self.costs, signs, strict=True):
            ends = clip(line, low, high)
            if ends is None:
                continue
            colour = OTHERS if sign > 0 else OURS  # as the points of class 1 and of class 0
            width = 0.6 + 2.0 * np.sqrt(cost / widest)
            ax.plot(*ends.T, color=colour, lw=width, alpha=0.85, zorder=2)
            middle, normal = ends.mean(axis=0), line[:2] / np.linalg.norm(line[:2] / (high - low)) * 0.03
            ax.plot(*np.array([middle, middle + normal]).T, color=colour, lw=width, zorder=2)
        scatter(ax, self.X, self.y)
        ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
        if self.names:
            ax.set(xlabel=self.names[0], ylabel=self.names[1])
        if self.title:
            ax.set_title(self.title, fontsize=10)
        self.ax_, self.figure_ = ax, ax.figure
        return self


class DecisionDisplay:
    """Regions of the plane by predicted class, the data, and the lines of the neurons.

    Parameters
    ----------
    X : array of shape (n, 2)
    y : array of shape (n,)
        Labels.
    classes : array of shape (K,)
    grid : pair of arrays of shape (k,)
        Coordinates of the evaluated points.
    scores : array of shape (k, k, K)
        The class of the largest score wins.
    neurons : NeuronsDisplay or None
    title : str or None

    Attributes
    ----------
    ax_ : matplotlib axes
    figure_ : matplotlib figure

    Examples
    --------
    >>> import numpy as np
    >>> from bidual import ReLUClassifier
    >>> from bidual.plots import DecisionDisplay
    >>> X = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    >>> est = ReLUClassifier(beta=0.01, random_state=0).fit(X, ["a", "a", "b", "b"])
    >>> DecisionDisplay.from_estimator(est, X, ["a", "a", "b", "b"]).scores.shape
    (200, 200, 2)
    """

    def __init__(
        self,
        X: FloatArray,
        y: Array,
        classes: Array,
        grid: tuple[FloatArray, FloatArray],
        scores: FloatArray,
        neurons: NeuronsDisplay | None = None,
        title: str | None = None,
    ) -> None:
        self.X, self.y, self.classes, self.grid, self.scores = X, np.asarray(y), classes, grid, scores
        self.neurons, self.title = neurons, title

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Array,
        y: Array,
        *,
        neurons: bool = True,
        resolution: int = 200,
        plot: bool = True,
        ax: Any = None,
    ) -> DecisionDisplay:
        """Of a fitted classifier of two features."""
        check_is_fitted(estimator)
        X = np.asarray(X, dtype=np.float64)
        if X.ndim != 2 or X.shape[1] != 2:
            raise ValueError(f"decision regions are drawn for two features, X has shape {X.shape}")
        low, high = frame(X)
        first, second = (np.linspace(a, b, resolution) for a, b in zip(low, high, strict=True))
        points = np.stack(np.meshgrid(first, second), axis=-1).reshape(-1, 2)
        scores = estimator.decision_function(points)
        scores = np.column_stack([-scores, scores]) if scores.ndim == 1 else scores
        certificate = getattr(estimator, "certificate_", None)
        lines = NeuronsDisplay.from_network(estimator.network_, X, plot=False) if neurons else None
        display = cls(
            X,
            y,
            estimator.classes_,
            (first, second),
            scores.reshape(resolution, resolution, -1),
            lines,
            claim(certificate) if certificate is not None else None,
        )
        return display.plot(ax=ax) if plot else display

    def plot(self, ax: Any = None) -> DecisionDisplay:
        """Draw on ``ax``, or on new axes."""
        ax = axes(ax, size=(5.6, 4.8))
        for k in range(len(self.classes)):
            others = np.delete(self.scores, k, axis=2).max(axis=2)
            margin = self.scores[:, :, k] - others
            if not (margin > 0).any():
                continue
            ax.contourf(*self.grid, margin, levels=[0, np.inf], colors=[CLASSES[k % len(CLASSES)]], alpha=0.22)
            if (margin < 0).any():
                ax.contour(*self.grid, margin, levels=[0], colors=[CLASSES[k % len(CLASSES)]], linewidths=1.2)
        if self.neurons is not None:
            low, high = frame(self.X)
            for line in self.neurons.lines:
                ends = clip(line, low, high)
                if ends is not None:
                    ax.plot(*ends.T, color="0.5", lw=0.8, ls=(0, (4, 3)), zorder=1)
        scatter(ax, self.X, self.y, self.classes)
        ax.set(xlim=self.grid[0][[0, -1]], ylim=self.grid[1][[0, -1]])
        if self.title:
            ax.set_title(self.title, fontsize=10)
        self.ax_, self.figure_ = ax, ax.figure
        return self


def frame(X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Corners of a box around the data, with some air."""
    low, high = X.min(axis=0), X.max(axis=0)
    air = 0.1 * np.where(high > low, high - low, 1.0)
    return low - air, high + air


def clip(line: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray | None:
    """The part of the line ``u_1 x_1 + u_2 x_2 + b = 0`` inside the box: two points ``(2, 2)``, or None."""
    u, b = line[:2], line[2]
    length = float(u @ u)
    if length == 0.0:
        return None
    foot, along = -b * u / length, np.array([-u[1], u[0]]) / np.sqrt(length)
    start, stop = -np.inf, np.inf
    for k in range(2):
        if along[k] == 0.0:
            if not low[k] <= foot[k] <= high[k]:
                return None
            continue
        t = np.sort((np.array([low[k], high[k]]) - foot[k]) / along[k])
        start, stop = max(start, t[0]), min(stop, t[1])
    return np.array([foot + start * along, foot + stop * along]) if start < stop else None


def scatter(ax: Any, X: FloatArray, y: Array | None, classes: Array | None = None) -> None:
    """The data: one colour and marker for each class, or a colour scale for numbers."""
    y = None if y is None else np.asarray(y)
    style = {"s": 24, "edgecolors": "white", "linewidths": 0.5, "zorder": 3, "rasterized": len(X) > MANY}
    if y is None:
        ax.scatter(*X.T, color="0.4", **style)
    elif classes is not None or y.dtype.kind in "OUSb" or len(np.unique(y)) <= 10:
        labels = np.unique(y) if classes is None else classes
        for k, label in enumerate(labels):
            marker, colour = MARKERS[k % len(MARKERS)], CLASSES[k % len(CLASSES)]
            ax.scatter(*X[y == label].T, color=colour, marker=marker, label=str(label), **style)
        ax.legend(frameon=False)
    else:
        points = ax.scatter(*X.T, c=y, cmap="viridis", **style)
        ax.figure.colorbar(points, ax=ax)
