"""Stitch two networks: the first layers of A, a simple map, the last layers of B (source 002, section 4)."""

from __future__ import annotations

from intertwine.stitch.fit import Training
from intertwine.stitch.groups import LayerGroup, find_group
from intertwine.stitch.kinds import Kind, parse_kind
from intertwine.stitch.rotate import Rotation, rotate
from intertwine.stitch.slopes import stitch_slopes
from intertwine.stitch.stitching import Stitched, Stitching, StitchReport, stitch, stitched_model

__all__ = [
    "Kind",
    "LayerGroup",
    "Rotation",
    "StitchReport",
    "Stitched",
    "Stitching",
    "Training",
    "find_group",
    "parse_kind",
    "rotate",
    "stitch",
    "stitch_slopes",
    "stitched_model",
]
