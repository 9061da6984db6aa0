"""A sweep as a YAML file: which models and seeds to train, and what to ask of them.

    data: digits
    train: {models: [digits-vgg, mlp], seeds: 0-3, recipe: digits}
    compare: {measures: [cka, procrustes-grelu], pairs: same, layers: matched, inputs: 500, shards: 2}
    merge: {betas: [0.1, 0.2], inputs: 500}
    stitch: {kinds: [full, group], at: outside, train_inputs: 500}
    align: {by: activations, repair: reset, inputs: 500}

`recipe` is a name of the package or a file, relative to the sweep file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from intertwine import numbers
from intertwine.errors import InputError, NotFound
from intertwine.reading import read_text
from intertwine.text import quoted
from intertwine.training.lines import Located, build, read_yaml
from intertwine.training.recipe import Recipe, check_normalize, read_recipe, recipe_names

MOST_SEEDS = 100_000
_SEEDS = "write 0-9, 7 or 0-2,5"


@dataclass(frozen=True)
class TrainPart:
    """Every model with every seed, by one recipe."""

    models: tuple[str, ...]
    seeds: str = "0"
    recipe: str = "fast"
    classes: int | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        if not self.models:
            raise InputError("models is empty")
        parse_seeds(self.seeds)
        _counts(self, *(name for name in ("classes", "limit") if getattr(self, name) is not None))


@dataclass(frozen=True)
class ComparePart:
    """Every pair of trained networks: of the same architecture, or all; layers of the same name, or all.

    The first `inputs` test inputs are dealt out to `shards` tasks a pair, whose moments add up; the numbers
    do not depend on `shards`. Measures that need N x N kernels use one task a pair.
    """

    measures: tuple[str, ...] = ("cka",)
    pairs: Literal["same", "all"] = "same"
    layers: Literal["matched", "all"] = "matched"
    at: str = "layers"
    inputs: int = 1000
    shards: int = 1

    def __post_init__(self) -> None:
        from intertwine.comparing.measures import find_measure

        for name in self.measures:
            try:
                find_measure(name)
            except NotFound as error:
                raise InputError(f"measures: {error.what}", do=error.do) from error
        _counts(self, "inputs", "shards")
        if self.shards > self.inputs:
            raise InputError(f"shards must lie between 1 and inputs ({self.inputs}), not {self.shards}")


@dataclass(frozen=True)
class MergePart:
    """Iterative feature merging of every network, and the accuracy on the first `inputs` test inputs."""

    betas: tuple[float, ...] = (0.05, 0.1, 0.2)
    method: Literal["moments", "ifm", "ward", "folding", "magnitude"] = "ifm"
    inputs: int = 1000

    def __post_init__(self) -> None:
        _counts(self, "inputs")
        if not self.betas:
            raise InputError("betas is empty")
        for beta in self.betas:
            numbers.fraction(beta, "betas")


@dataclass(frozen=True)
class StitchPart:
    """Stitching penalties of every pair of one architecture, both directions, at the cuts `at`."""

    kinds: tuple[str, ...] = ("full", "group")
    at: str = "outside"
    train_inputs: int = 1000
    inputs: int = 1000
    epochs: int = 2

    def __post_init__(self) -> None:
        from intertwine.stitching import parse_kind

        _counts(self, "train_inputs", "inputs")
        numbers.whole(self.epochs, "epochs")
        if not self.kinds:
            raise InputError("kinds is empty")
        for kind in self.kinds:
            try:
                parse_kind(kind)
            except InputError as error:
                raise InputError(f"kinds: {error.what}", do=error.do) from error


@dataclass(frozen=True)
class AlignPart:
    """Distance and loss barrier of every pair of one architecture: as it is, permuted, by the whole group."""

    by: Literal["weights", "activations", "both"] = "activations"
    repair: Literal["none", "reset", "repair"] = "reset"
    points: int = 7
    inputs: int = 1000

    def __post_init__(self) -> None:
        _counts(self, "inputs")
        numbers.Whole(3, 10_000)(self.points, "points")  # a line needs its ends and a middle


@dataclass(frozen=True)
class Sweep:
    """What to run; `folder` is where relative recipe files are looked for."""

    data: str
    train: TrainPart
    test: str | None = None
    normalize: str | None = None
    compare: ComparePart | None = None
    merge: MergePart | None = None
    stitch: StitchPart | None = None
    align: AlignPart | None = None
    about: str = ""
    folder: str = "."

    def __post_init__(self) -> None:
        if self.normalize is not None:
            check_normalize(self.normalize)

    def recipe(self) -> Recipe:
        """The recipe that `train.recipe` names."""
        name = self.train.recipe
        return read_recipe(name if name in recipe_names() else Path(self.folder) / name)


def read_sweep(path: str | Path) -> Sweep:
    """The sweep of a YAML file; every error says which line."""
    return parse_sweep(read_text(path, "sweep file"), str(path), Path(path).parent)


def parse_sweep(text: str, file: str = "sweep.yml", folder: str | Path = ".") -> Sweep:
    """The sweep of a YAML text.

    >>> parse_sweep("data: digits\\ntrain: {models: [mlp], seeds: 0-2}").train.seeds
    '0-2'
    """
    from dataclasses import replace

    root = read_yaml(text, file)
    sweep = replace(build(Sweep, root, "the sweep"), folder=str(folder))
    try:
        sweep.recipe()
    except InputError as error:
        if error.where and ", line" in error.where:  # the recipe file itself is wrong, and says where
            raise
        where = _find(root, "train", "recipe").where
        raise InputError(error.what, where=where, do=error.do or error.where) from error
    return sweep


def _find(at: Located, *path: str) -> Located:
    """The node at a path of keys, or the nearest above it."""
    for key in path:
        pairs: list[tuple[Any, Any]] = at.node.value if at.node.id == "mapping" else []
        found = [value for name, value in pairs if name.value == key]
        if not found:
            break
        at = at.at(found[0])
    return at


def parse_seeds(text: str) -> list[int]:
    """Seeds of "0-3", "7" or "0-2,5".

    >>> parse_seeds("0-2,5")
    [0, 1, 2, 5]
    """
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        try:
            low = numbers.seed(first)
            high = numbers.seed(last) if dash else low
        except InputError as error:
            raise InputError(f"seeds cannot be read from {quoted(text)}: {error.what}", do=_SEEDS) from error
        if high - low + len(seeds) >= MOST_SEEDS:
            raise InputError(f"seeds {quoted(text)} are more than {MOST_SEEDS:,}", do="sweep them in parts")
        seeds += range(low, high + 1)
    if not seeds or len(set(seeds)) != len(seeds):
        raise InputError(f"seeds {quoted(text)} are empty or repeat", do=_SEEDS)
    return seeds


def _counts(part: Any, *names: str) -> None:
    for name in names:
        numbers.count(getattr(part, name), name)
