"""`verify` over whole libraries of models: one row a model, and the table made of them."""

from intertwine.coverage.survey import Row, survey
from intertwine.coverage.table import render
from intertwine.coverage.targets import targets

__all__ = ["Row", "render", "survey", "targets"]
