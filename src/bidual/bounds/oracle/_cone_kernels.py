"""Compiled loops of the search over cones. Imported only when first used: numba takes a moment to load."""

from __future__ import annotations

import numpy as np
from numba import njit

from bidual._util.jit import INNER, JIT
from bidual.bounds.oracle._conic_kernels import conic_bound, spectral_bound

#: Rows are on a side of a cone only if they are by this much, relative to their norm.
AMBIGUOUS = 1e-12
#: Generators of a cone have no product below minus this; rounding, were it to grow, would be caught.
TILT = 1e-14
#: Halvings of an orthant at most.
DEEPEST = 1000


@njit(**INNER)
def _scalar_bound(lin, K, T, v, m, threshold, sweeps, a):  # type: ignore[no-untyped-def]
    r"""Bound of :math:`c^T u + \sum_i v_i (t_i)_+` over a cone, and its value at the point :math:`\sum_k a_k w_k`.

    Heights of the generators: :math:`h_k = c^T w_k + \sum_{v_i > 0} v_i (t_{ki})_+ - \sum_{v_i < 0} |v_i| \theta_i
    t_{ki}` for any :math:`\theta \in [0, 1]`. Theta starts from the share of the positive parts and moves, by steps of
    Frank and Wolfe, towards the signs at the maximiser.
    """
    d = len(lin)
    base, cut, trial = np.empty(d), np.empty(d), np.empty(d)
    h, b, best_a = np.empty(d), np.empty(d), np.empty(d)
    z, part = np.empty(m), np.empty(m)
    for i in range(m):
        z[i] = part[i] = 0.0
    for k in range(d):
        s = lin[k]
        for i in range(m):
            t = T[k, i]
            p = max(t, 0.0)
            s += max(v[i], 0.0) * p
            part[i] += p
            z[i] += abs(t)
        base[k] = s
    for i in range(m):
        part[i] = v[i] * part[i] / z[i] if v[i] < 0.0 and z[i] > 0.0 else 0.0
    for k in range(d):
        s = 0.0
        for i in range(m):
            s += part[i] * T[k, i]
        cut[k] = s
        h[k] = base[k] + s
    bound = conic_bound(K, h, a)
    value = 0.0
    for k in range(d):
        best_a[k] = a[k]
    for _ in range(sweeps):
        size = 0.0
        for k in range(d):
            for j in range(d):
                size += a[k] * K[k, j] * a[j]
        size = np.sqrt(size)
        if size == 0.0:
            break
        for i in range(m):
            z[i] = 0.0
        here = 0.0
        for k in range(d):
            if a[k] > 0.0:
                share = a[k] / size
                here += share * lin[k]
                for i in range(m):
                    z[i] += share * T[k, i]
        for i in range(m):
            here += v[i] * max(z[i], 0.0)
        if here > value:
            value = here
            for k in range(d):
                best_a[k] = a[k]
        if bound <= threshold:
            break
        for i in range(m):
            part[i] = min(v[i], 0.0) if z[i] > 0.0 else 0.0
        for k in range(d):
            s = 0.0
            for i in range(m):
                s += part[i] * T[k, i]
            trial[k] = s
        found, share = bound, 0.0
        gamma = 1.0
        for _ in range(3):
            for k in range(d):
                h[k] = base[k] + cut[k] + gamma * (trial[k] - cut[k])
            x = conic_bound(K, h, b)
            if x < found:
                found, share = x, gamma
                for k in range(d):
                    a[k] = b[k]
            elif share > 0.0:
                break
            gamma *= 0.5
        progress = bound - found
        bound = found
        if progress <= 0.01 * (bound - threshold):
            break
        for k in range(d):
            cut[k] += share * (trial[k] - cut[k])
    for k in range(d):
        a[k] = best_a[k]
    return bound, value


