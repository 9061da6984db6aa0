"""Stitch two networks: the first layers of A, a simple map, the last layers of B (source 002, section 4)."""

from __future__ import annotations

from intertwine.stitching import classes as _classes  # noqa: F401 (registers them)
from intertwine.stitching.fit import Training
from intertwine.stitching.kinds import STITCH_CLASSES, Kind, StitchClass, parse_kind, stitch_class
from intertwine.stitching.rotation import Rotation, rotate
from intertwine.stitching.slopes import stitch_slopes
from intertwine.stitching.stitching import Stitched, Stitching, StitchReport, stitch, stitched_model

__all__ = [
    "STITCH_CLASSES",
    "Kind",
    "Rotation",
    "StitchClass",
    "StitchReport",
    "Stitched",
    "Stitching",
    "Training",
    "parse_kind",
    "rotate",
    "stitch",
    "stitch_class",
    "stitch_slopes",
    "stitched_model",
]
