"""`verify` over whole libraries of models: one row a model, and the table made of them."""

from intertwine.coverage.catalogue import Entry, catalogue, smallest_of_each
from intertwine.coverage.survey import Row, survey
from intertwine.coverage.table import render
from intertwine.coverage.targets import targets

__all__ = ["Entry", "Row", "catalogue", "render", "smallest_of_each", "survey", "targets"]
