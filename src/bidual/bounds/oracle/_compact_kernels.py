"""Minimisation of the compact bound. Imported only when first used: numba takes a moment to load.

Compiled are plain loops over arrays made beforehand: expressions of arrays take several times as long to compile.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from bidual._util.jit import INNER, JIT
from bidual._util.typing import Array, FloatArray

#: Pairs that the quasi-Newton method remembers.
_MEMORY = 12


@njit(**INNER)
def _best_mu(Q, b, tau, mu, R, L, u, U):  # type: ignore[no-untyped-def]
    r"""Minimise :math:`\mu + b^T (\mu I - Q)^{-1} b / 4 - \tau \log\det(\mu I - Q)`, starting from ``mu``.

    Newton steps on :math:`N^{-1/2} = 1` with :math:`N = \|u\|^2 + \tau \, \mathrm{tr} (\mu I - Q)^{-1}`, nearly
    linear in mu (as for a trust region). Returns mu and the log-determinant; ``u`` becomes the maximiser of
    :math:`b^T u - u^T (\mu I - Q) u`, ``U`` the inverse. ``R`` and ``L`` are overwritten.
    """
    d = len(b)
    low, high = -np.inf, np.inf
    size = 0.0
    for j in range(d):
        for k in range(d):
            size += Q[j, k] ** 2
    size = np.sqrt(size) + 1e-300
    logdet = 0.0
    for _ in range(60):
        for j in range(d):
            for k in range(j, d):
                R[j, k] = -Q[j, k]
            R[j, j] += mu
        logdet = 0.0
        good = True
        for j in range(d):  # mu I - Q = R^T R, and L the inverse of R^T
            pivot = R[j, j]
            good = pivot > 1e-300
            if not good:
                break
            logdet += np.log(pivot)
            scale = 1.0 / np.sqrt(pivot)
            for k in range(j, d):
                R[j, k] *= scale
            for k in range(j):
                L[j, k] *= scale
            L[j, j] = scale
            for i in range(j + 1, d):
                share = R[j, i]
                for k in range(i, d):
                    R[i, k] -= share * R[j, k]
                for k in range(j):
                    L[i, k] -= share * L[j, k]
                L[i, j] = -share * scale
        if good:
            for j in range(d):
                for k in range(d):
                    U[j, k] = 0.0
            for i in range(d):
                for j in range(i + 1):
                    share = L[i, j]
                    for k in range(i + 1):
                        U[j, k] += share * L[i, k]
            N, slope = 0.0, 0.0
            for j in range(d):
                total = 0.0
                for k in range(d):
                    total += U[j, k] * b[k]
                u[j] = 0.5 * total
            for j in range(d):
                N += u[j] * u[j] + tau * U[j, j]
                total = 0.0
                for k in range(d):
                    total += U[j, k] * (2.0 * u[j] * u[k] + tau * U[j, k])
                slope += total
            if abs(N - 1.0) <= 1e-7 or high - low <= 1e-13 * size:
                break
            if N > 1.0:
                low = mu
            else:
                high = mu
            mu += 2.0 * N * (np.sqrt(N) - 1.0) / slope
        else:
            low = mu
        if not (good and low < mu < high):
            if low == -np.inf:
                mu = high - 2.0 * size
            elif high == np.inf:
                mu = low + 0.5 * (abs(low) + size)
            else:
                mu = low + 0.3 * (high - low)
    return mu, logdet


@njit(**JIT)
def _evaluate(  # type: ignore[no-untyped-def]
    x, X, XT, w, n_plus, b0, cuts, tau, eps, mu, u, U,
    c, shares, weighted, XU, Q, R, L, b, products, Y, lengths, gradient, diagonal,
):  # fmt: skip
    r"""Value of the smoothed bound, the bound itself, gradient and rough diagonal of the Hessian.

    Rows of X have norm one: first ``n_plus`` with positive weights, then those with negative ones (signs dropped).
    ``x`` holds log s, the logits of (k, p, m), then for the F rows of ``cuts`` half the logarithms of
    :math:`\lambda^2 - \|y\|^2`, the logarithms of the products' multipliers, and the vectors y. ``mu[0]`` is replaced
    by the best one; ``u`` and ``U`` become the primal point of the relaxation. What follows them is overwritten.
    """
    N, d = X.shape
    F = len(cuts)
    at_cut = n_plus + 3 * (N - n_plus)
    at_pair = at_cut + F
    at_y = at_pair + F * (F - 1) // 2
    const, smooth = 0.0, 0.0
    for j in range(d):
        b[j] = b0[j]
    for i in range(n_plus):
        s = np.exp(x[i])
        c[i] = 0.25 * w[i] * s
        const += 0.25 * w[i] / s
    for i in range(n_plus, N):
        o = i - n_plus
        j = n_plus + 3 * o
        half = 0.5 * w[i]
        top = max(x[j], x[j + 1], x[j + 2])
        total = 0.0
        for e in range(3):
            shares[o, e] = np.exp(x[j + e] - top)
            total += shares[o, e]
        log = np.log(total) + top
        for e in range(3):
            shares[o, e] /= total
            smooth += eps * half * shares[o, e] * (x[j + e] - log)
        c[i] = -half * shares[o, 0]
        linear = half * (shares[o, 2] - shares[o, 1])
        for e in range(d):
            b[e] += linear * X[i, e]
    for j in range(d):
        for i in range(N):
            weighted[j, i] = c[i] * XT[j, i]
    np.dot(weighted, X, Q)
    # the barriers of many cuts must not add up to more than that of the matrix
    tau_cut = tau * d / (2.0 * F + 1.0)
    tau_pair = 2.0 * tau * d / (F * F + 1.0)
    e = at_pair
    for f in range(F):
        s = np.exp(2.0 * x[at_cut + f])
        for j in range(d):
            y = x[at_y + f * d + j]
            s += y * y
            Y[f, j] = -y
        lengths[f] = np.sqrt(s)
        smooth -= 2.0 * tau_cut * x[at_cut + f]
        for g in range(f):
            products[f, g] = np.exp(x[e])
            smooth -= tau_pair * x[e]
            for j in range(d):
                Y[f, j] += products[f, g] * cuts[g, j]
            e += 1
        for j in range(d):
            b[j] += lengths[f] * cuts[f, j]
            for k in range(d):
                Q[j, k] += 0.5 * (cuts[f, j] * Y[f, k] + Y[f, j] * cuts[f, k])
    mu[0], logdet = _best_mu(Q, b, tau, mu[0], R, L, u, U)
    bound = const + mu[0]
    for j in range(d):
        bound += 0.5 * b[j] * u[j]
        for k in range(d):
            U[j, k] = tau * U[j, k] + u[j] * u[k]
    np.dot(X, U, XU)
    for i in range(N):
        q, t = 0.0, 0.0
        for j in range(d):
            q += XU[i, j] * X[i, j]
            t += X[i, j] * u[j]
        if i < n_plus:
            rise, fall = c[i] * q, 0.25 * w[i] / np.exp(x[i])
            gradient[i] = rise - fall
            diagonal[i] = rise + fall
        else:
            o = i - n_plus
            j = n_plus + 3 * o
            half = 0.5 * w[i]
            gradient[j] = eps * x[j] - q
            gradient[j + 1] = eps * x[j + 1] - t
            gradient[j + 2] = eps * x[j + 2] + t
            mean = 0.0
            for e in range(3):
                mean += shares[o, e] * gradient[j + e]
            for e in range(3):
                gradient[j + e] = half * shares[o, e] * (gradient[j + e] - mean)
                diagonal[j + e] = half * eps * (shares[o, e] + 1e-3)
    e = at_pair
    for f in range(F):
        s = 0.0
        for j in range(d):
            s += cuts[f, j] * u[j]
            total = 0.0
            for k in range(d):
                total += U[j, k] * cuts[f, k]
            Y[f, j] = total
        weight = np.exp(2.0 * x[at_cut + f]) / lengths[f]
        gradient[at_cut + f] = weight * s - 2.0 * tau_cut
        diagonal[at_cut + f] = weight * abs(s) + 2.0 * tau_cut
        for j in range(d):
            k = at_y + f * d + j
            gradient[k] = s * x[k] / lengths[f] - Y[f, j]
            diagonal[k] = abs(s) / lengths[f] + 1.0
        for g in range(f):
            total = 0.0
            for j in range(d):
                total += Y[f, j] * cuts[g, j]
            gradient[e] = products[f, g] * total - tau_pair
            diagonal[e] = products[f, g] * abs(total) + tau_pair
            e += 1
    return bound + smooth - tau * logdet, bound


@njit(**JIT)
def _direction(gradient, diagonal, S, Y, rho, alpha, stored, p):  # type: ignore[no-untyped-def]
    """The quasi-Newton direction (L-BFGS) in ``p``."""
    n, memory = len(p), len(rho)
    for j in range(n):
        p[j] = -gradient[j]
    for k in range(min(stored, memory)):
        i = (stored - 1 - k) % memory
        total = 0.0
        for j in range(n):
            total += S[i, j] * p[j]
        alpha[i] = rho[i] * total
        for j in range(n):
            p[j] -= alpha[i] * Y[i, j]
    scale = 1.0
    if stored:
        i = (stored - 1) % memory
        total = 0.0
        for j in range(n):
            total += Y[i, j] * Y[i, j] / diagonal[j]
        scale = 1.0 / (rho[i] * total)
    for j in range(n):
        p[j] *= scale / diagonal[j]
    for k in range(min(stored, memory) - 1, -1, -1):
        i = (stored - 1 - k) % memory
        total = 0.0
        for j in range(n):
            total += Y[i, j] * p[j]
        step = alpha[i] - rho[i] * total
        for j in range(n):
            p[j] += step * S[i, j]


def minimise(
    x: FloatArray,
    X: FloatArray,
    w: FloatArray,
    n_plus: int,
    b0: FloatArray,
    cuts: FloatArray,
    tau: float,
    eps: float,
    mu: FloatArray,
    max_iter: int,
    enough: float,
    tol: float,
    u: FloatArray,
    U: FloatArray,
) -> float:
    """Quasi-Newton steps (L-BFGS) on ``x`` in place; the smallest bound seen, its point in ``x``.

    Stops when the bound is below ``enough`` or has come down by less than ``tol`` (relative) in ten steps.
    """
    n, (N, d), F, empty = len(x), X.shape, len(cuts), np.empty
    problem = X, np.ascontiguousarray(X.T), w, n_plus, b0, np.ascontiguousarray(cuts), tau, eps, mu, u, U
    scratch = (
        empty(N), empty((N - n_plus, 3)), empty((d, N)), empty((N, d)), empty((d, d)), empty((d, d)), empty((d, d)),
        empty(d), empty((F, F)), empty((F, d)), empty(F),
    )  # fmt: skip

    def evaluate(x: Array, gradient: Array, diagonal: Array) -> tuple[float, float]:
        return _evaluate(x, *problem, *scratch, gradient, diagonal)

    gradient, diagonal, new_gradient, new_diagonal, p = empty((5, n))
    (S, Y), (rho, alpha) = empty((2, _MEMORY, n)), empty((2, _MEMORY))
    value, bound = evaluate(x, gradient, diagonal)
    best, best_x = bound, x.copy()
    stored, last = 0, value
    for it in range(max_iter):
        if bound <= enough:
            break
        if it % 10 == 9:
            if last - value <= tol * abs(value):
                break
            last = value
        _direction(gradient, diagonal, S, Y, rho, alpha, stored, p)
        slope = gradient @ p
        if not slope < 0.0:
            stored = 0
            np.divide(gradient, -diagonal, out=p)
            slope = gradient @ p
        step = min(1.0, 4.0 / max(float(np.abs(p).max(initial=0.0)), 1e-300))
        for _ in range(25):
            trial = x + step * p
            new_value, new_bound = evaluate(trial, new_gradient, new_diagonal)
            if new_value <= value + 1e-4 * step * slope:
                break
            step *= 0.3
        else:
            break
        i = stored % _MEMORY
        np.subtract(trial, x, out=S[i])
        np.subtract(new_gradient, gradient, out=Y[i])
        curvature = S[i] @ Y[i]
        if curvature > 1e-12 * np.sqrt((S[i] @ S[i]) * (Y[i] @ Y[i])):
            rho[i] = 1.0 / curvature
            stored += 1
        x[:] = trial
        gradient, diagonal, new_gradient, new_diagonal = new_gradient, new_diagonal, gradient, diagonal
        value, bound = new_value, new_bound
        if bound < best:
            best = bound
            best_x[:] = x
    x[:] = best_x
    evaluate(x, gradient, diagonal)
    return best
