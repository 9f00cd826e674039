"""Compiled bounds on one cone: non-negative least squares of a few variables, and spectral norms."""

from __future__ import annotations

import numpy as np
from numba import njit

from bidual._util.jit import INNER


@njit(**INNER)
def _solve_support(K, h, on, a, L):  # type: ignore[no-untyped-def]
    """Solve ``K_SS a_S = h_S`` on the support ``on`` by Cholesky, zero elsewhere; False if K_SS is singular."""
    d = len(h)
    for i in range(d):
        a[i] = 0.0
        if not on[i]:
            continue
        for j in range(i + 1):
            if on[j]:
                s = K[i, j]
                for k in range(j):
                    if on[k]:
                        s -= L[i, k] * L[j, k]
                if i == j:
                    if s <= 1e-14:
                        return False
                    L[i, i] = np.sqrt(s)
                else:
                    L[i, j] = s / L[j, j]
    for i in range(d):
        if on[i]:
            s = h[i]
            for k in range(i):
                if on[k]:
                    s -= L[i, k] * a[k]
            a[i] = s / L[i, i]
    for i in range(d - 1, -1, -1):
        if on[i]:
            s = a[i]
            for k in range(i + 1, d):
                if on[k]:
                    s -= L[k, i] * a[k]
            a[i] = s / L[i, i]
    return True


@njit(**INNER)
def _repaired_norm(K, h, a):  # type: ignore[no-untyped-def]
    r"""Norm of a point q with :math:`w_k^T q \ge h_k` made from the multipliers ``a >= 0``.

    The angles between generators are not obtuse (K >= 0), so that :math:`q = \sum_k (a_k + e_k) w_k` is feasible if e
    are the shortfalls of :math:`\sum_k a_k w_k`.
    """
    d = len(h)
    raised = np.empty(d)
    for i in range(d):
        s = h[i]
        for j in range(d):
            s -= K[i, j] * a[j]
        raised[i] = a[i] + max(s, 0.0)
    total = 0.0
    for i in range(d):
        for j in range(d):
            total += raised[i] * K[i, j] * raised[j]
    return np.sqrt(max(total, 0.0))


@njit(**INNER)
def conic_bound(K, h, a):  # type: ignore[no-untyped-def]
    r"""Upper bound on :math:`\max h^T a` over :math:`a \ge 0`, :math:`a^T K a \le 1`, tight as a rule; maximiser in a.

    Its dual is :math:`\min \|q\|` over :math:`w_k^T q \ge h_k`: a non-negative least squares problem, solved by an
    active set that starts from a few sweeps of coordinate descent.
    """
    d = len(h)
    for i in range(d):
        a[i] = 0.0
    for _ in range(3):
        for i in range(d):
            s = h[i] + K[i, i] * a[i]
            for j in range(d):
                s -= K[i, j] * a[j]
            a[i] = max(s / K[i, i], 0.0)
    best = _repaired_norm(K, h, a)
    on = np.empty(d, np.bool_)
    for i in range(d):
        on[i] = a[i] > 0.0
    L = np.empty((d, d))
    new = np.empty(d)
    for _ in range(2 * d):
        if not _solve_support(K, h, on, new, L):
            break
        step, stop = 1.0, -1
        for i in range(d):
            if on[i] and new[i] <= 0.0:
                t = a[i] / (a[i] - new[i]) if a[i] > 0.0 else 0.0
                if t < step:
                    step, stop = t, i
        if stop >= 0:
            for i in range(d):
                a[i] = max(a[i] + step * (new[i] - a[i]), 0.0)
            a[stop] = 0.0
            on[stop] = False
            continue
        for i in range(d):
            a[i] = new[i]
        worst, where = 1e-13 * best, -1
        for i in range(d):
            if not on[i]:
                s = h[i]
                for j in range(d):
                    s -= K[i, j] * a[j]
                if s > worst:
                    worst, where = s, i
        if where < 0:
            break
        on[where] = True
    return min(best, _repaired_norm(K, h, a))


@njit(**INNER)
def spectral_bound(L):  # type: ignore[no-untyped-def]
    r"""Upper bound on the spectral norm of a small matrix: powers of the Gram matrix by repeated squaring.

    Of a matrix of Frobenius norm one, so that all logarithms are between :math:`-\tfrac12 \log d` and 0. Off by
    :math:`\gamma_{40 d (k + 8)}` of itself at most, d and k being the sides: the Gram matrix by :math:`\gamma_k` of its
    trace, which is d times the result squared at most, each square by :math:`\sqrt d \gamma_d` and half as much in
    the result as the one before.
    """
    C, d = L.shape
    n = min(C, d)
    whole = 0.0
    for i in range(C):
        for j in range(d):
            whole += L[i, j] * L[i, j]
    whole = np.sqrt(whole)
    if whole == 0.0:
        return 0.0
    S, square = np.empty((n, n)), np.empty((n, n))
    for i in range(n):
        for j in range(n):
            s = 0.0
            for k in range(max(C, d)):
                s += (L[i, k] / whole) * (L[j, k] / whole) if n == C else (L[k, i] / whole) * (L[k, j] / whole)
            S[i, j] = s
    log, power = 0.0, 1.0
    for turn in range(6):
        size = 0.0
        for i in range(n):
            for j in range(n):
                size += S[i, j] * S[i, j]
        size = np.sqrt(size)
        log += np.log(size) / power
        power *= 2.0
        if turn == 5:
            break
        for i in range(n):
            for j in range(n):
                s = 0.0
                for k in range(n):
                    s += (S[i, k] / size) * (S[k, j] / size)
                square[i, j] = s
        for i in range(n):
            for j in range(n):
                S[i, j] = square[i, j]
    return whole * np.exp(0.5 * log)