@njit(**INNER)
def _vector_bound(active, W, K, T, X, G, rows, m, threshold, a):  # type: ignore[no-untyped-def]
    r"""Bound of :math:`\|C u + \sum_i G_i (t_i)_+\|` over a cone, and its value at the point :math:`\sum_k a_k w_k`.

    With :math:`L u = C u + \sum_i \theta_i G_i t_i` the rest is at most :math:`e(u) = \sum_i \|G_i\| \max((1 -
    \theta_i) t_i, -\theta_i t_i)`. Both :math:`\|Lu\| + e(u)` and e are sublinear: their values at the generators
    bound them, and :math:`\|L\|` bounds the first term.
    """
    d, C = W.shape[0], G.shape[1]
    theta, weight, z = np.empty(m), np.empty(m), np.empty(m)
    for i in range(m):
        high, low = 0.0, 0.0
        for k in range(d):
            high = max(high, T[k, i])
            low = max(low, -T[k, i])
        theta[i] = high / (high + low) if high + low > 0.0 else 0.5
        s = 0.0
        for c in range(C):
            s += G[rows[i], c] ** 2
        weight[i] = np.sqrt(s)
        z[i] = 0.0
    h, rest, image = np.empty(d), np.empty(d), np.empty(C)
    for k in range(d):
        rest[k] = 0.0
        for c in range(C):
            image[c] = 0.0
            for j in range(d):
                image[c] += active[c, j] * W[k, j]
        for i in range(m):
            t = T[k, i]
            rest[k] += weight[i] * max((1.0 - theta[i]) * t, -theta[i] * t)
            for c in range(C):
                image[c] += theta[i] * t * G[rows[i], c]
        size = 0.0
        for c in range(C):
            size += image[c] ** 2
        h[k] = np.sqrt(size) + rest[k]
    bound = conic_bound(K, h, a)
    size = 0.0
    for k in range(d):
        for j in range(d):
            size += a[k] * K[k, j] * a[j]
    size = np.sqrt(size)
    value = 0.0
    if size > 0.0:
        for k in range(d):
            for i in range(m):
                z[i] += a[k] / size * T[k, i]
        for c in range(C):
            s = 0.0
            for k in range(d):
                for j in range(d):
                    s += a[k] / size * W[k, j] * active[c, j]
            for i in range(m):
                s += G[rows[i], c] * max(z[i], 0.0)
            value += s * s
        value = np.sqrt(value)
    if bound > threshold:
        L = np.empty((C, d))
        for c in range(C):
            for j in range(d):
                s = active[c, j]
                for i in range(m):
                    s += theta[i] * G[rows[i], c] * X[rows[i], j]
                L[c, j] = s
        spread = conic_bound(K, rest, h)
        bound = min(bound, spectral_bound(L) + spread)
    return bound, value


@njit(**INNER)
def _settle(T, v, rows, m, tol, X, G, active):  # type: ignore[no-untyped-def]
    """Drop the rows that are on one side of the cone, adding those on the positive side to ``active``; rows left."""
    d, C = X.shape[1], G.shape[1]
    kept = 0
    for i in range(m):
        low, high = T[0, i], T[0, i]
        for k in range(1, d):
            low = min(low, T[k, i])
            high = max(high, T[k, i])
        row = rows[i]
        if high < -tol[row]:
            continue
        if low > tol[row]:
            for c in range(C):
                for j in range(d):
                    active[c, j] += G[row, c] * X[row, j]
            continue
        if kept < i:
            for k in range(d):
                T[k, kept] = T[k, i]
            v[kept] = v[i]
            rows[kept] = row
        kept += 1
    return kept


@njit(**INNER)
def _edge(T, v, m, K, curvature):  # type: ignore[no-untyped-def]
    """The pair of generators between which most weight changes its side, and that weight."""
    d = K.shape[0]
    best, first, second = 0.0, 0, 1
    for a in range(d):
        for b in range(a + 1, d):
            s = curvature * (1.0 - K[a, b])
            for i in range(m):
                s += abs(v[i]) * (abs(T[a, i]) + abs(T[b, i]) - abs(T[a, i] + T[b, i]))
            if s > best:
                best, first, second = s, a, b
    return best, first, second


