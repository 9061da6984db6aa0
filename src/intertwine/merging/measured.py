"""Means and second moments of what every weight of a model reads, measured while the model runs.

mean = E[x], cov = E[x x^T] - mean mean^T, over all inputs, tokens and pixels that are no padding.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from intertwine.data.evaluation import like_inputs
from intertwine.graph.export import eval_copy
from intertwine.merging.contractions import Call, Contraction, Watch, calls, identity, real_rows

NARROW = 256  # columns below which one product is faster than three
BLOCK = 4096  # rows that are multiplied at a time


@dataclass(eq=False)
class Seen:
    """What one weight reads along its dimension `dim`; bias: what is added to its output, or "".

    uses: how often a forward multiplies by the weight (a tied one more than once).
    """

    dim: int
    bias: str
    uses: int
    rows: int
    first: Tensor
    second: Tensor

    @property
    def mean(self) -> Tensor:
        """E[x]."""
        return self.first / self.rows

    @property
    def moment(self) -> Tensor:
        """E[x x^T]."""
        return self.second / self.rows

    @property
    def cov(self) -> Tensor:
        """E[x x^T] - E[x] E[x]^T."""
        return self.moment - torch.outer(self.mean, self.mean)


def measure(model: nn.Module, data: Iterable[Any]) -> dict[str, Seen]:
    """Weight -> what it reads on `data`: batches of tensors, of tokens, of arguments by name with masks.

    >>> net = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 2))
    >>> seen = measure(net, [torch.tensor([[0, 1], [2, 3]])])
    >>> seen["1.weight"].rows, seen["1.weight"].bias, tuple(seen["1.weight"].cov.shape)
    (4, '1.bias', (3, 3))
    """
    return measure_calls(model, calls(data, like_inputs(model)))


class Grams:
    """Sums over the rows of x and x x^T, computed once for all weights that read one value (q, k and v)."""

    def __init__(self) -> None:
        self._read: Tensor | None = None  # held, so that its memory is not another value's
        self._known: tuple[Any, ...] = ()
        self._sums: tuple[Tensor, Tensor] | None = None

    def __call__(self, inputs: Tensor, kept: Tensor | None) -> tuple[Tensor, Tensor]:
        """(inputs,) and (inputs, inputs) in float64, over the rows that are kept (None: all)."""
        known = identity(inputs)
        if self._sums is None or self._known != known:
            rows = inputs if kept is None else inputs[kept]
            self._sums = cross_sums(rows, rows)
            self._read, self._known = inputs, known
        return self._sums


def cross_sums(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """sum y and sum x y^T in float64; what varies is multiplied without its mean, which would drown it.

    Products are summed in float32 at least: a few thousand squares are more than float16 holds.
    """
    means = [_single(v).mean(0) for v in (x, y)]
    mean_x, mean_y = (m.to("cpu", torch.float64) for m in means)
    rest_x, rest_y = torch.zeros_like(mean_x), torch.zeros_like(mean_y)
    varying = torch.zeros(len(mean_x), len(mean_y), dtype=torch.float64)
    for a, b in zip(x.split(BLOCK), y.split(BLOCK), strict=True):
        # single products in float64 would take far longer; their sums do not
        left = _single(a) - means[0]
        right = left if x is y else _single(b) - means[1]
        rest_x += left.sum(0).to("cpu", torch.float64)
        rest_y += right.sum(0).to("cpu", torch.float64)
        varying += (_gram(left) if x is y else left.T @ right).to("cpu", torch.float64)
    first = len(y) * mean_y + rest_y
    return first, varying.addr_(mean_x, first).addr_(rest_x, mean_y)


def _single(x: Tensor) -> Tensor:
    """Itself, or in float32 where it has less."""
    return x.float() if x.element_size() < 4 else x


def _gram(rows: Tensor) -> Tensor:
    """x^T x; of a wide one only what lies above the diagonal is multiplied."""
    half = rows.shape[1] // 2
    if half < NARROW:
        return rows.T @ rows
    left, right = rows[:, :half], rows[:, half:]
    cross = left.T @ right
    return torch.cat([torch.cat([_gram(left), cross], 1), torch.cat([cross.T, _gram(right)], 1)])


class Collector:
    """Adds up what every weight reads, contraction after contraction."""

    def __init__(self) -> None:
        self.found: dict[str, Seen] = {}
        self._uses: dict[str, int] = {}
        self._mask: Tensor | None = None
        self._grams = Grams()

    def begin(self, call: Call) -> None:
        """Another call of the model."""
        self._uses.clear()
        self._mask = real_rows(call)

    def __call__(self, c: Contraction) -> None:
        """One product."""
        kept = self._mask if self._mask is not None and len(c.inputs) == len(self._mask) else None
        self._uses[c.weight] = self._uses.get(c.weight, 0) + 1
        count = len(c.inputs) if kept is None else int(kept.sum())
        if not count:  # an expert that nothing was sent to
            return
        first, second = self._grams(c.inputs, kept)
        old = self.found.get(c.weight)
        if old is None:
            self.found[c.weight] = Seen(c.dim, c.bias, 1, count, first, second)
        elif old.dim == c.dim and len(old.first) == len(first):
            old.rows, old.first, old.second = old.rows + count, old.first + first, old.second + second
            old.uses = max(old.uses, self._uses[c.weight])


def measure_calls(model: nn.Module, given: Iterable[Call]) -> dict[str, Seen]:
    """The same on arguments of the model, by position and by name."""
    copied, collect = eval_copy(model, share=True), Collector()
    with torch.no_grad(), Watch(copied, collect):
        for call in given:
            collect.begin(call)
            copied(*call[0], **call[1])
    return collect.found
