"""Why a training ended: the one list of words for it."""

from __future__ import annotations

from enum import StrEnum

from bidual._util import watch


class Status(StrEnum):
    """Why a run ended, in words."""

    CONVERGED = "converged"
    SOLVED = "solved to the accuracy of the conic solver"
    ROUGHLY = "solved to a reduced accuracy"
    FORMULA = "solved by a formula"
    CONSTANT = "the network without neurons"
    MAX_ITER = "stopped at max_iter"
    TIME_LIMIT = watch.TIME_LIMIT
    INTERRUPTED = watch.INTERRUPTED
    STALLED = "stopped: no further progress in floating point"
    SETTLED = "stopped: little changes"
    UNSURE = "stopped: the searches of the audit miss too much to tell a gap"
    UNPROVEN = "stopped: searches find no more, but branch and bound could not prove it in time"
    EXHAUSTED = "no neuron of the relaxation is left to add"
    NARROW = "limited to max_neurons"
    START = "first-order steps only"
    STILL = "predictions no longer change"
    IDLE = "stopped: no further progress"  # of the rounds, whatever floating point could tell
    EPOCHS = "all epochs"  # of a method that knows no gap

    def __repr__(self) -> str:
        return repr(str(self))  # to whoever looks at an estimator it is words
