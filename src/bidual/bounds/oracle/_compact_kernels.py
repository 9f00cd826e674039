"""Compiled minimisation of the compact bound. Imported only when first used: numba takes a moment to load."""

from __future__ import annotations

import numpy as np
from numba import njit

from bidual._util.jit import JIT

#: Pairs that the quasi-Newton method remembers.
_MEMORY = 12


@njit(**JIT)
def _invert(A, inverse):  # type: ignore[no-untyped-def]
    """Inverse and log-determinant of a positive definite matrix, which is overwritten; False if it is not."""
    d = A.shape[0]
    logdet = 0.0
    for i in range(d):
        for j in range(i + 1):
            s = A[i, j]
            for k in range(j):
                s -= A[i, k] * A[j, k]
            if j < i:
                A[i, j] = s / A[j, j]
            elif s > 1e-300:
                A[i, i] = np.sqrt(s)
                logdet += np.log(s)
            else:
                return False, 0.0
    # the inverse of the factor, row by row, then L^-T L^-1
    L = np.zeros((d, d))
    for i in range(d):
        for k in range(i):
            t = A[i, k] / A[i, i]
            for j in range(k + 1):
                L[i, j] -= t * L[k, j]
        L[i, i] = 1.0 / A[i, i]
    inverse[:, :] = np.dot(L.T, L)
    return True, logdet


