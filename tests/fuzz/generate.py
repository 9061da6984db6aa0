"""Draw a program: fill templates of the table with values so far, and keep what runs.

`choose` is the only source of chance: `random.Random.choice`, or a hypothesis draw.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from .program import Model, Program, Step
from .table import POINTWISE, TABLES

T = TypeVar("T")
Choose = Callable[[Sequence[T]], T]

MOST_ENTRIES, MOST_RANK, LARGEST = 1500, 5, 1e4
KINDS = ("flat", "flat", "flat", "tokens", "tokens", "image", "ids")
SIZES: dict[str, tuple[tuple[tuple[int, ...], ...], ...]] = {
    "flat": (
        ((3, 5), (1, 5), (4, 5)),
        ((1, 5), (3, 5), (4, 5)),
        ((2, 6), (5, 6), (1, 6)),
        ((4, 4), (2, 4), (6, 4)),
    ),
    "tokens": (
        ((2, 4, 5), (3, 4, 5), (1, 7, 5), (3, 2, 5)),
        ((1, 4, 5), (3, 4, 5), (2, 6, 5), (2, 1, 5)),
        ((3, 2, 6), (1, 2, 6), (2, 3, 6), (1, 5, 6)),
        ((2, 1, 5), (3, 1, 5), (2, 3, 5), (1, 4, 5)),
    ),
    "image": (
        ((2, 3, 4, 4), (3, 3, 4, 4), (1, 3, 6, 4), (2, 3, 2, 8)),
        ((1, 3, 4, 2), (2, 3, 4, 2), (3, 3, 4, 6), (2, 3, 8, 4)),
        ((2, 2, 1, 1), (3, 2, 1, 1), (2, 2, 2, 2), (1, 2, 3, 2)),
    ),
    "ids": (((2, 4), (3, 4), (1, 6), (2, 3)), ((1, 3), (2, 3), (2, 5), (3, 2))),
}
# share of the tables
TABLE_WEIGHTS: dict[str, int] = {
    "copies": 5,
    "orders": 5,
    "views": 5,
    "lookups": 2,
    "elementwise": 8,
    "contraction": 9,
    "reduction": 3,
    "norm": 2,
    "image": 8,
    "index": 1,
    "boolean": 1,
}


class Rejected(Exception):
    """The step does not fit the values, or its result is of no use."""


class _Model(Model):
    """A model that grows with the program."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.constructors = {}
        self._generator = torch.Generator().manual_seed(0)


