"""Recipes: the figures of the source papers, each made again by one command.

A recipe file of this package has a tuple `RECIPES`; adding a figure means adding a file. A recipe's `run`
gets a folder, whether to be quick, and a function to report progress; it writes its figures into the folder
and returns what it wrote and measured.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from intertwine.errors import InputError, NotFound

# (done, total, message)
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Outcome:
    """The files a recipe wrote, and its numbers."""

    files: tuple[Path, ...]
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """One figure: its name on the command line, what it shows, and the function that makes it."""

    name: str
    title: str
    source: str
    run: Callable[[Path, bool, Progress], Outcome]


def recipes() -> dict[str, Recipe]:
    """Every recipe by name, sorted; two recipes of one name are an error.

    >>> "genni-fig1" in recipes()
    True
    """
    found: dict[str, Recipe] = {}
    for info in pkgutil.iter_modules(__path__):
        for recipe in getattr(importlib.import_module(f"{__name__}.{info.name}"), "RECIPES", ()):
            if recipe.name in found:
                raise InputError(f"two recipes are called {recipe.name!r}")
            found[recipe.name] = recipe
    return dict(sorted(found.items()))


def find_recipe(name: str) -> Recipe:
    """The recipe of a name; NotFound with the nearest names otherwise."""
    known = recipes()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
        hint = f"did you mean {', '.join(near)}? " if near else ""
        raise NotFound(f"no recipe named {name!r}", do=f"{hint}intertwine reproduce --list shows them all")
    return known[name]
