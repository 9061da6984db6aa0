"""Align models by their symmetry group, and walk the line between them.

align(a, b, symmetry)              the group element that brings b onto a
interpolate(models, data)          loss, accuracy and barrier along the line, statistics repaired
check_llfc(a, b, data)             are the features of the mean the mean of the features, layer by layer
alignment_report(a, b, symmetry)   how much of the distance each part of the group explains
"""

from __future__ import annotations

from intertwine.align.align import Alignment, AxisMatch, align
from intertwine.align.interpolate import InterpolationCurve, Line, Score, interpolate
from intertwine.align.llfc import LayerConnectivity, check_llfc
from intertwine.align.report import AlignmentReport, alignment_report

__all__ = [
    "Alignment",
    "AlignmentReport",
    "AxisMatch",
    "InterpolationCurve",
    "LayerConnectivity",
    "Line",
    "Score",
    "align",
    "alignment_report",
    "check_llfc",
    "interpolate",
]
