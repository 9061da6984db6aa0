"""Recipes: the figures of the source papers, each made again by one command.

A recipe file of this package has a tuple `RECIPES`; adding a figure means adding an entry or a file. A `run`
gets a folder, a setting, and a function to report progress; it writes its figures into the folder and returns
what it wrote and measured, the claims of the source with a verdict each (`claims`), and what differs in the
setting. `sources` holds every figure, table and theorem of the sources against these recipes.
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
from intertwine.progress import Progress
from intertwine.recipes.claims import Claim, Verdict, verdict_of

__all__ = [
    "PRESETS", "Claim", "Outcome", "Progress", "Reproduction", "Setting", "Verdict", "find_recipe", "recipes",
]  # fmt: skip

PRESETS = ("quick", "cifar", "paper")


@dataclass(frozen=True)
class Setting:
    """How a recipe is run: on what ships (quick), on nets of CIFAR (cifar), as the source did (paper).

    data, weights: the folders of CIFAR and of the checkpoints that `cifar` reads.
    """

    preset: str = "quick"
    data: Path | None = None
    weights: Path | None = None

    @property
    def quick(self) -> bool:
        """Small nets on small data."""
        return self.preset == "quick"

    @property
    def own(self) -> bool:
        """Whether it is the source's own setting, but for what `differs` says."""
        return self.preset == "paper"


@dataclass(frozen=True)
class Outcome:
    """The files a recipe wrote, its numbers, the claims of the source, and what differs in the setting."""

    files: tuple[Path, ...]
    facts: dict[str, Any] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    differs: str = ""

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of the claims."""
        return verdict_of(self.claims)


@dataclass(frozen=True)
class Reproduction:
    """One figure: its name on the command line, what it shows, and the function that makes it.

    preset: what runs if the command does not say; paper only where that takes minutes. presets: those it has.
    """

    name: str
    title: str
    source: str
    run: Callable[[Path, Setting, Progress], Outcome]
    preset: str = "quick"
    presets: tuple[str, ...] = ("quick", "paper")


def recipes() -> dict[str, Reproduction]:
    """Every recipe by name, sorted; two recipes of one name are an error.

    >>> "genni-fig1" in recipes()
    True
    """
    found: dict[str, Reproduction] = {}
    for info in pkgutil.iter_modules(__path__):
        for recipe in getattr(importlib.import_module(f"{__name__}.{info.name}"), "RECIPES", ()):
            if recipe.name in found:
                raise InputError(f"two recipes are called {recipe.name!r}")
            found[recipe.name] = recipe
    return dict(sorted(found.items()))


def find_recipe(name: str) -> Reproduction:
    """The recipe of a name; NotFound with the nearest names otherwise."""
    known = recipes()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
        hint = f"did you mean {', '.join(near)}? " if near else ""
        raise NotFound(f"no recipe named {name!r}", do=f"{hint}intertwine reproduce --list shows them all")
    return known[name]
