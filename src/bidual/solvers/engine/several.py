"""What the loop of :mod:`bidual.solvers.engine.loop` does otherwise where neurons have several output weights.

Neurons move by quasi-Newton steps on pairs (:mod:`bidual.solvers.engine.pair_gradient`), and a corrective step turns
all output weights (:mod:`bidual.programs.outputs_corrective`). While the gap is large many neurons are missing, which
neither does anything about: in such rounds the violators join the network as small neurons, and move with the others.
"""

from __future__ import annotations

from contextlib import suppress
from typing import ClassVar

import numpy as np

from bidual._util.typing import FloatArray
from bidual._util.watch import Stopped
from bidual.atoms import Neurons
from bidual.bounds import lower_bound
from bidual.programs.corrective import Corrected
from bidual.programs.outputs_corrective import corrected_outputs
from bidual.solvers.engine.candidates import unit_rows
from bidual.solvers.engine.loop import CUTS, SHARPEST, WIDER, Engine
from bidual.solvers.engine.pair_gradient import GAIN, PairGradient
from bidual.solvers.engine.searching import SAME
from bidual.solvers.generation import UNSEEN

#: The first width of the kinks: the start has followed them already.
_DELTA = 0.01
#: Quasi-Newton steps of a move, and the gain of ten at which they end, relative to what can be told apart.
_STEPS, _TOL = 600, 1e-3
#: Corrective steps over output weights are this much more accurate than the gap, or than this where it is larger: a
#: dual point that is not at the end of its path has fewer violators.
_CORRECTIVE, _LARGE_GAP = 0.03, 0.1
#: Gap above which rounds have no corrective step: many neurons are missing, and join as the others move.
_WIDE = 0.01
#: What such a round has to gain for the next to be one, relative to the gap: else correcting does more.
_WIDENED = 0.03
#: Widths of the kinks, and quasi-Newton steps at each of them, of such a round.
_WIDENING = ((0.1, 100), (0.03, 100), (0.01, 100))
#: Of such a round: cuts that join the network, the cosine from which on two are one, and their
#: size relative to that of the neurons.
_JOINED, _ALIKE, _JOINED_SIZE = 200, 0.99, 0.1
#: Share of the largest violation that a cut has at least to join.
_WORTHWHILE = 0.02
#: What a smaller network may cost in the end, relative to the tolerance.
_TIDY = 0.02


class SeveralOutputs(Engine):
    """The loop for neurons with several output weights."""

    first_delta: ClassVar[float] = _DELTA

    def round(self) -> None:
        """Move, correct and price; while many neurons are missing, let them join instead of correcting."""
        gained, self.before = self.before - self.objective, self.objective
        if not len(self.cuts):
            self.priced(self.at_hand)
        if self.gap > _WIDE and gained > _WIDENED * self.gap * self.objective:
            self.at_hand = self.widened(self.at_hand)
            self.priced(self.at_hand)
            return
        self.corrected_round(self.at_hand)

    def widened(self, neurons: Neurons) -> Neurons:
        """The network with the violators of the last round, after some steps."""
        pairs = PairGradient(self.space, self.loss, self.joined(neurons))
        pairs.descend(_WIDENING, GAIN, self.watch)
        return self.merged(pairs.result())

    def joined(self, neurons: Neurons) -> Neurons:
        """The network with the worst violators as small neurons, which grow as they move."""
        violation = self.cuts.values.max(initial=0.0) / self.problem.beta - 1.0
        if violation <= 0 or not len(neurons):
            return neurons
        worth = self.cuts.values > self.problem.beta * (1.0 + _WORTHWHILE * violation)
        new = self.cuts.take(worth).distinct(_JOINED, _ALIKE)
        size = _JOINED_SIZE * float(np.median(neurons.costs))
        return self.problem.atoms.neurons(
            np.vstack([neurons.U, size * new.directions]), np.vstack([neurons.alpha, new.outputs]), neurons.intercept
        )

    def priced(self, neurons: Neurons) -> None:
        """The violators at the network's own residual become cuts, and it is not corrected."""
        p = self.problem
        F = p.atoms.combine(np.maximum(p.atoms.reduced @ neurons.U.T, 0.0), neurons.alpha) + neurons.intercept
        V = self.dual_point(F)
        found = self.price(V, unit_rows(neurons.U), WIDER * self.resolution)
        self.bounded(lower_bound(p, V, found.best, found.best))
        self.note(words=UNSEEN)
        self.cuts = found.take(found.values > p.beta).distinct(CUTS, SAME)

    def correct_outputs(self, atoms: Neurons, t: FloatArray) -> tuple[Neurons, Corrected]:
        """The best output weights."""
        tol = _CORRECTIVE * max(min(self.gap, _LARGE_GAP), self.options.tol)
        return corrected_outputs(self.problem, self.epsilon, atoms, t, tol)

    def move(self, neurons: Neurons, delta: float) -> Neurons:
        """By steps on pairs."""
        if not len(neurons):
            return neurons
        pairs = PairGradient(self.space, self.loss, neurons)
        pairs.descend([(delta, _STEPS)], _TOL * self.resolution)
        return pairs.result()

    def tidy(self) -> None:
        """The best network moved once more, and a smaller one if it is as good.

        Moves of a wide network leave many neurons where few do; the dual point is none of a smaller one's business.
        """
        if not len(self.neurons):
            return
        with suppress(Stopped):  # any network is an answer
            self.offer(self.move(self.neurons, SHARPEST))
            few = self.merged(self.neurons)
            few = self.move(self.sparse(few, self.evaluate(few)), SHARPEST)
            objective = self.evaluate(few)
            if objective <= self.objective * (1.0 + _TIDY * self.options.tol):
                self.adopt(few, objective)
