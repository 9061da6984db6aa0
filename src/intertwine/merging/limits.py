"""What the widths of a merged model must satisfy beside the goal: uniform, multiples, ratios, left alone.

Axes that must have one width form a unit: it is narrowed as a whole, and costs what its axes cost together.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import numpy as np
from torch import nn

from intertwine.errors import InputError, NotFound
from intertwine.merging.plan import AxisPlan, MergePlan
from intertwine.symmetry import Axis

if TYPE_CHECKING:
    from intertwine.merging.said import Said

GROUPED = 8  # numbers of two bytes in the 16 that rows of a grouped product are made of
STEPS = 64  # a unit is narrowed by 1/64 of its width at a time


def grouped_weights(model: nn.Module) -> frozenset[str]:
    """The weights of experts that transformers hands to torch's grouped product."""
    experts = (
        (path, module)
        for path, module in model.named_modules()
        if getattr(getattr(module, "config", None), "_experts_implementation", None) is not None
    )
    return frozenset(
        f"{path}.{name}"
        for path, module in experts
        for name, weight in module.named_parameters(recurse=False)
        if weight.dim() == 3
    )


def layer_key(axis: AxisPlan) -> str:
    """The axis's name with its numbers left out, and its size: layers of one kind have one key.

    >>> from types import SimpleNamespace
    >>> layer_key(SimpleNamespace(name="h.3.mlp", size=64))
    'h.*.mlp 64'
    """
    return re.sub(r"\d+", "*", axis.name) + f" {axis.size}"


@dataclass(frozen=True)
class Limits:
    """uniform: axes of one key get one width (None: each its own). multiple: widths are multiples of it.

    ignore: patterns of axes that are left alone. ratios: pattern -> the share of an axis that is merged away,
    whatever the goal. A pattern matches a whole name or its end: "mlp.*" matches "h.0.mlp.c_fc".
    grouped: weights of experts that torch multiplies in groups, which wants widths in multiples of 8.
    said: what says which widths a config has words for; `sequential` cuts to those alone.
    """

    uniform: Callable[[AxisPlan], str] | None = None
    multiple: int = 1
    ignore: tuple[str, ...] = ()
    ratios: Mapping[str, float] = field(default_factory=dict)
    grouped: frozenset[str] = frozenset()
    said: Said | None = None

    def __post_init__(self) -> None:
        if self.multiple < 1:
            raise InputError(f"widths cannot be multiples of {self.multiple}", do="give --multiple 8")
        for pattern, ratio in self.ratios.items():
            if not 0 <= ratio < 1:
                raise InputError(f"the ratio of {pattern!r} is {ratio}, not a share from 0 to below 1")

    @property
    def bind(self) -> bool:
        """Whether widths depend on one another or on anything but the goal."""
        return self.uniform is not None or self.multiple > 1 or bool(self.ratios)

    def multiple_of(self, axis: AxisPlan) -> int:
        """Of which the widths of an axis are."""
        whole_rows = any(p.param in self.grouped and p.dim for p in axis.places)
        return math.lcm(self.multiple, GROUPED if whole_rows else 1)

    def kept(self, axes: Iterable[Axis]) -> list[Axis]:
        """The axes that are not to be left alone."""
        axes = list(axes)
        for pattern in (*self.ignore, *self.ratios):
            if not any(matches(pattern, a.name) for a in axes):
                raise NotFound(
                    f"no axis that can be merged matches {pattern!r}", do="`intertwine inspect` lists them"
                )
        return [a for a in axes if not any(matches(p, a.name) for p in self.ignore)]

    def ratio_of(self, name: str) -> float | None:
        """The share of an axis to merge away; of several patterns the last one counts."""
        found = [ratio for pattern, ratio in self.ratios.items() if matches(pattern, name)]
        return found[-1] if found else None


def matches(pattern: str, name: str) -> bool:
    """Whether a shell pattern matches a name, or its end after a dot.

    >>> matches("mlp.*", "h.0.mlp.c_fc"), matches("h.1*", "h.0.mlp.c_fc")
    (True, False)
    """
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"*.{pattern}")


@dataclass(frozen=True)
class Together:
    """Axes of one size that are narrowed together. fixed: the width that a ratio asks for, or None."""

    axes: tuple[AxisPlan, ...]
    multiple: int = 1
    fixed: int | None = None

    @property
    def size(self) -> int:
        """The width before merging."""
        return self.axes[0].size

    @property
    def least(self) -> int:
        """The smallest width that every axis can reach."""
        return self.rounded(max(a.size - len(a.merges) for a in self.axes))

    def rounded(self, width: int) -> int:
        """The next width that is allowed, upwards; the whole width always is."""
        return min(self.size, max(1, -(-width // self.multiple)) * self.multiple)

    def below(self, width: int) -> int | None:
        """The next narrower width to try."""
        step = max(1, width // STEPS)
        target = (width - step) // self.multiple * self.multiple
        target = max(target, self.least)
        return target if 0 < target < width else None

    def cost(self, width: int) -> float:
        """What all its axes cost at that width."""
        merges = self.size - width
        return sum(a.costs[merges - 1] for a in self.axes) if merges else 0.0

    def hull(self) -> np.ndarray:
        """By width, the lower convex hull of the costs: a cheap step behind a dear one pays for both.

        Widths that cannot be reached cost as much as the narrowest that can.
        """
        corners: list[tuple[int, float]] = []
        for width in range(self.size, self.least - 1, -1):
            point = (width, self.cost(width))
            while len(corners) > 1 and _above(corners[-1], corners[-2], point):
                corners.pop()
            corners.append(point)
        widths, costs = zip(*reversed(corners), strict=True)
        out: np.ndarray = np.interp(np.arange(self.size + 1), widths, costs)
        return out


def _above(point: tuple[int, float], left: tuple[int, float], right: tuple[int, float]) -> bool:
    """Whether a point does not lie below the line between two others."""
    share = (point[0] - left[0]) / (right[0] - left[0])
    return point[1] >= left[1] + share * (right[1] - left[1])


def find_units(plan: MergePlan, limits: Limits) -> list[Together]:
    """The axes of a plan, those together that must have one width."""
    groups: dict[str, list[AxisPlan]] = {}
    for part in plan.axes:
        key = limits.uniform(part) if limits.uniform is not None else part.name
        groups.setdefault(f"{key} {part.kind} {part.size}", []).append(part)
    units = []
    for parts in groups.values():
        ratios = {limits.ratio_of(a.name) for a in parts} - {None}
        unit = Together(tuple(parts), math.lcm(*map(limits.multiple_of, parts)))
        if ratios:
            wanted = round(unit.size * (1 - min(r for r in ratios if r is not None)))
            unit = Together(unit.axes, unit.multiple, max(unit.rounded(wanted), unit.least))
        units.append(unit)
    return units


def hold(plan: MergePlan, limits: Limits, whole: MergePlan) -> MergePlan:
    """A plan whose widths keep the limits: of a unit, the largest width, so that no axis goes further.

    whole: the plan that goes as far as can be, for ratios that go further than the given one.
    """
    if not limits.bind and not limits.grouped:
        return plan
    widths: dict[str, int] = {}
    given = plan.complexity
    for unit in find_units(whole, limits):
        width = unit.fixed or max(unit.rounded(max(given[a.name] for a in unit.axes)), unit.least)
        widths |= {a.name: width for a in unit.axes}
    return whole.to_widths(widths) if limits.ratios else plan.to_widths(widths)
