r"""The penalty form of the convex program (002 eq. 11), by torch's optimisers on batches of rows.

On sampled cells the cones of 002 eq. 21 are replaced by a price on leaving them,

.. math:: \min_Z \; L\Big(\sum_{i, \pm} \pm \sum_t G_{it} M z_{it}^\pm\Big) + \beta \sum_{i, \pm} \|Z_i^\pm\|_F
          + \lambda \sum_{i, \pm} h_i(Z_i^\pm),

where :math:`h_i` is the mean over the rows of all violations, and :math:`\lambda` is given in units of beta. This is
how the paper trains on large data; here it is for comparison, the answer being judged like that of any method: by its
network, evaluated from scratch. (002 eq. 11 prints :math:`\beta` without :math:`1 / \sqrt{m_2}`, and leaf constraints
without the signs :math:`\mathcal I` that eq. 21 has.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from bidual._util.clock import clock
from bidual._util.extras import advice
from bidual._util.typing import FloatArray
from bidual._util.watch import checkpoint
from bidual.atoms import Branches, SubNetworks
from bidual.atoms.branch_cells import LayeredPatterns
from bidual.bounds import lower_bound
from bidual.problem import Problem
from bidual.solvers.base import Options, Solution, Solver
from bidual.solvers.finite import some_cells
from bidual.solvers.parallel.pricing import search_parallel
from bidual.solvers.reduce import reduce_neurons
from bidual.solvers.run import Run, Status

#: Keeps the square root of a norm away from zero, where it has no derivative.
SMALL = 1e-12
#: Relative rise of the objective for fewer branches: far less than what this method misses.
REDUCING = 1e-4
#: Size of the first weights: nearly none, but not alike.
FIRST = 1e-3


@dataclass(frozen=True)
class PenaltyForm(Solver):
    """A method of training for :meth:`bidual.training.train.TrainingSet.train`.

    Parameters
    ----------
    optimiser : str or callable, default="Adam"
        A class of ``torch.optim``, or what makes an optimiser of parameters and ``lr``.
    rate : float, default=0.01
        Length of the steps.
    epochs : int, default=200
    batch_size : int or None, default=None
        Rows of a step; None is all of them.
    price : float, default=100.0
        The :math:`\\lambda` above, in units of beta. With a small one branches leave their cones, and the network is
        worse than the program's value says.
    n_patterns : int, default=40
        Sampled cells (the paper: as many as branches).
    """

    optimiser: str | Callable[..., Any] = "Adam"
    rate: float = 1e-2
    epochs: int = 200
    batch_size: int | None = None
    price: float = 100.0
    n_patterns: int = 40

    honours = frozenset({"n_patterns"})

    def _solve(self, problem: Problem, options: Options) -> Solution:
        """Train, and bound the result by local search."""
        posed = problem.of(Branches)
        if posed is None:
            raise TypeError("the penalty form is for parallel networks: use architecture='parallel'")
        problem = posed
        began = clock()
        cells: LayeredPatterns = some_cells(problem, replace(options, n_patterns=options.n_patterns or self.n_patterns))  # type: ignore[assignment]
        none = problem.atoms.none(problem.atoms.M.shape[1], np.zeros(problem.n_outputs))
        run: Run = Run(problem, options, none, np.inf, began)
        with run.going():
            self._train(run, problem, cells)
        found = reduce_neurons(problem, run.neurons, REDUCING)
        V = problem.dual_point(-problem.loss.gradient(problem.outputs(found), problem.Y, problem.w))
        value = search_parallel(problem, V, options.random_state)
        run.bound = lower_bound(problem, V, value, value)
        return run.solution("local search", found, n_patterns=len(cells))

    def _train(self, run: Run, problem: Problem[Branches], cells: LayeredPatterns) -> None:
        try:
            import torch
        except ImportError as error:  # pragma: no cover - depends on the installation
            raise ImportError(advice("the penalty form", "torch", "torch")) from error
        kind = self.optimiser if callable(self.optimiser) else getattr(torch.optim, self.optimiser, None)
        if kind is None:
            raise ValueError(f"torch.optim has no optimiser {self.optimiser!r}")
        tree, C, P = problem.atoms.tree, problem.n_outputs, len(cells)
        M = torch.as_tensor(problem.atoms.M)
        # activities as plus and minus one, coefficients of the leaves in every level: rows first
        sides = torch.as_tensor(np.where(cells.masks, 1.0, -1.0).swapaxes(0, 1).copy())
        levels = [torch.as_tensor(level.swapaxes(0, 1).copy()) for level in cells.coefficients]
        seed = check_random_state(run.options.random_state).randint(2**31)
        stream = torch.Generator().manual_seed(int(seed))
        shape = (2 * C, P, tree.leaves, problem.atoms.M.shape[1])
        Z = (FIRST * torch.randn(shape, generator=stream, dtype=torch.float64)).requires_grad_()
        b = torch.zeros(C, dtype=torch.float64, requires_grad=problem.fit_intercept)
        stepper = kind([Z, b] if problem.fit_intercept else [Z], lr=self.rate)
        heads = torch.as_tensor(np.vstack([np.eye(C), -np.eye(C)]))
        run.status = Status.EPOCHS
        while run.n_iter < self.epochs:
            run.n_iter += 1
            order = torch.randperm(len(M), generator=stream)
            for rows in (order,) if self.batch_size is None else order.split(self.batch_size):  # type: ignore[no-untyped-call]
                stepper.zero_grad()
                pre = torch.einsum("np,sctp->nsct", M[rows], Z)  # row, sign and output, cell, leaf
                F = torch.einsum("nsct,nct,so->no", pre, levels[-1][rows], heads) + b
                violated, start = torch.zeros((), dtype=torch.float64), 0
                for size, level in zip(tree.sizes, levels[:-1], strict=True):
                    nodes = (pre * level[rows][:, None]).reshape(*pre.shape[:3], size, -1).sum(dim=-1)
                    side = sides[rows][:, None, :, start : start + size]
                    violated = violated + torch.relu(-side * nodes).sum() / len(rows)
                    start += size
                norms = torch.sqrt((Z**2).sum(dim=(2, 3)) + SMALL).sum()
                w = problem.w[rows.numpy()] * (len(M) / len(rows))
                pull = problem.loss.gradient(F.detach().numpy(), problem.Y[rows.numpy()], w)
                # any loss: its own gradient at the outputs is all that is needed
                (problem.beta * norms + self.price * problem.beta * violated).backward(retain_graph=True)  # type: ignore[no-untyped-call]
                F.backward(torch.as_tensor(pull))  # type: ignore[no-untyped-call]
                stepper.step()
            run.offer(_branches(problem, cells, Z.detach().numpy(), b.detach().numpy()))
            checkpoint()


def _branches(problem: Problem[Branches], cells: LayeredPatterns, Z: FloatArray, b: FloatArray) -> SubNetworks:
    """One branch for every block (002 Proposition 1), whether or not it stayed in its cone."""
    S, P = Z.shape[:2]
    C = S // 2
    heads = np.repeat(np.vstack([np.eye(C), -np.eye(C)]), P, axis=0)
    return SubNetworks(Z.reshape(S * P, -1).copy(), heads, b.copy(), np.tile(cells.signs, (S, 1)))
