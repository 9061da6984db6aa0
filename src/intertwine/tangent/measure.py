"""How many numbers the function of a model has at theta, and whether the group explains all the others.

    rank of d f / d theta  <=  parameters - dimension of the orbit

The left side is the functional dimension at theta, over enough inputs; the orbit is that of the inferred
group. If both sides are equal, no continuous symmetry was missed at theta. What is missing is the *deficit*,
and `Direction` says where it lies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from typing import Any

import numpy as np
from torch import Tensor, nn

from intertwine.checks import checked
from intertwine.data.batches import Batches, arguments, count_rows
from intertwine.data.evaluation import call, like_inputs
from intertwine.errors import DataError, InputError, ModelError
from intertwine.graph.example import Example
from intertwine.graph.export import check_values, eval_copy
from intertwine.ir.ledger import Ids
from intertwine.progress import Progress, placed
from intertwine.symmetry import Axis, Symmetry, trace
from intertwine.tangent.challenge import is_seen
from intertwine.tangent.coordinates import Coordinates, coordinates_of
from intertwine.tangent.directions import Search
from intertwine.tangent.found import Dimension
from intertwine.tangent.generators import moving_only, tangents
from intertwine.tangent.jacobian import Jacobian, draws
from intertwine.tangent.jumps import Jumps
from intertwine.tangent.kinds import Direction, summed
from intertwine.tangent.looked import Looked
from intertwine.tangent.moving import proved
from intertwine.tangent.pieces import on_pieces
from intertwine.tangent.regions import Region, function_regions, regions
from intertwine.tangent.settled import settled_null
from intertwine.tangent.spaces import span

DENSE = 20_000  # coordinates up to which the whole Jacobian is taken
AGAIN = 12  # times as many inputs for what would be called missed: a unit may switch once in hundreds
CHALLENGE = 4  # times as many that see a mixture of what would be called missed
SAMPLE = 2_000  # coordinates of one axis that are looked at together beyond that
LOOKS = 3  # random sets of channels of a larger axis


@checked
def dimension(
    model: nn.Module,
    inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    *,
    data: Any = None,
    limit: int | None = None,
    at: str | None = None,
    dense: int = DENSE,
    sample: int = SAMPLE,
    looks: int = LOOKS,
    seed: int = 0,
    symmetry: Symmetry | None = None,
    progress: Progress | None = None,
) -> Dimension:
    """The functional dimension of a model at its weights, beside the dimension of the orbit of its group.

    inputs: an example, as for `trace`; without `data` more are drawn like it. data: what to run on instead
    (anything that `Batches` reads), the first `limit` inputs of it. at: only channels of the axes that match
    this pattern, all other weights held; models of more than `dense` numbers are looked at so anyway. Axes of
    up to `sample` numbers whole, others in `looks` disjoint random sets of channels of so many numbers.

    >>> import torch
    >>> from torch import Tensor, nn
    >>> mlp = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> found = dimension(mlp, torch.randn(8, 3))
    >>> found.parameters, found.orbit, found.rank, found.verdict
    (50, 8, 42, 'complete')
    """
    check_values(model)
    example = Example.of(inputs, kwargs)
    if any(tensor.device.type != "cpu" for tensor in (*model.parameters(), *model.buffers())):
        model, symmetry = eval_copy(model).to("cpu"), None  # decompositions in float64 are LAPACK's
        example = example.map(Tensor.cpu)
    if symmetry is None:
        symmetry = trace(model, example.args, example.kwargs, seed=seed)
    theta = coordinates_of(model, symmetry)
    if not theta.size and not theta.unread:
        raise InputError("the model has no weights", so="it has no dimension to speak of")
    columns = tangents(symmetry, theta)
    given = _Given(symmetry, model, theta, columns, example, data, limit, sample, looks, seed, progress)
    if at is None and theta.size <= dense:
        return given.measure(np.arange(theta.size))
    axes = symmetry.matching(at) if at is not None else [a for a in symmetry.axes if not a.group.is_trivial]
    each = [given.of_axis(axis, f"axis {n} of {len(axes)}") for n, axis in enumerate(axes, 1)]
    parts = tuple(part for part in each if part is not None)
    if not parts:
        raise InputError("no axis to look at", do="`intertwine inspect` lists the axes")
    return parts[0] if len(parts) == 1 else _joined(parts, at or "each axis, all else held")


def _joined(parts: Sequence[Dimension], scope: str, looked: Looked | None = None) -> Dimension:
    """Several measurements, each on its own: the sums, and the worst gap."""
    return Dimension(
        sum(p.parameters for p in parts), sum(p.statistics for p in parts), sum(p.orbit for p in parts),
        sum(p.rank for p in parts), min(p.gap for p in parts),
        tuple(summed([d for p in parts for d in p.directions])), max(p.error for p in parts),
        max(p.inputs for p in parts), all(p.settled for p in parts), np.zeros(0), scope,
        looked, tuple(parts), tuple(t for p in parts for t in p.translations),
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Given:
    """All that measuring needs."""

    symmetry: Symmetry
    model: nn.Module
    theta: Coordinates
    tangents: Any
    example: Example
    data: Any
    limit: int | None
    sample: int
    looks: int
    seed: int
    progress: Progress | None

    def of_axis(self, axis: Axis, where: str) -> Dimension | None:
        """One axis in all its members: random sets of channels, each as large as fits, with none in two."""
        channels = self.theta.channels(self.symmetry, axis)
        sets = list(islice(self._sets(channels), self.looks))
        parts = [
            self.measure(
                places, axis.name, Looked(len(channels), (len(some),)), f"{where}, look {n} of {len(sets)}"
            )
            for n, some in enumerate(sets, 1)
            if len(places := np.unique(np.concatenate([channels[k] for k in some])))
        ]
        if len(parts) < 2:
            return parts[0] if parts else None
        return _joined(parts, axis.name, Looked(len(channels), tuple(map(len, sets))))

    def _sets(self, channels: Sequence[Ids]) -> Iterator[list[int]]:
        order = np.random.default_rng(self.seed).permutation(len(channels)).tolist()
        if len(channels) and len(np.unique(np.concatenate(channels))) <= self.sample:
            yield order
            return
        chosen, size = list[int](), 0
        for k in order:
            if chosen and size + len(channels[k]) > self.sample:
                yield chosen
                chosen, size = [], 0
            chosen, size = [*chosen, k], size + len(channels[k])
        if chosen:
            yield chosen

    def measure(
        self, chosen: Ids, scope: str = "", looked: Looked | None = None, where: str = ""
    ) -> Dimension:
        """Rank, orbit and what is left, of the coordinates `chosen`; where: in the work."""
        whole = len(chosen) == self.theta.size
        jacobian = Jacobian(
            self.symmetry.traced, self.model, self.theta, None if whole else chosen, self.seed
        )
        orbit = moving_only(chosen, self.tangents, self.theta.sizes)
        for times in (1, AGAIN) if len(chosen) <= SAMPLE else (1,):
            found, null, lengths, calls, settled = settled_null(
                jacobian, self._examples(), len(chosen) - orbit.shape[1], placed(self.progress, where), times
            )
            mixed = span(orbit * np.where(lengths > 0, lengths * jacobian.sizes, 1.0)[:, None])
            error = float(np.abs(mixed - null @ (null.T @ mixed)).max(initial=0.0))
            search = Search(
                self.symmetry, self.theta, chosen, null, lengths, mixed, partial(self._redundant, chosen),
                self.jumps.seen,
            )  # fmt: skip
            named = search.run()
            if all(d.explained for d in named):
                break
        else:
            settled = settled and not self._is_seen(search.missed, calls)
        # what no op reads costs nothing to look at, however much it is
        unread = {} if scope else self.theta.unread
        unused = [Direction("unused", count, (name,)) for name, count in unread.items()]
        directions = (*unused, *named)
        stored = self.theta.mask([self.theta.of(n) for n in self.theta.statistics])[chosen].sum()
        return Dimension(
            len(chosen) + sum(unread.values()), int(stored), mixed.shape[1], found.rank, found.gap,
            directions, error, calls, settled, found.singular_values, scope, looked,
            translations=proved(self.symmetry.traced, self.model, self.theta, search.moves, self._fresh()),
        )  # fmt: skip

    def _is_seen(self, missed: Sequence[np.ndarray], calls: int) -> bool:
        """Whether inputs beyond those of so many calls see what would be called missed."""
        fresh = islice(self._examples(), calls, (1 + CHALLENGE) * calls)
        return is_seen(missed, self.symmetry.traced, self.theta, self._state, fresh, self.seed)

    @cached_property
    def products(self) -> list[Region]:
        """The affine regions of the graph; of all axes the same."""
        return list(regions(self.symmetry.traced, self._state, self.example))

    @cached_property
    def polynomials(self) -> list[Region]:
        """Those with gates and squares in them."""
        return list(regions(self.symmetry.traced, self._state, self.example, products=True))

    @cached_property
    def functions(self) -> list[Region]:
        """Functions in a row."""
        return list(function_regions(self.symmetry.traced, self._state, self.example))

    @cached_property
    def pieces(self) -> list[Region]:
        """Regions around functions that are polynomials on these inputs."""
        traced = on_pieces(self.symmetry.traced, self._state, islice(self._examples(), 200))
        if traced is None:
            return []
        both = (regions(traced, self._state, self.example, products=p) for p in (False, True))
        return [region for found in both for region in found]

    @cached_property
    def jumps(self) -> Jumps:
        """What sees a direction that no derivative does."""
        inputs = islice(draws(self.example, self.seed), 200)
        return Jumps(self.symmetry.traced, self.theta, self._state, inputs)

    @property
    def _state(self) -> dict[str, Tensor]:
        state = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        return {n: self.theta.values.get(n, t.detach().cpu()) for n, t in state.items()}

    def _redundant(self, chosen: Ids, *kinds: str) -> Iterator[tuple[str, np.ndarray]]:
        """Directions in which regions of the graph stay what they are: (kind, columns over theta)."""
        places = {
            "product": "products",
            "polynomial": "polynomials",
            "function": "functions",
            "piece": "pieces",
        }
        for kind in kinds:
            for region in getattr(self, places[kind]):
                own = self.theta.mask([self.theta.of(n) for n in region.weights if n in self.theta.values])
                inside = chosen[own[chosen]]
                if not len(inside):
                    continue
                jacobian = Jacobian(region.traced, self.model, self.theta, inside, self.seed)
                inputs = draws(region.traced.example, self.seed)
                try:
                    found, null, lengths, _, settled = settled_null(jacobian, inputs, len(inside))
                except ModelError:  # arbitrary numbers may leave the domain of an op: nothing is said then
                    continue
                if found.certain and settled:
                    columns = np.zeros((self.theta.size, null.shape[1]))
                    columns[inside] = null / np.where(lengths > 0, lengths, 1.0)[:, None]
                    yield kind, columns

    def _fresh(self) -> list[Example]:
        """A few inputs that were not looked at, whatever the data are."""
        return list(islice(draws(self.example, self.seed + 1), 1, 4))

    def _examples(self) -> Iterator[Example]:
        """Inputs without end, or those of the data, in batches as large as the example's."""
        if self.data is None:
            yield from draws(self.example, self.seed)
            return
        shapes = self.example.shapes
        batch = shapes[0][0] if shapes and shapes[0] else 1
        place = like_inputs(self.model).device
        for found, _ in Batches(self.data, batch=batch, limit=self.limit, device=place):
            if count_rows(found) == batch:
                given = Example(*arguments(found))
                missing = sorted(self.example.kwargs.keys() - given.kwargs.keys())
                if missing:
                    raise DataError(
                        f"the model takes {', '.join(missing)} by name, and the data has none",
                        do="give inputs by name, or leave the data out",
                    )
                call(self.model, found, like_inputs(self.model).dtype)  # it tells what does not fit
                yield given


__all__ = ["Dimension", "dimension"]
