"""The cone of an activation pattern: ``normals @ z >= 0``."""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls

from bidual._util.typing import FloatArray


def cone_multipliers(point: FloatArray, normals: FloatArray) -> FloatArray | None:
    r"""The :math:`\lambda \ge 0` for which :math:`z + \sum_k \lambda_k n_k` is nearest to ``point`` z in the cone.

    (Moreau: minus the sum is the projection onto the polar cone.) None if the search fails. For a point of about unit
    length: the search has an absolute tolerance.
    """
    try:
        return np.asarray(nnls(normals.T, -point)[0])
    except RuntimeError:  # no convergence
        return None


def projected(point: FloatArray, normals: FloatArray) -> FloatArray:
    """The nearest point in the cone; the point itself if the search for it fails."""
    found = cone_multipliers(point, normals)
    return point if found is None else point + normals.T @ found