@njit(**JIT)
def search_cones(  # type: ignore[no-untyped-def]
    X,
    tol,
    weights,
    generators,
    sides,
    levels,
    bounds,
    threshold,
    final,
    budget,
    several,
    out_generators,
    out_sides,
    out_levels,
    out_bounds,
    best_u,
):
    r"""Branch and bound, depth first, below each of the given cones.

    A cone is spanned by the d unit rows of ``generators[f]``, made by ``levels[f]`` halvings; the function on it is
    :math:`\|\sum_i G_i (x_i^T u)_+\|` with ``G = weights[sides[f]]`` of several columns, or
    :math:`\sum_i G_i (x_i^T u)_+` if there is one. Cones with a bound above ``threshold`` are halved; the others, and
    those left when ``budget`` cones have been looked at, are returned, except for those with a bound below ``final``.
    ``several`` is None if there is one column, so that only what that needs is compiled.

    Returns
    -------
    Number of cones returned, the largest bound of those that are not or cannot be halved, the largest value found (at
    ``best_u``), and the number of cones looked at.
    """
    N, d = X.shape
    C = weights.shape[2]
    depth = 64
    W = np.empty((depth, d, d))
    K = np.empty((depth, d, d))
    T = np.empty((depth, d, N))
    v = np.empty((depth, N))
    rows = np.empty((depth, N), np.int64)
    count = np.empty(depth, np.int64)
    active = np.empty((depth, C, d))
    ceiling = np.empty(depth)
    level = np.empty(depth, np.int64)
    lin, a, near, middle = np.empty(d), np.empty(d), np.empty(d), np.empty(d)
    n_out, looked = 0, 0
    floor, best = 0.0, 0.0
    for f in range(len(generators)):
        G = weights[sides[f]]
        top = 0
        for k in range(d):
            for j in range(d):
                W[0, k, j] = generators[f, k, j]
        ceiling[0] = bounds[f]
        level[0] = levels[f]
        if looked < budget:
            for k in range(d):
                for i in range(N):
                    s = 0.0
                    for j in range(d):
                        s += W[0, k, j] * X[i, j]
                    T[0, k, i] = s
            for k in range(d):
                for j in range(d):
                    s = 0.0
                    for e in range(d):
                        s += W[0, k, e] * W[0, j, e]
                    K[0, k, j] = s
            for i in range(N):
                rows[0, i] = i
                s = 0.0
                for c in range(C):
                    s += G[i, c] ** 2
                v[0, i] = G[i, 0] if C == 1 else np.sqrt(s)
            for c in range(C):
                for j in range(d):
                    active[0, c, j] = 0.0
            count[0] = _settle(T[0], v[0], rows[0], N, tol, X, G, active[0])
        while top >= 0:
            leaf = looked >= budget
            if not leaf:
                looked += 1
                m = count[top]
                if several is None:
                    for k in range(d):
                        s = 0.0
                        for j in range(d):
                            s += active[top, 0, j] * W[top, k, j]
                        lin[k] = s
                    bound, value = _scalar_bound(lin, K[top], T[top], v[top], m, threshold, 3, a)
                else:
                    bound, value = _vector_bound(active[top], W[top], K[top], T[top], X, G, rows[top], m, threshold, a)
                if value > best:
                    best = value
                    for j in range(d):
                        s = 0.0
                        for k in range(d):
                            s += a[k] * W[top, k, j]
                        best_u[j] = s
                ceiling[top] = min(ceiling[top], bound)
                if ceiling[top] <= threshold or top + 1 == depth:
                    leaf = True
                else:
                    weight, one, two = _edge(T[top], v[top], m, K[top], ceiling[top] if C > 1 else 0.0)
                    good = weight > 0.0 and K[top, one, two] <= 1.0 - 1e-14 and level[top] < DEEPEST
                    if good:
                        size = 0.0
                        for j in range(d):
                            middle[j] = W[top, one, j] + W[top, two, j]
                            size += middle[j] * middle[j]
                        size = np.sqrt(size)
                        for j in range(d):
                            middle[j] /= size
                        for k in range(d):
                            s = 0.0
                            for j in range(d):
                                s += W[top, k, j] * middle[j]
                            near[k] = s
                            good = good and s >= -TILT
                    if not good:  # nothing to halve: the bound stays
                        floor = max(floor, ceiling[top])
                        top -= 1
                        continue
            if leaf:
                if ceiling[top] > final:
                    for k in range(d):
                        for j in range(d):
                            out_generators[n_out, k, j] = W[top, k, j]
                    out_sides[n_out] = sides[f]
                    out_levels[n_out] = level[top]
                    out_bounds[n_out] = ceiling[top]
                    n_out += 1
                else:
                    floor = max(floor, ceiling[top])
                top -= 1
                continue
            # The upper half goes one up the stack, the lower half takes the place of the cone itself.
            m = count[top]
            up = top + 1
            ceiling[up] = ceiling[top]
            level[top] += 1
            level[up] = level[top]
            for k in range(d):
                for i in range(m):
                    T[up, k, i] = T[top, k, i]
            for i in range(m):
                # afresh, not from the ends of the edge: errors would grow from level to level
                t = 0.0
                for j in range(d):
                    t += middle[j] * X[rows[top, i], j]
                T[up, two, i] = t
                T[top, one, i] = t
                v[up, i] = v[top, i]
                rows[up, i] = rows[top, i]
            for c in range(C):
                for j in range(d):
                    active[up, c, j] = active[top, c, j]
            own = 0.0
            for j in range(d):
                for k in range(d):
                    W[up, k, j] = W[top, k, j]
                    K[up, k, j] = K[top, k, j]
                W[up, two, j] = W[top, one, j] = middle[j]
                own += middle[j] * middle[j]
            for half, new in ((top, one), (up, two)):
                for k in range(d):
                    K[half, k, new] = near[k]
                    K[half, new, k] = near[k]
                K[half, new, new] = own
                count[half] = _settle(T[half], v[half], rows[half], m, tol, X, G, active[half])
            top = up
    return n_out, floor, best, looked
