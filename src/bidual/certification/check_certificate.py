r"""Check a certificate of bidual without bidual: this file needs nothing but Python and numpy.

    python check_certificate.py certificate.json data.csv --target y [--model model.json]

prints PROVEN or REFUSED with the reason (docs/certificate_format.md has every field of the file).

What is proven. Training minimises L(F) + beta * penalty over networks of any width, whose neurons compute columns
A (M u)_+ from features M of the data; A takes the patches of a sample together. For every V with -V in the domain of
the conjugate L* (and columns that sum to zero, if there is a free intercept) and every bound
g >= max { ||V^T A (M u)_+|| : ||u|| <= 1 }, no network has an objective below -L*(-c V), 0 <= c <= beta / g.
A certificate holds V, c and a proof of some g. Here the problem is posed from the data alone, V is moved into the
domain (so that it cannot lie), g is proven again, and -L*(-c V) is evaluated. With G = A^T V, rows g_i, m_i of G, M:

norms       (||G^T M|| + ||D^-1 G|| ||D M||) / 2, any diagonal D > 0, because (t)_+ = (t + |t|) / 2
patterns    max ||M^T D_i g + M^T (2 D_i - I) lambda||, lambda >= 0, over all sets of active rows D_i; one output
spectral    max ||G^T D_i M|| over all sets of active rows; several outputs
sampled     as patterns, output by output, for the sets in the file: a bound for networks with these patterns
shared      as patterns for one direction of the outputs after the other, which cover them all (``by_shared``)
gates       max ||M^T D_i G||_F over the sets in the file: a bound for networks with these gates
layers      as patterns, over who is active in every layer of a branch, all or those in the file (``Branches``)
normalised  as patterns, for neurons that are normalised after the ReLU (``over_normalised``)
cones       directions are halved into cones until chords (rows that raise the value) and tangents (others) bound each
relaxation  a quadratic function above the constraint for each leaf of a tree of known signs (``leaf``)
kinks       free biases on a line: the constraint is largest at data points
positive    ||diag(sqrt w) M|| times the largest norm of a positive or negative part of G (``by_positive``)
linear      ||M^T G||, networks of two layers, or filters, without ReLU
chains      lines D(V_k) - ||M^T V_k|| t below the loss: networks of more layers without ReLU (``by_chains``)

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
from itertools import combinations, combinations_with_replacement, pairwise, product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any  # of numpy
Document: TypeAlias = dict[str, Any]

U, RTOL = 2.0**-53, 1e-9
#: Digits of ``limit`` and ``attained``, which nothing rests on, relative to beta.
SHOWN = 1e-6
#: Lines through the origin closer than this are one to an enumeration; sines smaller than this are zero.
PARALLEL, NULL = 5e-11, 1e-11
#: Most cones, hyperplanes, cells, halvings, sets of rows, padded entries: more is not worth waiting for.
MOST_CONES, MOST_PLANES, MOST_CELLS = 3_000_000, 200_000, 2_000_000
DEEPEST, MOST_SETS, MOST_ENTRIES = 1000, 100_000, 1e8
#: Of a relaxation: rows of known sign that serve as cuts, numbers of outputs whose directions are covered by cones.
CUTS, REFINED = 20, 5
#: Dual points of a proof by chains.
MOST_LINES = 100
#: Directions on a half circle for which branches of two outputs are bounded.
HEADS = 48
#: How reasons begin that say nothing against a claim.
UNKNOWN = "this checker "
#: What files that are damaged lead to.
DAMAGED = (LookupError, TypeError, ValueError, AttributeError, OverflowError, MemoryError, np.linalg.LinAlgError)


class Refused(Exception):
    """Why a claim is not accepted."""


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


def bits(data: Document) -> Array:
    """A matrix of bits, row by row in bytes."""
    (P, n), raw = data["shape"], np.frombuffer(base64.b64decode(data["bits"]), "u1")
    need(counts((P, n), 0) and len(raw) == P * ((n + 7) // 8), "a table of bits has another shape than it says")
    return np.unpackbits(raw.reshape(P, (n + 7) // 8), axis=1, count=n).astype(bool)


# ---- the problem, from the data --------------------------------------------------------------------------------------


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
    need(np.isfinite(weight).all() and weight.min() >= 0 < weight.sum(), "weights must be finite and not negative")
    weight = np.tile(weight.reshape(n, -1), (1, len(Y) // len(weight)))
    used = weight.max(axis=1) > 1e-30 * weight.max()
    table = np.column_stack([X[used].reshape(-1, d), Y.reshape(n, -1)[used]]) + 0.0
    rows, which = np.unique(table, axis=0, return_inverse=True)
    total = np.zeros((len(rows), each))
    np.add.at(total, which.ravel(), weight[used])
    count = total.ravel()
    return rows[:, :d].reshape(-1, *X.shape[1:]), rows[:, d:].reshape(-1, Y.shape[1]), count / count.sum(), count


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
    padded = math.prod(float(m + 2 * p) for m, p in zip(X.shape[1:], pad, strict=False)) * len(X) * math.prod(kernel)
    need(padded <= MOST_ENTRIES, "too long: there are too many patches")
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


def white(X: Array, count: Array, rank: Any) -> tuple[Array, int, Array]:
    """[U, 1/sqrt n]: what neurons see after batch normalisation, how many directions of X that leaves out, and the axes
    that it keeps. Normalisation undoes scales: columns are brought to one before their rank is told from rounding.
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
        dropped = exact_rank(np.column_stack([X, np.ones(len(X))])) - 1 - len(sigma)
    if rank is not None:
        plain, directions = axes(centred)
        share = np.cumsum(plain**2) / (plain**2).sum()
        k = rank if isinstance(rank, int) else min(len(plain), int(np.searchsorted(share, rank * (1 - 1e-12))) + 1)
        need(type(rank) in (int, float) and 0 < k <= len(plain), f"there is no rank {rank}")
        if k < len(sigma):
            dropped, scale, sigma, V = dropped + len(sigma) - k, np.ones(len(scale)), plain[:k], directions[:, :k]
    V = V / scale[:, None]
    return np.column_stack([centred @ (V / sigma), np.full(len(X), 1 / np.sqrt(n))]), dropped, V


def powers_of_two(columns: Array) -> Array:
    """Scales of columns, by which nothing is rounded."""
    largest = np.abs(columns).max(axis=0)
    return np.exp2(np.round(np.log2(np.where(largest > 0, largest, 1.0))))


