r"""The compiled heart of pricing: exact local maxima of :math:`a^T V^T (X u)_+` over the unit ball."""

from __future__ import annotations

import numpy as np
from numba import njit

from bidual._util.jit import INNER, JIT
from bidual._util.typing import Array

# Signatures are spelled out: inferred ones differ in literal integers, and each would be compiled.
V, M = "float64[::1]", "float64[:,::1]"
#: Operations of the longest search from one start (a step takes one for each entry of X): seconds.
LONGEST = 2_000_000_000


@njit(f"float64({V}, {V})", **INNER)
def _dot(x, y):  # type: ignore[no-untyped-def]
    """``x^T y`` with four sums, which need not wait for each other."""
    a = b = c = d = 0.0
    n = len(x)
    i = 0
    while i + 3 < n:
        a += x[i] * y[i]
        b += x[i + 1] * y[i + 1]
        c += x[i + 2] * y[i + 2]
        d += x[i + 3] * y[i + 3]
        i += 4
    while i < n:
        a += x[i] * y[i]
        i += 1
    return (a + b) + (c + d)


@njit(f"void({M}, {V}, {V})", **INNER)
def _times(XT, p, out):  # type: ignore[no-untyped-def]
    """``out = X p``, by columns: that vectorises."""
    r, n = XT.shape
    for i in range(n):
        out[i] = p[0] * XT[0, i]
    j = 1
    while j + 3 < r:  # four columns at a time: fewer passes over `out`
        a, b, c, d = p[j], p[j + 1], p[j + 2], p[j + 3]
        for i in range(n):
            out[i] += a * XT[j, i] + b * XT[j + 1, i] + c * XT[j + 2, i] + d * XT[j + 3, i]
        j += 4
    while j < r:
        a = p[j]
        for i in range(n):
            out[i] += a * XT[j, i]
        j += 1


@njit(f"void({V}, int64[::1], int64, int64)", **INNER)
def _sift(t, index, root, m):  # type: ignore[no-untyped-def]
    """Restore the heap order (smallest first) of ``t[:m]`` below ``root``, carrying ``index`` along."""
    while True:
        child = 2 * root + 1
        if child >= m:
            return
        if child + 1 < m and t[child + 1] < t[child]:
            child += 1
        if t[root] <= t[child]:
            return
        t[root], t[child] = t[child], t[root]
        index[root], index[child] = index[child], index[root]
        root = child


@njit(f"void({M}, {V}, {V})", **INNER)
def _back_times(XT, m, out):  # type: ignore[no-untyped-def]
    """``out = X^T m``, four columns at a time in two halves: additions that need not wait for each other."""
    r, n = XT.shape
    half = n // 2
    j = 0
    while j + 3 < r:
        a = b = c = d = e = f = g = h = 0.0
        for i in range(half):
            low, high = m[i], m[half + i]
            a += low * XT[j, i]
            b += low * XT[j + 1, i]
            c += low * XT[j + 2, i]
            d += low * XT[j + 3, i]
            e += high * XT[j, half + i]
            f += high * XT[j + 1, half + i]
            g += high * XT[j + 2, half + i]
            h += high * XT[j + 3, half + i]
        if n > 2 * half:
            low = m[n - 1]
            a += low * XT[j, n - 1]
            b += low * XT[j + 1, n - 1]
            c += low * XT[j + 2, n - 1]
            d += low * XT[j + 3, n - 1]
        out[j], out[j + 1], out[j + 2], out[j + 3] = a + e, b + f, c + g, d + h
        j += 4
    while j < r:
        out[j] = _dot(XT[j], m)
        j += 1


@njit(f"boolean({M}, int64, {M}, {M}, int64)", **INNER)
def _append(XT, i, Q, R, k):  # type: ignore[no-untyped-def]
    """Append row ``i`` to the QR factors of the sticky rows; False if it depends on them."""
    r = XT.shape[0]
    q = Q[k]
    for j in range(r):
        q[j] = XT[j, i]
    before = _dot(q, q)
    for b in range(k):
        R[b, k] = 0.0
    norm = before
    for _pass in range(2):
        for b in range(k):
            d = _dot(Q[b], q)
            R[b, k] += d
            for j in range(r):
                q[j] -= d * Q[b, j]
        norm = _dot(q, q)
        if norm > 1e-2 * before:  # little was lost to cancellation: once is enough
            break
    if norm <= 1e-18 * before:
        return False
    norm = np.sqrt(norm)
    R[k, k] = norm
    for j in range(r):
        q[j] /= norm
    return True


