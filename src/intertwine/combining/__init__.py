"""Several networks into one.

combine(models, data)             align, average, repair or solve layer by layer -> Combination
interpolate(models, data)         loss, accuracy and barrier along the line, stage by stage
align_all(models, symmetry)       one element for each model, cycle-consistent
join(models, symmetry, inputs)    all networks side by side in one, which zip merges
METHODS                           averages by name: average, slerp, task, ties, fisher, soup
"""

from __future__ import annotations

from intertwine.combining._combine import combine
from intertwine.combining._join import join
from intertwine.combining._methods import METHODS
from intertwine.combining._path import interpolate
from intertwine.combining._result import Combination, CombineStage
from intertwine.combining._statistics import REPAIRS
from intertwine.combining._together import align_all

__all__ = [
    "METHODS",
    "REPAIRS",
    "Combination",
    "CombineStage",
    "align_all",
    "combine",
    "interpolate",
    "join",
]
