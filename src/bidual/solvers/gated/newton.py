r"""The linear system of one Newton step.

The outputs F of a proximal step solve :math:`F = K \, \mathrm{prox}(W^k - \sigma K^T \nabla L(F)) + 1 b(F)^T`. With
the curvature :math:`H = E^2` of the loss and the derivative J of the prox, a Newton step reads

.. math:: (I + \sigma B H)\, \Delta = -R, \qquad B = K J K^T + \rho \, 1 1^T,

that is :math:`(I + \sigma E B E) u = -E R` and :math:`\Delta = -R - \sigma B E u`: symmetric, positive definite, no
inverse of a curvature that may vanish, and of the size of the outputs, however many gates there are. It is solved by
conjugate gradients (:mod:`bidual.solvers.gated.precondition`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bidual._util.typing import FloatArray
from bidual.problem import Problem
from bidual.programs.gated.design import GatedDesign
from bidual.solvers.gated.precondition import Operator, Preconditioner
from bidual.solvers.gated.prox import Prox

#: Iterations of conjugate gradients: any of them gives a descent direction.
MAX_CG = 50
#: Their accuracy for one output, where the preconditioner is exact, and for several.
CG_TOL = (1e-3, 1e-2)
#: Share of the largest root of a curvature below which one is zero.
FLAT = 1e-6


def newton_direction(
    problem: Problem,
    design: GatedDesign,
    prox: Prox,
    F: FloatArray,
    R: FloatArray,
    sigma: float,
    rho: float,
    dtype: type = np.float32,
) -> FloatArray:
    r"""The step :math:`\Delta` of the outputs; ``rho`` is zero without an intercept.

    ``dtype`` is the precision of the preconditioner: single is faster, and loses its worth when sigma is so large that
    the condition of the system is beyond a million.
    """
    active = design.take(prox.active)
    root = Root.at(problem, F)

    def B(V: FloatArray) -> FloatArray:
        result = active.outputs(prox.derivative(active.correlations(V)))
        return result + rho * V.sum(axis=0) if rho else result

    def system(u: FloatArray) -> FloatArray:
        return u + sigma * root.times(B(root.times(u)))

    precondition = Preconditioner(active, prox, root.E, sigma, rho, dtype).build()
    u, residual = _conjugate_gradients(system, -root.times(R), precondition, tol=CG_TOL[problem.n_outputs > 1])
    # With the residual taken back, E times the step is u: a direction of descent however early the iteration ended.
    return -R - sigma * B(root.times(u)) - _times(root.inverse, residual)


@dataclass(frozen=True)
class Root:
    """The symmetric root E of the curvature, as a diagonal or with one matrix for each row, and its pseudo-inverse.

    A symmetric root shares its null space with the curvature (equal shifts of all outputs, for softmax), which a
    preconditioner with one number for each row respects.
    """

    E: FloatArray
    inverse: FloatArray

    @classmethod
    def at(cls, problem: Problem, F: FloatArray) -> Root:
        """The root at outputs ``F``."""
        loss, Y, w = problem.loss, problem.Y, problem.w
        if not loss.coupled:
            E = np.sqrt(np.maximum(loss.curvature(F, Y, w), 0.0))
            return cls(E, _reciprocal(E))
        values, vectors = np.linalg.eigh(loss.row_hessians(F, Y))
        roots = np.sqrt(w[:, None] * np.maximum(values, 0.0))
        return cls(*((vectors * x[:, None, :]) @ vectors.swapaxes(1, 2) for x in (roots, _reciprocal(roots))))

    def times(self, u: FloatArray) -> FloatArray:
        """``E u``."""
        return _times(self.E, u)


def _reciprocal(x: FloatArray) -> FloatArray:
    """``1 / x``, zero where x is."""
    large = x > FLAT * x.max(initial=0.0)
    return np.where(large, 1.0 / np.where(large, x, 1.0), 0.0)


def _times(E: FloatArray, u: FloatArray) -> FloatArray:
    return E * u if E.ndim == 2 else np.matmul(E, u[:, :, None])[:, :, 0]


def _conjugate_gradients(
    system: Operator, b: FloatArray, precondition: Operator, tol: float
) -> tuple[FloatArray, FloatArray]:
    """Solve ``system(x) = b`` to a relative residual of ``tol`` in the preconditioner's norm; x and the residual."""
    x = np.zeros_like(b)
    r = b
    z = precondition(r)
    p = z
    rz = first = float((r * z).sum())
    for _ in range(MAX_CG):
        if not rz > tol**2 * first:
            break
        q = system(p)
        alpha = rz / float((p * q).sum())
        x = x + alpha * p
        r = r - alpha * q
        z = precondition(r)
        rz, previous = float((r * z).sum()), rz
        p = z + (rz / previous) * p
    return x, r
