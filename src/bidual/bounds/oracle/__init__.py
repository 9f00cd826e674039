r"""Proven upper bounds on the dual constraint :math:`g(V) = \max_{\|u\| \le 1} \|G^T (Mu)_+\|`.

:func:`bound_oracle` chooses among

========== ======================================================================== =======================
method     how                                                                      for
========== ======================================================================== =======================
"patterns" the maximum over all activation patterns                                 one output, rank <= 3
"cones"    branch and bound over cones of directions                                rank <= 6 or so
"compact"  a semidefinite relaxation of the size of the rank                        everything
"signs"    the same with branching on the signs of rows                             everything, given time
========== ======================================================================== =======================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from bidual._util.clock import clock
from bidual._util.typing import FloatArray
from bidual.arrangements import few_patterns
from bidual.bounds.oracle.base import DualConstraint, OracleBound
from bidual.bounds.oracle.cones import RANKS, ConeProof, ConeSearch, safe_bound
from bidual.bounds.oracle.exact import WeightedPatternProof, exact_bound
from bidual.bounds.oracle.joint import relaxed_dual
from bidual.bounds.oracle.layers import LayerProof
from bidual.bounds.oracle.outputs import RelaxationProof, RelaxationSearch
from bidual.bounds.oracle.shared import SharedProof, SharedSearch
from bidual.bounds.proof import Proof, proof_from_dict, proof_to_dict
from bidual.bounds.stored import PatternProof
from bidual.problem import Problem

__all__ = [
    "CONE_RANK",
    "METHODS",
    "ConeProof",
    "DualConstraint",
    "LayerProof",
    "OracleBound",
    "PatternProof",
    "Proof",
    "RelaxationProof",
    "SharedProof",
    "SharedSearch",
    "SignSearch",
    "WeightedPatternProof",
    "bound_oracle",
    "proof_from_dict",
    "proof_to_dict",
    "relaxed_dual",
]

#: Up to this rank the search over cones beats the relaxation.
CONE_RANK = 6
#: Up to so many activation patterns their enumeration is as quick as anything.
_FEW = 1000


@dataclass
class _Question:
    """What is asked, and the best direction known."""

    constraint: DualConstraint
    target: float
    rtol: float
    deadline: float
    u: FloatArray

    def good(self, bound: float) -> bool:
        return bound <= max(self.target, (1.0 + self.rtol) * self.constraint.value(self.u))


@dataclass(frozen=True)
class _Answer:
    bound: float
    u: FloatArray
    method: str
    proof: Proof


def _patterns(question: _Question) -> _Answer:
    constraint = question.constraint
    patterns = few_patterns(constraint.X, 100 * _FEW)
    if patterns is None:
        raise ValueError(
            f"{len(constraint.X)} rows of rank {constraint.rank} have too many activation patterns: use method='auto'"
        )
    starts = patterns.witnesses[np.argsort([-constraint.value(u) for u in patterns.witnesses])[:20]]
    u = max([question.u, *(constraint.ascend(u, 100) for u in starts)], key=constraint.value)
    how = f"all {len(patterns)} activation patterns"
    return _Answer(exact_bound(constraint, patterns), u, how, WeightedPatternProof(patterns))


def _cones(question: _Question) -> _Answer:
    if question.constraint.rank > RANKS:
        raise ValueError(
            f"cones cannot cover {question.constraint.rank} dimensions: use method='compact' or method='signs'"
        )
    search = ConeSearch(question.constraint, question.target, question.rtol, question.u)
    search.run(question.deadline)
    method = f"branch and bound over {search.looked} cones"
    return _Answer(safe_bound(question.constraint, search.bound), search.u, method, search.proof())


def _relaxation(question: _Question, branch: bool) -> _Answer:
    search = RelaxationSearch(question.constraint, question.u, question.target, question.rtol)
    search.run(question.deadline, branch)
    return _found(question.constraint, search)


def _found(constraint: DualConstraint, search: RelaxationSearch) -> _Answer:
    leaves = sum(sum(row < 0 for row in tree.rows()) for tree in search.trees)
    method = "relaxation" if leaves == len(search.trees) else f"relaxation on {leaves} parts of the ball"
    proof = search.proof()
    return _Answer(proof.evaluate(constraint), search.u, method, proof)


def _compact(question: _Question) -> _Answer:
    return _relaxation(question, branch=False)


def _signs(question: _Question) -> _Answer:
    return _relaxation(question, branch=True)


def _auto(question: _Question) -> _Answer:
    constraint = question.constraint
    if constraint.n_outputs == 1 and constraint.rank <= 3 and few_patterns(constraint.X, _FEW) is not None:
        return _patterns(question)
    if constraint.rank <= 3:
        return _cones(question)
    answer = _compact(question)
    question.u = max(question.u, answer.u, key=constraint.value)
    if question.good(answer.bound) or clock() >= question.deadline:
        return answer
    if constraint.rank <= CONE_RANK:
        return min(answer, _cones(question), key=lambda a: a.bound)
    # Branching ends only by luck: not without a deadline.
    return answer if question.deadline == np.inf else min(answer, _signs(question), key=lambda a: a.bound)


#: The methods by name.
METHODS: dict[str, Callable[[_Question], _Answer]] = {
    "auto": _auto,
    "patterns": _patterns,
    "cones": _cones,
    "compact": _compact,
    "signs": _signs,
}


def bound_oracle(
    problem: Problem,
    V: FloatArray,
    *,
    method: str = "auto",
    target: float | None = None,
    rtol: float = 1e-4,
    deadline: float = np.inf,
    incumbent: FloatArray | None = None,
) -> OracleBound:
    r"""Bound :math:`g(V) = \max_{\|u\| \le 1} \|V^T A (Mu)_+\|_2` from above, with proof.

    Parameters
    ----------
    problem : Problem
    V : ndarray, shape (n, C)
        The dual point.
    method : {"auto", "patterns", "cones", "compact", "signs"}
        See :mod:`bidual.bounds.oracle`.
    target : float or None
        A bound with which to stop: what suffices for the wanted gap.
    rtol : float
        Stop when the bound is this close to the best value found.
    deadline : float
        Moment of :func:`~bidual._util.clock.clock` at which to stop; what is returned then is as valid as ever. Without
        it the methods "cones" and "signs" may run for very long; "auto" does not branch on signs.
    incumbent : ndarray, shape (p,) or (k, p), or None
        Directions to start from, in the coordinates of the columns of M: neurons, or the finds of a local search.

    Examples
    --------
    >>> import numpy as np
    >>> from bidual.atoms import Relu
    >>> from bidual.bounds.oracle import bound_oracle
    >>> from bidual.losses import get_loss
    >>> from bidual.problem import Problem
    >>> X, V = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[3.0], [4.0]])
    >>> found = bound_oracle(Problem(Relu(X), V, np.full(2, 0.5), get_loss("squared"), 1.0, False), V)
    >>> round(found.bound, 6), found.method  # at u = (0.6, 0.8)
    (5.0, 'all 4 activation patterns')
    """
    if method not in METHODS:
        raise ValueError(f"unknown method {method!r}: use one of {', '.join(map(repr, METHODS))}")
    question = _ask(problem, V, target, rtol, deadline, incumbent)
    constraint = question.constraint
    if not len(constraint.X):
        return _told(problem, V, constraint, _nothing(question))
    with threadpool_limits(1, user_api="blas"):
        return _told(problem, V, constraint, METHODS[method](question))


def _nothing(question: _Question) -> _Answer:
    return _Answer(question.constraint.safe(0.0), question.u, "no row carries weight", WeightedPatternProof())


def _ask(
    problem: Problem,
    V: FloatArray,
    target: float | None,
    rtol: float,
    deadline: float,
    incumbent: FloatArray | None,
) -> _Question:
    constraint = DualConstraint.at(problem, V)
    goal = -np.inf if target is None else (float(target) - constraint.slack) * (1.0 - 2e-10)
    return _Question(constraint, goal, float(rtol), deadline, constraint.start(incumbent))


def _told(problem: Problem, V: FloatArray, constraint: DualConstraint, answer: _Answer) -> OracleBound:
    witness = constraint.basis @ answer.u
    size = float(np.linalg.norm(witness))
    witness = witness / size if size > 0 else witness
    value = float(np.linalg.norm(problem.atoms.spread(V).T @ np.maximum(problem.atoms.M @ witness, 0.0)))
    return OracleBound(value, answer.bound, witness, answer.method, answer.proof)


class SignSearch:
    """The method "signs" of :func:`bound_oracle`, which may be interrupted and go on; parameters as there."""

    def __init__(
        self, problem: Problem, V: FloatArray, target: float | None, rtol: float, incumbent: FloatArray | None
    ) -> None:
        self.problem, self.V = problem, V
        self.question = question = _ask(problem, V, target, rtol, np.inf, incumbent)
        self.search: RelaxationSearch | None = None
        if len(question.constraint.X):
            with threadpool_limits(1, user_api="blas"):
                self.search = RelaxationSearch(question.constraint, question.u, question.target, question.rtol)
        self.exhausted = self.search is None

    def run(self, deadline: float) -> None:
        """Go on until then."""
        if self.search is not None:
            with threadpool_limits(1, user_api="blas"):
                self.search.run(deadline)
            self.exhausted = clock() < deadline

    def told(self) -> OracleBound:
        """What is proven so far."""
        constraint = self.question.constraint
        if self.search is None:
            return _told(self.problem, self.V, constraint, _nothing(self.question))
        return _told(self.problem, self.V, constraint, _found(constraint, self.search))
