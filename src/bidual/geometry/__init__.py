"""The convex geometry of ReLU neurons (004): extreme points, spike-free matrices, the rectified ellipsoid."""

from bidual.geometry.simplex import Projections, project_on_cone, project_on_hull
from bidual.geometry.spike_free import SpikeFree, is_spike_free, spike_factor

__all__ = [
    "Projections",
    "SpikeFree",
    "is_spike_free",
    "project_on_cone",
    "project_on_hull",
    "spike_factor",
]
