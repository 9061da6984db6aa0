"""What a linear or convolutional layer reads, as rows: out = rows @ W' for a matrix W of its weight.

linear        a row is the vector at a position
convolution   a row is the patch under the kernel; of grouped ones, one set of rows a group
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn import functional as F

from intertwine.rules.registry import facts

LINEAR = (1, 2, 1)  # weight, bias, and the dimension of the weight that is summed over
TRANSPOSED = (2, 0, -2)  # bias + x @ weight, as the linear layers of GPT-2 are written
WINDOWS = 2  # most dimensions of a convolution's window


@dataclass(frozen=True)
class SolvableLayer:
    """A layer that can be solved for. spatial: dimensions of the kernel's window (0: linear)."""

    node: fx.Node
    spatial: int
    groups: int
    settings: dict[str, Any]
    transposed: bool = False

    @property
    def source(self) -> fx.Node:
        """What it reads."""
        return self.node.args[1 if self.transposed else 0]  # type: ignore[return-value]

    @property
    def weight(self) -> fx.Node:
        """The placeholder of its weight."""
        return self.node.args[2 if self.transposed else 1]  # type: ignore[return-value]

    @property
    def bias(self) -> fx.Node | None:
        """The placeholder of its bias."""
        at = 0 if self.transposed else 2
        found = self.node.args[at] if len(self.node.args) > at else None
        return found if isinstance(found, fx.Node) else None

    def count(self, out: Tensor) -> int:
        """How many rows there are for what the layer makes."""
        return out.numel() // out.shape[1 if self.spatial else -1]

    def rows(self, x: Tensor, pick: Tensor | None = None) -> Tensor:
        """(groups, rows, inputs of a group), in the order of `columns`; pick: the numbers of some rows."""
        if not self.spatial:
            found = x.reshape(-1, x.shape[-1])
            return (found if pick is None else found[pick])[None]
        patches = self._patches(x.unsqueeze(2) if self.spatial == 1 else x)
        n, _, high, wide = patches.shape[:4]
        if pick is None:
            pick = torch.arange(n * high * wide, device=x.device)
        across = pick % (high * wide)
        # Only the patches that are picked are ever written out.
        found = patches[pick // (high * wide), :, across // wide, across % wide]
        return found.reshape(len(pick), self.groups, -1).movedim(1, 0)

    def columns(self, out: Tensor, pick: Tensor | None = None) -> Tensor:
        """(rows, outputs) of what the layer makes, or of anything of its shape."""
        if not self.spatial:
            found = out.reshape(-1, out.shape[-1])
            return found if pick is None else found[pick]
        flat = out.flatten(2)
        if pick is None:
            return flat.movedim(1, -1).flatten(0, 1)
        positions = flat.shape[-1]
        return flat[pick // positions, :, pick % positions]

    def _patches(self, x: Tensor) -> Tensor:
        """(inputs, channels, rows, columns, window), a view of the padded values."""
        (high, wide), (down, right), (top, left), (apart, aside) = (
            self.settings[k] for k in ("kernel_size", "stride", "padding", "dilation")
        )
        x = F.pad(x, (left, left, top, top)).contiguous()
        n, c, h, w = x.shape
        fit = (h - apart * (high - 1) - 1) // down + 1, (w - aside * (wide - 1) - 1) // right + 1
        s = x.stride()
        steps = (s[0], s[1], s[2] * down, s[3] * right, s[2] * apart, s[3] * aside)
        return x.as_strided((n, c, *fit, high, wide), steps)

    def matrix(self, weight: Tensor) -> Tensor:
        """(groups, outputs of a group, inputs of a group)."""
        weight = weight.mT if self.transposed else weight
        return weight.reshape(self.groups, weight.shape[0] // self.groups, -1)

    def put(self, matrix: Tensor, weight: Tensor) -> None:
        """Write a matrix into the weight that it is the matrix of."""
        weight.copy_(matrix[0].mT if self.transposed else matrix.reshape(weight.shape))


def find_layer(node: fx.Node, weights: Any) -> SolvableLayer | None:
    """The layer of a node whose weight is its own; None where it is not such a layer."""
    product = facts(node).product
    if product not in (LINEAR, TRANSPOSED) or len(node.args) < 2:
        return None
    if product == TRANSPOSED:
        bias, _, table = (*node.args, None)[:3]
        plain = all(isinstance(n, fx.Node) and n.name in weights and len(n.users) == 1 for n in (bias, table))
        flat = plain and table.meta["val"].dim() == 2 and bias.meta["val"].dim() == 1  # type: ignore[union-attr]
        return SolvableLayer(node, 0, 1, {}, transposed=True) if flat and not node.kwargs else None
    weight = node.args[1]
    if not isinstance(weight, fx.Node) or weight.name not in weights or len(weight.users) != 1:
        return None
    spatial = weight.meta["val"].dim() - 2
    if not 0 <= spatial <= WINDOWS:
        return None
    if not spatial:
        return SolvableLayer(node, 0, 1, {})
    stride, padding, dilation, groups = _convolution(node)
    if isinstance(padding, str):
        return None
    shape = weight.meta["val"].shape[2:]
    window = {"kernel_size": shape, "stride": stride, "padding": padding, "dilation": dilation}
    ones = {"kernel_size": 1, "stride": 1, "padding": 0, "dilation": 1}
    settings = {k: _pair(v, spatial, ones[k]) for k, v in window.items()}
    return SolvableLayer(node, spatial, groups, settings)


def _convolution(node: fx.Node) -> tuple[Any, Any, Any, int]:
    given: dict[int, Any] = dict(enumerate(node.args))
    named: dict[str, Any] = dict(node.kwargs)
    return (
        given.get(3, named.get("stride", 1)),
        given.get(4, named.get("padding", 0)),
        given.get(5, named.get("dilation", 1)),
        int(given.get(6) or named.get("groups") or 1),
    )


def _pair(value: Any, spatial: int, one: int) -> tuple[int, int]:
    """Settings of a window over two dimensions; over one dimension the first is trivial."""
    values = [value] * spatial if isinstance(value, int) else list(value)
    values = values * spatial if len(values) < spatial else values
    return (one, int(values[0])) if spatial == 1 else (int(values[0]), int(values[1]))


def chosen_rows(total: int, most: int, generator: torch.Generator) -> Tensor | None:
    """Numbers of at most `most` rows out of `total`, drawn at random; None takes all."""
    return None if total <= most else torch.randperm(total, generator=generator)[:most]
