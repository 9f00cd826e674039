"""The cone of an activation pattern: ``normals @ z >= 0``."""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls

from bidual._util.typing import FloatArray

#: A margin below minus this, relative to the row and the point, is a violation.
TOL = 1e-9
#: Rounds of rows after which a point is left where it is (about twenty are common).
_ROUNDS = 200
#: Up to so many normals all are used at once.
_ALL = 200


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


def nearest_rowwise(point: FloatArray, normals: FloatArray) -> FloatArray:
    """The nearest point in a cone of many unit normals, which are used as they are needed; ``point`` of unit length.

    Where rounding or its number of rounds ends it, it is outside by that.
    """
    if len(normals) <= _ALL:
        return projected(point, normals)
    rows, u = np.zeros(0, dtype=np.int64), point
    for _ in range(_ROUNDS):
        below = normals @ u < -TOL * float(np.linalg.norm(u))
        below[rows] = False
        violated = np.flatnonzero(below)
        if not len(violated):
            break
        most = len(point)
        if len(violated) > most:
            violated = violated[np.argpartition(normals[violated] @ u, most)[:most]]
        rows = np.concatenate([rows, violated])
        found = cone_multipliers(point, normals[rows])
        if found is None:
            break
        u, rows = point + normals[rows].T @ found, rows[found > 0]
    return u