class Builder:
    """A program in the making. Values are known by example, so every template is tried before it is kept."""

    def __init__(self, choose: Choose[Any], kinds: Sequence[str]) -> None:
        self.choose = choose
        kind = choose(kinds)
        shapes = choose(SIZES[kind])
        self.program = Program((), (), {}, shapes, 8 if kind == "ids" else 0)
        self.model = _Model()
        self.values: dict[str, Tensor] = {"x": self.program.inputs(shapes[0])}
        self.steps: list[Step] = []
        self.parts: dict[str, str] = {}
        self.width = choose((4, 6, 3, 6, 8, 2))

    # -- values --------------------------------------------------------------------------------------------

    def named(self, test: Callable[[Tensor], bool]) -> list[str]:
        """Names of values, the latest first."""
        return [n for n, v in reversed(self.values.items()) if test(v)]

    def number(self, like: Tensor | None = None, rank: int | None = None) -> str:
        """A value of numbers: often the latest; rather of the shape of `like`."""
        found = self.named(lambda v: v.is_floating_point() and (rank is None or v.dim() == rank))
        hidden = [n for n in found if n != "x"]
        found = hidden if hidden and self.choose((True,) * 9 + (False,)) else found
        if not found:
            raise Rejected("no value")
        if like is not None and self.choose((True,) * 4 + (False,)):
            found = [n for n in found if self.values[n].shape == like.shape] or found
            return self.choose(found)
        return found[0] if self.choose((True, True, False)) else self.choose(found)

    # -- filling a template --------------------------------------------------------------------------------

    def fill(self, template: str) -> tuple[str, dict[str, str]]:
        """The text of a step, and the new parts in it."""
        rank = 4 if template in TABLES["image"] and "1d(" not in template else None
        name = self.number(rank=rank)
        a = self.values[name]
        dims = list(range(1, a.dim())) or [0]
        dim = self.choose([*dims, *dims, dims[-1], dims[-1], 0]) if a.dim() else 0
        size = a.shape[dim] if a.dim() else 1
        channels = a.shape[1] if a.dim() > 1 else 1
        new: dict[str, str] = {}
        fixed: dict[str, str] = {
            "a": name,
            "d": str(dim),
            "at": ":, " * dim,
            "n": f"{name}.shape[{dim}]",
            "view": f"{name}.shape[{dim}]" + ", 1" * (a.dim() - 1 - dim),
            "ones": "1, " * dim,
            "minus": "-1, " * dim,
            "p": str(self.choose(_factors(size))),
            "g": str(self.choose(_factors(channels))),
        }

        def hole(match: re.Match[str]) -> str:
            key = match.group(1)
            drawn = fixed[key] if key in fixed else self._draw(key, a, dim, new, fixed)
            if key == "w":
                fixed[key] = drawn
            return drawn

        text = re.sub(r"\{(\w+)\}", hole, template)

        def part(match: re.Match[str]) -> str:
            """Inside a constructor, expressions over values are holes for later."""
            inside = re.sub(
                r"\*?\b[hx]\d*\.shape(\[[^\]]*\])?", lambda m: "{" + m.group(0) + "}", match.group(1)
            )
            return "self." + self._new_part(inside, new)

        return re.sub(r"<([^<>]+)>(?=[(\[,.)]|$)", part, text), new

    def _draw(self, key: str, a: Tensor, dim: int, new: dict[str, str], fixed: dict[str, str]) -> str:
        choose = self.choose
        size = a.shape[dim] if a.dim() else 1
        if key in ("b", "c"):
            return self.number(like=a)
        if key == "e":
            return str(choose(range(a.dim() or 1)))
        if key == "f":
            return choose(POINTWISE)
        if key == "k":
            return str(choose((1, 1, 2, 3)))
        if key == "r":
            return str(choose((2, 2, 3)))
        if key == "s":
            return str(choose((1, 2, 3, -1)))
        if key == "w":
            return str(choose((self.width,) * 5 + (2, 3, 4, 6, 8)))
        if key == "list":
            return str([choose(range(max(size, 1))) for _ in range(choose((2, 3, 4)))])
        if key == "order":
            left, order = list(range(size)), []
            while left:
                order.append(left.pop(choose(range(len(left)))))
            return str(order)
        if key in ("i", "m"):
            wanted = torch.int64 if key == "i" else torch.bool
            found = self.named(lambda v: v.dtype == wanted)
            if not found and key == "m":
                return f"({self.number(like=a)} > 0)"
            if not found:
                raise Rejected("no such value")
            return choose(found)
        if key == "L":
            return self._linear(fixed["a"], a, new)
        if key == "Lx":
            return self._linear("x", self.values["x"], new)
        if key in ("W", "W2"):
            return self._weight(fixed["a"], a, new, images=key == "W2")
        if key == "v":
            return self._vector(fixed, a, dim, new)
        raise KeyError(key)

    def _new_part(self, constructor: str, new: dict[str, str]) -> str:
        letter = (
            "l"
            if "Linear" in constructor
            else "c"
            if "Conv" in constructor
            else "p"
            if "Param" in constructor
            else "m"
        )
        name = f"{letter}{len(self.parts) + len(new)}"
        new[name] = constructor
        return name

    def _linear(self, name: str, a: Tensor, new: dict[str, str]) -> str:
        """A new linear map, or one used before."""
        old = [
            n
            for n, m in self.model.named_children()
            if isinstance(m, nn.Linear) and m.in_features == a.shape[-1]
        ]
        if old and self.choose((True, False, False, False)):
            return "self." + self.choose(old)
        bias = self.choose(("", "", ", bias=False"))
        width = self._draw("w", a, 0, new, {})
        return "self." + self._new_part(f"nn.Linear({{{name}.shape[-1]}}, {width}{bias})", new)

    def _weight(self, name: str, a: Tensor, new: dict[str, str], images: bool) -> str:
        """A weight whose second dimension fits: a new one, or one that has another role already."""
        size, tail = (a.shape[1], (1, 1)) if images else (a.shape[-1], ())
        old = []
        for key, p in self.model.named_parameters():
            if not images and p.dim() == 2:
                old += [f"self.{key}"] * (p.shape[1] == size) + [f"self.{key}.t()"] * (p.shape[0] == size)
            elif not images and p.dim() == 4 and p.shape[2:] == (1, 1):
                old += [f"self.{key}[:, :, 0, 0]"] * (p.shape[1] == size)
            elif images and p.dim() == 4:
                old += [f"self.{key}"] * (p.shape[1] == size)
                old += [f"self.{key}.transpose(0, 1)", f"self.{key}.flip(2)"] * (p.shape[0] == size)
            elif images and p.dim() == 2:
                old += [f"self.{key}[:, :, None, None]"] * (p.shape[1] == size)
        if old and self.choose((True, True, False)):
            return self.choose(old)
        width = self._draw("w", a, 0, new, {})
        dim = 1 if images else -1
        shape = ", ".join([width, f"{{{name}.shape[{dim}]}}", *map(str, tail)])
        return "self." + self._new_part(f"nn.Parameter(torch.empty({shape}))", new)

    def _vector(self, fixed: dict[str, str], a: Tensor, dim: int, new: dict[str, str]) -> str:
        """A vector over dimension `dim`: a new parameter, or a bias, a row or a column used elsewhere."""
        size, after = (a.shape[dim], a.dim() - 1 - dim) if a.dim() else (1, 0)
        tail = f".view({size}{', 1' * after})" if after else ""
        old = []
        for key, p in [*self.model.named_parameters(), *self.model.named_buffers()]:
            if p.dim() == 1 and len(p) == size:
                old.append(f"self.{key}{tail}")
            elif p.dim() == 2:
                old += [f"self.{key}[0]{tail}"] * (p.shape[1] == size)
                old += [f"self.{key}[:, 0]{tail}", f"self.{key}.sum(1){tail}"] * (p.shape[0] == size)
        if old and self.choose((True, False)):
            return self.choose(old)
        ones = ", 1" * after
        return "self." + self._new_part(f"nn.Parameter(torch.empty({{{fixed['n']}}}{ones}))", new)

    # -- steps ---------------------------------------------------------------------------------------------

    def emit(self, text: str, new: dict[str, str]) -> str:
        """Run a step; keep it if its result is of use."""
        parts = {**self.parts, **new}
        try:
            value = self.model.run(text, parts, self.values)
        except Exception as error:
            self._forget(new)
            raise Rejected(str(error)) from error
        if not _useful(value):
            self._forget(new)
            raise Rejected("of no use")
        self.parts = parts
        name = f"h{len(self.steps)}"
        self.steps.append(Step(name, text))
        self.values[name] = value
        return name

    def _forget(self, new: dict[str, str]) -> None:
        for name in new:
            self.model.constructors.pop(name, None)
            if hasattr(self.model, name):
                delattr(self.model, name)

    def grow(self, table: str, tries: int = 6) -> bool:
        """One more step from a table."""
        for _ in range(tries):
            try:
                self.emit(*self.fill(self.choose(TABLES[table])))
                return True
            except Rejected:
                continue
        return False

    def start(self) -> None:
        """A first hidden value or two."""
        choose = self.choose
        if self.program.vocabulary:
            self.emit(f"self.e0({'x'})", {"e0": f"nn.Embedding(8, {self.width})"})
            return
        for _ in range(choose((1, 1, 2))):
            if self.values["x"].dim() == 4 and choose((True, True, False)):
                name = f"c{len(self.parts)}"
                text, new = (
                    f"self.{name}(x)",
                    {name: f"nn.Conv2d({{x.shape[1]}}, {self.width}, 3, padding=1)"},
                )
            else:
                new = {}
                text = f"{self._linear('x', self.values['x'], new)}(x)"
            if choose((True, True, True, False)):
                text = f"{choose(POINTWISE)}({text})"
            self.emit(text, new)

    def finish(self) -> None:
        """Outputs: mostly a linear map of the last value, seldom a hidden value as well."""
        choose = self.choose
        last = self.named(lambda v: v.is_floating_point())[0]
        forms = [
            "{L}({a})",
            "{L}({a})",
            "{L}({a}.flatten(1))",
            "{L}({a}.flatten(1))",
            "{L}({a}.mean(1))",
            "{a}",
        ]
        outputs = []
        for _ in range(6):
            form = choose(forms).replace("{a}", last)
            if form == last:
                outputs = [last]
                break
            new: dict[str, str] = {}
            try:
                inside = form.removeprefix("{L}(")[:-1]
                self.emit(
                    f"self.o({inside})",
                    {"o": f"nn.Linear({{{inside}.shape[-1]}}, 3)"},
                )
                outputs = [self.steps[-1].name]
                break
            except Rejected:
                self._forget(new)
        outputs = outputs or [last]
        if choose((True,) + (False,) * 7):
            outputs.append(self.number())
        if choose((True,) + (False,) * 30):
            outputs.append(choose(list(self.values)))
        drawn = replace(
            self.program, steps=tuple(self.steps), outputs=tuple(dict.fromkeys(outputs)), parts=self.parts
        ).pruned()
        names = {"x", *(step.name for step in drawn.steps)}
        filled = {
            part: text if set(Step("", text).uses) <= names else self.model.constructors[part]
            for part, text in drawn.parts.items()
        }
        self.program = replace(drawn, parts=filled)


