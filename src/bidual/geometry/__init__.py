"""The convex geometry of ReLU neurons (004): extreme points, spike-free matrices, the rectified ellipsoid."""

from bidual.geometry.simplex import Projections, project_on_cone, project_on_hull

__all__ = ["Projections", "project_on_cone", "project_on_hull"]