@njit(**JIT)
def _best_mu(Q, b, tau, mu, u, U):  # type: ignore[no-untyped-def]
    r"""Minimise :math:`\mu + b^T (\mu I - Q)^{-1} b / 4 - \tau \log\det(\mu I - Q)`, starting from ``mu``.

    Newton steps on :math:`N^{-1/2} = 1` with :math:`N = \|u\|^2 + \tau \, \mathrm{tr} (\mu I - Q)^{-1}`, nearly
    linear in mu (as for a trust region). Returns mu and the log-determinant; ``u`` becomes the maximiser of
    :math:`b^T u - u^T (\mu I - Q) u`, ``U`` the inverse.
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
        A = -Q
        for j in range(d):
            A[j, j] += mu
        good, logdet = _invert(A, U)
        if good:
            u[:] = 0.5 * np.dot(U, b)
            N, slope = 0.0, 0.0
            Uu = np.dot(U, u)
            for j in range(d):
                N += u[j] * u[j] + tau * U[j, j]
                slope += 2.0 * u[j] * Uu[j]
                for k in range(d):
                    slope += tau * U[j, k] ** 2
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
def evaluate(x, X, w, n_plus, n_minus, b0, cuts, tau, eps, mu, gradient, diagonal, u, U):  # type: ignore[no-untyped-def]
    r"""Value of the smoothed bound, the bound itself, gradient and rough diagonal of the Hessian.

    Rows of X have norm one: first ``n_plus`` with positive weights, then ``n_minus`` with negative ones (signs
    dropped). ``x`` holds log s, the logits of (k, p, m), then for the F rows of ``cuts`` half the logarithms of
    :math:`\lambda^2 - \|y\|^2`, the logarithms of the products' multipliers, and the vectors y. ``mu[0]`` is replaced
    by the best one; ``u`` and ``U`` become the primal point of the relaxation.
    """
    d = X.shape[1]
    F = len(cuts)
    at_cut = n_plus + 3 * n_minus
    at_pair = at_cut + F
    at_y = at_pair + F * (F - 1) // 2
    c = np.empty(n_plus + n_minus)
    lin = np.empty(n_minus)
    pi = np.empty((n_minus, 3))
    const, smooth = 0.0, 0.0
    for i in range(n_plus):
        s = np.exp(x[i])
        c[i] = 0.25 * w[i] * s
        const += 0.25 * w[i] / s
    for i in range(n_minus):
        j = n_plus + 3 * i
        top = max(x[j], x[j + 1], x[j + 2])
        a0, a1, a2 = np.exp(x[j] - top), np.exp(x[j + 1] - top), np.exp(x[j + 2] - top)
        total = a0 + a1 + a2
        log = np.log(total) + top
        pi[i, 0], pi[i, 1], pi[i, 2] = a0 / total, a1 / total, a2 / total
        half = 0.5 * w[n_plus + i]
        c[n_plus + i] = -half * pi[i, 0]
        lin[i] = -half * (pi[i, 1] - pi[i, 2])
        for e in range(3):
            smooth += eps * half * pi[i, e] * (x[j + e] - log)
    Q = np.dot(X.T * c, X)
    b = b0 + np.dot(lin, X[n_plus:])
    # the barriers of many cuts must not add up to more than that of the matrix
    tau_cut = tau * d / (2.0 * F + 1.0)
    tau_pair = 2.0 * tau * d / (F * F + 1.0)
    lengths = np.empty(F)
    if F:
        y = x[at_y:].reshape(F, d)
        products = np.zeros((F, F))
        e = at_pair
        for f in range(F):
            s = np.exp(2.0 * x[at_cut + f])
            for j in range(d):
                s += y[f, j] ** 2
            lengths[f] = np.sqrt(s)
            smooth -= 2.0 * tau_cut * x[at_cut + f]
            for g in range(f):
                products[f, g] = np.exp(x[e])
                smooth -= tau_pair * x[e]
                e += 1
        b += np.dot(lengths, cuts)
        half_Q = np.dot(cuts.T, np.dot(products, cuts) - y)
        for j in range(d):
            for k in range(d):
                Q[j, k] += 0.5 * (half_Q[j, k] + half_Q[k, j])
    mu[0], logdet = _best_mu(Q, b, tau, mu[0], u, U)
    bound = const + mu[0] + 0.5 * np.dot(b, u)
    for j in range(d):
        for k in range(d):
            U[j, k] = tau * U[j, k] + u[j] * u[k]
    t = np.dot(X, u)
    XU = np.dot(X, U)
    for i in range(n_plus + n_minus):
        q = 0.0
        for j in range(d):
            q += XU[i, j] * X[i, j]
        if i < n_plus:
            s = np.exp(x[i])
            gradient[i] = 0.25 * w[i] * (s * q - 1.0 / s)
            diagonal[i] = 0.25 * w[i] * (s * q + 1.0 / s)
        else:
            o = i - n_plus
            j = n_plus + 3 * o
            half = 0.5 * w[i]
            g0 = half * (eps * x[j] - q)
            g1 = half * (eps * x[j + 1] - t[i])
            g2 = half * (eps * x[j + 2] + t[i])
            mean = pi[o, 0] * g0 + pi[o, 1] * g1 + pi[o, 2] * g2
            gradient[j] = pi[o, 0] * (g0 - mean)
            gradient[j + 1] = pi[o, 1] * (g1 - mean)
            gradient[j + 2] = pi[o, 2] * (g2 - mean)
            for e in range(3):
                diagonal[j + e] = half * eps * (pi[o, e] + 1e-3)
    if F:
        a_u = np.dot(cuts, u)
        aU = np.dot(cuts, U)
        aUa = np.dot(aU, cuts.T)
        e = at_pair
        for f in range(F):
            weight = np.exp(2.0 * x[at_cut + f]) / lengths[f]
            gradient[at_cut + f] = weight * a_u[f] - 2.0 * tau_cut
            diagonal[at_cut + f] = weight * abs(a_u[f]) + 2.0 * tau_cut
            for j in range(d):
                gradient[at_y + f * d + j] = a_u[f] * y[f, j] / lengths[f] - aU[f, j]
                diagonal[at_y + f * d + j] = abs(a_u[f]) / lengths[f] + 1.0
            for g in range(f):
                weight = products[f, g]
                gradient[e] = weight * aUa[f, g] - tau_pair
                diagonal[e] = weight * abs(aUa[f, g]) + tau_pair
                e += 1
    return bound + smooth - tau * logdet, bound


@njit(**JIT)
def minimise(x, X, w, n_plus, n_minus, b0, cuts, tau, eps, mu, max_iter, enough, tol, u, U):  # type: ignore[no-untyped-def]
    """Quasi-Newton steps (L-BFGS) on ``x`` in place; the smallest bound seen, its point in ``x``, and evaluations.

    Stops when the bound is below ``enough`` or has come down by less than ``tol`` (relative) in ten steps.
    """
    n = len(x)
    gradient, diagonal = np.empty(n), np.empty(n)
    new_gradient, new_diagonal = np.empty(n), np.empty(n)
    S, Y = np.empty((_MEMORY, n)), np.empty((_MEMORY, n))
    rho, alpha = np.empty(_MEMORY), np.empty(_MEMORY)
    value, bound = evaluate(x, X, w, n_plus, n_minus, b0, cuts, tau, eps, mu, gradient, diagonal, u, U)
    best, best_x = bound, x.copy()
    evaluations = 1
    stored, last = 0, value
    for it in range(max_iter):
        if bound <= enough:
            break
        if it % 10 == 9:
            if last - value <= tol * abs(value):
                break
            last = value
        p = -gradient
        for k in range(min(stored, _MEMORY)):
            i = (stored - 1 - k) % _MEMORY
            alpha[i] = rho[i] * np.dot(S[i], p)
            p -= alpha[i] * Y[i]
        scale = 1.0
        if stored:
            i = (stored - 1) % _MEMORY
            scale = 1.0 / (rho[i] * np.dot(Y[i], Y[i] / diagonal))
        p *= scale / diagonal
        for k in range(min(stored, _MEMORY) - 1, -1, -1):
            i = (stored - 1 - k) % _MEMORY
            p += S[i] * (alpha[i] - rho[i] * np.dot(Y[i], p))
        slope = np.dot(gradient, p)
        if not slope < 0.0:
            stored = 0
            p = -gradient / diagonal
            slope = np.dot(gradient, p)
        largest = 0.0
        for i in range(n):
            largest = max(largest, abs(p[i]))
        step = min(1.0, 4.0 / largest) if largest > 0.0 else 1.0
        accepted = False
        for _ in range(25):
            trial = x + step * p
            new_value, new_bound = evaluate(
                trial, X, w, n_plus, n_minus, b0, cuts, tau, eps, mu, new_gradient, new_diagonal, u, U
            )
            evaluations += 1
            if new_value <= value + 1e-4 * step * slope:
                accepted = True
                break
            step *= 0.3
        if not accepted:
            break
        i = stored % _MEMORY
        for j in range(n):
            S[i, j] = trial[j] - x[j]
            Y[i, j] = new_gradient[j] - gradient[j]
        curvature = np.dot(S[i], Y[i])
        if curvature > 1e-12 * np.sqrt(np.dot(S[i], S[i]) * np.dot(Y[i], Y[i])):
            rho[i] = 1.0 / curvature
            stored += 1
        x[:] = trial
        gradient[:] = new_gradient
        diagonal[:] = new_diagonal
        value, bound = new_value, new_bound
        if bound < best:
            best = bound
            best_x[:] = x
    x[:] = best_x
    evaluate(x, X, w, n_plus, n_minus, b0, cuts, tau, eps, mu, gradient, diagonal, u, U)
    return best, evaluations