def _factors(n: int) -> list[int]:
    """What cuts n into blocks, if anything does."""
    return [f for f in range(2, n) if n % f == 0] or [1, max(n, 1)]


def _useful(value: Any) -> bool:
    if not isinstance(value, Tensor) or value.is_complex() or value.dtype == torch.float32:
        return False
    if not 0 < value.numel() <= MOST_ENTRIES or not 1 <= value.dim() <= MOST_RANK:
        return False
    if not value.is_floating_point():
        return True
    top = float(value.abs().max())
    return 1e-6 < top < LARGEST  # false for nan


def generate(choose: Choose[Any], kinds: Sequence[str] = KINDS, most: int = 9) -> Program:
    """A random program of 1 to `most` steps besides its start and its output, on an input of these kinds."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        builder = Builder(choose, kinds)
        while not builder.steps:
            try:
                builder.start()
            except Rejected:
                continue
        weights = dict(TABLE_WEIGHTS)
        for _ in range(choose((1, 2, 2, 3, 3, 4, 5, 6, most))):
            if not any(v.dim() == 4 for v in builder.values.values()):
                weights["image"] = 0 if not any(v.dim() == 3 for v in builder.values.values()) else 1
            builder.grow(choose([t for t, count in weights.items() for _ in range(count)]))
        builder.finish()
        return builder.program
