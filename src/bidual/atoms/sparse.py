r"""Ordinary neurons on sparse rows: all there is to them are products with M and with its transpose."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from bidual._util.sparse import lengths
from bidual._util.typing import BoolArray, FloatArray
from bidual.arrangements.patterns import Cells
from bidual.atoms.abilities import Ability
from bidual.atoms.relu import Relu


@dataclass(frozen=True)
class SparseRelu(Relu):
    r"""Neurons that compute :math:`(M u)_+` on rows M in compressed form, which nothing here makes dense.

    Training happens in the coordinates of the columns that are not zero, whose axes are the columns themselves.
    """

    M: Any  # sp.csr_array

    can: ClassVar[frozenset[Ability]] = frozenset({"ordinary neurons"})

    @cached_property
    def _used(self) -> BoolArray:
        return np.bincount(self.M.indices, minlength=self.M.shape[1]) > 0

    @cached_property
    def basis(self) -> Any:
        """These columns of the identity, sparse as well."""
        return sp.eye_array(self.M.shape[1], format="csr")[:, self._used]

    @cached_property
    def reduced(self) -> Any:
        """These columns of M."""
        return self.M if self._used.all() else self.M[:, self._used]

    @cached_property
    def axes(self) -> tuple[FloatArray, Any]:
        """Norms of these columns, and the identity."""
        return lengths(self.reduced, axis=0), sp.eye_array(self.reduced.shape[1], format="csr")

    @cached_property
    def metric(self) -> Any:
        """See :attr:`Atoms.metric`."""
        norms = self.axes[0]
        return sp.diags_array(norms.max(initial=0.0) / norms, format="csr")

    @cached_property
    def unit(self) -> float:
        """See :attr:`Atoms.unit`."""
        entries = max(float(np.prod(self.reduced.shape, dtype=float)), 1.0)
        return float(np.linalg.norm(self.M.data)) / entries**0.5

    def few_cells(self, limit: int) -> Cells | None:
        """They are not looked for."""
        return None
