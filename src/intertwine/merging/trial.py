"""Whether a forward runs with an axis cut by one, and computes what the graph does without that coordinate.

A forward may keep a width in numbers of its modules (heads, the size of a head, both together). Which of them
hold it is found out like everything else: numbers that equal it, in the modules that the axis's weights
belong to, are tried. What was found for one layer is tried first in the next of its kind.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from intertwine.graph.export import named_tensors
from intertwine.graph.run import run
from intertwine.merging.combine import turned
from intertwine.merging.plan import RANK, AxisPlan, MergePlan
from intertwine.merging.rigid import alike, finest, floating
from intertwine.merging.shrink import apply_plan, find_dropped
from intertwine.merging.spectral import join

if TYPE_CHECKING:
    from intertwine.merging.decide import Planner

MOST = 6  # numbers of which all subsets are tried
WRITTEN = "its size is written into the forward"
ANOTHER = "the narrower model runs but computes something else (a norm goes over all of it, say)"
Numbers = tuple[tuple[str, str], ...]
Found = tuple[bool, frozenset[tuple[str, str]]]


class Narrowing:
    """Cuts axes by one in a copy of the planner's model."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.model, (self.args, self.kwargs) = finest(planner.model, planner.example())
        _write_attention_out(self.model)
        state = named_tensors(self.model)
        self.weights = {n: state[n].detach() for n in planner.symmetry.traced.weights.values()}
        self.known: dict[str, Found | None] = {}
        self._last: tuple[list[str], list[Tensor]] = [], []  # axes, and what the graph gives without them
        self._ran: set[str] = set()  # kinds whose narrower model ran, whatever it computed

    def fitted(self, *plans: AxisPlan) -> AxisPlan | None:
        """The plans as one that the forward can be narrowed by, or None.

        Softmax may be told the width, q . k / sqrt(width), or not: that is found out too.
        """
        if plans[0].size < 2:
            return None
        kind, numbers = self._kind(plans), self.numbers(plans)
        if kind in self.known:
            plan = self._guess(plans)
            if plan is None or self._runs(plan):
                return plan
        for scaled in (False, True):
            for attributes in subsets(numbers):
                plan = _plan(plans, scaled, attributes)
                if self._runs(plan, kind=kind):
                    plan = self._fewest(plan)
                    self.known[kind] = scaled, frozenset((_alike(p), n) for p, n in plan.attributes)
                    return plan
        self.known[kind] = None
        return None

    def why(self, plan: AxisPlan) -> str:
        """Why a plan that `fitted` refused by itself stays as it is."""
        return ANOTHER if self._kind([plan]) in self._ran else WRITTEN

    def fitted_alone(self, plans: Sequence[AxisPlan]) -> list[AxisPlan | None]:
        """`fitted` of every plan by itself; layers of a known kind are narrowed in one run together."""
        first = {self._kind([p]): p for p in reversed(plans) if p.size > 1}
        found = {id(p): self.fitted(p) for p in first.values()}
        rest = [p for p in plans if id(p) not in found]
        guesses = [(p, self._guess([p])) for p in rest if p.size > 1]
        made = [guess for _, guess in guesses if guess is not None]
        if made and self._runs(*made):
            found |= {id(p): guess for p, guess in guesses}
        return [found[id(p)] if id(p) in found else self.fitted(p) for p in plans]

    def _kind(self, plans: Sequence[AxisPlan]) -> str:
        return _alike(" ".join(p.name for p in plans)) + f" {plans[0].size}"

    def _guess(self, plans: Sequence[AxisPlan]) -> AxisPlan | None:
        """The plans as one, as the first of their kind could be narrowed; None if that could not be."""
        found = self.known[self._kind(plans)]
        if found is None:
            return None
        scaled, names = found
        attributes = tuple(n for n in self.numbers(plans) if (_alike(n[0]), n[1]) in names)
        return _plan(plans, scaled, attributes)

    def _fewest(self, plan: AxisPlan) -> AxisPlan:
        """Without the numbers that the forward does not read: they may hold the width of another axis."""
        for number in plan.attributes:
            fewer = replace(plan, attributes=tuple(n for n in plan.attributes if n != number))
            if self._runs(fewer):
                plan = fewer
        return plan

    def numbers(self, plans: Sequence[AxisPlan]) -> Numbers:
        """Whole numbers of the modules around the axis that equal its width, or its part of a dimension."""
        size = plans[0].size
        copies = {len(p.where[0]) for plan in plans for p in plan.places if p.where is not None}
        wanted = {size, *(size * c for c in copies)}
        paths: dict[str, None] = {}
        for plan in plans:
            for place in plan.places:
                owner = place.param.rpartition(".")[0]
                above = owner.rpartition(".")[0]
                for path in (owner, above, above.rpartition(".")[0]):
                    paths[path] = None
            for path in plan.containers:
                paths |= {path: None, path.rpartition(".")[0]: None}
        found: list[tuple[str, str]] = []
        for path in paths:
            module = self.model.get_submodule(path)
            if isinstance(module, (nn.Linear, nn.Embedding, nn.LayerNorm, nn.RMSNorm)):
                continue  # those follow their weights
            values = vars(module).items()
            found += [(path, n) for n, v in values if type(v) is int and v in wanted and n[0] != "_"]
        return tuple(found)

    def _runs(self, *plans: AxisPlan, kind: str = "") -> bool:
        """Whether the model runs with each of them cut by one, and gives what its graph does without that.

        kind: under which it is remembered that it ran.
        """
        cut = MergePlan(tuple(plan.first(1) for plan in plans))
        try:
            small = apply_plan(self.model, cut, share=True)
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                got = floating(small(*self.args, **self.kwargs))
        except Exception:  # whatever a forward raises on a size that it does not expect
            return False
        self._ran.add(kind)
        return alike(got, self._expected(cut))

    def _expected(self, cut: MergePlan) -> list[Tensor]:
        """What the graph gives at the old widths, with zeros for what is cut."""
        names = [axis.name for axis in cut.axes]
        if self._last[0] != names:
            plain = dict(self.weights)
            for turn in (turn for axis in cut.axes for turn in axis.turns):
                plain[turn.param] = turned(plain[turn.param], turn, 1.0)
            for (param, dim), places in find_dropped(cut).items():
                plain[param] = plain[param].index_fill(dim, torch.from_numpy(places), 0.0)
            self._last = names, run(self.planner.symmetry.traced, plain, self.args, self.kwargs)
        return self._last[1]


def _write_attention_out(model: Any) -> None:
    """Have a model of transformers compute attention op by op.

    A fused kernel counts the groups of keys itself: it would hide a number that a padded batch needs.
    """
    with suppress(Exception):  # each family complains as it likes about what it does not offer
        model.set_attn_implementation("eager")


def _alike(name: str) -> str:
    """Names of layers of one kind are the same without their numbers."""
    return re.sub(r"\d+", "*", name)


def subsets(numbers: Numbers) -> list[Numbers]:
    """None, all, then fewer and fewer."""
    few = numbers[:MOST]
    inner = [c for k in range(len(few) - 1, 0, -1) for c in combinations(few, k)]
    return [(), numbers, *inner] if numbers else [()]


def _plan(plans: Sequence[AxisPlan], scaled: bool, attributes: Numbers) -> AxisPlan:
    parts = list(map(_scaled, plans)) if scaled else list(plans)
    return replace(join(parts), attributes=attributes)


def _scaled(plan: AxisPlan) -> AxisPlan:
    """Products of two values take on (width / size)^1/2, half of it on each side."""
    if plan.kind != RANK or any(p.role == "in" for p in plan.places):
        return plan
    return replace(plan, turns=tuple(replace(t, power=0.25) for t in plan.turns))
