"""Experts of a mixture: whole ones go, with their rows of the router.

A mixture computes y = sum_e g_e(x) f_e(x), g from the scores W x of a router of which the largest few are
chosen. Without the experts S the router chooses among the others, which is the same as s_e = -infinity for e
in S. What that costs is not estimated, it is run: the model with these scores silenced,

    cost(S) = |y_S - y|^2 / |y|^2    at the model's output, over all tokens,

so that an expert weighs as often as it is chosen, and one that is never chosen, or whose tokens go to a copy
of it, costs nothing. Each time the expert that costs least beside those that went already goes next. (A copy
is chosen beside its twin where the best two are; then the two are no duplicates, and the cost says so.)

That a smaller mixture runs, and computes what the silenced one does, is found out by running it. Experts lie
in one tensor, along its first dimension, or are modules of one container (`lists`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import fx, nn

from intertwine.merging.contractions import Contraction, Watch
from intertwine.merging.lists import find_lists
from intertwine.merging.plan import EXPERTS, AxisPlan, Merge, MergePlan, PlacePlan
from intertwine.merging.rigid import alike, floating
from intertwine.merging.shrink import apply_merge
from intertwine.merging.trial import Narrowing, subsets
from intertwine.rules import facts
from intertwine.symmetry import Symmetry

NEVER = -1e30  # a score that is not chosen, and whose exponential is zero
NEAR = 3  # modules above a router in which its experts are looked for
GREEDY = 16  # experts up to which all are tried again after each that goes


@dataclass(frozen=True)
class Mixture:
    """So many experts. router: what gives their scores; weights: all whose first dimension they are;
    containers: paths of the lists of which each is an entry."""

    router: str
    size: int
    weights: tuple[str, ...]
    containers: tuple[str, ...] = ()


class Silenced(Watch):
    """While a model runs inside this context, a router gives some experts no score; `heard`: it did run."""

    def __init__(self, model: nn.Module, router: str, gone: Sequence[int]) -> None:
        super().__init__(model, self._silence)
        self.router, self.gone, self.heard = router, list(gone), False

    def _silence(self, found: Contraction) -> None:
        if found.weight == self.router and found.output is not None:
            found.output[:, self.gone] = NEVER
            self.heard = True


def find_mixtures(symmetry: Symmetry, model: nn.Module) -> list[Mixture]:
    """Every router whose best scores are chosen, with the weights of its experts, which lie around it."""
    traced = symmetry.traced
    shapes = {n: tuple(s) for n, s in symmetry.structure.inference.shapes.items()}
    mergeable = {(m.param, m.dim) for a in symmetry.axes if a.mergeable for m in a.members}
    found: dict[str, Mixture] = {}
    for node in traced.graph.nodes:
        if not facts(node).ranks:
            continue
        size = int(node.args[0].meta["val"].shape[-1])
        router, beside = _scores(node, traced.weights, shapes, size)
        if not router or router in found or size < 2:
            continue
        owner = router.rpartition(".")[0]
        for prefix in (owner, owner.rpartition(".")[0]):
            begin = prefix + "." if prefix else ""
            inner = [n for n, s in shapes.items() if s[:1] == (size,) and n.startswith(begin)]
            stacked = [n for n in inner if n not in (router, *beside) and (n, 0) not in mergeable]
            # Matrices of experts lie in one tensor; vectors of theirs are in the same module.
            owners = {n.rpartition(".")[0] for n in stacked if len(shapes[n]) > 2}
            if owners:
                stacked = [n for n in stacked if n.rpartition(".")[0] in owners]
                found[router] = Mixture(router, size, (router, *beside, *stacked))
                break
        else:
            containers = _around(model, owner, size)
            if containers:
                found[router] = Mixture(router, size, (router, *beside), containers)
    return list(found.values())


def _around(model: nn.Module, owner: str, size: int) -> tuple[str, ...]:
    """The lists of so many modules in the nearest module around a router that has any."""
    for _ in range(NEAR):
        owner = owner.rpartition(".")[0]
        found = find_lists(model, owner, size)
        if found or not owner:
            return found
    return ()


def _scores(
    node: fx.Node, weights: Mapping[str, str], shapes: Mapping[str, tuple[int, ...]], size: int
) -> tuple[str, list[str]]:
    """The weight of the product that made what is ranked, and vectors of its outputs that were added."""
    waiting, seen, beside = [node.args[0]], set[fx.Node](), list[str]()
    while waiting:
        at = waiting.pop(0)
        if not isinstance(at, fx.Node) or at in seen:
            continue
        seen.add(at)
        name = weights.get(at.name)
        if name is not None and shapes.get(name) == (size,):
            beside.append(name)
        if at.op == "call_function" and facts(at).rows is not None:
            weight = at.args[1]
            own = weights.get(weight.name, "") if isinstance(weight, fx.Node) else ""
            if shapes.get(own, ())[:1] == (size,):
                bias = at.args[2] if len(at.args) > 2 else None
                extra = weights.get(bias.name) if isinstance(bias, fx.Node) else None
                return own, beside if extra is None else [*beside, extra]
            continue
        waiting += [a for a in at.args if isinstance(a, fx.Node)]
    return "", []


def plan_experts(
    symmetry: Symmetry, trial: Narrowing, model: nn.Module, error: Callable[[nn.Module], float]
) -> tuple[list[AxisPlan], dict[str, str]]:
    """Every mixture that can be made smaller, ready to be cut to any number of experts; the others, and why.

    error: how far a model's output is from the original's. Costs are in its unit.
    """
    found, left = [], dict[str, str]()
    for mixture in find_mixtures(symmetry, model):
        merges = _order(mixture, model, error)
        costs = tuple(m.distance for m in merges)
        places = tuple(PlacePlan(name, 0, "other") for name in mixture.weights)
        name = mixture.router.rpartition(".")[0] + "/experts"
        plan = AxisPlan(
            name, mixture.size, merges, False, places, True, (), costs, kind=EXPERTS,
            containers=mixture.containers,
        )  # fmt: skip
        fitting = _fitting(plan, mixture, trial)
        if fitting is None:
            left[name] = "the number of experts is written into the forward"
        else:
            found.append(fitting)
    return found, left


def _order(mixture: Mixture, model: nn.Module, error: Callable[[nn.Module], float]) -> tuple[Merge, ...]:
    """The order in which experts go, by what is lost without all of them that went so far."""

    def without(gone: list[int]) -> float:
        with Silenced(model, mixture.router, gone):
            return error(model)

    merges: list[Merge] = []
    alive, gone, lost = list(range(mixture.size)), list[int](), 0.0
    costs = {e: without([e]) for e in alive}
    while len(alive) > 1:
        if gone:
            again = alive if mixture.size <= GREEDY else [min(alive, key=costs.__getitem__)]
            costs = {**costs, **{e: without([*gone, e]) for e in again}}
        expert = min(alive, key=costs.__getitem__)
        lost = max(lost, costs[expert])
        alive.remove(expert)
        gone.append(expert)
        merges.append(Merge(alive[0], expert, lost, 1.0))
    return tuple(merges)


def _fitting(plan: AxisPlan, mixture: Mixture, trial: Narrowing) -> AxisPlan | None:
    """The plan with the numbers that hold how many experts there are, as far as the forward goes."""
    none, *some = subsets(trial.numbers([plan]))
    for numbers in (*some, none):  # all of them rather than none
        tried = replace(plan, attributes=numbers)
        if not _same(tried.first(1), mixture, trial):
            continue
        low, high = 1, len(plan.merges)  # as many must be left as are chosen
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if _same(tried.first(middle), mixture, trial) else (low, middle - 1)
        return tried.first(low)
    return None


def _same(plan: AxisPlan, mixture: Mixture, trial: Narrowing) -> bool:
    """Whether the smaller model runs, and computes what the whole one does with those experts silenced."""
    silenced = Silenced(trial.model, mixture.router, [m.drop for m in plan.merges])
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = floating(apply_merge(trial.model, MergePlan((plan,)))(*trial.args, **trial.kwargs))
            with silenced:
                expected = floating(trial.model(*trial.args, **trial.kwargs))
    except Exception:  # whatever a forward raises on a number that it does not expect
        return False
    return silenced.heard and alike(got, expected)


__all__ = ["Mixture", "Silenced", "find_mixtures", "plan_experts"]
