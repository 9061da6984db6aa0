"""Explore: find and draw the equivalence class of a parameter (GENNI, source 004).

    sample = find_equivalents(model, inputs, 3)          parameters with the function of the model
    plane = span(sample)                                 the plane through them
    landscape = evaluate(plane, Grid.cube(2, 2.0, 100))  J on a grid of it
    find_topology(landscape, [1e-3])                     components and dimension of {J < epsilon}

Each step is plain data with `save` and `load`.
"""

from __future__ import annotations

from intertwine.exploring._embed import embed
from intertwine.exploring._evaluate import Landscape, evaluate
from intertwine.exploring.exploration import Exploration, explore
from intertwine.exploring.grid import MAX_POINTS, Grid
from intertwine.exploring.objective import FlatLayout, Objective, data_loss, function_distance
from intertwine.exploring.plan import EvaluationPlan, plan_evaluation
from intertwine.exploring.plane import Plane, plane_through, random_plane, span
from intertwine.exploring.refine import Refinement
from intertwine.exploring.search import EquivalenceSample, NotConverged, find_equivalents
from intertwine.exploring.topology import Topology, describe_set, find_topology

__all__ = [
    "MAX_POINTS",
    "EquivalenceSample",
    "EvaluationPlan",
    "Exploration",
    "FlatLayout",
    "Grid",
    "Landscape",
    "NotConverged",
    "Objective",
    "Plane",
    "Refinement",
    "Topology",
    "data_loss",
    "describe_set",
    "embed",
    "evaluate",
    "explore",
    "find_equivalents",
    "find_topology",
    "function_distance",
    "plan_evaluation",
    "plane_through",
    "random_plane",
    "span",
]
