"""intertwine.attribute: which part of an input a class of equivalent features sees (source 000, Fig. 5b)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from intertwine.checks import checked
from intertwine.data.evaluation import like_inputs
from intertwine.errors import InputError, NotFound
from intertwine.graph.export import check_values
from intertwine.inside.attribution import Attribution, ClassView
from intertwine.inside.backward import Backward
from intertwine.inside.classes import (
    Agreement,
    ChannelMoments,
    agreement,
    correlate,
    find_classes,
    mean_of_pairs,
)
from intertwine.inside.inputs import Inputs, Rows, as_inputs
from intertwine.inside.methods import METHODS, attribute_rows, heat_map
from intertwine.inside.network import Carrier, Network, open_network
from intertwine.progress import Progress, counted

_MEMBERS = 8  # members of a class that are looked at one by one
_DRAWS = 200  # random classes for the correlation of maps, which costs nothing
ORDERS = ("size", "agreement")


@checked
def attribute(
    model: nn.Module,
    data: Any,
    axis: str,
    *,
    at: str | None = None,
    beta: float = 1e-9,
    by: str = "ifm",
    channel: int | Sequence[int] | None = None,
    number: int | None = None,
    methods: Sequence[str] = ("guided",),
    classes: int = 6,
    order: str = "size",
    inputs: int = 4,
    labels: Sequence[int | str] | None = None,
    show: Sequence[int] | None = None,
    balance: bool = True,
    controls: int = 5,
    batch: int = 32,
    seed: int = 0,
    tokens: Sequence[Sequence[str]] | None = None,
    example: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Attribution:
    """For classes of equal features of an axis: the inputs that excite them most, and what in these does.

    The classes are found by merging up to `beta` (`by`: "ifm" or "ward"), the largest or best agreeing first
    (`order`); `number` picks one of them, `channel` replaces them by given channels. They are read at the
    value `at` (the last one after a rectifier that carries the axis). `labels`: the best inputs of each of
    these labels, not of all; `show`: these inputs, whatever excites the class. `balance` divides every
    member by its root mean square on the data, so that no rescaling of the axis changes the result;
    without it members are summed as they are, as in the source.
    `controls` random classes of the same size are attributed on the same inputs. tokens: the words of every
    input of a text model.

    >>> net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    >>> with torch.no_grad():
    ...     for t in (net[0].weight, net[0].bias, net[2].weight.T):
    ...         _ = t[3].copy_(t[1])
    >>> found = attribute(net, torch.randn(32, 4, generator=torch.Generator().manual_seed(0)), "0")
    >>> found.at, found.classes[0].members, round(found.classes[0].maps.members, 6)
    ('1', (1, 3), 1.0)
    """
    _check(methods, order, inputs, classes)
    given = as_inputs(data)
    _check_shown(labels, show, tokens, len(given))
    network = _open(model, given, batch, example, kwargs)
    chosen = network.axis(axis)
    carrier = network.carrier(chosen, at)
    found = _channels(network, axis, channel, beta, by)
    back = Backward(network, carrier.name, carrier.dim)
    moments, totals = _scan(back, carrier, given, progress)
    rng = np.random.default_rng(seed)
    table = moments.correlation()
    ranked = [(members, agreement(table, members, rng, _DRAWS)) for members in found]
    if order == "agreement":
        ranked.sort(key=lambda pair: -np.nan_to_num(pair[1].members, nan=-2.0))
    if number is not None:
        if not 0 <= number < len(ranked):
            raise NotFound(f"no class {number}", do=f"there are {len(ranked)}, counted from 0")
        ranked = ranked[number : number + 1]
    scale = moments.scale()
    weight = torch.where(scale > 0, 1 / scale.clamp_min(1e-300), 0) if balance else torch.ones_like(scale)
    look = _Look(back, carrier, given, totals, weight, tuple(methods), rng, controls, scale > 0)
    views = tuple(look.at(members, maps, inputs, labels, show) for members, maps in ranked[:classes])
    shown = sorted({n for view in views for n in view.inputs})
    rows = {n: _array(given.rows(torch.tensor([n])).first[0]) for n in shown}
    return Attribution(
        axis=axis, at=carrier.name, group=str(chosen.group), beta=None if channel is not None else beta,
        by="given" if channel is not None else by, methods=tuple(methods), classes=views, found=len(ranked),
        dead=int((scale == 0).sum()), looked_at=len(given), rows=rows,
        labels={n: given.label_name(n) for n in shown},
        tokens={n: tuple(tokens[n]) for n in shown} if tokens is not None else {},
    )  # fmt: skip


def _open(
    model: nn.Module, given: Inputs, batch: int, example: Any, kwargs: Mapping[str, Any] | None
) -> Network:
    """The network for batches of the inputs; named ones are all that it is called with."""
    if len(given) < 1 or batch < 1:
        raise InputError(f"{len(given)} inputs in batches of {batch}", do="give at least 1")
    rows = given.rows(torch.arange(min(batch, len(given))))
    if not given.arguments:
        return open_network(model, rows.first, example, kwargs)
    check_values(model)
    rows = rows.to(like_inputs(model))
    return Network(model, (), dict(zip(given.arguments, (rows.first, *rows.beside), strict=True)))


def _check(methods: Sequence[str], order: str, inputs: int, classes: int) -> None:
    wrong = [m for m in methods if m not in METHODS]
    if wrong or not len(methods):
        raise InputError(f"no method named {wrong[0] if wrong else ''!r}", do=f"use {', '.join(METHODS)}")
    if order not in ORDERS:
        raise InputError(f"no order named {order!r}", do=f"use {' or '.join(ORDERS)}")
    if inputs < 1 or classes < 1:
        raise InputError(f"{classes} classes on {inputs} inputs", do="give at least 1 of each")


def _check_shown(
    labels: Sequence[int | str] | None,
    show: Sequence[int] | None,
    tokens: Sequence[Sequence[str]] | None,
    count: int,
) -> None:
    if labels is not None and not len(labels):
        raise InputError("labels is empty: there is nothing to show", do="name one at least, or leave it out")
    if show is not None and not (len(show) and 0 <= min(show) <= max(show) < count):
        wrong = next((n for n in show if not 0 <= n < count), "")
        raise NotFound(
            f"show: there is no input {wrong}", do=f"there are {count}, counted from 0; give one at least"
        )
    if tokens is not None and len(tokens) != count:
        raise InputError(
            f"tokens of {len(tokens)} inputs, but there are {count}", do="give the words of each"
        )


def _channels(
    network: Network, axis: str, channel: int | Sequence[int] | None, beta: float, by: str
) -> list[list[int]]:
    chosen = network.axis(axis)
    if channel is None:
        return find_classes(network.model, network.symmetry, chosen, beta, by)
    members = np.ravel(channel).tolist()  # a number may be one of numpy or torch
    wrong = [c for c in members if not 0 <= c < chosen.size]
    if wrong or not members:
        raise NotFound(f"{axis!r} has no channel {wrong[0] if wrong else ''}", do=f"it has {chosen.size}")
    return [members]


def _scan(
    back: Backward, carrier: Carrier, given: Inputs, progress: Progress | None
) -> tuple[ChannelMoments, Tensor]:
    """One pass over all inputs: moments of the axis's channels, and their sums over positions per input."""
    place = torch.from_numpy(carrier.place)
    moments, totals = ChannelMoments(len(place)), []
    advance = counted(progress, len(given), "inputs")
    for start in range(0, len(given), back.network.batch):
        rows = _ready(back, given, torch.arange(start, min(start + back.network.batch, len(given))))
        value = back.values(rows).movedim(carrier.dim, -1)[..., place.to(rows.first.device)]
        moments.add(value.reshape(-1, len(place)))
        totals.append(value.flatten(1, -2).sum(1) if value.ndim > 2 else value)
        if advance is not None:
            advance(len(rows))
    return moments, torch.cat(totals).double().cpu()


