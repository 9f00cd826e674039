"""The constraint of branches over their cells."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bidual._util.typing import FloatArray
from bidual.atoms import Branches
from bidual.atoms.branch_cells import LayeredPatterns, enumerate_layered
from bidual.atoms.tree import Tree
from bidual.bounds import parsing
from bidual.bounds.branches import LayeredBounds
from bidual.bounds.proof import Proof
from bidual.problem import Problem


@dataclass(frozen=True)
class LayerProof(Proof):
    """All activation patterns of both layers of a branch, which need not be stored, or those that are in use."""

    cells: LayeredPatterns | None = field(default=None, compare=False, repr=False)
    kind = "layers"

    @property
    def _all(self) -> bool:
        return self.cells is None or self.cells.complete

    def scope(self, problem: Problem) -> str:
        """Networks on these cells, unless they are all there are."""
        return "" if self._all else "patterns" if problem.n_outputs == 1 else "patterns, separate"

    def bound(self, problem: Problem, V: FloatArray) -> float:
        """The maximum over the cells, with slack."""
        branches = problem.of(Branches)
        if branches is None:
            raise ValueError("a proof by layers is about parallel networks")
        cells = self.cells
        if cells is None:
            if len(branches.atoms.tree.widths) > 1:
                raise ValueError("the cells of parallel networks of more than three layers must be written down")
            cells = enumerate_layered(branches.atoms.reduced, branches.atoms.tree.leaves)
        elif cells.tree != branches.atoms.tree or cells.masks.shape[1] != len(problem.atoms.M):
            raise ValueError("the cells of the certificate are of other branches or other data")
        return LayeredBounds(branches, cells).limit(V)

    def to_dict(self) -> dict[str, Any]:
        """The bits of the cells, unless anybody can list them."""
        if self._all:
            return {}
        assert self.cells is not None
        masks = self.cells.masks
        return {
            "widths": list(self.cells.tree.widths),
            "rows": masks.shape[1],
            "masks": parsing.pack_bits(masks.reshape(len(masks), masks.shape[1] * masks.shape[2])),
            "signs": parsing.pack_bits(self.cells.signs > 0),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> LayerProof:
        """Inverse of :meth:`to_dict`."""
        if "masks" not in data:
            return cls()
        widths = parsing.integers(parsing.field(data, "widths"), "widths")
        if not widths or min(widths) < 1 or np.prod(widths, dtype=float) > parsing.LARGEST:
            raise ValueError("the certificate is damaged: 'widths' are no widths of a tree")
        tree, rows = Tree(tuple(widths)), parsing.integer(data, "rows")
        masks, signs = parsing.unpack_bits(data, "masks"), parsing.unpack_bits(data, "signs")
        if masks.shape[1] != rows * tree.nodes or signs.shape != (len(masks), tree.edges):
            raise ValueError("the certificate is damaged: the cells have another shape than their tree")
        cells = masks.reshape(len(masks), rows, tree.nodes)
        return cls(LayeredPatterns(tree, cells, np.where(signs, 1.0, -1.0)))
