"""Column generation: one loop for neurons of all kinds."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from bidual._util.typing import FloatArray
from bidual.solvers.run import Run, Status

#: What is told of a gap that no audit has seen yet.
UNSEEN = "before the audit"
#: Predictions hardly change in a round if they move by less than this share of their deviation (root mean squares);
#: rounds in a row in which they do not, after which a training that knows what is enough ends, whatever its gap.
_STILL, _PATIENCE = 0.02, 2


class Generation(Run, ABC):
    """Rounds that move neurons, correct their magnitudes, price the dual point and bound, until the gap is closed."""

    #: Whether the gap was closed, and stood in the audit.
    confirmed: bool = False
    #: Whether predictions hardly changed between the last two looks at them, and what was seen.
    settled: bool = False
    seen: FloatArray | None = None

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

    @property
    def tolerance(self) -> float:
        """The gap to reach; once predictions have settled, that which is enough."""
        enough = self.options.enough if self.settled else None
        return max(self.options.tol, enough or 0.0)

    def look(self, F: FloatArray) -> None:
        """Note whether predictions are what they were, if that matters."""
        if self.options.enough is not None:
            self.settled = self.seen is not None and self._alike(self.seen, F)
            self.seen = F

    def generate(self) -> None:
        """All of it; :attr:`status` says how it ended."""
        if self.begin():
            self.status, self.confirmed = Status.CONVERGED, True
            return
        calm = 0
        for _ in range(self.options.max_iter):
            self.n_iter += 1
            before = self.seen
            self.round()
            if self.options.enough is not None:
                now = self.predictions()
                calm = calm + 1 if before is not None and self._alike(before, now) else 0
                self.settled, self.seen = self.settled or calm > 0, now
            if self.closed and self.audit():
                self.status, self.confirmed = (Status.STILL if self.gap > self.options.tol else Status.CONVERGED), True
                return
            if calm >= _PATIENCE:
                self.status = Status.STILL
                return
            ended = self.prepare()
            if ended is not None:
                self.status = ended
                return
            self.settled = False

    def _alike(self, before: FloatArray, now: FloatArray) -> bool:
        """Whether two predictions are the same but for a small share of their deviation."""
        w = self.problem.w[:, None]
        spread = np.sum(w * (now - np.sum(w * now, axis=0)) ** 2)
        return bool(np.sum(w * (now - before) ** 2) <= _STILL**2 * spread)
