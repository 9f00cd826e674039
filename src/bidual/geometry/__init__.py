"""The convex geometry of ReLU neurons (004): extreme points, spike-free matrices, the rectified ellipsoid."""

from bidual.geometry.ellipsoid import rectify_ellipsoid, support_function
from bidual.geometry.extreme_points import ExtremePoint, ExtremePoints, extreme_point, extreme_points
from bidual.geometry.relaxation import (
    RelaxedNeurons,
    relaxed_neuron_free_bias,
    relaxed_neurons,
    relaxed_neurons_joint,
)
from bidual.geometry.simplex import Projections, project_on_cone, project_on_hull
from bidual.geometry.spike_free import SpikeFree, is_spike_free, spike_factor

__all__ = [
    "ExtremePoint",
    "ExtremePoints",
    "Projections",
    "RelaxedNeurons",
    "SpikeFree",
    "extreme_point",
    "extreme_points",
    "is_spike_free",
    "project_on_cone",
    "project_on_hull",
    "rectify_ellipsoid",
    "relaxed_neuron_free_bias",
    "relaxed_neurons",
    "relaxed_neurons_joint",
    "spike_factor",
    "support_function",
]
