"""Means and second moments of what every weight of a model reads, measured while the model runs.

mean = E[x], cov = E[x x^T] - mean mean^T, over all inputs, tokens and pixels that are no padding.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from intertwine.graph.export import eval_copy
from intertwine.merging.contractions import Call, Contraction, Watch, calls, real_rows


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
    return measure_calls(model, calls(data, next(model.parameters())))


def measure_calls(model: nn.Module, given: Iterable[Call]) -> dict[str, Seen]:
    """The same on arguments of the model, by position and by name."""
    copied = eval_copy(model, share=True)
    found: dict[str, Seen] = {}
    kept: Tensor | None = None
    uses: dict[str, int] = {}

    def collect(c: Contraction) -> None:
        rows = c.inputs if kept is None or len(c.inputs) != len(kept) else c.inputs[kept]
        uses[c.weight] = uses.get(c.weight, 0) + 1
        first = rows.sum(0, dtype=torch.float64).cpu()
        second = (rows.T @ rows).to("cpu", torch.float64)
        old = found.get(c.weight)
        if old is None:
            found[c.weight] = Seen(c.dim, c.bias, 1, len(rows), first, second)
        elif old.dim == c.dim and len(old.first) == len(first):
            old.rows, old.first, old.second = old.rows + len(rows), old.first + first, old.second + second
            old.uses = max(old.uses, uses[c.weight])

    with torch.no_grad(), Watch(copied, collect):
        for call in given:
            uses.clear()
            mask = next((v for k, v in call[1].items() if k == "attention_mask"), None)
            kept = None if mask is None else real_rows(call, mask.numel())
            copied(*call[0], **call[1])
    return found
