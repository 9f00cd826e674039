r"""Training neurons that are normalised after the ReLU (000 sec. 6).

The convex program is that of 000 Theorem 6.1 in the coordinates of :class:`~bidual.certificates.WhiteBlocks`; the
methods "exact" and "sampled" are those of ordinary neurons with this program. Where the patterns are too many,
:mod:`~bidual.solvers.normalised.generation` looks for the ones that matter.
"""

from bidual.certificates import NormalisedBounds
from bidual.problem import NormalisedProblem
from bidual.solvers.adaptive import solve_adaptive
from bidual.solvers.bounding import search
from bidual.solvers.kinds import cone_bounds, finite_program
from bidual.solvers.normalised.generation import solve_normalised
from bidual.solvers.normalised.pricing import search_normalised
from bidual.solvers.normalised.program import NormalisedProgram

finite_program.register(NormalisedProblem, NormalisedProgram)
cone_bounds.register(NormalisedProblem, NormalisedBounds)
search.register(NormalisedProblem, search_normalised)
solve_adaptive.register(NormalisedProblem, solve_normalised)

__all__ = ["NormalisedProgram", "solve_normalised"]
