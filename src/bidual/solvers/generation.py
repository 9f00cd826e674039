"""Column generation: one loop for neurons of all kinds."""

from __future__ import annotations

from abc import ABC, abstractmethod

from bidual.solvers.run import Run, Status

#: What is told of a gap that no audit has seen yet.
UNSEEN = "before the audit"


class Generation(Run, ABC):
    """Rounds that move neurons, correct their magnitudes, price the dual point and bound, until the gap is closed."""

    @abstractmethod
    def begin(self) -> bool:
        """A first network; whether it is good enough already."""

    @abstractmethod
    def round(self) -> None:
        """Move, correct, price and bound."""

    @abstractmethod
    def audit(self) -> bool:
        """Whether the closed gap stands: rounds miss violations now and then."""

    @abstractmethod
    def prepare(self) -> str | None:
        """Prepare the next round; or why there is to be none, though the gap is open."""

    def generate(self) -> None:
        """All of it; :attr:`status` says how it ended."""
        if self.begin():
            self.status = Status.CONVERGED
            return
        for _ in range(self.options.max_iter):
            self.n_iter += 1
            self.round()
            if self.closed and self.audit():
                self.status = Status.CONVERGED
                return
            ended = self.prepare()
            if ended is not None:
                self.status = ended
                return