@njit(f"void({M}, {M}, int64, int64)", **INNER)
def _remove(Q, R, where, k):  # type: ignore[no-untyped-def]
    """Remove column ``where`` of the ``k`` columns of R, and turn R back to a triangle."""
    r = Q.shape[1]
    for e in range(where, k - 1):
        for b in range(e + 2):
            R[b, e] = R[b, e + 1]
    for e in range(where, k - 1):
        length = np.hypot(R[e, e], R[e + 1, e])
        c, s = R[e, e] / length, R[e + 1, e] / length
        for b in range(e, k - 1):
            low, high = R[e, b], R[e + 1, b]
            R[e, b], R[e + 1, b] = c * low + s * high, c * high - s * low
        for j in range(r):
            low, high = Q[e, j], Q[e + 1, j]
            Q[e, j], Q[e + 1, j] = c * low + s * high, c * high - s * low


@njit(f"int64({M}, {V}, {V}, {V}, {V}, boolean[::1], int64[::1], {M}, {M}, int64, int64, int64[::1])", **INNER)
def _sticky_prox(XT, a, c, w, z, on, sticky, Q, R, k, max_iter, spent):  # type: ignore[no-untyped-def]
    r"""Minimise :math:`\tfrac12 \|w - c\|^2 + \sum_i a_i (x_i^T w)_+` in place by an active set.

    The minimiser lies on the hyperplanes of fewer than r "sticky" rows, whose slopes are then fractional. Each step
    minimises exactly along the projected gradient; a kink that stops it becomes sticky, and a sticky row whose
    multiplier leaves [0, a_i] is let go to the side it wants. ``Q`` and ``R`` are the factors of the ``k`` rows in
    ``sticky``; the new k is returned, and ``spent`` counts the steps.
    """
    r, q = XT.shape
    g = np.empty(r)
    p = np.empty(r)
    xp = np.empty(q)
    t_kink = np.empty(q)
    i_kink = np.empty(q, np.int64)
    coef = np.empty(r)
    scale = _dot(c, c)
    if scale == 0.0:
        for j in range(r):
            w[j] = 0.0
        return k
    tol = 1e-20 * scale
    for i in range(q):
        xp[i] = a[i] if on[i] else 0.0
    _back_times(XT, xp, g)
    for j in range(r):
        g[j] += w[j] - c[j]
    for _ in range(max_iter):
        spent[0] += 1
        for j in range(r):
            p[j] = -g[j]
        for b in range(k):
            d = _dot(Q[b], g)
            coef[b] = -d
            for j in range(r):
                p[j] += d * Q[b, j]
        pp = _dot(p, p)
        if k >= r or pp <= tol:
            # multipliers: -g = sum_e mu_e x_e
            worst, where, side = 1e-9, -1, False
            for b in range(k - 1, -1, -1):
                s = coef[b]
                for e in range(b + 1, k):
                    s -= R[b, e] * coef[e]
                coef[b] = s / R[b, b]
                top = a[sticky[b]]
                low, high = -coef[b] / top, coef[b] / top - 1.0
                if low > worst:
                    worst, where, side = low, b, False
                if high > worst:
                    worst, where, side = high, b, True
            if where < 0:
                break
            i = sticky[where]
            on[i] = side
            z[i] = 0.0
            if side:
                for j in range(r):
                    g[j] += a[i] * XT[j, i]
            _remove(Q, R, where, k)
            k -= 1
            for e in range(where, k):
                sticky[e] = sticky[e + 1]
            continue
        _times(XT, p, xp)
        for e in range(k):
            xp[sticky[e]] = 0.0
        m = 0
        for i in range(q):
            if ((z[i] + xp[i] > 0.0) != on[i]) & (xp[i] != 0.0):
                t_kink[m] = abs(z[i] / xp[i])
                i_kink[m] = i
                m += 1
        for i in range(m // 2 - 1, -1, -1):
            _sift(t_kink, i_kink, i, m)
        jump, t, hit = 0.0, 1.0, -1
        while m > 0:
            i, t = i_kink[0], t_kink[0]
            if pp * (1.0 - t) <= jump:
                break
            jump += a[i] * abs(xp[i])
            if pp * (1.0 - t) <= jump:
                hit = i
                break
            sign = -1.0 if on[i] else 1.0  # crossed
            on[i] = not on[i]
            for j in range(r):
                g[j] += sign * a[i] * XT[j, i]
            m -= 1
            t_kink[0], i_kink[0] = t_kink[m], i_kink[m]
            _sift(t_kink, i_kink, 0, m)
        if hit < 0:
            t = max(1.0 - jump / pp, 0.0)
        for j in range(r):
            w[j] += t * p[j]
            g[j] += t * p[j]
        for i in range(q):
            z[i] += t * xp[i]
        if hit >= 0:
            if on[hit]:
                for j in range(r):
                    g[j] -= a[hit] * XT[j, hit]
            on[hit] = False
            z[hit] = 0.0
            if _append(XT, hit, Q, R, k):
                sticky[k] = hit
                k += 1
    return k


@njit(f"void({M}, {M}, {M}, {M}, boolean, float64, {V}, int64, int64)", **JIT)
def polish(
    XT: Array, V: Array, U: Array, A: Array, free: bool, cutoff: float, values: Array, start: int, stop: int
) -> None:
    r"""Local maxima of :math:`a^T V^T (X u)_+` over the unit ball from ``U[start:stop]``, in place.

    DC programming: rows with :math:`v_i = (Va)_i > 0` are linearised at u (a convex part may be), the rest is solved
    exactly by :func:`_sticky_prox`; the value never falls and the loop ends when no row of the first kind changes
    sides. Starts that will not reach ``cutoff``, by the look of their progress, are left unfinished, and so are those
    that would take more than seconds (counted in operations). With ``free``, the output direction ``a`` follows
    :math:`V^T (X u)_+` (ascent in both), otherwise it stays as given.
    """
    r, n = XT.shape
    C = V.shape[1]
    rough = 4 + r // 2
    most = LONGEST // max(1, n * r)
    spent = np.zeros(1, np.int64)
    z = np.empty(n)
    v = np.empty(n)
    hidden = np.empty(n)
    slopes = np.zeros(n)
    c = np.empty(r)
    w = np.empty(r)
    a_new = np.empty(C)
    Q = np.empty((r + 1, r))
    R = np.empty((r + 1, r + 1))
    for s in range(start, stop):
        for j in range(r):
            w[j] = U[s, j]
        best = -1.0
        gained = 0.0
        size = 0.0
        prepared = False
        exact = False
        q = 0
        neg = np.empty(0, np.int64)
        XN = np.empty((r, 0))
        an = np.empty(0)
        zn = np.empty(0)
        on = np.empty(0, np.bool_)
        sticky = np.empty(r + 1, np.int64)
        n_sticky = 0
        spent[0] = 0
        for it in range(200):
            norm = np.sqrt(_dot(w, w))
            if not norm > 1e-9 * size:  # u = 0 is the maximum of the linearised problem
                break
            for j in range(r):
                w[j] /= norm
            _times(XT, w, z)
            if free or not prepared:
                if free:
                    size = 0.0
                    for e in range(C):
                        h = 0.0
                        for i in range(n):
                            h += V[i, e] * z[i] if z[i] > 0.0 else 0.0
                        a_new[e] = h
                        size += h * h
                    size = np.sqrt(size)
                    if size > 0.0:
                        for e in range(C):
                            A[s, e] = a_new[e] / size
                q = 0
                for i in range(n):
                    h = 0.0
                    for e in range(C):
                        h += V[i, e] * A[s, e]
                    v[i] = h
                    q += 1 if h < 0.0 else 0
                neg = np.empty(q, np.int64)
                q = 0
                for i in range(n):
                    if v[i] < 0.0:
                        neg[q] = i
                        q += 1
                XN = np.empty((r, q))
                for j in range(r):
                    for i in range(q):
                        XN[j, i] = XT[j, neg[i]]
                an = np.empty(q)
                for i in range(q):
                    an[i] = -v[neg[i]]
                zn = np.empty(q)
                on = np.zeros(q, np.bool_)
                n_sticky = 0
            # no branches on the signs of z and v, which no processor can predict
            moved = 0
            for i in range(n):
                hidden[i] = max(z[i], 0.0)
                slope = max(v[i], 0.0) if z[i] > 0.0 else 0.0
                moved += slope != slopes[i]
                slopes[i] = slope
            value = _dot(v, hidden)
            changed = moved > 0 or not prepared
            if value > best:
                gained = value - best
                best = value
                for j in range(r):
                    U[s, j] = w[j]
            elif exact:
                break
            else:
                gained = 0.0
            settled = not changed and (not free or gained <= 1e-6 * best)
            if it >= 4 and not exact and value + 5.0 * gained < cutoff:
                break
            if settled and exact and (not free or gained <= 1e-12 * best):
                break
            if spent[0] >= most:
                break
            prepared = True
            _back_times(XT, slopes, c)
            # the prox of the ray through u starts the search at the right length
            size = np.sqrt(_dot(c, c))
            length = max(value, 1e-3 * size)
            for j in range(r):
                w[j] *= length
            for i in range(q):
                zn[i] = z[neg[i]] * length
                on[i] = zn[i] > 0.0
            for e in range(n_sticky):  # rounding must not turn a sticky row on
                on[sticky[e]] = False
                zn[sticky[e]] = 0.0
            # far from the end, a rough solution is enough: rows will change sides anyway
            exact = settled
            steps = min(40 * r + 100 if exact else rough, most - spent[0])
            n_sticky = _sticky_prox(XN, an, c, w, zn, on, sticky, Q, R, n_sticky, steps, spent)
        values[s] = best
