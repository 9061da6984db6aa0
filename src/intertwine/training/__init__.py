"""Train any classifier by a recipe, and go on where a killed run stopped.

read_recipe("fast")                        a recipe by name or from a YAML file
load_splits("digits")                      training and test data
train(model, splits, recipe, "runs/a")     -> Run; the same call resumes
Finetune("digits", 5, "runs/b")            model -> the model after five more epochs; `merge` takes it
"""

from __future__ import annotations

from intertwine.training.data import Splits, load_splits
from intertwine.training.finetuning import Finetune
from intertwine.training.journal import read_metrics
from intertwine.training.loop import Run
from intertwine.training.models import build_model
from intertwine.training.recipe import Recipe, parse_recipe, read_recipe, recipe_names
from intertwine.training.start import train

__all__ = [
    "Finetune",
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
