"""How neurons of one kind are trained: what column generation needs beyond their atoms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, Generic

import numpy as np

from bidual._util.clock import clock
from bidual._util.registry import ByKind
from bidual._util.typing import FloatArray
from bidual._util.watch import watching
from bidual.atoms import Atoms
from bidual.closed_form import ClosedForm, ConditionError
from bidual.problem import AtomsT, Problem
from bidual.solvers.base import Options, Solution
from bidual.solvers.proving import proven


class Steps(ABC, Generic[AtomsT]):
    """The steps for one kind of atoms; a subclass that names the :attr:`kind` stands for it."""

    registry: ClassVar[ByKind[type[Steps[Any]]]] = ByKind()
    kind: ClassVar[type[Atoms]]

    def __init_subclass__(cls) -> None:
        if "kind" in vars(cls):
            Steps.registry.add(cls.kind, cls)

    def __init__(self, problem: Problem[AtomsT]) -> None:
        self.problem = problem

    @staticmethod
    def of(problem: Problem) -> Steps[Any]:
        """Those for the atoms of a problem."""
        return Steps.registry.of(problem.atoms)(problem)

    def formula(self) -> ClosedForm:
        """The optimum as a formula; ConditionError names the condition that fails."""
        raise ConditionError(f"{type(self.problem.atoms).__name__.lower()} have no closed form: use another method")

    @abstractmethod
    def generate(self, options: Options) -> Solution:
        """Column generation, until the relative likely gap is at most ``options.tol``."""

    def rough(self, options: Options) -> Solution:
        """A network that predicts about as well as the best one, soon; of its gap nothing is known."""
        return self.generate(replace(options, max_iter=1, audit=False))

    @abstractmethod
    def search(self, V: FloatArray, random_state: int | np.random.RandomState | None, audit: bool = True) -> float:
        """The largest value of the dual constraint at ``V`` that local search finds; about that, without ``audit``."""

    def pricer(self, rng: np.random.Generator) -> Any:
        """The search for neurons that violate the dual constraint, of kinds that the engine moves."""
        raise NotImplementedError

    def several(self, options: Options) -> Solution:
        """Several outputs, with a proof: a neuron feeds all of them at once, which no finite program describes.

        Column generation, and then a search over cones of directions that proves its bound.
        """
        began = clock()
        limit = options.time_limit
        half = replace(options, tol=0.3 * options.tol, audit=False, time_limit=None if limit is None else 0.5 * limit)
        with watching(limit):
            found = self.generate(half)
            # the last digits may take branch and bound forever
            now = clock()
            seconds = max(5.0, 2.0 * (now - began)) if limit is None else max(0.0, began + limit - now)
            bound, method = proven(self.problem, found, options.tol, seconds)
        last = replace(found.history[-1], elapsed=clock() - began, likely_bound=bound.value)
        return replace(found, bound=bound, method=method, history=[*found.history, last])


def solve_adaptive(problem: Problem, options: Options) -> Solution:
    """Column generation with moving neurons: the default way to train.

    Where a formula gives the optimum, by that.
    """
    return Steps.of(problem).generate(options)
