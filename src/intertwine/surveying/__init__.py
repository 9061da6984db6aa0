"""`verify` over whole libraries of models: one row a model, and the table made of them."""

from intertwine.surveying.catalogues import Described, catalogue, smallest_of_each
from intertwine.surveying.covering import Coverage, coverage
from intertwine.surveying.libraries import targets
from intertwine.surveying.surveys import Row, survey
from intertwine.surveying.table import render

__all__ = [
    "Coverage",
    "Described",
    "Row",
    "catalogue",
    "coverage",
    "render",
    "smallest_of_each",
    "survey",
    "targets",
]
