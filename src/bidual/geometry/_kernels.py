"""Compiled active-set method. Imported only when first used: numba takes a moment to load."""

from __future__ import annotations

import numpy as np
from numba import njit

from bidual._util.jit import JIT

#: A column this close to the span of the passive ones, relative to its length squared, is not added to them.
DEPENDENT = 1e-12


@njit(**JIT)
def _append(L, G, passive, k, j):  # type: ignore[no-untyped-def]
    """Row k of the Cholesky factor, for column j; False if j depends on the passive columns."""
    left = G[j, j]
    for a in range(k):
        s = G[passive[a], j]
        for b in range(a):
            s -= L[a, b] * L[k, b]
        s /= L[a, a]
        L[k, a] = s
        left -= s * s
    if left <= DEPENDENT * G[j, j]:
        return False
    L[k, k] = np.sqrt(left)
    return True


@njit(**JIT)
def _remove(L, z, passive, k, a):  # type: ignore[no-untyped-def]
    """Delete row a of the factor of k rows, and its entry of ``z = L^-1 rhs``, by rotations."""
    for i in range(a, k - 1):
        passive[i] = passive[i + 1]
        for b in range(i + 2):
            L[i, b] = L[i + 1, b]
    for i in range(a, k - 1):  # row i now reaches one past the diagonal
        x, y = L[i, i], L[i, i + 1]
        r = np.hypot(x, y)
        c, s = x / r, y / r
        L[i, i], L[i, i + 1] = r, 0.0
        for m in range(i + 1, k - 1):
            p, q = L[m, i], L[m, i + 1]
            L[m, i], L[m, i + 1] = c * p + s * q, c * q - s * p
        p, q = z[i], z[i + 1]
        z[i], z[i + 1] = c * p + s * q, c * q - s * p


@njit(**JIT)
def nonnegative(G, rhs, x, tol, max_iter):  # type: ignore[no-untyped-def]
    r"""Minimise :math:`\tfrac12 x^T G x - rhs^T x` over :math:`x \ge 0` by Lawson and Hanson's active set, in place.

    The positive entries of ``x`` are a start: they enter first. Stops when no gradient entry exceeds ``tol``.
    """
    n = len(rhs)
    L = np.zeros((n, n + 1))
    z, step = np.zeros(n), np.zeros(n)
    passive = np.zeros(n, dtype=np.int64)
    blocked = np.zeros(n, dtype=np.bool_)
    inside = np.zeros(n, dtype=np.bool_)
    k = 0
    for j in range(n):
        if x[j] > 0.0:
            if _append(L, G, passive, k, j):
                s = rhs[j]
                for b in range(k):
                    s -= L[k, b] * z[b]
                z[k] = s / L[k, k]
                passive[k] = j
                inside[j] = True
                k += 1
            else:
                x[j] = 0.0
    fresh = k > 0  # the start has to be made consistent first
    for _ in range(max_iter):
        entering = -1
        if not fresh:
            best = tol
            for j in range(n):
                if not inside[j] and not blocked[j]:
                    s = rhs[j]
                    for b in range(k):
                        s -= G[passive[b], j] * x[passive[b]]
                    if s > best:
                        best, entering = s, j
            if entering < 0:
                return
            if not _append(L, G, passive, k, entering):
                blocked[entering] = True
                continue
            s = rhs[entering]
            for b in range(k):
                s -= L[k, b] * z[b]
            z[k] = s / L[k, k]
            if z[k] <= 0.0:  # rounding: it would not grow
                blocked[entering] = True
                continue
            passive[k] = entering
            inside[entering] = True
            k += 1
        fresh = False
        while k > 0:
            for a in range(k - 1, -1, -1):
                s = z[a]
                for b in range(a + 1, k):
                    s -= L[b, a] * step[b]
                step[a] = s / L[a, a]
            length, leaving = 1.0, -1
            for a in range(k):
                if step[a] <= 0.0:
                    now = x[passive[a]]
                    t = now / (now - step[a]) if now > step[a] else 0.0
                    if t < length or leaving < 0:
                        length, leaving = t, a
            if leaving < 0:
                for a in range(k):
                    x[passive[a]] = step[a]
                break
            for a in range(k):
                x[passive[a]] += length * (step[a] - x[passive[a]])
            j = passive[leaving]
            x[j] = 0.0
            inside[j] = False
            _remove(L, z, passive, k, leaving)
            k -= 1
            if j == entering:
                blocked[j] = True
        if k > 0 and length > 0.0:  # the point moved: what was blocked may be of use again
            for j in range(n):
                if j != entering:
                    blocked[j] = False


@njit(**JIT)
def solve_some(points, targets, kappa, candidates, weights, tol, start, stop):  # type: ignore[no-untyped-def]
    r"""The problems ``start..stop`` of :mod:`bidual.geometry.simplex` on their candidates, from ``weights``, in place.

    ``candidates[i]`` are indices of points, padded by -1. With ``kappa[i] > 0`` the columns are
    :math:`(p_j - t, \kappa)` and the right hand side is :math:`(0, \kappa)`; else the columns are :math:`p_j` and the
    right hand side is t.
    """
    d = points.shape[1]
    for i in range(start, stop):
        n = 0
        while n < candidates.shape[1] and candidates[i, n] >= 0:
            n += 1
        C = np.empty((n, d))
        rhs = np.empty(n)
        shifted = kappa[i] > 0.0
        for a in range(n):
            j = candidates[i, a]
            s = 0.0
            for c in range(d):
                if shifted:
                    C[a, c] = points[j, c] - targets[i, c]
                else:
                    C[a, c] = points[j, c]
                    s += points[j, c] * targets[i, c]
            rhs[a] = kappa[i] ** 2 if shifted else s
        G = np.dot(C, C.T)
        if shifted:
            G += kappa[i] ** 2
        x = weights[i, :n].copy()
        nonnegative(G, rhs, x, tol[i], 20 * (n + 10))
        weights[i, :n] = x
