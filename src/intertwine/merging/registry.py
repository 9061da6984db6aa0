"""@merge_method: a way to choose what to merge is one decorated function; options, help and hints follow.

@merge_method("magnitude", "drop the smallest channels")
def magnitude(planner, axis, progress):
    ...every merge of one axis, in order, as an AxisPlan
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from intertwine.errors import InputError
from intertwine.symmetry import Axis

if TYPE_CHECKING:
    from intertwine.merging.decide import Planner
    from intertwine.merging.plan import AxisPlan, MergePlan

Progress = Callable[[int], None]
OnAxis = Callable[["Planner", Axis, Progress | None], "AxisPlan"]
AtBeta = Callable[["Planner", float, Progress | None], "MergePlan"]
AtShare = Callable[["Planner", float, str], "MergePlan"]


@dataclass(frozen=True)
class Parameter:
    """A choice that a method leaves to the caller; on the command line `--NAME`."""

    name: str
    choices: tuple[str, ...]
    help: str

    @property
    def default(self) -> str:
        """The first choice."""
        return self.choices[0]

    def checked(self, value: str) -> str:
        """The value, or `InputError` if it is none of the choices."""
        if value not in self.choices:
            raise InputError(f"unknown {self.name} {value!r}", do=f"use one of {', '.join(self.choices)}")
        return value


@dataclass(frozen=True)
class MergeMethod:
    """on_axis: every merge of one axis, which is cut at a threshold or a budget; at_beta and at_share replace
    that for methods that look at all axes together. repair: what is done to readers if nothing is said.
    holds_limits: whether at_share keeps to `Limits` (uniform, multiples, ratios)."""

    name: str
    help: str
    on_axis: OnAxis
    parameters: tuple[Parameter, ...] = ()
    repair: str = "none"
    at_beta: AtBeta | None = None
    at_share: AtShare | None = None
    holds_limits: bool = False


METHODS: dict[str, MergeMethod] = {}


def merge_method(
    name: str,
    help: str,
    *,
    parameters: Iterable[Parameter] = (),
    repair: str = "none",
    at_beta: AtBeta | None = None,
    at_share: AtShare | None = None,
    holds_limits: bool = False,
) -> Callable[[OnAxis], OnAxis]:
    """Register the decorated function under a name; the first one registered is the default."""

    def register(on_axis: OnAxis) -> OnAxis:
        own = tuple(parameters)
        METHODS[name] = MergeMethod(name, help, on_axis, own, repair, at_beta, at_share, holds_limits)
        return on_axis

    return register


def find_method(name: str | None) -> MergeMethod:
    """The method of that name (the default without one), or `InputError` with the names there are."""
    if name is None:
        return next(iter(METHODS.values()))
    if name not in METHODS:
        raise InputError(f"unknown method {name!r}", do=f"use one of {', '.join(METHODS)}")
    return METHODS[name]


def all_parameters() -> dict[str, tuple[Parameter, str]]:
    """Name -> the parameter and the method that has it."""
    return {p.name: (p, method.name) for method in METHODS.values() for p in method.parameters}
