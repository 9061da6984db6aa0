"""A training recipe: every number that decides what training does, as plain data.

Recipes are YAML files; those of the sources ship with the package (`intertwine train --help` lists them).

>>> recipe = read_recipe("ifm")
>>> recipe.epochs, recipe.optimizer.learning_rate, recipe.schedule.drops
(150, 0.1, (80, 120))
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from intertwine import numbers
from intertwine.errors import InputError, NotFound
from intertwine.reading import read_text
from intertwine.text import quoted
from intertwine.training.lines import build, read_yaml


@dataclass(frozen=True)
class Optimizer:
    """SGD (momentum, nesterov), Adam or AdamW; all else is PyTorch's default.

    muon is SGD for all but convolution kernels, which it turns: a step is `turn` times the kernel's norm,
    which stays, so there is no weight decay on them.
    """

    name: Literal["sgd", "adam", "adamw", "muon"] = "sgd"
    learning_rate: float = 0.1
    turn: float = 0.0
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    decay_norms: bool = True  # False: no weight decay on biases and norm parameters (tensors of one dim)

    def __post_init__(self) -> None:
        _check(self, numbers.nonnegative, "learning_rate", "turn", "weight_decay")
        _check(self, numbers.below_one, "momentum")
        if self.nesterov and not self.momentum:
            raise InputError("nesterov needs momentum")
        if (self.name == "muon") != (self.turn > 0):
            raise InputError("muon needs a turn above 0, and no other optimizer has one")


@dataclass(frozen=True)
class Schedule:
    """The learning rate over the run, as a factor of `learning_rate`.

    constant; steps: times `factor` at each epoch in `drops`; one-cycle: linear up during the share `warmup`
    of the run, then linear down to `final`; cosine: the same with half a cosine on the way down.
    """

    kind: Literal["constant", "steps", "one-cycle", "cosine"] = "constant"
    drops: tuple[int, ...] = ()
    factor: float = 0.1
    warmup: float = 0.0
    final: float = 0.0

    def __post_init__(self) -> None:
        _check(self, numbers.below_one, "warmup")
        _check(self, numbers.nonnegative, "factor", "final")
        for epoch in self.drops:
            numbers.count(epoch, "drops")
        if list(self.drops) != sorted(set(self.drops)):
            raise InputError(f"drops must be rising epochs, not {list(self.drops)}")


@dataclass(frozen=True)
class Augment:
    """flip: left-right with probability 1/2; translate: up to that many pixels each way, filled with 0 (the
    mean colour, where the data is normalised), until the share `until` of the run."""

    flip: bool = False
    translate: int = 0
    until: float = 1.0

    def __post_init__(self) -> None:
        _check(self, numbers.Whole(0, 1024), "translate")
        _check(self, numbers.fraction, "until")


@dataclass(frozen=True)
class Resolution:
    """From the share `start` of the run on, images are shrunk to `scale` times their side."""

    start: float
    scale: float

    def __post_init__(self) -> None:
        _check(self, numbers.below_one, "start")
        _check(self, numbers.share, "scale")


@dataclass(frozen=True)
class Recipe:
    """How to train: `about` says where the numbers are from and changes nothing."""

    epochs: int
    batch: int
    optimizer: Optimizer = field(default_factory=Optimizer)
    schedule: Schedule = field(default_factory=Schedule)
    augment: Augment = field(default_factory=Augment)
    resolution: tuple[Resolution, ...] = ()
    loss: Literal["cross-entropy", "mse"] = "cross-entropy"
    label_smoothing: float = 0.0
    precision: Literal["float32", "bf16-where-fast"] = "float32"
    channels_last: bool = False
    limit: int | None = None  # train on the first N examples only
    checkpoints: tuple[int, ...] = ()  # epochs at which to keep the weights; 0 is before training
    evaluate_every: int = 1  # epochs between looks at the test split; the last is always looked at
    keep: Literal["last", "best"] = "last"
    normalize: str | None = None  # the data's normalisation, unless --normalize says otherwise
    about: str = ""

    def __post_init__(self) -> None:
        _check(self, numbers.Whole(1, 1_000_000), "epochs")
        _check(self, numbers.count, "batch", "evaluate_every", *(["limit"] if self.limit is not None else []))
        _check(self, numbers.fraction, "label_smoothing")
        if self.normalize is not None:
            check_normalize(self.normalize)
        bad = [epoch for epoch in self.checkpoints if not 0 <= epoch <= self.epochs]
        if bad:
            raise InputError(f"checkpoints {bad} lie outside epochs 0 to {self.epochs}")
        if self.schedule.drops and self.schedule.drops[-1] >= self.epochs:
            raise InputError(f"schedule drops at epoch {self.schedule.drops[-1]} of {self.epochs}")
        starts = [step.start for step in self.resolution]
        if starts != sorted(set(starts)) or (starts and starts[0] != 0):
            raise InputError(f"resolution must start at 0 and rise, not {starts}")

    def to_dict(self) -> dict[str, Any]:
        """Plain data, every field; `from_dict` is its inverse."""
        plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return plain

    def digest(self) -> str:
        """A name for what the recipe does: equal recipes, however written, have equal digests."""
        fields = {key: value for key, value in self.to_dict().items() if key != "about"}
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]


def _check(owner: Any, allowed: numbers.Real | numbers.Whole, *names: str) -> None:
    for name in names:
        allowed(getattr(owner, name), name)


def check_normalize(text: str) -> None:
    """Refuse a normalisation that nobody can read; the message starts with the field, as `build` expects."""
    from intertwine.data import parse_normalize

    try:
        parse_normalize(text)
    except InputError as error:
        raise InputError(f"normalize: {error.what}", do=error.do) from error


def recipe_folder() -> Path:
    return Path(str(resources.files("intertwine.training") / "recipes"))


def recipe_names() -> list[str]:
    """The recipes that ship with the package.

    >>> "fast" in recipe_names()
    True
    """
    return sorted(path.stem for path in recipe_folder().glob("*.yml"))


def read_recipe(source: str | Path) -> Recipe:
    """The recipe of a shipped name or of a YAML file; every error says which line."""
    name = str(source)
    if not name.endswith((".yml", ".yaml")):
        path = recipe_folder() / f"{name}.yml"
        if name not in recipe_names():
            raise NotFound(
                f"no recipe is called {quoted(name)}",
                do=f"choose one of {', '.join(recipe_names())}, or give a file that ends in .yml",
            )
    else:
        path = Path(source)
    return parse_recipe(read_text(path, "recipe"), path.name if path.parent == recipe_folder() else str(path))


def parse_recipe(text: str, file: str = "recipe.yml") -> Recipe:
    """The recipe of a YAML text.

    >>> parse_recipe("epochs: 3\\nbatch: 32").batch
    32
    """
    return build(Recipe, read_yaml(text, file))


def from_dict(data: dict[str, Any], file: str = "recipe") -> Recipe:
    """`Recipe.to_dict` undone.

    >>> from_dict(read_recipe("fast").to_dict()) == read_recipe("fast")
    True
    """
    return parse_recipe(json.dumps(data), file)
