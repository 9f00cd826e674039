r"""Check a certificate of bidual without bidual: this file needs nothing but Python and numpy.

    python check_certificate.py certificate.json data.csv --target y [--model model.json]

prints PROVEN or REFUSED with the reason (docs/certificate_format.md has every field of the file).

What is proven. Training minimises L(F) + beta * penalty over networks of any width, whose neurons compute columns
A (M u)_+ from features M of the data; A takes the patches of a sample together. For every V with -V in the domain of
the conjugate L* (and columns that sum to zero, if there is a free intercept) and every bound
g >= max { ||V^T A (M u)_+|| : ||u|| <= 1 }, no network has an objective below -L*(-c V), 0 <= c <= beta / g.
A certificate holds V, c and a proof of some g. Here the problem is posed from the data alone, V is moved into the
domain (so that it cannot lie), g is proven again, and -L*(-c V) is evaluated. Every kind of proof is a function that
returns a g (``PROOFS``), with G = A^T V and rows g_i, m_i of G, M.

Rounding. A sum of k products is off by at most k U times the sum of absolute values, U = 2^-53, and all terms are
charged so, mostly relative to total = sum_i ||g_i|| ||m_i||; they are added to g or taken from the bound. A claim may
exceed what is proven by RTOL of itself, because its digits were found by other sums than these.
"""

from __future__ import annotations

import argparse
import base64
import csv
import json
import math
import sys
from collections.abc import Callable, Iterable
from itertools import combinations, combinations_with_replacement, islice, pairwise, product
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

Array: TypeAlias = Any  # of numpy
Document: TypeAlias = dict[str, Any]

U, RTOL = 2.0**-53, 1e-9
#: Digits of ``limit`` and ``attained``, which nothing rests on, relative to beta.
SHOWN = 1e-6
#: V must be of a size whose squares are numbers, data of one whose fourth powers are; what underflow may then take from
#: a norm is less than TINY.
HUGE, VAST, TINY = 1e50, 1e120, 1e-120
#: Lines through the origin closer than this are one to an enumeration; sines smaller than this are zero.
PARALLEL, NULL = 5e-11, 1e-11
#: Most cones, hyperplanes, cells, halvings, sets of rows, entries of a table: more is not worth waiting for.
MOST_CONES, MOST_PLANES, MOST_CELLS = 3_000_000, 200_000, 2_000_000
DEEPEST, MOST_SETS, MOST_ENTRIES = 1000, 100_000, 3e7
#: Of a relaxation: rows of known sign that serve as cuts, numbers of outputs whose directions are covered by cones.
CUTS, REFINED = 20, 5
#: Dual points of a proof by chains; directions on a half circle for which branches of two outputs are bounded.
MOST_LINES, HEADS = 100, 48
#: How reasons begin that say nothing against a claim.
UNKNOWN = "this checker "
#: What files that are damaged lead to.
DAMAGED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, MemoryError, np.linalg.LinAlgError)


class Refused(Exception):
    """Why a claim is not accepted."""


# ---- fields ----------------------------------------------------------------------------------------------------------


def need(condition: Any, reason: str) -> None:
    """Refuse, unless."""
    if not condition:
        raise Refused(reason)


def number(value: Any, what: str) -> float:
    """A finite number."""
    need(type(value) in (int, float) and math.isfinite(value), f"no {what}")
    return float(value)


def counts(values: Any, least: int = 1) -> bool:
    """Whether all values are integers of at least so much."""
    return all(type(v) is int and v >= least for v in values)


def array(value: Any, what: str, *shape: int | None) -> Array:
    """Finite numbers of a shape, in which None is any length."""
    given = np.array(value, dtype=float)
    fits = given.ndim == len(shape) and all(m in (None, k) for k, m in zip(given.shape, shape, strict=True))
    need(fits and np.isfinite(given).all(), f"{what} must be finite numbers of the shape {shape}, None for any")
    return given


