"""Align models by their symmetry group, and walk the line between them.

align(a, b, symmetry)              the group element that brings b onto a
interpolation_curve(models, data)  loss, accuracy and barrier along the line, statistics repaired
check_llfc(a, b, data)             are the features of the mean the mean of the features, layer by layer
alignment_report(a, b, symmetry)   how much of the distance each part of the group explains
"""

from __future__ import annotations

from intertwine.aligning._align import Alignment, AxisMatch, align
from intertwine.aligning._interpolate import InterpolationCurve, Line, Mixer, Score, interpolation_curve, mix
from intertwine.aligning._interpolation import Interpolation
from intertwine.aligning._llfc import LayerConnectivity, check_llfc
from intertwine.aligning._naturality import naturality_defect
from intertwine.aligning._report import AlignmentReport, alignment_report

__all__ = [
    "Alignment",
    "AlignmentReport",
    "AxisMatch",
    "Interpolation",
    "InterpolationCurve",
    "LayerConnectivity",
    "Line",
    "Mixer",
    "Score",
    "align",
    "alignment_report",
    "check_llfc",
    "interpolation_curve",
    "mix",
    "naturality_defect",
]