def _ready(back: Backward, given: Inputs, numbers: Tensor) -> Rows:
    return given.rows(numbers).to(like_inputs(back.network.model))


class _Look:
    """Attributions of classes on the inputs that excite them."""

    def __init__(
        self, back: Backward, carrier: Carrier, given: Inputs, totals: Tensor, weight: Tensor,
        methods: tuple[str, ...], rng: np.random.Generator, controls: int, alive: Tensor,
    ) -> None:  # fmt: skip
        self.back, self.carrier, self.given, self.totals, self.weight = back, carrier, given, totals, weight
        self.methods, self.rng, self.controls, self.alive = methods, rng, controls, alive
        self.size = back.network.value(carrier.name).shape[carrier.dim]

    def at(
        self, members: Sequence[int], maps: Agreement, count: int, labels: Sequence[int | str] | None,
        show: Sequence[int] | None,
    ) -> ClassView:  # fmt: skip
        """One class."""
        scores = self.totals[:, list(members)] @ self.weight[list(members)]
        pools = [torch.arange(len(scores))] if labels is None else [self.given.of_label(n) for n in labels]
        best = torch.cat([pool[scores[pool].argsort(descending=True, stable=True)[:count]] for pool in pools])
        best = best if show is None else torch.tensor(show)
        heats = {method: self._heat([list(members)], best, method) for method in self.methods}
        alone = [c for c in members if self.alive[c]][:_MEMBERS]
        each, heat = self._members(alone, best)
        errors = heats["integrated"][1] if "integrated" in heats else None
        return ClassView(
            members=tuple(members), alive=int(self.alive[list(members)].sum()),
            maps=maps, heat=self._agree(heat, alone, members, best),
            inputs=tuple(best.tolist()), scores=tuple(scores[best].tolist()),
            by_label=self._by_label(scores), shown=tuple(alone), each=each,
            heats={m: found[0] for m, found in heats.items()},
            incomplete=None if errors is None else float(errors.max()),
        )  # fmt: skip

    def _heat(
        self, sets: Sequence[Sequence[int]], best: Tensor, method: str
    ) -> tuple[np.ndarray, Tensor | None]:
        """Attributions of several sets of channels, each on all of the inputs: (sets * inputs, places)."""
        rows = _ready(self.back, self.given, best)
        table = torch.zeros(len(sets), self.size, dtype=torch.float64)
        for row, members in zip(table, sets, strict=True):
            row[self.carrier.place[list(members)]] = self.weight[list(members)]
        weights = table.repeat_interleave(len(rows), 0)
        like = like_inputs(self.back.network.model)
        found = attribute_rows(self.back, rows.repeat(len(sets)), weights.to(like), method)
        return heat_map(self.back, found, method).double().cpu().numpy(), found.error

    def _members(self, alone: Sequence[int], best: Tensor) -> tuple[np.ndarray, Tensor]:
        if not alone:
            return np.zeros((0, len(best))), torch.zeros(0, len(best), 1)
        flat = self._heat([[c] for c in alone], best, self.methods[0])[0]
        each = flat.reshape(len(alone), len(best), *flat.shape[1:])
        return each, torch.from_numpy(each).reshape(len(alone), len(best), -1)

    def _agree(self, heat: Tensor, alone: Sequence[int], members: Sequence[int], best: Tensor) -> Agreement:
        """Correlation of the members' attributions, beside random channels on the same inputs."""
        if len(alone) < 2:
            return Agreement(float("nan"), float("nan"), float("nan"))
        inside = mean_of_pairs(correlate(heat))
        others = np.setdiff1d(np.flatnonzero(self.alive.numpy()), np.array(members))
        found = []
        for _ in range(self.controls):
            drawn = self.rng.permutation(others)[: len(alone)].tolist()
            if len(drawn) > 1:
                found.append(mean_of_pairs(correlate(self._members(drawn, best)[1])))
        told = [each for each in found if not np.isnan(each)]  # maps that do not vary tell nothing
        if not told:
            return Agreement(inside, float("nan"), float("nan"))
        return Agreement(inside, float(np.mean(told)), float(np.std(told)))

    def _by_label(self, scores: Tensor) -> dict[str, float]:
        """The mean score of every label, where inputs have labels."""
        if self.given.labels is None:
            return {}
        labels = self.given.labels.cpu()
        first = {int(label): int((labels == label).nonzero()[0]) for label in labels.unique()}
        return {self.given.label_name(n): float(scores[labels == label].mean()) for label, n in first.items()}


def _array(row: Tensor) -> np.ndarray:
    """An input for the page; numpy has no bfloat16."""
    array: np.ndarray = (row.float() if row.is_floating_point() else row).cpu().numpy()
    return array