def bits(data: Document) -> Array:
    """A matrix of bits, row by row in bytes."""
    (P, n), raw = data["shape"], np.frombuffer(base64.b64decode(data["bits"]), "u1")
    need(
        counts((P,), 0) and counts((n,)) and len(raw) == P * ((n + 7) // 8),
        "a table of bits has another shape than it says",
    )
    return np.unpackbits(raw.reshape(P, (n + 7) // 8), axis=1, count=n).astype(bool)


# ---- losses and their conjugates -------------------------------------------------------------------------------------

#: Parameters of losses that have some, and the least and most that they may be.
PARAMETERS: dict[str, dict[str, tuple[float, float]]] = {
    "huber": {"delta": (5e-324, 1e308)}, "quantile": {"tau": (1e-16, 1 - 1e-16)},
    "epsilon_insensitive": {"epsilon": (0.0, 1e308)}, "exact_fit": {"tol": (0.0, 1e-3)}, "margin": {"tol": (0.0, 1e-3)},
    "tube": {"epsilon": (0.0, 1e308), "tol": (0.0, 1e-3)},
}  # fmt: skip
#: Losses of y f, y = -1 or +1.
MARGINS = ("logistic", "hinge", "squared_hinge", "margin")
#: Losses of the residual, and the power of its unit that they have.
POWERS = {"squared": 2, "huber": 2, "quantile": 1, "absolute": 1, "epsilon_insensitive": 1, "exact_fit": 0, "tube": 0}
#: Those that are zero or infinite, for beta = 0.
INDICATORS = ("exact_fit", "margin", "tube")


def loss_of(p: Document) -> tuple[float, float, Any, Any]:
    """The interval on which the conjugate of a loss is finite, in the variable of ``coordinates``, the conjugate as a
    function of that variable and y, and the loss as one of outputs f and y.
    """
    inf, delta, tau, tol, eps = math.inf, *(p.get(k, 0.5) for k in ("delta", "tau", "tol", "epsilon"))
    return {
        "squared": (-inf, inf, lambda u, y: 0.5 * u**2 + u * y, lambda f, y: 0.5 * (f - y) ** 2),
        "huber": (-delta, delta, lambda u, y: 0.5 * u**2 + u * y,
                  lambda f, y: 0.5 * (f - y) ** 2 - 0.5 * np.maximum(abs(f - y) - delta, 0) ** 2),
        "absolute": (-1.0, 1.0, lambda u, y: u * y, lambda f, y: np.abs(f - y)),
        "quantile": (-tau, 1 - tau, lambda u, y: u * y, lambda f, y: np.maximum((1 - tau) * (f - y), tau * (y - f))),
        "epsilon_insensitive": (-1.0, 1.0, lambda u, y: u * y + eps * np.abs(u),
                                lambda f, y: np.maximum(np.abs(f - y) - eps, 0)),
        "tube": (-inf, inf, lambda u, y: u * y + eps * np.abs(u),
                 lambda f, y: np.where(abs(f - y) <= eps + tol * abs(y).max(), 0, inf)),
        "exact_fit": (-inf, inf, lambda u, y: u * y, lambda f, y: np.where(abs(f - y) <= tol * abs(y).max(), 0, inf)),
        "logistic": (0.0, 1.0, lambda s, y: s * np.log(np.maximum(s, 1e-300)) + (1 - s) * np.log1p(-s * (s < 1)),
                     lambda f, y: np.logaddexp(0.0, -y * f)),
        "hinge": (0.0, 1.0, lambda s, y: -s, lambda f, y: np.maximum(1 - y * f, 0)),
        "squared_hinge": (0.0, inf, lambda s, y: 0.5 * s**2 - s, lambda f, y: 0.5 * np.maximum(1 - y * f, 0) ** 2),
        "margin": (0.0, inf, lambda s, y: -s, lambda f, y: np.where(y * f >= 1 - tol, 0.0, inf)),
        "softmax": (-1.0, 1.0, lambda u, y: np.where(y, (1 + u) * np.log1p(u * (u > -1)), u * np.log(abs(u) + 1e-300)),
                    lambda f, y: np.logaddexp(0.0, np.logaddexp.reduce(  # of what others are ahead, however little
                        np.where(y, -inf, f - (y * f).sum(axis=1, keepdims=True)), axis=1, keepdims=True))),
    }[p["name"]]  # fmt: skip


def read_loss(p: Document) -> None:
    """Refuse what is no loss."""
    need(p["name"] in (*MARGINS, *POWERS, "softmax"), f"{UNKNOWN}does not know the loss {p['name']!r}")
    allowed = PARAMETERS.get(p["name"], {})
    need(set(p) == {"name", *allowed}, f"the loss {p['name']} has other parameters")
    for key, (least, most) in allowed.items():
        need(least <= number(p[key], key) <= most, f"{key} is not between {least:g} and {most:g}")


def coordinates(loss: Document, V: Array, Y: Array, w: Array) -> Array:
    """The dual point as a slope u = -v / w of the loss; for margins s = -y u. (Softmax has probabilities y + u.)"""
    u = -V / w[:, None]
    return -Y * u if loss["name"] in MARGINS else u


def into_domain(loss: Document, V: Array, Y: Array, w: Array, centred: bool) -> tuple[Array, float, Array]:
    """A dual point near V, in the domain after a change of size rho: V, rho, and the change by rows.

    Domains are convex and hold zero, so shrinking is allowed; the positive and the negative part of a column that
    should sum to zero are shrunk to equal sums. rho is what is left of that after rounding, relative to V. With softmax
    a row sends probability from its class to others; what does not come back to a class is taken from the ways that
    lead there, of at most C steps: rho is so much probability.
    """
    W, (low, high, *_), C = w[:, None], loss_of(loss), Y.shape[1]
    if loss["name"] == "softmax":
        sent = np.maximum(-V / W, 0.0) * (Y == 0) * (((w @ Y) > 0) | (not centred)) * (1 - 16 * U)
        sent /= np.maximum(sent.sum(axis=1, keepdims=True), 1.0)
        V = W * (Y * sent.sum(axis=1, keepdims=True) - sent)
        rho = C * math.fsum(abs(math.fsum(column)) for column in V.T) if centred else 0.0
        return V, rho, rho + 4 * U * np.linalg.norm(V, axis=1)
    u = np.clip(coordinates(loss, V, Y, w), low, high)
    V, rho = W * (Y * u if loss["name"] in MARGINS else -u) * (1 - 16 * U), 0.0
    for c in range(C if centred else 0):
        plus, minus = np.maximum(V[:, c], 0.0), np.maximum(-V[:, c], 0.0)
        a, b = math.fsum(plus), math.fsum(minus)
        V[:, c] = plus * (min(a, b) / a if a else 0.0) - minus * (min(a, b) / b if b else 0.0)
        if min(a, b) > 0:
            rho = max(rho, abs(math.fsum(V[:, c])) / min(a, b) * (1 + 8 * U))
    return V, rho, rho * np.linalg.norm(V, axis=1)


def dual_value(loss: Document, V: Array, Y: Array, w: Array, rho: float) -> tuple[float, float]:
    """-L*(-V), and what rounding may have added to it or the change of size rho may take from it.

    A conjugate is convex: on the way from V to a point Z it rises by at most rho (|l*(V)| + |l*(Z)|). Probability rho
    that is moved changes p log p by rho (1 - log rho) at most.
    """
    W, (low, high, conjugate, _), u = w[:, None], loss_of(loss), coordinates(loss, V, Y, w)
    need((u >= low).all() and (u <= high).all(), "a multiple of the dual point leaves the domain")
    terms = W * conjugate(u, Y)
    size = float(np.abs(terms).sum() + np.abs(V * Y).sum() + (V * V / W).sum())
    lost = rho * float(np.abs(terms).sum() + np.abs(W * conjugate(0 * V, Y)).sum())
    if loss["name"] == "softmax":
        size, lost = size + float(np.abs(V).sum()), 2 * Y.shape[1] * rho * (1 - math.log(min(rho, 1.0) or 1.0))
    return -math.fsum(terms.ravel()), 24 * U * size + lost


# ---- from the data to features M and pooling A -----------------------------------------------------------------------


def encode(loss: str, y: Array, classes: Any) -> Array:
    """Targets (n, C): numbers, -1/+1 for margins, one column for each class otherwise."""
    if classes is None:
        Y = np.asarray(y, dtype=float).reshape(len(y), -1)
        if loss == "softmax":
            need(np.isin(Y, (0, 1)).all() and (Y.sum(axis=1) == 1).all(), "the targets are no one-hot rows")
        need(loss not in MARGINS or np.isin(Y, (-1, 1)).all(), "the targets of a margin loss are not -1 or +1")
        return Y
    code = {label: k for k, label in enumerate(classes)}
    need(len(code) == len(classes) >= 2, "the classes are not different labels")
    need(all(label in code for label in y.tolist()), "y holds a label that is none of the classes")
    hot = np.eye(len(code))[[code[label] for label in y.tolist()]]
    return hot if loss == "softmax" else 2 * hot[:, 1:] - 1 if len(code) == 2 else 2 * hot - 1


def distinct(X: Array, Y: Array, weight: Any) -> tuple[Array, Array, Array, Array]:
    """Equal samples taken together, in sorted order: samples, targets and weights that sum to one, and their sum."""
    n, each, d = len(X), len(Y) // max(len(X), 1), X[0].size
    need(len(Y) == n * each > 0, f"X has {n} rows, y has {len(Y)}")
    weight = np.ones(n) if weight is None else np.asarray(weight, dtype=float)
    need(weight.shape in ((n,), (len(Y),)), "there are not as many weights as rows")
    need(weight.min() >= 0 < weight.sum() < math.inf, "weights must be finite and not negative")
    weight = np.tile(weight.reshape(n, -1), (1, len(Y) // len(weight)))
    used = weight.max(axis=1) > 1e-30 * weight.max()
    table = np.column_stack([X[used].reshape(-1, d), Y.reshape(n, -1)[used]]) + 0.0
    rows, which = np.unique(table, axis=0, return_inverse=True)
    count: Array = np.zeros((len(rows), each))
    np.add.at(count, which.ravel(), weight[used])
    X, Y, count = rows[:, :d].reshape(-1, *X.shape[1:]), rows[:, d:].reshape(-1, Y.shape[1]), count.reshape(-1)
    return X, Y, count / count.sum(), count


def patches(X: Array, o: Document) -> tuple[Array, int]:
    """The patches (n K, h) that a window shows, sample by sample, and K."""
    kernel, circular = o["kernel_size"], o.get("circular", False)
    need(type(circular) is bool and not (circular and kernel is None), "no such window")
    if kernel is None:
        return X.reshape(-1, X.shape[2]), X.shape[1]
    axes = {2: 1, 3: 1, 4: 2}[X.ndim] if isinstance(kernel, int) else len(kernel)
    kernel, stride, pad = ([v] * axes if isinstance(v, int) else v for v in (kernel, o["stride"], o["padding"]))
    need(len(kernel) == len(stride) == len(pad) == axes, "windows have a size for each axis")
    need(counts([*kernel, *stride]) and counts(pad, 0), "sizes of windows must be counts")
    X = X if X.ndim == axes + 2 else X[..., None]
    fits = all(k <= m for k, m in zip(kernel, X.shape[1:], strict=False))
    need(not circular or (fits and max(stride) == 1 and not any(pad)), "circular windows have no other strides")
    padded = math.prod(float(m + 2 * p) for m, p in zip(X.shape[1:], pad, strict=False)) * X.shape[-1]
    need(padded * len(X) * math.prod(kernel) <= MOST_ENTRIES, "too long: there are too many patches")
    around = [(0, k - 1) for k in kernel] if circular else [(p, p) for p in pad]
    X = np.pad(X, [(0, 0), *around, (0, 0)], mode="wrap" if circular else "constant")
    seen = np.lib.stride_tricks.sliding_window_view(X, kernel, axis=tuple(range(1, axes + 1)))
    seen = np.moveaxis(seen[(slice(None), *(slice(None, None, s) for s in stride))], axes + 1, -1)
    return seen.reshape(-1, math.prod(kernel) * X.shape[-1]), math.prod(seen.shape[1 : axes + 1])


def exact_rank(X: Array) -> int:
    """The rank of the numbers in X as fractions, modulo a large prime: exact but for one chance in 10^17."""
    p, rank = 2**61 - 1, 0
    fractions = [[v.as_integer_ratio() for v in row] for row in X.tolist()]
    rows = np.array([[a * pow(b, -1, p) % p for a, b in row] for row in fractions], dtype=object)
    for column in range(X.shape[1]):
        pivot = rank + np.flatnonzero(rows[rank:, column])[:1]
        if len(pivot):
            rows[[rank, pivot[0]]] = rows[[pivot[0], rank]]
            share = rows[rank + 1 :, column] * pow(rows[rank, column], -1, p) % p
            rows[rank + 1 :] = (rows[rank + 1 :] - np.outer(share, rows[rank])) % p
            rank += 1
    return rank


def powers_of_two(columns: Array) -> Array:
    """Scales of columns, by which nothing is rounded."""
    largest = np.abs(columns).max(axis=0)
    return np.exp2(np.round(np.log2(np.where(largest > 0, largest, 1.0))))


def with_ones(X: Array, bias: Any) -> Array:
    """A column of ones beside X, if there are biases."""
    return np.column_stack([X, np.ones(len(X))]) if bias else X


def white(X: Array, count: Array, rank: Any) -> tuple[Array, Array, int, Array]:
    """[U, 1/sqrt n]: what neurons see after batch normalisation, by how much its rows may be wrong, how many directions
    of X it leaves out, and the axes that it keeps.

    Normalisation undoes scales: columns are brought to one before their rank is told from rounding. White features are
    no further from M than its Gram matrix is from the identity.
    """
    n, varies = count.sum(), np.ptp(X, axis=0) > 0
    centred = X - np.where(varies, count @ X / n, X[0])
    centred = centred - count @ centred / n
    scale, dropped = powers_of_two(centred), 0

    def axes(columns: Array) -> tuple[Array, Array]:
        rooted = np.sqrt(count)[:, None] * columns
        _, sigma, Vt = np.linalg.svd(rooted, full_matrices=False)
        r = int((sigma > max(X.shape) * 2 * U * np.linalg.norm(rooted)).sum())
        need(r > 0, "batch normalisation of rows that do not differ")
        return sigma[:r], Vt[:r].T

    sigma, V = axes(centred / scale)
    if len(sigma) < min(len(X) - 1, varies.sum()):
        need(X.size * len(sigma) <= 3e6, "too long: the exact rank of many rows")
        dropped = exact_rank(with_ones(X, True)) - 1 - len(sigma)
    if rank is not None:
        plain, directions = axes(centred)
        share = np.cumsum(plain**2) / (plain**2).sum()
        k = rank if isinstance(rank, int) else min(len(plain), int(np.searchsorted(share, rank * (1 - 1e-12))) + 1)
        need(type(rank) in (int, float) and 0 < k <= len(plain), f"there is no rank {rank}")
        if k < len(sigma):
            dropped, scale, sigma, V = dropped + len(sigma) - k, np.ones(len(scale)), plain[:k], directions[:, :k]
    V = V / scale[:, None]
    M = np.column_stack([centred @ (V / sigma), np.full(len(X), 1 / np.sqrt(n))])
    excess = np.linalg.norm(M.T @ (count[:, None] * M) - np.eye(M.shape[1])) + (len(X) + 64) * 2 * U
    products = np.linalg.norm(np.abs(centred) @ np.abs(V / sigma), axis=1)
    return M, (8 + len(V)) * 2 * U * products + excess * np.linalg.norm(M, axis=1), dropped, V


def relu_inputs(X: Array, bias: bool) -> Array:
    """What a ReLU works on whose directions are free, in coordinates in which rows are told apart best: columns are
    brought to one scale and, if there are biases, moved to one of their values, where both are exact.
    """
    origin = np.sort(X, axis=0)[len(X) // 2] if bias else np.zeros(X.shape[1])
    other = (X - origin) - X
    exact = (X - ((X - origin) - other)) - (origin + other) == 0.0  # what rounding of a difference has lost
    X = X - np.where(exact.all(axis=0), origin, 0.0)
    return with_ones(X / powers_of_two(X), bias)


def on_a_line(X: Array) -> tuple[Array, Array]:
    """Coordinates of rows on a line, and their distances from it."""
    if X.shape[1] == 1:
        return X[:, 0], np.zeros(len(X))
    origin = X.mean(axis=0)
    direction = np.linalg.svd(X - origin, full_matrices=False)[2][0]
    direction *= 1.0 if direction[np.argmax(np.abs(direction))] > 0 else -1.0
    c = (X - origin) @ direction
    return c, np.linalg.norm(X - origin - c[:, None] * direction, axis=1) + 8 * U * np.linalg.norm(X, axis=1)


#: Architectures and the names of their options.
OPTIONS = {
    "two_layer": (),
    "linear_net": ("depth",),
    "linear_conv": ("kernel_size", "stride", "padding", "circular"),
    "batch_norm": ("position", "rank", "normalisation"),
    "parallel": ("m1", "m2", "deeper", "rank", "factor"),
    "convolutional": ("kernel_size", "stride", "padding", "batch_norm", "pooling"),
}


class Problem(NamedTuple):
    """What a proof is about: the evidence, distinct samples and weights, M, A as (row of M for each patch, patches of a
    sample, pooling) or None, and G = A^T V.
    """

    e: Document
    X: Array
    w: Array
    M: Array
    A: Any
    G: Array
    near: Any = None  # other rows with the same activation patterns, for which angles are so many times as large

    @property
    def widths(self) -> list[int]:
        """Of the layers of a branch."""
        o = self.e["options"]
        return [o["m1"], o["m2"], *o["deeper"]] if self.e["architecture"] == "parallel" else []

    @property
    def family(self) -> str:
        """The kind of neurons: which proofs there are for it."""
        name, o = self.e["architecture"], self.e["options"]
        if self.e["bias"] == "free":
            return "kinked" if self.e["proof"]["kind"] == "kinks" else "free"
        if name.startswith("linear"):
            return "linear" if o.get("depth", 2) == 2 else "chained"
        return name if name == "parallel" else "normalised" if o.get("position") == "after" else "ordinary"


def rows_as_of(o: Document, count: Array) -> float:
    """What batch normalisation takes for the number of rows: one, if it divides by standard deviations."""
    normalisation = o.get("normalisation", "norm")
    need(normalisation in ("norm", "std"), "normalisation is by norms or by standard deviations")
    return float(count.sum()) if normalisation == "norm" else 1.0


def features(e: Document, X: Array, count: Array) -> tuple[Array, Array, Any, str]:
    """M, how far its rows may be from what neurons see, A and the restriction that a rank is."""
    name, o, bias, exact = e["architecture"], e["options"], e["bias"], np.zeros(len(X))
    need(name in OPTIONS, f"{UNKNOWN}does not know the architecture {name!r}")
    o = {"normalisation": "norm", **o} if name == "batch_norm" else o  # files from before say nothing about it
    need(set(o) == set(OPTIONS[name]), f"{name} has other options")
    need(bias == "free" or type(bias) is type(e["fit_intercept"]) is bool, "biases and an intercept are there or not")
    if bias == "free":
        need(e["fit_intercept"] is True and name == "two_layer" and X.ndim == 2, "free biases go with an intercept")
        if e["proof"]["kind"] != "kinks":  # networks do not see where the rows are
            rows = X - X.mean(axis=0)
            return np.column_stack([rows, np.full(len(X), np.linalg.norm(rows, axis=1).max() or 1.0)]), exact, None, ""
        x, away = on_a_line(X)
        return (x - 0.5 * (x.min() + x.max()))[:, None], away, None, ""
    if name.startswith("linear"):
        need(name == "linear_conv" or counts([o["depth"]], 2), "linear networks have two layers or more")
        need(bias is False, "linear networks have no hidden biases")
        return X.reshape(len(X), -1), exact, None, ""
    if name == "convolutional":
        need(type(o["batch_norm"]) is bool and o["pooling"] in ("sum", "average", "flatten", None), "no such pooling")
        rows, K = patches(X, o)
        rows = np.ascontiguousarray(rows + 0.0)
        keys = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()
        _, first, which = np.unique(keys, return_index=True, return_inverse=True)
        if len(first) == len(rows):
            first = which = np.arange(len(rows))
        M, away = with_ones(rows[first], bias), np.zeros(len(first))
        if o["batch_norm"]:
            M, away, *_ = white(rows[first], np.bincount(which, np.repeat(count, K), len(first)), None)
        return M, away, (which, K, o["pooling"]), ""
    need(X.ndim == 2, f"X must be a table for {name}")
    if name == "two_layer":
        return with_ones(X, bias), exact, None, ""
    if name == "parallel":
        widths, restriction = (o["m1"], o["m2"], *o["deeper"]), ""
        need(counts(widths) and (o["rank"] is None or counts([o["rank"]])), "widths and ranks must be counts")
        need(number(o["factor"], "factor") >= 1, "what a rank may cost is a factor of at least one")
        if o["rank"] is not None:
            _, sigma, Vt = np.linalg.svd(X, full_matrices=False)
            full = int((sigma > sigma.max(initial=0.0) * max(X.shape) * 2 * U).sum())
            rank = max(1, min(o["rank"], full))
            X, restriction = X @ Vt[:rank].T, f"rank {rank}" if rank < full else ""
        M = math.sqrt(widths[-1]) * with_ones(X, bias)
        return M, (64 + 2 * len(X.T)) * U * np.linalg.norm(M, axis=1) * (o["rank"] is not None), None, restriction
    need(o["position"] in ("before", "after"), "normalisation is before or after the ReLU")
    M, away, dropped, V = white(X, count, o["rank"])
    stretch = math.sqrt(count.sum() / rows_as_of(o, count))
    M, away = stretch * M, stretch * away
    restriction = f"rank {V.shape[1]}" if dropped else ""
    if o["position"] == "after":
        restriction = restriction if o["rank"] is not None else ""
        M = np.column_stack([relu_inputs(X if o["rank"] is None else X @ V, bias), M[:, -1]])
        away = (64 + 2 * len(X.T)) * U * np.linalg.norm(M, axis=1)
    return M, away, None, restriction


def spread(A: Any, V: Array, N: int) -> Array:
    """A^T V: the dual point as the rows of M see it, (N, C), or (N, K C) with output weights at every position."""
    if A is None:
        return V
    which, K, pooling = A
    flat = pooling == "flatten"
    G = np.zeros((N, K, V.shape[1]) if flat else (N, V.shape[1]))
    where = (which, np.tile(np.arange(K), len(V))) if flat else which
    np.add.at(G, where, V if pooling is None else np.repeat(V, K, axis=0))
    return G.reshape(N, -1) / (K if pooling == "average" else 1)


# ---- proofs: g >= max ||G^T (M u)_+|| over ||u|| <= 1 (what is at most ``enough`` need not be known better) ----------


def total(M: Array, G: Array) -> float:
    """sum_i ||g_i|| ||m_i||, what errors are relative to."""
    return float(np.linalg.norm(G, axis=1) @ np.linalg.norm(M, axis=1))


def top_eigenvalue(Q: Array, error: float) -> float:
    """An upper bound on the largest eigenvalue of a symmetric matrix that is known up to ``error``.

    If the Cholesky factorisation of a p x p matrix A runs to its end, no eigenvalue of A is below -(p + 2) U trace(A)
    (Rump, 2006).
    """
    p, guess = len(Q), float(np.linalg.eigvalsh(Q)[-1])
    margin = 4 * (p + 2) * U * p * (abs(guess) + float(np.abs(Q).max())) + error + 1e-290
    np.linalg.cholesky((guess + margin) * np.eye(p) - Q)  # raises an error if it does not
    return guess + 2 * margin


def norm_of(B: Array) -> float:
    """An upper bound on the spectral norm: the root of the top eigenvalue of B^T B (or B B^T)."""
    if not B.any():
        return 0.0
    gram = B.T @ B if B.shape[0] >= B.shape[1] else B @ B.T
    return math.sqrt(max(top_eigenvalue(gram, (max(B.shape) + 4) * U * float(np.trace(gram))), 0.0))


def by_norms(p: Problem, enough: float) -> float:
    """(||G^T M|| + ||D^-1 G|| ||D M||) / 2, as (t)_+ = (t + |t|) / 2; D^2 = ||g_i|| / ||m_i||. Branches add leaves."""
    g, m = np.linalg.norm(p.G, axis=1), np.linalg.norm(p.M, axis=1)
    used = (g > 0) & (m > 0)
    G, M, D = p.G[used], p.M[used], np.sqrt(g[used] / m[used])[:, None]
    limit = 0.5 * (norm_of(G.T @ M) + norm_of(G / D) * norm_of(D * M)) + (sum(p.M.shape) + 16) * U * total(p.M, p.G)
    return math.sqrt(math.prod(p.widths[:-1])) * limit


def by_normalised_norms(p: Problem, enough: float) -> float:
    """k ||diag(w)^-1/2 G||: neurons h that are normalised after the ReLU have h^T diag(w) h <= k^2."""
    scaled = p.G / np.sqrt(p.w)[:, None]
    return float(p.M[0, -1]) * (norm_of(scaled) + (sum(p.G.shape) + 8) * 4 * U * float(np.linalg.norm(scaled)))


def by_positive(p: Problem, enough: float) -> float:
    """Neurons h = (M u)_+ are not negative, and sum_i w_i h_i^2 <= k^2 = ||diag(sqrt w) M||^2, at most a row sum of the
    Gram matrix: ||G^T h|| <= k max sqrt(sum_i (+-g_ic)_+^2 / w_i) over columns c and signs, if no row has two entries.
    """
    need(p.A is None or (p.A[2] is None and len(p.M) == len(p.w)), "rows are pooled")
    need(np.count_nonzero(p.G, axis=1).max(initial=0) <= 1, "rows have several outputs")
    B, W = np.sqrt(p.w)[:, None] * p.M, p.w[:, None]
    B = B if B.shape[0] <= B.shape[1] else B.T
    size = np.linalg.norm(B, axis=1)
    square = float(np.abs(B @ B.T).sum(axis=1).max()) + (B.shape[1] + 8) * 2 * U * float(size.max() * size.sum())
    sums = max(float((np.maximum(sign * p.G, 0.0) ** 2 / W).sum(axis=0).max()) for sign in (1.0, -1.0))
    return math.sqrt(square * sums) * (1 + (len(B) + len(W) + 16) * 2 * U)


def by_kinks(p: Problem, enough: float) -> float:
    """Free biases on a line: || sum_i v_i (x_i - t)_+ || and || sum_i v_i (t - x_i)_+ || are convex in t between the
    data, constant or zero beyond them (V sums to zero): largest at data points.
    """
    order = np.argsort(p.M[:, 0], kind="stable")
    x, V, worst = p.M[order, 0], p.G[order], 0.0
    long, gaps = V.astype(np.longdouble), np.diff(x).astype(np.longdouble)[:, None]
    for v, gap in ((long, gaps), (long[::-1], gaps[::-1])):
        sums = np.cumsum(gap * np.cumsum(v, axis=0)[:-1], axis=0)
        worst = max(worst, float(np.sqrt((sums**2).sum(axis=1)).max(initial=0.0)))
    size, tiny = np.linalg.norm(V, axis=1), float(np.finfo(np.longdouble).eps)
    left = math.hypot(*(math.fsum(column) for column in V.T))
    return worst + ((4 * len(V) * tiny + 16 * U) * size.sum() + left) * float(x[-1] - x[0])


def by_linear(p: Problem, enough: float) -> float:
    """||M^T G||; of filters, the map M^T G as every patch sees it. V sums to zero, if there is an intercept."""
    M = p.M - p.w @ p.M if p.e["fit_intercept"] else p.M
    B, K = M.T @ p.G, 1
    if p.e["architecture"] == "linear_conv":
        B, K = patches(B.T.reshape(-1, *p.X.shape[1:]), p.e["options"])
        B = B.reshape(p.G.shape[1] * K, -1)
    return norm_of(B) + math.sqrt(K) * (len(M) + 16) * 2 * U * total(M, p.G)


def by_chains(p: Problem, loss: Document, Y: Array, beta: float) -> float:
    """A lower bound for linear networks of L > 2 layers: min over t of max_k (D(V_k) - ||M^T V_k|| t) + c t^(2 / L).

    The loss of a map W is at least each of these lines at t = ||W||_*, its layers cost at least c t^(2 / L) with
    c = beta L / 2. Between two points a line and a concave function are least at one of them, wherever these are;
    beyond ``end`` the penalty is more than the loss of zero. V_k are multiples of the residuals of maps.
    """
    L, proof, w, centred, lines = p.e["options"]["depth"], p.e["proof"], p.w, p.e["fit_intercept"], []
    scales = array(proof["scales"], "scales", None)
    maps = array(proof["maps"], "maps", len(scales), p.M.shape[1], Y.shape[1])
    need(loss["name"] == "squared", f"{UNKNOWN}knows chains of the squared loss only")
    need(0 < len(scales) <= MOST_LINES and scales.min() >= 0, "there are too many lines, or negative ones")
    for W, scale in zip(maps, scales, strict=True):
        R = Y - p.M @ W
        V, rho, moved = into_domain(loss, w[:, None] * (R - w @ R if centred else R), Y, w, centred)
        off = float((moved + 3 * U * np.linalg.norm(V, axis=1)) @ np.linalg.norm(p.M, axis=1)) + TINY
        value, lost = dual_value(loss, scale * V, Y, w, max(scale, 1.0) * rho)
        lines.append((value - lost, scale * (by_linear(p._replace(G=V), 0.0) + off) * (1 + 8 * U)))
    (values, slopes), cost = np.array(lines).T[:, :, None], 0.5 * L * beta
    zero = 0.5 * float(w @ ((Y - (w @ Y if centred else 0.0)) ** 2).sum(axis=1))
    end = (zero / cost) ** (L / 2) * (1 + 128 * L * U)
    need(math.isfinite(end), "the penalty is lost beside the loss")
    meet = ((values - values.T) / (slopes - slopes.T)).ravel()
    t = np.unique([0.0, end, *meet[(meet > 0) & (meet < end)]])
    at = values - slopes * t + cost * t ** (2 / L) - 32 * U * (np.abs(values) + slopes * t + cost * t ** (2 / L))
    pieces = np.minimum(at[:, :-1], at[:, 1:]).max(axis=0)
    return max(0.0, min(float(pieces.min(initial=math.inf)), zero * (1 - 8 * (len(Y) + 8) * U)))


# ---- proofs by activation patterns -----------------------------------------------------------------------------------


def reduced(M: Array, G: Array) -> tuple[Array, Array, float]:
    """Equal rows taken together and rows without weight left out, along the r principal axes of their row space: rows
    X (N, r), weights, and what is lost.
    """
    rows, which, often = np.unique(M, axis=0, return_inverse=True, return_counts=True)
    weight = np.zeros((len(rows), G.shape[1]))
    np.add.at(weight, which.ravel(), G)
    added = (often.max(initial=1) - 1) * 2 * U * total(M, G)
    used = rows.any(axis=1) & weight.any(axis=1)
    M, G = rows[used], weight[used]
    _, s, Vt = np.linalg.svd(M, full_matrices=False)
    r = int((s > s[:1].sum() * max(M.shape) * 2 * U).sum())
    X = M @ Vt[:r].T
    return X, G, total(M - X @ Vt[:r], G) + 16 * (r + 4) * U * total(M, G) + added


def cells(N: Array) -> Array:
    """All sign patterns of rows N (m, r): every cell has a facet, and the facets on the hyperplane of row k are the
    cells of the other rows within it. Rows that are nothing have no sign of their own there.
    """
    m, r = N.shape
    if r == 1:
        N, r = np.column_stack([N, np.zeros(m)]), 2
    found, size = [], np.linalg.norm(N, axis=1)
    live = np.flatnonzero(size > PARALLEL)
    if not len(live):
        return np.ones((1, m), dtype=bool)
    if r == 2:  # these hyperplanes are lines: all of them at once
        N = N / np.maximum(size, PARALLEL)[:, None]
        along, same = (N[live, ::-1] * [-1, 1]) @ N.T, N[live] @ N.T > 0
        for side, way in product((True, False), repeat=2):
            signs = np.where(np.abs(along) <= PARALLEL, same == side, (along > 0) == way)
            found.append(np.packbits(signs, axis=1))
    for k in live if r > 2 else ():
        R = N @ np.linalg.svd(N[k][None])[2][1:].T
        flat = np.linalg.norm(R, axis=1) <= PARALLEL  # row k and its parallels
        signs = cells(R)
        for side in (True, False):
            signs[:, flat] = (N[flat] @ N[k] > 0) == side
            found.append(np.packbits(signs, axis=1))
    rows = np.unique(np.concatenate(found), axis=0)
    need(len(rows) <= MOST_CELLS, "too long: there are too many activation patterns")
    return np.unpackbits(rows, axis=1, count=m).astype(bool)


def all_patterns(X: Array) -> Array:
    """The activation patterns of rows X, none of them zero, (P, N)."""
    need(len(X) ** max(X.shape[1] - 2, 0) <= MOST_PLANES, "too long: the activation patterns are too many to list")
    need(len(X) ** 2 <= 4 * MOST_ENTRIES, "too long: the activation patterns have too many rows")
    return cells(X / np.linalg.norm(X, axis=1)[:, None])


def into_cone(c: Array, normals: Array, enough: float) -> tuple[float, Array]:
    """An upper bound on max c^T u over ||u|| <= 1, normals u >= 0: ||c + normals^T lam||, whatever lam >= 0; and lam.

    lam is that of the nearest point of the cone, by the active sets of Lawson and Hanson; normals have length one.
    """
    size, best = float(np.linalg.norm(c)), 1.0
    c, lam, on = c / max(size, 1e-300), np.zeros(len(normals)), np.zeros(len(normals), dtype=bool)
    for _ in range(10 * len(c) + 20):
        q = c + lam @ normals
        best = min(best, float(np.linalg.norm(q)) + (on.sum() + len(c) + 8) * U * (1.0 + lam.sum()))
        inside = np.where(on, np.inf, normals @ q)
        if inside.min(initial=0.0) >= -1e-14 or size * best <= enough:
            break
        on[np.argmin(inside)] = True
        while True:
            new = np.zeros(len(lam))
            new[on] = np.linalg.lstsq(normals[on].T, -c, rcond=None)[0]
            bad = on & (new <= 0)
            if not bad.any():
                break
            step = np.where(bad, lam / np.maximum(lam - new, 1e-300), np.inf)  # how far until one is zero
            lam, on[np.argmin(step)] = np.maximum(lam + step.min() * (new - lam), 0.0), False
            lam[~on] = 0.0
        lam = new
    return size * best, size * lam


def cone_of(X: Array, levels: Any, b: int) -> Array:
    """Unit normals of the cone on which all nodes of branch b are as active as they are."""
    rows = []
    for now, level in levels:
        size, T = level.shape[2], now.shape[2]
        side = now[b] * np.repeat(np.where(level[b], 1.0, -1.0), T // size, axis=1)
        own = np.repeat(np.eye(size), T // size, axis=1)
        rows.append((side[:, None, :, None] * own[:, :, None] * X[:, None, None, :]).reshape(len(X) * size, -1))
    N = np.concatenate(rows)
    return N / np.maximum(np.linalg.norm(N, axis=1, keepdims=True), 1e-300)


def chunks(masks: Array, signs: Any) -> Iterable[tuple[Array, Any]]:
    """Cells, not too many at once."""
    for k in range(0, len(masks), step := max(1, 2_000_000 // math.prod(masks.shape[1:]))):
        yield masks[k : k + step], None if signs is None else signs[k : k + step]


def over_cells(
    X: Array, G: Array, given: Any, widths: list[int], how: str, enough: float, ways: Any = (1.0, -1.0)
) -> float:
    """The largest value of branches whose nodes are active as masks (B, n, nodes) say, with these signs (B, edges).

    A branch is a tree of ReLU neurons: T leaves on the data, nodes that add what their children compute, each with a
    sign, up to the root; a neuron is a tree of one. With all activities fixed it computes sum_t gate_t X w_t,
    ||W||_F <= 1, on the cone where the activities are such: that is a pattern in T r coordinates, with a matrix C of
    outputs. Its value is bounded by Frobenius' norm ("gates"), by the spectral norm, or along ``columns``, on the cone.
    """
    T, best = math.prod(widths), 0.0
    for masks, signs in given:
        now, levels, start, size = np.ones((*masks.shape[:2], T)), [], 0, T  # how the leaves enter the nodes of a level
        for m in (*widths, 1):
            level = masks[:, :, start : start + size]
            levels.append((now, level))
            step = level * signs[:, None, start : start + size] if start + size < masks.shape[2] else level
            now = now * np.repeat(step, T // size, axis=2)
            start, size = start + size, size // m
        C = np.einsum("nc,bnt,nr->bctr", G, now, X, optimize=True).reshape(len(masks), G.shape[1], -1)
        sizes = np.linalg.norm(C, axis=2 if how == "columns" else (1, 2)).reshape(len(masks), -1)
        for b, c in zip(*np.unravel_index(np.argsort(-sizes, axis=None, kind="stable"), sizes.shape), strict=True):
            goal, value = max(best, enough), float(sizes[b, c])
            if value <= goal:  # so are all that follow
                best = max(best, value)
                break
            if how == "columns":
                N = cone_of(X, levels, b)
                value = max(into_cone(way * C[b, c], N, goal)[0] for way in ways)
            best = max(best, norm_of(C[b]) if how == "spectral" else value)
    return best


def all_branches(X: Array, m1: int) -> Iterable[tuple[Array, Array]]:
    """Masks and signs of branches of three layers, for all multisets of m1 leaves, (pattern, sign).

    Only rows that leaves of both signs reach leave the root a choice.
    """
    first = all_patterns(X)
    first = first[first.any(axis=1)]  # a leaf that is nowhere active does nothing
    kinds = [(a, s) for s in (1.0, -1.0) for a in first]
    need(math.comb(len(kinds) + m1 - 1, m1) <= MOST_SETS, "too long: branches have too many activation patterns")
    for chosen in combinations_with_replacement(kinds, m1):
        leaves, signs = np.array([a for a, _ in chosen]).T, np.array([s for _, s in chosen])
        plus: Array = leaves[:, signs > 0].any(axis=1)
        mixed: Array = leaves[:, signs < 0].any(axis=1) & plus
        k = int(mixed.sum())
        if not plus.any():
            continue  # the root is nowhere active
        if k <= m1 * X.shape[1]:
            choices = np.array(list(product([True, False], repeat=k)), dtype=bool).reshape(2**k, k)
        else:
            choices = all_patterns(((signs * leaves)[mixed][:, :, None] * X[mixed][:, None, :]).reshape(k, -1))
        root = np.repeat(plus[None], len(choices), axis=0)
        root[:, mixed] = choices
        masks = np.concatenate([np.repeat(leaves[None], len(choices), axis=0), root[:, :, None]], axis=2)
        yield masks, np.repeat(signs[None], len(choices), axis=0)


def in_file(p: Problem) -> Any:
    """Masks (P, n, nodes) and signs (P, edges) of the cells that are in the file, if the proof is about those only."""
    proof, edges = p.e["proof"], 0
    if proof["kind"] == "layers" and "masks" in proof:
        masks, signs = bits(proof["masks"]), np.where(bits(proof["signs"]), 1.0, -1.0)
        need(proof["widths"] == p.widths[:-1] and len(masks) == len(signs), "other branches")
        edges = signs.shape[1]
    elif proof["kind"] in ("gates", "sampled") or (proof["kind"] == "shared" and proof["active"] is not None):
        masks, signs = bits(proof["active"]), None
        need(p.A is None or p.A[2] != "flatten" or p.A[1] == 1, "patterns know no output weights at every position")
    else:
        return None
    need(masks.shape[1] == len(p.M) * (edges + 1), "the patterns are of another number of rows")
    return masks.reshape(len(masks), len(p.M), edges + 1), signs


def by_cells(p: Problem, enough: float) -> float:
    """max ||M^T D_i g + M^T (2 D_i - I) lambda||, lambda >= 0, for each output, over all sets of active rows D_i or
    those in the file; of branches in the coordinates of all leaves.

    "spectral" ones are max ||G^T D_i M||, and "gates", which need no cone, the same with Frobenius' norm. "shared" is
    the smaller one of spectral norms and what the values for directions of the outputs show, one after the other;
    branches of two outputs have such directions, too.
    """
    kind, C, leaves, listed, best = p.e["proof"]["kind"], p.G.shape[1], p.widths[:-1], in_file(p), math.inf
    T, X, G, lost, apart = math.prod(leaves), p.M, p.G, 0.0, 0.0
    if listed is None:
        need(C == 1 or kind in ("spectral", "shared", "layers"), "patterns bound one output")
        need(len(leaves) <= 1, "the cells of branches of more than three layers must be in the file")
        X, G, lost = reduced(X, G)
        other, angle = (X, 1.0) if p.near is None else (reduced(p.near[0], p.G)[0], p.near[1])
        need(other.shape == X.shape, "the rows at this price are lost in rounding")
        apart = PARALLEL * angle * (1 + T * X.shape[1]) * max(1, 2 * len(leaves))  # hyperplanes that are taken for one
    r, size = X.shape[1], total(X, G)
    off = (len(X) + (16 if leaves else C) * T * r + C + 64) * U * size * math.sqrt(T)  # sum_t ||w_t|| <= sqrt(T)
    lost = math.sqrt(T) * (lost + apart * size * (1 + RTOL)) + off
    if not len(X):
        return lost
    masks, signs = listed or (None if leaves else all_patterns(other)[:, :, None], None)

    def value(H: Array, how: str, goal: float, ways: Any = (1.0, -1.0)) -> float:
        given = all_branches(X, T) if masks is None else chunks(masks, signs)
        return over_cells(X, H, given, leaves, how, goal, ways)

    if kind == "shared":
        near = over_outputs(p.e["proof"], C, lambda k, a: value((G @ a)[:, None], "columns", 0.0, (1.0,)) + 2 * off)
        return min(near, value(G, "spectral", 0.0)) + lost
    if kind != "layers" or listed is not None or C == 1:
        how = kind if kind in ("gates", "spectral") else "columns"
        return value(G, how, enough - lost) + lost
    best = value(G, "spectral", enough - lost) + lost
    if C == 2 and best > enough:  # every direction of the outputs is near one of these
        angles, cosine = np.arange(HEADS) * np.pi / HEADS, math.cos(0.5 * np.pi / HEADS)
        turned = value(G @ np.stack([np.cos(angles), np.sin(angles)]), "columns", (enough - lost) * cosine)
        best = min(best, turned / cosine + lost)
    return best


def nearly_dependent(X: Array) -> bool:
    """Whether rows are dependent within the tolerance of an enumeration but not exactly, or too many to know."""
    X = X[X.any(axis=1)]
    units, tol = X / np.linalg.norm(X, axis=1)[:, None], 2 * PARALLEL * math.sqrt(len(X))
    rank, known = exact_rank(X), list[set[int]]()
    if (np.linalg.svd(units, compute_uv=False) > tol).sum() != rank:
        return True
    for size in range(2, rank + 1):
        if math.comb(len(X), size) > MOST_SETS:
            return True
        sets = np.array(list(combinations(range(len(X)), size)))
        for rows in map(set, sets[np.linalg.svd(units[sets], compute_uv=False)[:, -1] <= tol].tolist()):
            if not any(smaller <= rows for smaller in known):  # those are dependent as it is
                if exact_rank(X[sorted(rows)]) == size:
                    return True
                known.append(rows)
    return False


def white_patterns(p: Problem) -> Iterable[tuple[Array, Array, float, Array, Array]]:
    """Of every pattern D (in the file, or all) of neurons that are normalised after the ReLU: who is active, the
    weights of rows in the coordinates s, what rounding does to these, relative, the normals of the cone, and its rows.

    With the SVD diag(sqrt w) (I - 1 w^T) D R = Q S E^T and s = S E^T q neurons k (gamma (z - mean) / deviation + a),
    z = (R q)_+, have the value k (v^T diag(w)^-1/2 Q s / ||s||) gamma + k sum(v) a, gamma^2 + a^2 <= 1, on the cone
    (2 D - I) R q >= 0. Directions q that the SVD does not see cost nothing.
    """
    listed, given, root = in_file(p), p.M[:, :-1], np.sqrt(p.w)
    _, sigma, axes = np.linalg.svd(given, full_matrices=False)
    rank = int((sigma > NULL * sigma[0]).sum())
    need(rank == exact_rank(given), "rounding may hide directions of the rows")
    R = given if rank == given.shape[1] else given @ axes[:rank].T
    if listed is not None:
        active = listed[0][:, :, 0]
    else:
        need(not nearly_dependent(given), "rows are nearly dependent: rounding may hide activation patterns")
        live = given.any(axis=1)
        inner = all_patterns(R[live])
        active = np.zeros((len(inner), len(R)), dtype=bool)
        active[:, live] = inner
    for a in active:
        T = root[:, None] * a[:, None] * R
        Q, s, Et = np.linalg.svd(T - np.outer(root, root @ T), full_matrices=False)
        r = int((s > NULL * np.linalg.norm(root[:, None] * R)).sum())
        if r < min(a.sum() - a.all(), R.shape[1]):
            exact = exact_rank(with_ones(given, True)) - 1 if a.all() else exact_rank(given[a])
            need(r == exact, "rounding may hide a direction of an activation pattern")
        if r == 0:
            continue
        N = np.where(a, 1.0, -1.0)[:, None] * (R @ (Et.T / np.where(np.arange(len(s)) < r, s, 1.0)))
        N /= np.maximum(np.linalg.norm(N, axis=1), 1e-300)[:, None]
        yield a, (Q[:, :r] / root[:, None]).T, 4 * (len(R) + R.shape[1]) * U * s[0] / s[r - 1], N, given


def by_normalised(p: Problem, enough: float) -> float:
    """The largest value over these patterns, for one output; "shared" is the smaller one of spectral norms, without the
    cones, and what the values for directions of the outputs show.
    """
    k, C, patterns = float(p.M[0, -1]), p.G.shape[1], white_patterns(p)

    def value(G: Array, goal: float, ways: Any = (1.0, -1.0)) -> float:
        size, sums = k * math.sqrt(((G**2).sum(axis=1) / p.w).sum()), k * np.array([math.fsum(g) for g in G.T])
        shift = worst = float(np.linalg.norm(sums)) * (1 + 8 * U)
        for a, T, off, N, rows in patterns:
            B, slack = k * (T @ G), off * size
            if G.shape[1] > 1:
                worst = max(worst, norm_of(np.vstack([B, sums])) + slack)
                continue
            within, best = math.sqrt(max(max(goal - slack, 0.0) ** 2 - shift**2, 0.0)), float(np.linalg.norm(B))
            if best > within:
                best = max(in_free_cone(way * B[:, 0], N, rows, a, off, within) for way in ways)
            worst = max(worst, math.hypot(best, shift) + slack)
        return worst

    if p.e["proof"]["kind"] != "shared":
        need(C == 1, "normalised neurons that feed one output each are proven for one output only")
        return value(p.G, enough)
    most = int(MOST_ENTRIES / p.M.size)
    patterns = list(islice(patterns, most + 1))
    need(len(patterns) <= most, "too long: there are too many activation patterns of several outputs")
    off = (C + 8) * 2 * U * k * math.sqrt(((p.G**2).sum(axis=1) / p.w).sum())  # of the weights G a
    near = over_outputs(p.e["proof"], C, lambda _, a: value((p.G @ a)[:, None], 0.0, (1.0,)) + off)
    return min(near, value(p.G, 0.0))


def in_free_cone(c: Array, N: Array, R: Array, a: Array, off: float, enough: float) -> float:
    """``into_cone`` where the coordinates after those of c are free: sum_i lam_i n_i must vanish there.

    Rows that see them serve if their rank is exact, and a change of lam that is smaller than lam repairs the sum.
    """
    r, sees = len(c), (np.abs(N[:, len(c) :]) > NULL).any(axis=1) & (~a | a.all())
    if (~sees & ~a).any() and r < N.shape[1]:
        need(exact_rank(R[~sees]) == r, "rows are nearly dependent: rounding may hide what they see")
    value, lam = into_cone(c, N[~sees, :r], enough)
    value += off * (np.linalg.norm(c) + lam.sum())
    if value <= enough or not sees.any() or a.all():
        return value
    weighted = np.column_stack([N[:, :r], 1e5 * np.where(sees[:, None], N[:, r:], 0.0)])
    lam = into_cone(np.append(c, np.zeros(N.shape[1] - r)), weighted, 0.0)[1]
    used, seen = lam > 0, (lam > 0) & sees
    free = N[seen, r:]
    for _ in range(2):
        lam[seen] -= np.linalg.lstsq(free.T, free.T @ lam[seen], rcond=1e-9)[0]
    sigma = np.linalg.svd(free, compute_uv=False)
    rank = int((sigma > 1e-9).sum())
    if not rank or lam[used].min() <= 0 or exact_rank(R[~sees | seen]) != r + rank:
        return value
    rest = float(np.linalg.norm(free.T @ lam[seen])) + off * lam.sum()
    change = rest / max(sigma[rank - 1] - off * math.sqrt(len(free)), 1e-300)
    if change >= lam[seen].min():
        return value
    own = float(np.linalg.norm(c + lam @ N[:, :r])) + math.sqrt(len(free)) * change
    return min(value, own + off * (np.linalg.norm(c) + lam.sum()))


# ---- proofs by cones and by relaxation -------------------------------------------------------------------------------


def conic(K: Array, h: Array) -> Array:
    """Upper bounds on max h^T a over a >= 0, a^T K a <= 1, for many cones: K (B, d, d) with K >= 0, h (B, d).

    For every a >= 0, raised by e = (h - K a)_+, sqrt((a + e)^T K (a + e)) is one: w_k^T q >= h_k for q = sum a_k w_k.
    a is tried on every support.
    """
    d, best = h.shape[1], np.full(len(h), np.inf)
    for support in (list(s) for size in range(d + 1) for s in combinations(range(d), size)):
        a = np.zeros_like(h)
        if support:
            part = K[:, support][:, :, support] + 1e-15 * np.eye(len(support))
            a[:, support] = np.maximum(np.linalg.solve(part, h[:, support, None])[..., 0], 0.0)
        a += np.maximum(h - np.einsum("bij,bj->bi", K, a), 0.0)
        best = np.fmin(best, np.sqrt(np.maximum(np.einsum("bi,bij,bj->b", a, K, a), 0.0)))
    return best * (1.0 + 2 * d**1.5 * (5 * d + 30) * U)


def cone_bounds(X: Array, G: Array, W: Array, K: Array) -> tuple[Array, Array]:
    """Bounds of ||G^T (X u)_+|| (one output: of G^T (X u)_+) over the cones of the generators W (B, d, d), and where
    rows change sign.

    Rows of positive weight are below their chords, the others above theta t for any theta in [0, 1].
    """
    T, size = W @ X.T, np.linalg.norm(G, axis=1)
    up, down = np.maximum(T, 0.0), np.maximum(-T, 0.0)
    theta = up.sum(axis=1) / np.maximum(up.sum(axis=1) + down.sum(axis=1), 1e-300)
    if G.shape[1] == 1:
        rising, falling = np.maximum(G[:, 0], 0.0), np.minimum(G[:, 0], 0.0)
        bound = conic(K, up @ rising + np.einsum("bkn,bn->bk", T, theta * falling))
    else:
        linear = np.einsum("bn,nc,nd->bcd", theta, G, X, optimize=True)
        rest = np.maximum((1 - theta)[:, None] * T, -theta[:, None] * T) @ size
        corners = np.linalg.norm(np.einsum("bkd,bcd->bkc", W, linear), axis=2)
        spectral = np.linalg.norm(linear, 2, axis=(1, 2)) * (1 + 40 * X.shape[1] * (sum(linear.shape[1:]) + 8) * U)
        bound = np.minimum(conic(K, corners + rest), spectral + conic(K, rest))
    change, wide = np.einsum("bkn,bln->bkl", up * size, down), np.maximum(1.0 - K, 0.0)
    change = (change + change.swapaxes(1, 2)) * wide
    # where no row changes sign one output is linear, several have a norm that is still convex
    return bound, np.where((G.shape[1] > 1) & (change.max(axis=(1, 2), keepdims=True) == 0), wide, change)


def by_cones(p: Problem, enough: float) -> float:
    """No cone of directions has a larger value than ``limit``: halved until that is seen, from the orthants."""
    X, G, lost = reduced(p.M, p.G)
    N, r = X.shape
    if not N:
        return lost
    need(r <= 6, f"too long: cones in {r} dimensions")
    # heights at generators are sums of N + 3 r + C products, a halving moves a cone by 5 U
    slack = (6 * math.sqrt(r) * (N + 3 * r + G.shape[1] + 16) + 10 * DEEPEST) * U * total(X, G) * (1 + RTOL)
    orthants = np.array(list(product([1.0, -1.0], repeat=r)))[:, :, None] * np.eye(r)
    limit, looked = max(number(p.e["proof"]["limit"], "limit"), lost), 0  # below, rounding is all there is
    goal = min(max(limit * (1 + 0.5 * RTOL), enough - lost - slack), limit * (1 + 1e-6))
    for weight in (G, -G) if G.shape[1] == 1 else (G,):
        waiting = [(orthants, 0)]
        while waiting:
            W, depth = waiting.pop()
            if len(W) > 2048:
                waiting.append((W[2048:], depth))
                W = W[:2048]
            looked += len(W)
            need(looked <= MOST_CONES and depth <= DEEPEST, f"too long: more than {MOST_CONES} cones")
            K = W @ W.swapaxes(1, 2)
            bound, change = cone_bounds(X, weight, W, K)
            W, change = W[bound > goal], change[bound > goal].reshape(-1, r * r)
            if not len(W):
                continue
            need((change.max(axis=1) > 0).all(), "a cone of directions has a larger value than the proof says")
            (i, j), b = np.unravel_index(change.argmax(axis=1), (r, r)), np.arange(len(W))
            middle = W[b, i] + W[b, j]
            middle /= np.linalg.norm(middle, axis=1, keepdims=True)
            reached = np.linalg.norm(np.maximum(middle @ X.T, 0.0) @ weight, axis=1)
            need((reached <= goal * (1 + RTOL)).all(), "a neuron has a larger value than the proof says")
            one, two = W.copy(), W.copy()
            one[b, i], two[b, j] = middle, middle
            waiting.append((np.concatenate([one, two]), depth + 1))
    return goal + slack + lost


def over_outputs(proof: Document, C: int, value: Callable[[int, Array], float]) -> float:
    """max g(a) over ||a|| <= 1 in C dimensions for a convex and positively homogeneous g: its values at the generators
    of cones bound it on them. The cones are the orthants of the axes in the file, whose edges are halved as it says; in
    many dimensions they are too many, and ||g|| <= ||g along axes B|| (1 - ||B B^T - I||)^(-1/2).
    """
    axes = array(proof["axes"], "axes", C, C)
    defect = float(np.abs(axes @ axes.T - np.eye(C)).max())
    need(defect < 1e-10, "the axes are not orthonormal")
    directions, cones = np.vstack([axes, -axes]), np.zeros((0, C), dtype=int)
    if C <= REFINED:
        cones = np.arange(C) + C * np.array(list(product([0, 1], repeat=C)))
    for i, j in proof["edges"]:  # halve an edge in all cones that have it
        has = (cones == i).any(axis=1) & (cones == j).any(axis=1)
        need(has.any() and i != j, "a cone of outputs is halved at an edge that it does not have")
        need(len(cones) <= MOST_SETS, "too long: there are too many cones of outputs")
        middle, old, new = directions[i] + directions[j], cones[has], len(directions)
        directions = np.vstack([directions, middle / np.linalg.norm(middle)])
        cones = np.vstack([cones[~has], np.where(old == i, new, old), np.where(old == j, new, old)])
    g = np.array([value(k, a) for k, a in enumerate(directions)])
    if C > REFINED:
        largest = np.maximum(g, 0.0).reshape(2, C).max(axis=0)
        return float(np.linalg.norm(largest)) * (1 + C * (defect + 4 * (C + 4) * U))
    W = directions[cones]
    return float(conic(W @ W.swapaxes(1, 2), g[cones]).max()) * (1 + 1e-12)


def leaf(X: Array, w: Array, signs: Array, fixed: list[int], x: Array) -> float:
    """The largest value of sum_i w_i (x_i^T u)_+ over the part of the unit ball where the rows ``fixed`` have known
    signs, bounded by a quadratic function with the multipliers x; unit rows X.

    |t| <= (s t^2 + 1/s) / 2 for rows of positive weight, |t| >= k t^2 + (p - m) t with k + p + m <= 1 for the others;
    a_f^T u (lam_f - y_f^T u) >= 0 with lam_f >= ||y_f||, and a_f^T u a_g^T u >= 0, for rows of known sign. Then
    b^T u + u^T Q u <= mu + z^T A z + ||b - 2 A z|| for A = mu I - Q positive semidefinite and any z.
    """
    p, F, known = X.shape[1], len(fixed), np.array(fixed, dtype=int)
    plus, minus = np.flatnonzero((signs == 0) & (w > 0)), np.flatnonzero((signs == 0) & (w < 0))
    sizes = [len(plus), 3 * len(minus), F, F * (F - 1) // 2, F * p]
    need(len(x) == sum(sizes) and np.isfinite(x).all(), "the multipliers are not those of this problem")
    log_s, logits, log_lam, log_pairs, y = np.split(np.clip(x.astype(float), -200, 200), np.cumsum(sizes[:-1]))
    s, shares, half = np.exp(log_s), np.exp(logits.reshape(-1, 3)), -0.5 * w[minus]
    shares /= shares.sum(axis=1, keepdims=True) * (1 + 16 * U)
    c = np.concatenate([0.25 * w[plus] * s, -half * shares[:, 0]])
    rows = X[np.concatenate([plus, minus])]
    Q = (rows.T * c) @ rows
    b = 0.5 * (w * (1.0 + signs)) @ X + (half * (shares[:, 2] - shares[:, 1])) @ X[minus]
    const = 0.25 * float((w[plus] / s).sum())
    cut, Y, pairs = signs[known, None] * X[known], y.reshape(F, p), np.zeros((F, F))
    lam = np.sqrt((Y**2).sum(axis=1) + np.exp(2 * log_lam)) * (1 + (p + 8) * U)
    pairs[np.tril_indices(F, -1)] = np.exp(log_pairs)
    b = b + lam @ cut
    Q = Q + cut.T @ (0.5 * (pairs + pairs.T)) @ cut - 0.5 * (cut.T @ Y + Y.T @ cut)
    Q = 0.5 * (Q + Q.T)
    # Q, b and const are sums of len(w) + F^2 + 2 p + 16 products, whose coefficients sum to size
    size = np.abs(c).sum() + half.sum() + const + np.abs(w).sum() + 2 * lam.sum() + pairs.sum()
    need(np.isfinite(size), "the multipliers overflow")
    error = (len(w) + F * F + 2 * p + 16) * U * float(size)
    values, vectors = np.linalg.eigh(Q)
    part, low = (0.5 * (vectors.T @ b)) ** 2, max(float(values[-1]), 0.0)
    high = low + math.sqrt(part.sum())
    for _ in range(100):  # the best mu is where the derivative of mu + b^T A^-1 b / 4 vanishes
        mu = 0.5 * (low + high)
        low, high = (mu, high) if (part / np.maximum(mu - values, 1e-150) ** 2).sum() > 1 else (low, mu)
    mu = max(high, 0.0, top_eigenvalue(Q, error))
    A = mu * np.eye(p) - Q
    z = 0.5 * np.linalg.solve(A, b)
    long, wide = float(np.linalg.norm(z)), float(np.linalg.norm(A))
    own = (4 * p + 16) * U * (float(np.linalg.norm(b)) + 2 * wide * long + wide * long**2)
    return float(const + mu + z @ A @ z + np.linalg.norm(b - 2 * A @ z)) + own + error * (1 + long) ** 2


def by_relaxation(p: Problem, enough: float) -> float:
    """A quadratic function above the constraint for each leaf of a tree of signs, for each direction of the outputs."""
    M, G, proof, (N, d), C = p.M, p.G, p.e["proof"], p.M.shape, p.G.shape[1]
    group, scale = array(proof["group"], "groups", N).astype(int), number(proof["scale"], "scale")
    need(scale > 0, "the scale of the multipliers is not positive")
    kept = group >= 0
    numbers, first = np.unique(group[kept], return_index=True)
    need(np.array_equal(numbers, np.arange(len(numbers))), "the groups of rows are not numbered")
    X, weight = M[kept][first], np.zeros((len(first), C))
    np.add.at(weight, group[kept], G[kept])
    left, load, lost = reduced(M[~kept], G[~kept])
    slack = total(left, load) + lost + total(M[kept] - X[group[kept]], G[kept]) + (N + 2 * d + C + 32) * U * total(M, G)
    length = np.linalg.norm(X, axis=1) * (1 + (d + 8) * U)
    need((length > 0).all(), "a row of zeros has multipliers")
    if not len(X):
        return slack
    trees = list(zip(proof["rows"], proof["sizes"], proof["multipliers"], strict=True))
    need(len(trees) == 2 * C + len(proof["edges"]), "there is not a tree for every direction of the outputs")

    def along(k: int, a: Array) -> float:
        rows, sizes, text = trees[k]
        packed = np.frombuffer(base64.b64decode(text), "<f4")
        need(sum(sizes) == len(packed) and min(sizes, default=-1) >= 0, "multipliers are missing")
        leaves, w, g = np.split(packed, np.cumsum(sizes)[:-1])[::-1], weight @ a * length / scale, 0.0
        if np.abs(w).sum() <= 1e-12 * np.abs(weight).sum() * length.max() / scale:
            return float(np.abs(w).sum())  # nothing but rounding
        waiting: list[tuple[Array, list[int]]] = [(np.zeros(len(X)), [])]
        for row in rows:
            signs, fixed = waiting.pop()
            if row < 0:
                g = max(g, leaf(X / length[:, None], w, signs, fixed, leaves.pop()))
                continue
            need(row < len(X) and signs[row] == 0, "a tree does not belong to these data")
            for sign in (-1.0, 1.0):
                waiting.append((np.where(np.arange(len(X)) == row, sign, signs), [*fixed, row][:CUTS]))
        need(not waiting and not leaves, "a tree is not complete")
        return g

    return scale * over_outputs(proof, C, along) + slack


#: The proofs for each family of neurons.
PROOFS: dict[str, dict[str, Callable[[Problem, float], float]]] = {
    "ordinary": {
        "norms": by_norms, "cones": by_cones, "relaxation": by_relaxation, "positive": by_positive,
        **dict.fromkeys(("patterns", "weighted_patterns", "spectral", "sampled", "shared", "gates"), by_cells),
    },
    "normalised": {
        "norms": by_normalised_norms, **dict.fromkeys(("normalised", "sampled", "shared"), by_normalised),
    },
    "parallel": {"norms": by_norms, "layers": by_cells},
    "linear": {"linear": by_linear},
    "chained": {"chains": by_linear},
    "kinked": {"kinks": by_kinks},
}  # fmt: skip


def radius(M: Array) -> float:
    """The longest row without the column of a free bias, not rounded down."""
    return float(np.linalg.norm(M[:, :-1], axis=1).max()) * (1 + (M.shape[1] + 4) * U)


def at_price(p: Problem) -> tuple[Problem, float]:
    """Free biases: ordinary neurons on [X, s 1], whose g is to be taken f = (1 + R^2 / s^2)^(1/2) times.

    As V sums to zero, neurons with a kink at a row are all that matter: |b| <= R ||u||. With the price s of a bias such
    a neuron has the length f ||u|| at most. Rows at a high price are nearly parallel: patterns are listed on M.
    """
    R, k, proof = radius(p.M), float(p.M[0, -1]), p.e["proof"]
    need(proof["kind"] in ("norms", "priced"), f"{UNKNOWN}knows no proof of the kind {proof['kind']!r} for free biases")
    s, inner = k, proof
    if proof["kind"] == "priced":
        s, inner = number(proof["price"], "price"), proof["inner"]
    need(s > 0 and inner["kind"] not in ("gates", "priced"), "no proof about neurons whose biases have a price")
    rows = np.column_stack([p.M[:, :-1], np.full(len(p.M), s)])
    near = (p.M, 2 * (R * (R / k) + k) / s) if inner["kind"] in ("patterns", "spectral") else None
    ordinary = p._replace(e={**p.e, "bias": True, "proof": inner}, M=rows, near=near)
    return ordinary, math.hypot(1.0, R / s) * (1 + 8 * U)


def constraint(p: Problem, enough: float) -> tuple[float, str]:
    """The bound g that the proof of the file shows, and the restriction of the networks for which it is one."""
    if p.family == "free":
        ordinary, factor = at_price(p)
        g, restricted = constraint(ordinary, enough / factor * (1 - 8 * U))
        return factor * g * (1 + 8 * U), restricted
    kind = p.e["proof"]["kind"]
    need(kind in PROOFS[p.family], f"{UNKNOWN}knows no proof of the kind {kind!r} for {p.e['architecture']}")
    g, several = PROOFS[p.family][kind](p, enough), p.G.shape[1] > 1 and kind != "shared"
    if in_file(p) is None:
        return g, ""
    return g, "gates" if kind == "gates" else "patterns, separate" if several else "patterns"


# ---- the network: its outputs and penalty, if it is of the kind that the claim is about ------------------------------


def branches(network: Document, e: Document, X: Array) -> tuple[Array, float]:
    """A parallel network whose neurons have no more inputs than the claim says, and its path regulariser."""
    weights, widths, o = network["weights"], network["widths"], e["options"]
    fans = (o["m1"], o["m2"], *o["deeper"])
    W = [np.array(weights[f"layer_{k}"], dtype=float).reshape(-1, *s) for k, s in enumerate(pairwise(widths), start=1)]
    b = weights["hidden_bias"]
    b = np.zeros((len(W[0]), widths[1])) if b is None else np.array(b, dtype=float).reshape(-1, widths[1])
    inputs = [int((layer != 0).sum(axis=1).max(initial=0)) for layer in W[1:-1]]
    need(len(W) == len(fans) + 1 and widths[0] == X.shape[1], "the model has other layers than the claim says")
    need(all(map(int.__le__, (*inputs, widths[-2]), fans)), "the model has wider branches than the claim says")
    need(e["bias"] or not b.any(), "the model has biases, the claim is about none")
    H, norms = np.einsum("nd,kdm->nkm", X, W[0]) + b, np.hypot(np.hypot.reduce(W[0], axis=1), b)
    for layer in W[1:]:
        H = np.einsum("nkm,kml->nkl", np.maximum(H, 0.0), layer)
        norms = np.hypot.reduce(norms[:, :, None] * layer, axis=1)
    return H.sum(axis=1), float(np.hypot.reduce(norms, axis=1).sum())


def layer_of(network: Document, kinds: Any, e: Document, rows: Array, count: Array, which: Any) -> tuple[Array, float]:
    """A layer on rows, without intercept."""
    kind, weights, gated = network["kind"], network["weights"], e["proof"]["kind"] == "gates"
    need(kind in kinds and gated == (kind == "gated"), f"the model is of the kind {kind!r}, the claim about another")

    def array_of(name: str, *shape: int) -> Array:
        given = weights.get(name)
        return np.array(np.zeros(np.abs(shape)) if given is None else given, dtype=float).reshape(shape)

    if kind == "deep":
        L, F, penalty = e["options"].get("depth", 2), rows.reshape(len(rows), -1), 0.0
        need(network["activation"] == "linear" and network["depth"] == L, f"the model is no linear one of {L} layers")
        need(weights.get("whitening") is None, "the model whitens its inputs")
        for k in range(1, L + 1):
            layer = array_of(f"layer_{k}", F.shape[1], network["n_outputs"] if k == L else -1)
            need(k == L or not array_of(f"bias_{k}", layer.shape[1]).any(), "the model has hidden biases")
            F, penalty = F @ layer, penalty + 0.5 * float((layer**2).sum())
        return F, penalty
    d, C = network["n_inputs"], network["n_outputs"]
    need(rows.shape[1:] == (d,), "the model takes other inputs than the data")
    if gated:
        gates, W = array_of("gate_weights", -1, d), array_of("linear_weights", -1, d, C)
        offset, b = array_of("gate_bias", len(W)), array_of("linear_bias", len(W), C)
        need(e["bias"] or not (b.any() or offset.any()), "the model has biases, the claim is about none")
        t = rows @ gates.T + offset
        sure = np.abs(t) > 1e-9 * (np.abs(rows) @ np.abs(gates.T) + np.abs(offset))
        known, F = bits(e["proof"]["active"])[:, which], np.zeros((len(rows), C))
        for j in range(len(W)):
            same = (known == (t[:, j] >= 0)) | ~sure[:, j]
            need(same.all(axis=1).any(), "the model has gates that the proof has not")
            F += (t[:, j, None] >= 0) * (rows @ W[j] + b[j])
        return F, float(np.sqrt((W**2).sum(axis=(1, 2)) + (b**2).sum(axis=1)).sum())
    hidden, alpha = array_of("hidden_weights", -1, d), array_of("output_weights", -1, C)
    b = array_of("hidden_bias", len(hidden))
    t = rows @ hidden.T + b
    if kind == "two_layer":
        free = bool(network.get("free_bias", False))
        need(free == (e["bias"] == "free"), "the model charges its biases otherwise than the claim says")
        need(e["bias"] or not b.any(), "the model has biases, the claim is about none")
        charged = (hidden**2).sum() + (0.0 if free else (b**2).sum()) + (alpha**2).sum()
        return np.maximum(t, 0.0) @ alpha, 0.5 * float(charged)
    position, w, n = e["options"].get("position", "before"), count / count.sum(), rows_as_of(e["options"], count)
    need(weights["position"] == position, "the model normalises elsewhere than the claim says")
    need(abs(float(weights["n_samples"]) - n) <= RTOL * n, "the model normalises by another number of rows")
    gamma, shift, mean, norm = (array_of(key, len(hidden)) for key in ("gamma", "shift", "mean", "norm"))
    t = t if position == "before" else np.maximum(t, 0.0)
    found, off = w @ t, 64 * U * (np.abs(rows) @ np.abs(hidden.T) + np.abs(b)).max(axis=0)
    root = math.sqrt(n)
    size = root * np.sqrt(w @ (t - found) ** 2)
    need((root * off <= 1e-2 * norm).all(), "the model normalises what is lost in rounding")
    need((root * np.abs(found - mean) <= 1e-6 * norm + root * off).all(), "the model has other means than the data")
    need((np.abs(size - norm) <= 1e-6 * norm + root * off).all(), "the model has other norms than the data")
    t = gamma / norm * (t - mean) + shift / root
    charged = (gamma**2).sum() + (shift**2).sum() + (alpha**2).sum()
    return (np.maximum(t, 0.0) if position == "before" else t) @ alpha, 0.5 * float(charged)


def evaluate(network: Document, e: Document, X: Array, Y: Array, count: Array, A: Any) -> tuple[Array, float]:
    """Outputs and penalty of a network."""
    name, o, intercept = e["architecture"], e["options"], "intercept"
    kinds: Any = ("batch_norm",) if name == "batch_norm" or o.get("batch_norm") else ("two_layer", "gated")
    holder, which = network.get("weights", network), slice(None) if A is None else A[0]
    if name.startswith("linear"):
        kinds, intercept = ("deep",), f"bias_{o.get('depth', 2)}"
    if name == "parallel":
        need(network["kind"] == name, f"the model is of the kind {network['kind']!r}")
        F, penalty = branches(network, e, X)
    elif "kernel_size" in o:
        window, pooling, intercept = network["options"], o.get("pooling", "flatten"), "intercept"
        (rows, K), (theirs, L) = patches(X, o), patches(X, window)
        same = window["circular"] == o.get("circular", False) and K == L and np.array_equal(rows, theirs)
        need(same and window["pooling"] == pooling, "the model takes or pools other patches than the claim says")
        F, penalty = layer_of(network["layer"], kinds, e, rows, np.repeat(count[:: len(count) // len(X)], K), which)
        if pooling == "flatten":
            F = np.einsum("nkkc->nc", F.reshape(len(X), K, K, -1))
        elif pooling is not None:
            F = F.reshape(len(X), K, -1).sum(axis=1) / (K if pooling == "average" else 1)
    else:
        F, penalty = layer_of(network, kinds, e, X, count, which)
    given = holder.get(intercept)
    b = np.zeros(Y.shape[1]) if given is None else np.array(given, float)
    need(F.shape == Y.shape and b.shape == Y.shape[1:], "the model has other outputs than the data")
    need(e["fit_intercept"] or not b.any(), "the model has an intercept, the claim is about none")
    return F + b, penalty


# ---- the verdict -----------------------------------------------------------------------------------------------------


def claims(c: Document) -> tuple[float, float]:
    """The numbers of a certificate, if they agree with each other."""
    objective = math.inf if c["objective"] == "inf" else number(c["objective"], "objective")
    lower, likely = number(c["lower_bound"], "lower bound"), number(c["likely_bound"], "likely bound")
    slack = (1e-3 if c["beta"] == 0 else 1e-6 if "patterns" in c["scope"] else 1e-12) * abs(objective)
    need(lower <= objective + slack + 1e-300, "the lower bound is above the objective")
    need(lower <= likely <= max(objective, lower) * (1 + 1e-9) + 1e-300, "the likely bound is not between the bounds")
    for name, bound in (("gap", lower), ("likely_gap", likely)):
        follows = max(0.0, objective - bound) / max(objective, 5e-324) if objective < math.inf else math.inf
        told = follows if c.get(name) is None else float(c[name])
        need(told == follows or abs(told - follows) <= 1e-9 * follows + 1e-12, f"the {name} is another")
    return objective, lower


def standardised(e: Document, network: Document | None, X: Array) -> tuple[Document, Document | None, Array]:
    """Evidence, network and data behind a standardisation of the columns, if there is one."""
    if e["architecture"] != "standardised":
        return e, network, X
    o = e["options"]
    need(set(o) == {"inner", "centre", "scale"}, "standardised has other options")
    centre, deviation = (array(o[key], "means and deviations", X.shape[-1]) for key in ("centre", "scale"))
    need(deviation.min() > 0, "deviations must be positive")
    if network is not None:
        need(network["kind"] == "standardised", "the model does not standardise its columns")
        same = all(list(network[key]) == list(o[key]) for key in ("centre", "scale"))
        need(same, "the model has other means and deviations than the claim")
        network = network["layer"]
    inner = {"architecture": o["inner"]["name"], "options": o["inner"]["options"]}
    return {**e, **inner}, network, (X - centre) / deviation  # the data are what this is in double precision


def examine(c: Document, X: Array, y: Array, sample_weight: Any, network: Document | None) -> str:
    """What is proven; raises if it is not what is claimed."""
    objective, lower = claims(c)
    need(np.asarray(X).dtype.kind in "biuf", "X must hold finite numbers")
    e, X, y = c.get("evidence"), np.asarray(X, dtype=float), np.asarray(y)
    need(isinstance(e, dict), "the certificate has no evidence, its proof was not kept: train again to have it proven")
    assert e is not None
    loss, beta, V = e["loss"], number(c["beta"], "beta"), array(e["V"], "V", None, None)
    read_loss(loss)
    need(c["loss"] == loss["name"], f"the claim is about the loss {c['loss']!r}, the evidence about {loss['name']!r}")
    need(beta > 0 or (beta == 0 and loss["name"] in INDICATORS), "beta and the loss do not go together")
    need(X.ndim >= 2 and np.isfinite(X).all(), "X must hold finite numbers")
    e, network, X = standardised(e, network, X)
    need(np.isfinite(X).all(), "the standardised X must hold finite numbers")
    name, o, beta = e["architecture"], e["options"], beta or 1.0
    if name == "convolutional" and o["pooling"] is None:  # a target for each patch
        y = y.reshape(-1, V.shape[1]) if e["classes"] is None else y.ravel()
    X, Y, w, count = distinct(X, encode(loss["name"], y, e["classes"]), sample_weight)
    need(V.shape == Y.shape, f"the proof is about {V.shape} distinct rows and outputs, these data have {Y.shape}")
    M, away, A, restriction = features(e, X, count[:: max(1, len(count) // len(X))])
    p = Problem(e, X, w, M, A, V)

    # natural units: features and targets of mean square one, which is what V and the proof are written in
    s, t, shift = math.hypot(*M.ravel()) / math.sqrt(len(M)) or 1.0, 1.0, np.zeros(Y.shape[1])
    if loss["name"] in POWERS:
        shift = np.where(np.ptp(Y, axis=0) > 0, w @ Y, Y[0]) if e["fit_intercept"] else shift
        t = math.hypot(*(np.sqrt(w)[:, None] * (Y - shift)).ravel()) or 1.0
    vast = HUGE if p.family == "chained" else VAST
    need(1 / vast < s < vast and 1 / vast < t < vast, "the numbers of X or y are too large or too small")
    if p.family == "chained":  # in the units of the data
        s = t = 1.0
    if p.family == "normalised":  # where scales are free, and exact
        s = 2.0 ** round(math.log2(s))
    power = POWERS.get(loss["name"], 0)
    natural = {key: value / t if key in ("delta", "epsilon") else value for key, value in loss.items()}
    Y_, strength, unit = (Y - shift) / t, beta * t ** (1 - power) / s, t ** (power - 1) * s
    V, rho, moved = into_domain(natural, V, Y_, w, e["fit_intercept"])
    need(not V.any() or 1 / HUGE < np.abs(V).max() < HUGE, "the numbers of V are too large or too small")
    p = p._replace(M=M / s, G=spread(A, V, len(M)))

    # what rounding may add to g
    rows = np.linalg.norm(p.M, axis=1)
    seen = rows if A is None else rows[A[0]].reshape(len(V), -1).sum(axis=1)  # what a row of V may add to g
    if p.family == "free":  # what a neuron with a kink at a row adds to any other
        seen = np.maximum(seen, 2 * radius(p.M))
    if p.family == "normalised":  # h^T diag(w) h <= k^2
        seen = np.maximum(seen, p.M[0, -1] / np.sqrt(w))
    if name == "linear_conv":  # at all positions
        seen = seen * math.sqrt(patches(X[:1], o)[1])
    summed = 3 if A is None else 3 + len(p.M)  # terms of entries of G, and the units of M
    slack = TINY + float((moved + summed * U * np.linalg.norm(V, axis=1)) @ seen)
    slack += float(np.linalg.norm(p.G, axis=1) @ away) / s

    scale, limit, attained = number(e["scale"], "multiple of the dual point"), c.get("limit"), c.get("attained")
    most = math.inf if limit is None else number(limit, "limit") / unit
    reached = number(attained, "value") / unit * (1 - 3 * SHOWN) if attained else most
    # no better g is of use than shows the claims
    goal = min(total(p.M, p.G), most, reached, strength * (1 - 8 * U) / scale if scale > 0 else most)
    g, restricted = constraint(p, max(goal - slack, 0.0))
    g += slack
    scope = ", ".join(filter(None, (restricted, restriction))) or "global"
    claimed, shows = ({*text.split(", ")} - {"global"} for text in (c["scope"], scope))
    fewer = {part for part in claimed if part in ("patterns", "separate") or part.startswith("rank ")}
    # what bounds more bounds fewer, but networks with gates, say, are others
    need(shows <= claimed <= shows | fewer, f"the claim is about the scope {c['scope']!r}, the proof about {scope!r}")
    need(scale >= 0 and math.isfinite(g), "the dual constraint is not bounded, or the multiple of V is negative")
    multiple = min(scale, strength * (1 - 8 * U) / g)
    value, lost = dual_value(natural, multiple * V, Y_, w, max(multiple, 1.0) * rho)
    proven = by_chains(p, natural, Y_, beta) if p.family == "chained" else (value - lost) * t**power
    enough = proven >= lower - RTOL * abs(lower) - 4 * lost * t**power
    need(enough, f"the proof shows a lower bound of {proven:.9g}, the claim is {lower:.9g}")
    g *= unit
    shown = g - slack * unit  # rounding is charged by everybody in another way
    need(limit is None or limit >= shown - SHOWN * max(g, beta), "the dual constraint exceeds its limit")
    need(attained is None or 0 <= attained <= g + SHOWN * max(g, beta), "a value that is not possible")
    known = "; the objective was not checked: no model was given"
    if network is not None:
        F, penalty = evaluate(network, e, X, Y, count, A)
        found = float(w @ loss_of(loss)[3](F, Y).sum(axis=1)) + beta * penalty
        same = found == objective or abs(found - objective) <= RTOL * abs(objective)
        need(same, f"the model has the objective {found:.9g}")
        possible = scope != "global" or c["beta"] == 0 or found >= proven * (1 - 1e-6) - 1e-12 * t**power
        need(possible, f"the model has the objective {found:.9g}, which is below what is proven for all of its kind")
        gap = max(0.0, found - proven) / max(found, 5e-324) if found < math.inf else math.inf
        known = f", and the model has the objective {found:.9g}: the gap is {gap:.3g}"
    return f"no network of the scope {c['scope']!r} has an objective below {proven:.9g}{known}"


def check(c: Document, X: Any, y: Any, sample_weight: Any = None, model: Document | None = None) -> tuple[bool, str]:
    """Whether a certificate ``c``, as its file holds it, is proven for data as the network sees them; and why (not).

    Given the file of a network or model, its objective is checked too.
    """
    try:
        network = model.get("network", model) if isinstance(model, dict) else None
        need(model is None or isinstance(network, dict), "the model is no object with a network")
        with np.errstate(all="ignore"):
            return True, examine(c, X, y, sample_weight, network)
    except Refused as reason:
        return False, str(reason)
    except DAMAGED as error:
        return False, f"certificate, model or data are damaged or do not fit: {type(error).__name__}: {error}"


# ---- files -----------------------------------------------------------------------------------------------------------


def read_json(path: str) -> Any:
    """The object of a file in which no field is there twice."""

    def once(pairs: list[tuple[str, Any]]) -> Document:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a field is there twice")
        return dict(pairs)

    return json.loads(Path(path).read_text(encoding="utf-8"), object_pairs_hook=once)


def read_data(args: argparse.Namespace, model: Document, classes: Any) -> tuple[Array, Array, Any]:
    """X, y and weights of a CSV or NPZ file, as the network sees them."""
    if args.data.endswith(".npz"):
        file = np.load(args.data)
        return file["X"], file[args.target or "y"], file[args.weights] if args.weights else None
    header, *rows = csv.reader(Path(args.data).read_text(encoding="utf-8-sig").splitlines())
    table = {name: [row[k].strip() for row in rows if row] for k, name in enumerate(header)}
    about = model.get("target", {})
    target = args.target or about.get("name", header[-1])
    inputs = [name for name in header if name not in (target, args.weights, *args.drop.split(","))]
    inputs = model.get("feature_names", inputs)
    if absent := [name for name in inputs if name not in table]:
        raise ValueError(f"no column {absent[0]!r}: a model that encodes its table is checked by bidual verify")
    X = np.array([table[name] for name in inputs], dtype=float).T
    weights = np.array(table[args.weights], dtype=float) if args.weights else None
    X = (X - np.array(model.get("centre") or 0.0)) / np.array(model.get("scale") or 1.0)
    X = X.reshape(len(X), *(model.get("input_shape") or X.shape[1:]))
    if classes is None:
        return X, (np.array(table[target], dtype=float) - about.get("centre", 0.0)) / about.get("scale", 1.0), weights
    texts = {str(label): label for label in classes}
    numbers = {float(label): label for label in classes if not isinstance(label, str)}
    y = [texts[cell] if cell in texts else numbers.get(float(cell)) for cell in table[target]]
    return X, np.array(y), weights


def main(argv: list[str] | None = None) -> int:
    """The command line; returns 0 for PROVEN, 3 for REFUSED, 2 for files that cannot be read."""
    parser = argparse.ArgumentParser(description="Check a certificate of bidual: PROVEN or REFUSED.")
    parser.add_argument("certificate", help="JSON file of a certificate, or of a model with one")
    parser.add_argument("data", help="CSV file with a header, or NPZ file with X and y")
    parser.add_argument("--target", help="column that is predicted (default: that of the model, or the last one)")
    parser.add_argument("--weights", help="column of sample weights")
    parser.add_argument("--drop", default="", help="columns that are not inputs, with commas between")
    parser.add_argument("--model", help="JSON file of the network: its objective is checked too")
    args = parser.parse_args(argv)
    try:
        certificate, model = read_json(args.certificate), read_json(args.model) if args.model else {}
        if "certificate" in certificate:
            certificate, model = certificate["certificate"], model or certificate
        X, y, w = read_data(args, model, (certificate.get("evidence") or {}).get("classes"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        print(f"cannot read: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    proven, reason = check(certificate, X, y, w, model or None)
    print(f"{'PROVEN' if proven else 'REFUSED'}: {reason}")
    return 0 if proven else 3


if __name__ == "__main__":
    sys.exit(main())
