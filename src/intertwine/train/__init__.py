"""Train any classifier by a recipe, and go on where a killed run stopped.

read_recipe("fast")                        a recipe by name or from a YAML file
load_splits("digits")                      training and test data
train(model, splits, recipe, "runs/a")     -> Run; the same call resumes
"""

from __future__ import annotations

from intertwine.train.data import Splits, load_splits
from intertwine.train.journal import read_metrics
from intertwine.train.loop import Run, train
from intertwine.train.models import build_model
from intertwine.train.recipe import Recipe, parse_recipe, read_recipe, recipe_names

__all__ = [
    "Recipe",
    "Run",
    "Splits",
    "build_model",
    "load_splits",
    "parse_recipe",
    "read_metrics",
    "read_recipe",
    "recipe_names",
    "train",
]
