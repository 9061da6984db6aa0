"""Several networks of one architecture into one.

combine(models, data)             align, average, repair or solve layer by layer -> Combination
align_all(models, symmetry)       one element for each model, cycle-consistent
METHODS                           averages by name: average, slerp, task, ties, fisher, soup
"""

from __future__ import annotations

from intertwine.combining._combine import combine
from intertwine.combining._methods import METHODS
from intertwine.combining._result import Combination, CombineStage
from intertwine.combining._statistics import REPAIRS
from intertwine.combining._together import align_all

__all__ = ["METHODS", "REPAIRS", "Combination", "CombineStage", "align_all", "combine"]