def relu_inputs(X: Array, bias: bool) -> Array:
    """What a ReLU works on whose directions are free, in coordinates in which rows are told apart best: columns are
    brought to one scale and, if there are biases, moved to one of their values, where both are exact.
    """
    origin = np.sort(X, axis=0)[len(X) // 2] if bias else np.zeros(X.shape[1])
    other = (X - origin) - X
    exact = (X - ((X - origin) - other)) - (origin + other) == 0.0  # what rounding of a difference has lost
    X = X - np.where(exact.all(axis=0), origin, 0.0)
    return with_ones(X / powers_of_two(X), bias)


def with_ones(X: Array, bias: Any) -> Array:
    """A column of ones beside X, if there are biases."""
    return np.column_stack([X, np.ones(len(X))]) if bias else X


#: Kinds of proofs about ordinary neurons, and about others.
ORDINARY = (
    "norms",
    "patterns",
    "weighted_patterns",
    "spectral",
    "cones",
    "relaxation",
    "sampled",
    "shared",
    "gates",
    "positive",
)
KINDS = {"free": ("kinks", "norms", "priced"), "linear": ("linear",), "after": ("norms", "normalised", "sampled")}
KINDS |= {"parallel": ("norms", "layers"), "chains": ("chains",)}
#: Architectures and the names of their options.
OPTIONS = {
    "two_layer": (),
    "linear_net": ("depth",),
    "linear_conv": ("kernel_size", "stride", "padding", "circular"),
    "batch_norm": ("position", "rank"),
    "parallel": ("m1", "m2", "deeper", "rank", "factor"),
    "convolutional": ("kernel_size", "stride", "padding", "batch_norm", "pooling"),
}


def features(e: Document, X: Array, count: Array) -> tuple[Array, Any, str]:
    """M; A as (row of M for each patch, patches of a sample, pooling) or None; and the restriction that a rank is."""
    name, o, bias = e["architecture"], e["options"], e["bias"]
    need(name in OPTIONS, f"{UNKNOWN}does not know the architecture {name!r}")
    need(set(o) == set(OPTIONS[name]), f"{name} has other options")
    if name.startswith("linear"):
        need(name == "linear_conv" or counts([o["depth"]], 2), "linear networks have two layers or more")
        need(bias is False, "linear networks have no hidden biases")
        return X.reshape(len(X), -1), None, ""
    need(bias != "free" or name == "two_layer", "free biases are for two layers")
    if bias == "free":  # networks do not see where the rows are
        rows = X - X.mean(axis=0)
        return np.column_stack([rows, np.full(len(X), np.linalg.norm(rows, axis=1).max() or 1.0)]), None, ""
    if name == "two_layer":
        return with_ones(X, bias), None, ""
    if name == "parallel":
        widths, restriction = (o["m1"], o["m2"], *o["deeper"]), ""
        need(counts(widths) and (o["rank"] is None or counts([o["rank"]])), "widths and ranks must be counts")
        need(number(o["factor"], "factor") >= 1, "what a rank may cost is a factor of at least one")
        if o["rank"] is not None:
            _, sigma, Vt = np.linalg.svd(X, full_matrices=False)
            full = int((sigma > sigma.max(initial=0.0) * max(X.shape) * 2 * U).sum())
            rank = max(1, min(o["rank"], full))
            X, restriction = X @ Vt[:rank].T, f"rank {rank}" if rank < full else ""
        return math.sqrt(widths[-1]) * with_ones(X, bias), None, restriction
    if name == "batch_norm":
        need(o["position"] in ("before", "after"), "normalisation is before or after the ReLU")
        M, dropped, V = white(X, count, o["rank"])
        restriction = f"rank {V.shape[1]}" if dropped else ""
        if o["position"] == "after":
            restriction = restriction if o["rank"] is not None else ""
            M = np.column_stack([relu_inputs(X if o["rank"] is None else X @ V, bias), M[:, -1]])
        return M, None, restriction
    need(type(o["batch_norm"]) is bool and o["pooling"] in ("sum", "average", "flatten", None), "no such pooling")
    rows, K = patches(X, o)
    rows = np.ascontiguousarray(rows + 0.0)
    keys = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    if len(first) == len(rows):
        first = which = np.arange(len(rows))
    each = np.bincount(which, weights=np.repeat(count, K), minlength=len(first))
    M = white(rows[first], each, None)[0] if o["batch_norm"] else with_ones(rows[first], bias)
    return M, (which, K, o["pooling"]), ""


def spread(A: Any, V: Array, N: int) -> Array:
    """A^T V: the dual point as the rows of M see it, (N, C), or (N, K C) with output weights at every position."""
    if A is None:
        return V
    which, K, pooling = A
    if pooling == "flatten":
        G = np.zeros((N, K, V.shape[1]))
        np.add.at(G, (which, np.tile(np.arange(K), len(V))), np.repeat(V, K, axis=0))
        return G.reshape(N, -1)
    G = np.zeros((N, V.shape[1]))
    np.add.at(G, which, V if pooling is None else np.repeat(V, K, axis=0))
    return G / K if pooling == "average" else G


# ---- losses ----------------------------------------------------------------------------------------------------------

#: Losses of y f, y = -1 or +1.
MARGINS = ("logistic", "hinge", "squared_hinge", "margin")
#: Losses of the residual, and the power of its unit that they have.
POWERS = {"squared": 2, "huber": 2, "quantile": 1, "absolute": 1, "epsilon_insensitive": 1, "exact_fit": 0, "tube": 0}
#: Those that are zero or infinite, for beta = 0.
INDICATORS = ("exact_fit", "margin", "tube")
#: Parameters that are residuals.
LENGTHS = ("delta", "epsilon")


def loss_of(p: Document) -> tuple[float, float, Any, Any]:
    """The interval on which the conjugate of a loss is finite, in the variable of ``coordinates``, the conjugate as a
    function of that variable and y, and the loss as one of outputs f and y.
    """
    name, inf = p["name"], math.inf
    delta, tau, tol = float(p.get("delta", inf)), float(p.get("tau", 0.5)), float(p.get("tol", 0.0))
    epsilon = float(p.get("epsilon", 0.0))
    need(name != "huber" or 0 < delta < inf, "delta must be positive")
    need(0 < tau < 1, "tau must be between 0 and 1")
    need(0 <= epsilon < inf, "epsilon must not be negative")

    table: dict[str, tuple[float, float, Any, Any]] = {
        "squared": (-inf, inf, lambda u, y: 0.5 * u**2 + u * y, lambda f, y: 0.5 * (f - y) ** 2),
        "huber": (-delta, delta, lambda u, y: 0.5 * u**2 + u * y,
                  lambda f, y: 0.5 * (f - y) ** 2 - 0.5 * np.maximum(abs(f - y) - delta, 0) ** 2),
        "absolute": (-1.0, 1.0, lambda u, y: u * y, lambda f, y: np.abs(f - y)),
        "quantile": (-tau, 1 - tau, lambda u, y: u * y, lambda f, y: np.maximum((1 - tau) * (f - y), tau * (y - f))),
        "epsilon_insensitive": (-1.0, 1.0, lambda u, y: u * y + epsilon * np.abs(u),
                                lambda f, y: np.maximum(np.abs(f - y) - epsilon, 0)),
        "tube": (-inf, inf, lambda u, y: u * y + epsilon * np.abs(u),
                 lambda f, y: np.where(abs(f - y) <= epsilon + tol * abs(y).max(), 0, inf)),
        "exact_fit": (-inf, inf, lambda u, y: u * y, lambda f, y: np.where(abs(f - y) <= tol * abs(y).max(), 0, inf)),
        "logistic": (0.0, 1.0, lambda s, y: s * np.log(np.maximum(s, 1e-300)) + (1 - s) * np.log1p(-s * (s < 1)),
                     lambda f, y: np.logaddexp(0.0, -y * f)),
        "hinge": (0.0, 1.0, lambda s, y: -s, lambda f, y: np.maximum(1 - y * f, 0)),
        "squared_hinge": (0.0, inf, lambda s, y: 0.5 * s**2 - s, lambda f, y: 0.5 * np.maximum(1 - y * f, 0) ** 2),
        "margin": (0.0, inf, lambda s, y: -s, lambda f, y: np.where(y * f >= 1 - tol, 0.0, inf)),
        "softmax": (-1.0, 1.0, lambda u, y: np.where(y, (1 + u) * np.log1p(u * (u > -1)), u * np.log(abs(u) + 1e-300)),
                    lambda f, y: np.logaddexp(0.0, np.logaddexp.reduce(  # of what others are ahead, however little
                        np.where(y, -inf, f - (y * f).sum(axis=1, keepdims=True)), axis=1, keepdims=True))),
    }  # fmt: skip
    need(name in table, f"{UNKNOWN}does not know the loss {name!r}")
    return table[name]


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
    V = W * (Y * u if loss["name"] in MARGINS else -u) * (1 - 16 * U)
    rho = 0.0
    for c in range(C if centred else 0):
        plus, minus = np.maximum(V[:, c], 0.0), np.maximum(-V[:, c], 0.0)
        a, b = math.fsum(plus), math.fsum(minus)
        V[:, c] = plus * (min(a, b) / a if a else 0.0) - minus * (min(a, b) / b if b else 0.0)
        if min(a, b) > 0:
            rho = max(rho, abs(math.fsum(V[:, c])) / min(a, b) * (1 + 8 * U))
    return V, rho, rho * np.linalg.norm(V, axis=1)


def dual_value(loss: Document, V: Array, Y: Array, w: Array, rho: float) -> float:
    """-L*(-V) less what rounding may have added, and what the change of size rho may take from it.

    A conjugate is convex: on the way from V to a point Z it rises by at most rho (|l*(V)| + |l*(Z)|). Probability rho
    that is moved changes p log p by rho (1 - log rho) at most.
    """
    W, (low, high, conjugate, _) = w[:, None], loss_of(loss)
    u = coordinates(loss, V, Y, w)
    need((u >= low).all() and (u <= high).all(), "a multiple of the dual point leaves the domain")
    terms = W * conjugate(u, Y)
    size = float(np.abs(terms).sum() + np.abs(V * Y).sum() + (V * V / W).sum())
    lost = rho * float(np.abs(terms).sum() + np.abs(W * conjugate(0 * V, Y)).sum())
    if loss["name"] == "softmax":
        size, lost = size + float(np.abs(V).sum()), 2 * Y.shape[1] * rho * (1 - math.log(min(rho, 1.0) or 1.0))
    return -math.fsum(terms.ravel()) - 24 * U * size - lost


# ---- bounds on the dual constraint: g >= max ||G^T (M u)_+|| over ||u|| <= 1 -----------------------------------------
# (what is at most ``enough`` need not be known better)


def total(M: Array, G: Array) -> float:
    """sum_i ||g_i|| ||m_i||, what errors are relative to."""
    return float(np.linalg.norm(G, axis=1) @ np.linalg.norm(M, axis=1))


def top_eigenvalue(Q: Array, error: float) -> float:
    """An upper bound on the largest eigenvalue of a symmetric matrix that is known up to ``error``.

    If the Cholesky factorisation of a p x p matrix A runs to its end, no eigenvalue of A is below -(p + 2) U trace(A)
    (Rump, 2006).
    """
    p = len(Q)
    guess = float(np.linalg.eigvalsh(Q)[-1])
    margin = 4 * (p + 2) * U * p * (abs(guess) + float(np.abs(Q).max())) + error + 1e-290
    np.linalg.cholesky((guess + margin) * np.eye(p) - Q)  # raises an error if it does not
    return guess + 2 * margin


def norm_of(B: Array) -> float:
    """An upper bound on the spectral norm: the root of the top eigenvalue of B^T B (or B B^T)."""
    if not B.any():
        return 0.0
    gram = B.T @ B if B.shape[0] >= B.shape[1] else B @ B.T
    return math.sqrt(max(top_eigenvalue(gram, (max(B.shape) + 4) * U * float(np.trace(gram))), 0.0))


def by_norms(M: Array, G: Array) -> float:
    """Half of ||G^T M|| + ||D^-1 G|| ||D M|| with D^2 = ||g_i|| / ||m_i||."""
    g, m = np.linalg.norm(G, axis=1), np.linalg.norm(M, axis=1)
    used = (g > 0) & (m > 0)
    D = np.sqrt(g[used] / m[used])[:, None]
    limit = 0.5 * (norm_of(G[used].T @ M[used]) + norm_of(G[used] / D) * norm_of(D * M[used]))
    return limit + (len(M) + M.shape[1] + 16) * U * total(M, G)


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


def over_cones(C: Array, normals: Any, enough: float, ways: tuple[float, ...] = (1.0, -1.0)) -> float:
    """A bound on c^T u, both ways, over ||u|| <= 1 in a cone for every row c of C, (P, p); normals(i) are of row i."""
    size, best = np.linalg.norm(C, axis=1), 0.0
    for i in np.argsort(-size, kind="stable"):
        if size[i] <= max(best, enough):  # so are all that follow
            break
        N = normals(i)
        best = max(best, *(into_cone(way * C[i], N, max(best, enough))[0] for way in ways))
    return max(best, min(enough, size.max(initial=0.0)))


def over_spectra(pieces: Any, enough: float) -> float:
    """The largest spectral norm of these matrices; Frobenius' norm where that is small."""
    sizes = ((float(np.linalg.norm(B)), B) for B in pieces)
    return max((size if size <= enough else norm_of(B) for size, B in sizes), default=0.0)


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
    return cells(X / np.linalg.norm(X, axis=1)[:, None])


def over_patterns(X: Array, G: Array, active: Array, enough: float, ways: tuple[float, ...] = (1.0, -1.0)) -> float:
    """The largest g^T (X u)_+, both ways, over the cones of these patterns, (P, N), for any column g of G."""
    units = X / np.maximum(np.linalg.norm(X, axis=1), 1e-300)[:, None]
    slack = (len(X) + X.shape[1] + 16) * U * total(X, G)

    def normals(i: int) -> Array:
        return np.where(active[i], 1.0, -1.0)[:, None] * units

    return max(over_cones((active * g) @ X, normals, enough - slack, ways) for g in G.T) + slack


def over_branches(
    X: Array, G: Array, masks: Array, signs: Array, widths: list[int], apart: bool, enough: float
) -> float:
    """The largest value of branches whose nodes are active as ``masks`` (B, n, nodes) say, with these signs (B, edges).

    A branch is a tree of ReLU neurons: T leaves on the data, nodes that add what their children compute, each with a
    sign, up to the root. With all activities fixed it computes sum_t gate_t X w_t, ||W||_F <= 1, on the cone where the
    activities are such: that is a pattern in T r coordinates.
    """
    T, (B, n, _), r, start, size = math.prod(widths), masks.shape, X.shape[1], 0, math.prod(widths)
    now, normals = np.ones((B, n, T)), []  # how the leaves enter the nodes of a level
    for m in (*widths, 1):
        level = masks[:, :, start : start + size]
        own = np.repeat(np.eye(size), T // size, axis=1)[:, :, None] * X[:, None, None, :]  # (n, size, T, r)
        side = now * np.repeat(np.where(level, 1.0, -1.0), T // size, axis=2)
        normals.append((side[:, :, None, :, None] * own).reshape(B, n * size, T * r))
        step = level * signs[:, None, start : start + size] if start + size < masks.shape[2] else level
        now = now * np.repeat(step, T // size, axis=2)
        start, size = start + size, size // m
    N = np.concatenate(normals, axis=1)
    N /= np.maximum(np.linalg.norm(N, axis=2, keepdims=True), 1e-300)
    pieces = np.einsum("nc,bnt,nr->bctr", G, now, X).reshape(B, -1, T * r)
    if G.shape[1] > 1 and not apart:
        return over_spectra(pieces, enough)
    return max((over_cones(C, N.__getitem__, enough) for C in pieces.swapaxes(0, 1)), default=0.0)


def all_branches(X: Array, m1: int) -> Any:
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


def by_layers(M: Array, G: Array, proof: Document, widths: list[int], enough: float) -> tuple[float, bool]:
    """The largest value of branches over the cells in the file, or over all cells; and which."""
    T, written, slack, X = math.prod(widths), "masks" in proof, 0.0, M
    if written:
        masks, signs = bits(proof["masks"]), np.where(bits(proof["signs"]), 1.0, -1.0)
        need(proof["widths"] == widths and masks.size == len(masks) * len(M) * (signs.shape[1] + 1), "other branches")
        cells_of: Any = [(masks.reshape(len(masks), len(M), -1), signs)]
    else:
        need(len(widths) == 1, "the cells of branches of more than three layers must be in the file")
        X, G, slack = reduced(M, G)
        cells_of = all_branches(X, T) if len(X) else ()
    size = T * X.shape[1]
    slack += (2 * (size + 1) * PARALLEL * (not written) + (16 * (size + 4) + 4 * len(G)) * U) * total(X, G)
    slack *= math.sqrt(T)  # sum_t ||w_t|| <= sqrt(T)
    heads = [(G, 1.0)]
    if G.shape[1] == 2 and not written:  # a direction of the outputs is near one of these
        angles = np.arange(HEADS) * np.pi / HEADS
        heads.append((G @ np.stack([np.cos(angles), np.sin(angles)]), math.cos(0.5 * np.pi / HEADS)))
    best = math.inf
    for H, cosine in heads:
        if best > enough:
            goal, apart = (enough - slack) * cosine, written or cosine < 1
            values = (over_branches(X, H, masks, signs, widths, apart, goal) for masks, signs in cells_of)
            best = min(best, max(values, default=0.0) / cosine + slack)
            cells_of = cells_of if written else all_branches(X, T)
    return best, written


def by_normalised(R: Array, v: Array, w: Array, k: float, active: Any, enough: float) -> float:
    """Neurons k (gamma (z - mean) / deviation + a), gamma^2 + a^2 <= 1, z = (R q)_+, over patterns D (all, if None).

    With the SVD diag(sqrt w) (I - 1 w^T) D R = Q S E^T and s = S E^T q the value is k (v^T diag(w)^-1/2 Q s / ||s||),
    on the cone (2 D - I) R q >= 0, and k sum(v) a. Directions q that the SVD does not see cost nothing.
    """
    root, worst, given = np.sqrt(w), 0.0, R
    sigma, axes = np.linalg.svd(R, full_matrices=False)[1:]
    rank = int((sigma > NULL * sigma[0]).sum())
    need(rank == exact_rank(R), "rounding may hide directions of the rows")
    R = R if rank == R.shape[1] else R @ axes[:rank].T
    if active is None:
        need(not nearly_dependent(given), "rows are nearly dependent: rounding may hide activation patterns")
        live = given.any(axis=1)
        inner = all_patterns(R[live])
        active = np.zeros((len(inner), len(R)), dtype=bool)
        active[:, live] = inner
    size, shift = k * math.sqrt((v**2 / w).sum()), k * abs(math.fsum(v))
    for a in active:
        T = root[:, None] * a[:, None] * R
        Q, s, Et = np.linalg.svd(T - np.outer(root, root @ T), full_matrices=False)
        r = int((s > NULL * np.linalg.norm(root[:, None] * R)).sum())
        if r < min(a.sum() - a.all(), R.shape[1]):
            exact = exact_rank(with_ones(given, True)) - 1 if a.all() else exact_rank(given[a])
            need(r == exact, "rounding may hide a direction of an activation pattern")
        if r == 0:
            continue
        off = 4 * (len(R) + R.shape[1]) * U * s[0] / s[r - 1]  # of coordinates, relative
        c, slack = k * (Q[:, :r].T @ (v / root)), off * size
        goal = math.sqrt(max((enough - slack) ** 2 - shift**2, 0.0)) if enough > slack else 0.0
        if np.linalg.norm(c) > goal:
            N = np.where(a, 1.0, -1.0)[:, None] * (R @ (Et.T / np.where(np.arange(len(s)) < r, s, 1.0)))
            N /= np.maximum(np.linalg.norm(N, axis=1), 1e-300)[:, None]
            value = max(in_free_cone(sign * c, N, given, a, off, goal) for sign in (1.0, -1.0))
        else:
            value = float(np.linalg.norm(c))
        worst = max(worst, math.hypot(value, shift) + slack)
    return max(worst, shift)


def in_free_cone(c: Array, N: Array, R: Array, a: Array, off: float, enough: float) -> float:
    """``into_cone`` where the coordinates after those of c are free: sum_i lam_i n_i must vanish there.

    Rows that see them serve if their rank is exact, and a change of lam that is smaller than lam repairs the sum.
    """
    r = len(c)
    sees = (np.abs(N[:, r:]) > NULL).any(axis=1) & (~a | a.all())
    blind = ~sees
    if (blind & ~a).any() and r < N.shape[1]:
        need(exact_rank(R[blind]) == r, "rows are nearly dependent: rounding may hide what they see")
    value, lam = into_cone(c, N[blind, :r], enough)
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
    if not rank or lam[used].min() <= 0 or exact_rank(R[blind | seen]) != r + rank:
        return value
    rest = float(np.linalg.norm(free.T @ lam[seen])) + off * lam.sum()
    change = rest / max(sigma[rank - 1] - off * math.sqrt(len(free)), 1e-300)
    if change >= lam[seen].min():
        return value
    own = float(np.linalg.norm(c + lam @ N[:, :r])) + math.sqrt(len(free)) * change
    return min(value, own + off * (np.linalg.norm(c) + lam.sum()))


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
        value = np.sqrt(np.maximum(np.einsum("bi,bij,bj->b", a, K, a), 0.0))
        best = np.fmin(best, value)
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


def by_cones(X: Array, G: Array, limit: float, enough: float) -> float:
    """No cone of directions has a larger value than ``limit``: halved until that is seen, from the orthants."""
    N, r = X.shape
    need(r <= 6, f"too long: cones in {r} dimensions")
    # heights at generators are sums of N + 3 r + C products, a halving moves a cone by 5 U
    slack = (6 * math.sqrt(r) * (N + 3 * r + G.shape[1] + 16) + 10 * DEEPEST) * U * total(X, G) * (1 + RTOL)
    orthants = np.array(list(product([1.0, -1.0], repeat=r)))[:, :, None] * np.eye(r)
    goal, looked = min(max(limit * (1 + 0.5 * RTOL), enough - slack), limit * (1 + 1e-6)), 0
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
    return goal + slack


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


def output_directions(proof: Document, C: int) -> tuple[Array, Array]:
    """Directions of the outputs, and the cones, given by their generators, that cover them all if they are few."""
    axes = np.array(proof["axes"], dtype=float)
    need(axes.shape == (C, C) and np.abs(axes @ axes.T - np.eye(C)).max() < 1e-10, "the axes are not orthonormal")
    directions, cones = np.vstack([axes, -axes]), np.zeros((0, C), dtype=int)
    if C <= REFINED:
        cones = np.arange(C) + C * np.array(list(product([0, 1], repeat=C)))
    for i, j in proof["edges"]:  # halve an edge in all cones that have it
        has = (cones == i).any(axis=1) & (cones == j).any(axis=1)
        need(has.any() and i != j, "a cone of outputs is halved at an edge that it does not have")
        middle, old, new = directions[i] + directions[j], cones[has], len(directions)
        directions = np.vstack([directions, middle / np.linalg.norm(middle)])
        cones = np.vstack([cones[~has], np.where(old == i, new, old), np.where(old == j, new, old)])
    return directions, cones


def along_axes(proof: Document, g: Array) -> float:
    """A bound from those along axes B and against them: ||H|| <= ||B H|| (1 - ||B B^T - I||)^(-1/2)."""
    axes, C = np.array(proof["axes"], dtype=float), len(g) // 2
    defect = C * (float(np.abs(axes @ axes.T - np.eye(C)).max()) + 4 * (C + 4) * U)
    return float(np.linalg.norm(np.maximum(g, 0.0).reshape(2, C).max(axis=0))) * (1 + defect)


def by_shared(X: Array, G: Array, active: Array, proof: Document) -> float:
    """g(a), the largest a^T G^T (X u)_+ on these patterns, is convex in a and positively homogeneous: its values at
    the generators of cones bound it on them, and that is the constraint. So do spectral norms.
    """
    directions, cones = output_directions(proof, C := G.shape[1])
    error = (C + 8) * 2 * U * total(X, G)  # of the weights G a
    g = np.array([over_patterns(X, (G @ a)[:, None], active, 0.0, (1.0,)) for a in directions]) + error
    if not len(cones):
        limit = along_axes(proof, g)
    else:
        W = directions[cones]
        limit = float(conic(W @ W.swapaxes(1, 2), g[cones]).max()) * (1 + 1e-12)
    spectral = over_spectra(((G * a[:, None]).T @ X for a in active), 0.0)
    return min(limit, spectral + (len(X) + X.shape[1] + 16) * U * total(X, G))


def by_relaxation(M: Array, G: Array, proof: Document) -> float:
    """A tree of signs for every direction of the outputs, multipliers for its leaves."""
    group, scale, (N, p), C = np.array(proof["group"], dtype=int), float(proof["scale"]), M.shape, G.shape[1]
    need(len(group) == N, f"the proof is about {len(group)} rows, these data have {N}")
    need(0 < scale < math.inf, "the scale of the multipliers is not positive")
    kept = group >= 0
    numbers, first = np.unique(group[kept], return_index=True)
    need(np.array_equal(numbers, np.arange(len(numbers))), "the groups of rows are not numbered")
    X, weight = M[kept][first], np.zeros((len(first), C))
    np.add.at(weight, group[kept], G[kept])
    left, load, lost = reduced(M[~kept], G[~kept])
    slack = total(left, load) + lost + total(M[kept] - X[group[kept]], G[kept]) + (N + 2 * p + C + 32) * U * total(M, G)
    length = np.linalg.norm(X, axis=1) * (1 + (p + 8) * U)
    need((length > 0).all(), "a row of zeros has multipliers")
    if not len(X):
        return slack
    directions, cones = output_directions(proof, C)
    trees = list(zip(proof["rows"], proof["sizes"], proof["multipliers"], strict=True))
    need(len(trees) == len(directions), f"there are {len(trees)} trees for {len(directions)} directions of outputs")
    g = np.zeros(len(directions))
    for k, (rows, sizes, text) in enumerate(trees):
        packed = np.frombuffer(base64.b64decode(text), "<f4")
        need(sum(sizes) == len(packed) and min(sizes, default=-1) >= 0, "multipliers are missing")
        leaves = np.split(packed, np.cumsum(sizes)[:-1])[::-1]
        along = weight @ directions[k] * length / scale
        if np.abs(along).sum() <= 1e-12 * np.abs(weight).sum() * length.max() / scale:
            g[k] = np.abs(along).sum()  # nothing but rounding
            continue
        waiting: list[tuple[Array, list[int]]] = [(np.zeros(len(X)), [])]
        for row in rows:
            signs, fixed = waiting.pop()
            if row < 0:
                g[k] = max(g[k], leaf(X / length[:, None], along, signs, fixed, leaves.pop()))
                continue
            need(row < len(X) and signs[row] == 0, "a tree does not belong to these data")
            for sign in (-1.0, 1.0):
                waiting.append((np.where(np.arange(len(X)) == row, sign, signs), [*fixed, row][:CUTS]))
        need(not waiting and not leaves, "a tree is not complete")
    if not len(cones):
        return scale * along_axes(proof, g) + slack
    W = directions[cones]
    return scale * float(conic(W @ W.swapaxes(1, 2), g[cones]).max()) * (1 + 1e-12) + slack


def by_kinks(x: Array, V: Array, away: Array) -> float:
    """Free biases on a line: || sum_i v_i (x_i - t)_+ || and || sum_i v_i (t - x_i)_+ || are convex in t between the
    data, constant or zero beyond them (V sums to zero): largest at data points; x is sorted.
    """
    long, gaps, worst = V.astype(np.longdouble), np.diff(x).astype(np.longdouble)[:, None], 0.0
    for v, gap in ((long, gaps), (long[::-1], gaps[::-1])):
        sums = np.cumsum(gap * np.cumsum(v, axis=0)[:-1], axis=0)
        worst = max(worst, float(np.sqrt((sums**2).sum(axis=1)).max(initial=0.0)))
    size, tiny = np.linalg.norm(V, axis=1), float(np.finfo(np.longdouble).eps)
    left = math.hypot(*(math.fsum(column) for column in V.T))
    return worst + ((4 * len(V) * tiny + 16 * U) * size.sum() + left) * float(x[-1] - x[0]) + float(size @ away)


def on_a_line(X: Array) -> tuple[Array, Array]:
    """Coordinates of rows on a line, and their distances from it."""
    if X.shape[1] == 1:
        return X[:, 0], np.zeros(len(X))
    origin = X.mean(axis=0)
    direction = np.linalg.svd(X - origin, full_matrices=False)[2][0]
    direction *= 1.0 if direction[np.argmax(np.abs(direction))] > 0 else -1.0
    c = (X - origin) @ direction
    return c, np.linalg.norm(X - origin - c[:, None] * direction, axis=1) + 8 * U * np.linalg.norm(X, axis=1)


def by_positive(M: Array, G: Array, w: Array) -> float:
    """Neurons h = (M u)_+ are not negative, and sum_i w_i h_i^2 <= k^2 = ||diag(sqrt w) M||^2, at most a row sum of the
    Gram matrix: ||G^T h|| <= k max sqrt(sum_i (+-g_ic)_+^2 / w_i) over columns c and signs, if no row has two entries.
    """
    need(np.count_nonzero(G, axis=1).max(initial=0) <= 1, "rows have several outputs")
    B = np.sqrt(w)[:, None] * M
    B = B if B.shape[0] <= B.shape[1] else B.T
    size = np.linalg.norm(B, axis=1)
    square = float(np.abs(B @ B.T).sum(axis=1).max()) + (B.shape[1] + 8) * 2 * U * float(size.max() * size.sum())
    sums = max(float((np.maximum(sign * G, 0.0) ** 2 / w[:, None]).sum(axis=0).max()) for sign in (1.0, -1.0))
    return math.sqrt(square * sums) * (1 + (len(B) + len(G) + 16) * 2 * U)


def by_linear(e: Document, X: Array, M: Array, G: Array, w: Array) -> float:
    """||M^T G||; of filters, the map M^T G as every patch sees it. V sums to zero, if there is an intercept."""
    M = M - w @ M if e["fit_intercept"] else M
    B, K = M.T @ G, 1
    if e["architecture"] == "linear_conv":
        B, K = patches(B.T.reshape(-1, *X.shape[1:]), e["options"])
        B = B.reshape(G.shape[1] * K, -1)
    return norm_of(B) + math.sqrt(K) * (len(M) + 16) * 2 * U * total(M, G)


def by_chains(e: Document, X: Array, M: Array, loss: Document, Y: Array, w: Array, beta: float) -> float:
    """A lower bound for linear networks of L > 2 layers: min over t of max_k (D(V_k) - ||M^T V_k|| t) + c t^(2 / L).

    The loss of a map W is at least each of these lines at t = ||W||_*, its layers cost at least c t^(2 / L) with
    c = beta L / 2. Between two points a line and a concave function are least at one of them, wherever these are;
    beyond ``end`` the penalty is more than the loss of zero. V_k are multiples of the residuals of maps.
    """
    L, proof, centred = e["options"]["depth"], e["proof"], e["fit_intercept"]
    maps, scales = np.array(proof["maps"], dtype=float), np.array(proof["scales"], dtype=float)
    need(loss["name"] == "squared", f"{UNKNOWN}knows chains of the squared loss only")
    need(maps.shape == (len(scales), M.shape[1], Y.shape[1]) and 0 < len(scales) <= MOST_LINES, "no such maps")
    need(np.isfinite(maps).all() and np.isfinite(scales).all() and scales.min() >= 0, "no finite maps")
    lines = []
    for W, scale in zip(maps, scales, strict=True):
        R = Y - M @ W
        V, rho, moved = into_domain(loss, w[:, None] * (R - w @ R if centred else R), Y, w, centred)
        off = float((moved + 3 * U * np.linalg.norm(V, axis=1)) @ np.linalg.norm(M, axis=1))
        value = dual_value(loss, scale * V, Y, w, max(scale, 1.0) * rho)
        lines.append((value, scale * (by_linear(e, X, M, V, w) + off) * (1 + 8 * U)))
    (values, slopes), cost = np.array(lines).T[:, :, None], 0.5 * L * beta
    zero = 0.5 * float(w @ ((Y - (w @ Y if centred else 0.0)) ** 2).sum(axis=1))
    end = (zero / cost) ** (L / 2) * (1 + 128 * L * U)
    need(math.isfinite(end), "the penalty is lost beside the loss")
    meet = ((values - values.T) / (slopes - slopes.T)).ravel()
    t = np.unique([0.0, end, *meet[(meet > 0) & (meet < end)]])
    at = values - slopes * t + cost * t ** (2 / L) - 32 * U * (np.abs(values) + slopes * t + cost * t ** (2 / L))
    pieces = np.minimum(at[:, :-1], at[:, 1:]).max(axis=0)
    return min(float(pieces.min(initial=math.inf)), zero * (1 - 8 * (len(Y) + 8) * U))


def constraint(
    e: Document, X: Array, M: Array, G: Array, w: Array, A: Any, away: Array, enough: float, listed: Any = None
) -> tuple[float, str]:
    """The bound g that the proof of the file shows, and the restriction of the networks for which it is one.

    Patterns may be ``listed`` on other rows that have the same ones, up to angles so many times as large.
    """
    proof, name, o, C = e["proof"], e["architecture"], e["options"], G.shape[1]
    kind, some = proof["kind"], "patterns" if C == 1 else "patterns, separate"
    written = kind in ("gates", "sampled") or (kind == "shared" and proof["active"] is not None)
    active = bits(proof["active"]) if written else None
    need(active is None or active.shape[1] == len(M), "the patterns are of another number of rows")
    after = name == "batch_norm" and o["position"] == "after"
    family = "free" if e["bias"] == "free" else "after" if after else name.split("_")[0]
    family = "chains" if o.get("depth", 2) > 2 else family
    need(kind in KINDS.get(family, ORDINARY), f"{UNKNOWN}knows no proof of the kind {kind!r} for {name}")
    need(family != "free" or name == "two_layer", "free biases are for two layers")
    if kind == "kinks":
        return by_kinks(M[:, 0], G, away), ""
    if kind == "priced" or (family == "free" and kind == "norms"):
        return at_price(e, X, M, G, w, away, enough)
    if kind in ("linear", "chains"):
        return by_linear(e, X, M, G, w), ""
    if after and kind == "norms":
        size = math.sqrt(((G**2).sum(axis=1) / w).sum())  # (h^T diag(w) h)^(1/2) <= M[0, -1]
        return float(M[0, -1] * size * (1 + (len(G) + C + 8) * 4 * U)), ""
    if after:
        need(C == 1, "normalisation after the ReLU has one output")
        return by_normalised(M[:, :-1], G[:, 0], w, M[0, -1], active, enough), some if kind == "sampled" else ""
    widths = [o["m1"], o["m2"], *o["deeper"]][:-1] if name == "parallel" else []
    if kind == "norms":
        return math.sqrt(math.prod(widths)) * by_norms(M, G), ""
    if kind == "layers":
        g, listed = by_layers(M, G, proof, widths, enough)
        return g, some if listed else ""
    if active is not None:
        need(A is None or A[2] != "flatten" or A[1] == 1, "patterns know no output weights at every position")
        if kind == "sampled":
            return over_patterns(M, G, active, enough), some
        if kind == "shared":
            return by_shared(M, G, active, proof), "patterns"
        worst = max((float(np.linalg.norm((G * a[:, None]).T @ M)) for a in active), default=0.0)
        return worst + (len(M) + M.shape[1] * C + 16) * U * total(M, G), "gates"
    if kind == "positive":
        need(A is None or (A[2] is None and len(M) == len(w)), "rows are pooled")
        return by_positive(M, G, w), ""
    if kind == "relaxation":
        return by_relaxation(M, G, proof), ""
    R, H, lost = reduced(M, G)
    if not len(R):
        return 0.0, ""
    if kind == "cones":
        limit = max(number(proof["limit"], "limit"), lost)  # below, rounding is all there is
        return by_cones(R, H, limit, enough - lost) + lost, ""
    need(C == 1 or kind in ("spectral", "shared"), "patterns bound one output")
    other, angle = (R, 1.0) if listed is None else (reduced(listed[0], G)[0], listed[1])
    need(other.shape == R.shape, "the rows at this price are lost in rounding")
    (N, r), active = R.shape, all_patterns(other)
    # hyperplanes that are taken for one
    lost += ((r + 1) * PARALLEL * angle + (N + r + 16) * U) * total(R, H) * (1 + RTOL)
    if kind == "shared":
        return by_shared(R, H, active, proof) + lost, ""
    if kind == "spectral":
        return over_spectra(((H * a[:, None]).T @ R for a in active), enough - lost) + lost, ""
    return over_patterns(R, H, active, enough - lost) + lost, ""


def radius(M: Array) -> float:
    """The longest row without the column of a free bias, not rounded down."""
    return float(np.linalg.norm(M[:, :-1], axis=1).max()) * (1 + (M.shape[1] + 4) * U)


def at_price(e: Document, X: Array, M: Array, G: Array, w: Array, away: Array, enough: float) -> tuple[float, str]:
    """Free biases: f = (1 + R^2 / s^2)^(1/2) times the bound on ordinary neurons on [X, s 1].

    As V sums to zero, neurons with a kink at a row are all that matter: |b| <= R ||u||. With the price s of a bias such
    a neuron has the length f ||u|| at most. Rows at a high price are nearly parallel: patterns are listed on M.
    """
    R, k, proof = radius(M), float(M[0, -1]), e["proof"]
    s, inner = k, proof
    if proof["kind"] == "priced":
        s, inner = number(proof["price"], "price"), proof["inner"]
    need(s > 0 and inner["kind"] not in ("gates", "priced"), "no proof about neurons whose biases have a price")
    factor = math.hypot(1.0, R / s) * (1 + 8 * U)
    rows = np.column_stack([M[:, :-1], np.full(len(M), s)])
    listed = (M, 2 * (R * (R / k) + k) / s) if inner["kind"] in ("patterns", "spectral") else None
    ordinary = {**e, "bias": True, "proof": inner}
    g, restricted = constraint(ordinary, X, rows, G, w, None, away, enough / factor * (1 - 8 * U), listed)
    return factor * g * (1 + 8 * U), restricted


# ---- the network -----------------------------------------------------------------------------------------------------


def branches(network: Document, e: Document, X: Array) -> tuple[Array, float]:
    """Outputs and path regulariser of a parallel network, if its neurons have no more inputs than the claim says."""
    weights, widths, o = network["weights"], network["widths"], e["options"]
    fans = (o["m1"], o["m2"], *o["deeper"])
    W = [np.array(weights[f"layer_{k}"], dtype=float).reshape(-1, *s) for k, s in enumerate(pairwise(widths), start=1)]
    b = weights["hidden_bias"]
    b = np.zeros((len(W[0]), widths[1])) if b is None else np.array(b, dtype=float).reshape(-1, widths[1])
    inputs = [int((layer != 0).sum(axis=1).max(initial=0)) for layer in W[1:-1]]
    need(len(W) == len(fans) + 1 and widths[0] == X.shape[1], "the model has other layers than the claim says")
    need(all(map(int.__le__, (*inputs, widths[-2]), fans)), "the model has wider branches than the claim says")
    need(e["bias"] or not b.any(), "the model has biases, the claim is about none")
    H, squares = np.einsum("nd,kdm->nkm", X, W[0]) + b, (W[0] ** 2).sum(axis=1) + b**2
    for layer in W[1:]:
        H, squares = np.einsum("nkm,kml->nkl", np.maximum(H, 0.0), layer), np.einsum("km,kml->kl", squares, layer**2)
    return H.sum(axis=1), float(np.sqrt(squares.sum(axis=1)).sum())


def layer_of(network: Document, kinds: Any, e: Document, rows: Array, count: Array, which: Any) -> tuple[Array, float]:
    """Outputs of a layer on rows, without intercept, and its penalty, if it is one that the claim is about."""
    kind, weights, gated = network["kind"], network["weights"], e["proof"]["kind"] == "gates"
    need(kind in kinds and gated == (kind == "gated"), f"the model is of the kind {kind!r}, the claim about another")

    def array(name: str, *shape: int) -> Array:
        given = weights.get(name)
        return np.array(np.zeros(np.abs(shape)) if given is None else given, dtype=float).reshape(shape)

    if kind == "deep":
        L, F, penalty = e["options"].get("depth", 2), rows.reshape(len(rows), -1), 0.0
        need(network["activation"] == "linear" and network["depth"] == L, f"the model is no linear one of {L} layers")
        need(weights.get("whitening") is None, "the model whitens its inputs")
        for k in range(1, L + 1):
            layer = array(f"layer_{k}", F.shape[1], network["n_outputs"] if k == L else -1)
            need(k == L or not array(f"bias_{k}", layer.shape[1]).any(), "the model has hidden biases")
            F, penalty = F @ layer, penalty + 0.5 * float((layer**2).sum())
        return F, penalty
    d, C = network["n_inputs"], network["n_outputs"]
    need(rows.shape[1:] == (d,), "the model takes other inputs than the data")
    if gated:
        gates, W = array("gate_weights", -1, d), array("linear_weights", -1, d, C)
        offset, b = array("gate_bias", len(W)), array("linear_bias", len(W), C)
        need(e["bias"] or not (b.any() or offset.any()), "the model has biases, the claim is about none")
        t = rows @ gates.T + offset
        sure = np.abs(t) > 1e-9 * (np.abs(rows) @ np.abs(gates.T) + np.abs(offset))
        known = bits(e["proof"]["active"])[:, which]
        for j in range(len(W)):
            same = (known == (t[:, j] >= 0)) | ~sure[:, j]
            need(same.all(axis=1).any(), "the model has gates that the proof has not")
        F = sum(((t[:, j, None] >= 0) * (rows @ W[j] + b[j]) for j in range(len(W))), np.zeros((len(rows), C)))
        return F, float(np.sqrt((W**2).sum(axis=(1, 2)) + (b**2).sum(axis=1)).sum())
    hidden, alpha = array("hidden_weights", -1, d), array("output_weights", -1, C)
    b = array("hidden_bias", len(hidden))
    t = rows @ hidden.T + b
    if kind == "two_layer":
        free = bool(network.get("free_bias", False))
        need(free == (e["bias"] == "free"), "the model charges its biases otherwise than the claim says")
        need(e["bias"] or not b.any(), "the model has biases, the claim is about none")
        charged = (hidden**2).sum() + (0.0 if free else (b**2).sum()) + (alpha**2).sum()
        return np.maximum(t, 0.0) @ alpha, 0.5 * float(charged)
    position = e["options"].get("position", "before")
    need(weights["position"] == position, "the model normalises elsewhere than the claim says")
    gamma, shift, mean, norm = (array(key, len(hidden)) for key in ("gamma", "shift", "mean", "norm"))
    t = t if position == "before" else np.maximum(t, 0.0)
    found, off = count @ t / count.sum(), 64 * U * (np.abs(rows) @ np.abs(hidden.T) + np.abs(b)).max(axis=0)
    need((np.abs(found - mean) <= 1e-6 * np.abs(t).max(axis=0) + off).all(), "the model has other means than the data")
    size, off = np.sqrt(count @ (t - found) ** 2), math.sqrt(count.sum()) * off
    need((np.abs(size - norm) <= 1e-6 * norm + off).all(), "the model has other norms than the data")
    t = gamma / norm * (t - mean) + shift / math.sqrt(float(weights["n_samples"]))
    charged = (gamma**2).sum() + (shift**2).sum() + (alpha**2).sum()
    return (np.maximum(t, 0.0) if position == "before" else t) @ alpha, 0.5 * float(charged)


def evaluate(network: Document, e: Document, X: Array, Y: Array, count: Array, A: Any) -> tuple[Array, float]:
    """Outputs and penalty of a network, if it is one of the kind that the claim is about."""
    name, o, intercept = e["architecture"], e["options"], "intercept"
    kinds: Any = ("batch_norm",) if name == "batch_norm" or o.get("batch_norm") else ("two_layer", "gated")
    if name.startswith("linear"):
        kinds, intercept = ("deep",), f"bias_{o.get('depth', 2)}"
    holder, which = network.get("weights", network), slice(None) if A is None else A[0]
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


def standardisation(e: Document, network: Document | None) -> tuple[Document, Document | None, Array, Array]:
    """Evidence and network behind a standardisation of the columns, with its means and deviations."""
    o = e["options"]
    need(set(o) == {"inner", "centre", "scale"}, "standardised has other options")
    centre, deviation = (np.array(o[key], dtype=float) for key in ("centre", "scale"))
    need(centre.ndim == 1 and centre.shape == deviation.shape, "means and deviations are no lists of numbers")
    need(np.isfinite(centre).all() and np.isfinite(deviation).all(), "means and deviations must be finite")
    need(deviation.min() > 0, "deviations must be positive")
    if network is not None:
        need(network["kind"] == "standardised", "the model does not standardise its columns")
        same = all(list(network[key]) == list(o[key]) for key in ("centre", "scale"))
        need(same, "the model has other means and deviations than the claim")
        network = network["layer"]
    return {**e, "architecture": o["inner"]["name"], "options": o["inner"]["options"]}, network, centre, deviation


def examine(c: Document, X: Array, y: Array, sample_weight: Any, network: Document | None) -> str:
    """What is proven; raises if it is not what is claimed."""
    objective, lower = claims(c)
    e: Any = c.get("evidence")
    need(isinstance(e, dict), "the certificate has no evidence, its proof was not kept: train again to have it proven")
    centre, deviation = np.zeros(1), np.ones(1)
    if e["architecture"] == "standardised":
        e, network, centre, deviation = standardisation(e, network)
    loss, name, o, beta = e["loss"], e["architecture"], e["options"], number(c["beta"], "beta")
    indicator = loss["name"] in INDICATORS
    need(c["loss"] == loss["name"], f"the claim is about the loss {c['loss']!r}, the evidence about {loss['name']!r}")
    need(beta > 0 or (beta == 0 and indicator), "beta and the loss do not go together")
    beta = beta or 1.0
    V, X, y = np.array(e["V"], dtype=float), np.asarray(X, dtype=float), np.asarray(y)
    need(V.ndim == 2 and np.isfinite(V).all(), "V is no matrix of finite numbers")
    need(X.ndim >= 2 and np.isfinite(X).all(), "X must hold finite numbers")
    if name == "convolutional" and o["pooling"] is None:  # a target for each patch
        y = y.reshape(-1, V.shape[1]) if e["classes"] is None else y.ravel()
    X, Y, w, count = distinct(X, encode(loss["name"], y, e["classes"]), sample_weight)
    need(centre.size == X.shape[-1] or centre.size == 1, "there are not as many means as columns")
    X = (X - centre) / deviation  # the data are what this is in double precision
    need(V.shape == Y.shape, f"the proof is about {V.shape} distinct rows and outputs, these data have {Y.shape}")
    away = np.zeros(len(X))
    free = e["bias"] == "free"
    need(not free or (e["fit_intercept"] is True and X.ndim == 2), "free biases go with a free intercept")
    if free and e["proof"]["kind"] == "kinks":
        x, away = on_a_line(X)
        order = np.argsort(x, kind="stable")
        X, Y, w, x, away = X[order], Y[order], w[order], x[order], away[order]
        M, A, restriction = (x - 0.5 * (x[0] + x[-1]))[:, None], None, ""
    else:
        need(
            (free or type(e["bias"]) is bool) and type(e["fit_intercept"]) is bool,
            "biases and an intercept are there or not",
        )
        M, A, restriction = features(e, X, count[:: max(1, len(count) // len(X))])
    # natural units: features and targets of mean square one, which is what V and the proof are written in
    s = math.hypot(*M.ravel()) / math.sqrt(len(M)) or 1.0
    if o.get("position") == "after":  # where scales are free, and exact
        s = 2.0 ** round(math.log2(s))
    power, t, shift = POWERS.get(loss["name"], 0), 1.0, np.zeros(Y.shape[1])
    chains = o.get("depth", 2) > 2  # in the units of the data
    s = 1.0 if chains else s
    if loss["name"] in POWERS:
        shift = np.where(np.ptp(Y, axis=0) > 0, w @ Y, Y[0]) if e["fit_intercept"] else shift
        t = 1.0 if chains else math.hypot(*(np.sqrt(w)[:, None] * (Y - shift)).ravel()) or 1.0
    natural = {key: value / t if key in LENGTHS else value for key, value in loss.items()}
    Yn, Mn, strength = (Y - shift) / t, M / s, beta * t ** (1 - power) / s
    V, rho, moved = into_domain(natural, V, Yn, w, e["fit_intercept"])
    G, scale = spread(A, V, len(Mn)), number(e["scale"], "multiple of the dual point")
    rows = np.linalg.norm(Mn, axis=1)
    seen = rows if A is None else rows[A[0]].reshape(len(V), -1).sum(axis=1)  # what a row of V may add to g
    if free and e["proof"]["kind"] != "kinks":  # what a neuron with a kink at a row adds to any other
        seen = np.maximum(seen, 2 * radius(Mn))
    if name == "linear_conv":  # at all positions
        seen = seen * math.sqrt(patches(X[:1], o)[1])
    summed = 3 if A is None else 3 + len(G)  # terms of entries of G, and the units of M
    slack = float((moved + summed * U * np.linalg.norm(V, axis=1)) @ seen)
    if restriction or name == "batch_norm" or (name == "convolutional" and o["batch_norm"]):  # white up to rounding
        slack += (64 + 2 * X[0].size) * U * total(Mn, G)
    unit, limit, attained = t ** (power - 1) * s, c.get("limit"), c.get("attained")
    most = math.inf if limit is None else number(limit, "limit") / unit
    reached = number(attained, "value") / unit * (1 - 3 * SHOWN) if attained else most
    # no better g is of use than shows the claims
    goal = min(total(Mn, G), most, reached, strength * (1 - 8 * U) / scale if scale > 0 else most)
    g, restricted = constraint(e, X, Mn, G, w, A, away / s, max(goal - slack, 0.0))
    g += slack
    scope = ", ".join(filter(None, (restricted, restriction))) or "global"
    need(scope == c["scope"], f"the claim is about the scope {c['scope']!r}, the proof about {scope!r}")
    need(scale >= 0 and math.isfinite(g), "the dual constraint is not bounded, or the multiple of V is negative")
    multiple = min(scale, strength * (1 - 8 * U) / g) if g > 0 else scale
    proven = dual_value(natural, multiple * V, Yn, w, max(multiple, 1.0) * rho) * t**power
    if chains:
        proven = max(0.0, by_chains(e, X, Mn, natural, Yn, w, beta))
    enough = proven >= lower - RTOL * abs(lower) - 1e-13 * t**power
    need(enough, f"the proof shows a lower bound of {proven:.9g}, the claim is {lower:.9g}")
    g *= unit
    need(limit is None or limit >= g - SHOWN * max(g, beta), "the dual constraint exceeds its limit")
    need(attained is None or attained <= g + SHOWN * max(g, beta), "a value above what is possible")
    known = "; the objective was not checked: no model was given"
    if network is not None:
        F, penalty = evaluate(network, e, X, Y, count, A)
        found = float(w @ loss_of(loss)[3](F, Y).sum(axis=1)) + beta * penalty
        same = found == objective or abs(found - objective) <= RTOL * abs(objective)
        need(same, f"the model has the objective {found:.9g}")
        gap = max(0.0, found - proven) / max(found, 5e-324) if found < math.inf else math.inf
        known = f", and the model has the objective {found:.9g}: the gap is {gap:.3g}"
    return f"no network of the scope {scope!r} has an objective below {proven:.9g}{known}"


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
        certificate = json.loads(Path(args.certificate).read_text(encoding="utf-8"))
        model = json.loads(Path(args.model).read_text(encoding="utf-8")) if args.model else {}
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
