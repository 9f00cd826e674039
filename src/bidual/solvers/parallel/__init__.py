r"""Training parallel networks with the path regulariser (002).

The convex program is that of 002 Theorem 1 on cells of :mod:`bidual.arrangements.layered`; the methods "exact" and
"sampled" are those of ordinary neurons with this program. Where the cells are too many,
:mod:`~bidual.solvers.parallel.generation` looks for the ones that matter.
"""

from bidual.certificates.layered import LayeredBounds
from bidual.problem import ParallelProblem
from bidual.solvers.adaptive import solve_adaptive
from bidual.solvers.adaptive.corrective import columns
from bidual.solvers.bounding import search
from bidual.solvers.closed_form import closed_form
from bidual.solvers.finite import some_patterns
from bidual.solvers.kinds import cone_bounds, every_pattern, few_of, finite_program
from bidual.solvers.parallel.cells import all_cells, few_cells, no_formula, some_cells
from bidual.solvers.parallel.generation import BranchColumns, solve_parallel, solve_several_outputs
from bidual.solvers.parallel.pricing import search_parallel
from bidual.solvers.parallel.program import LayeredProgram
from bidual.solvers.several import solve_several

finite_program.register(ParallelProblem, LayeredProgram)
cone_bounds.register(ParallelProblem, LayeredBounds)
every_pattern.register(ParallelProblem, all_cells)  # type: ignore[arg-type]
few_of.register(ParallelProblem, few_cells)  # type: ignore[arg-type]
some_patterns.register(ParallelProblem, some_cells)  # type: ignore[arg-type]
closed_form.register(ParallelProblem, no_formula)
solve_several.register(ParallelProblem, solve_several_outputs)
columns.register(ParallelProblem, BranchColumns)
search.register(ParallelProblem, search_parallel)
solve_adaptive.register(ParallelProblem, solve_parallel)

__all__ = ["LayeredProgram", "solve_parallel"]
