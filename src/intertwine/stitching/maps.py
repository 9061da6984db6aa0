"""The stitching layer as a module: a map of channels (a 1x1 convolution, no bias, no norm) after a resize.

Each parameterisation gives its matrix (channels of B x channels of A), is projected back onto its class after
a step of the optimiser, and is rounded to a member of the class at the end (appendix D.2 of source 002).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from intertwine.ir.groups import Group
from intertwine.stitching.start import assign, into_group, shrink
from intertwine.symmetry.values import Layout


class Map(nn.Module, ABC):
    """What the training of a stitch needs to know about its map; a class adds what is special to it."""

    rate = 5e-3  # of learning, unless the training names one

    @abstractmethod
    def matrix(self) -> Tensor:
        """Channels of B x channels of A."""

    def regulariser(self) -> Tensor | float:
        """Added to the loss."""
        return 0.0

    def project(self, rate: float) -> None:
        """Back into the class, in place, after a step of this learning rate."""

    def rounded(self) -> Tensor:
        """The member of the class that training ends with."""
        return self.matrix().detach().clone()


class FullMap(Map):
    """Any matrix; with a penalty, proximal steps keep |W|_1 small and make exact zeros (lasso)."""

    def __init__(self, start: Tensor, penalty: float = 0.0) -> None:
        super().__init__()
        self.weight, self.penalty = nn.Parameter(start.clone()), penalty
        self.rate = 0.05 if penalty else Map.rate

    def matrix(self) -> Tensor:
        return self.weight

    def project(self, rate: float) -> None:
        if self.penalty:
            self.weight.copy_(shrink(self.weight, rate * self.penalty))


class OrthogonalMap(FullMap):
    """A rotation: the polar factor after every step."""

    def project(self, rate: float) -> None:
        u, _, v = torch.linalg.svd(self.weight)
        self.weight.copy_(u @ v)


class ScaleMap(Map):
    """P diag(sign exp(lambda)) with only lambda free."""

    rate = 0.1

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        self.register_buffer("support", matrix.sign())
        self.log_scale = nn.Parameter(matrix.sum(1).abs().log())

    def matrix(self) -> Tensor:
        return self.log_scale.exp()[:, None] * self.support  # type: ignore[operator]


class RankMap(Map):
    """U V with R columns: two 1x1 convolutions."""

    def __init__(self, start: Tensor, rank: int) -> None:
        super().__init__()
        u, s, v = torch.linalg.svd(start.double(), full_matrices=False)
        half = s[:rank].sqrt()
        self.up = nn.Parameter((u[:, :rank] * half).to(start.dtype))
        self.down = nn.Parameter((half[:, None] * v[:rank]).to(start.dtype))

    def matrix(self) -> Tensor:
        return self.up @ self.down


class BirkhoffMap(Map):
    """P D with P doubly stochastic: projected by relu and Sinkhorn, drawn to a vertex by -alpha |P|_2."""

    rate = 0.1

    def __init__(
        self, start: Tensor, group: Group, *, alpha: float = 0.1, rounds: int = 16, blur: float = 0.0
    ) -> None:
        super().__init__()
        self.group, self.alpha, self.rounds = group, alpha, rounds
        hard = (start != 0).to(start.dtype)
        soft = torch.full_like(hard, 1 / len(hard))
        self.vertex = nn.Parameter((1 - blur) * hard + blur * soft)
        self.scale = nn.Parameter(start.sum(1), requires_grad=bool(group.positive or group.sign))

    def matrix(self) -> Tensor:
        return self.scale[:, None] * self.vertex

    def regulariser(self) -> Tensor | float:
        return -self.alpha * self.vertex.norm() if self.vertex.requires_grad else 0.0

    def project(self, rate: float) -> None:
        self.vertex.copy_(sinkhorn(self.vertex.clamp_min(0), self.rounds))
        if not self.group.sign:
            self.scale.clamp_min_(0)
        elif not self.group.positive:
            self.scale.clamp_(-1, 1)

    def rounded(self) -> Tensor:
        order = assign(self.vertex).to(self.vertex.device)
        return place(order, into_group(self.scale.detach(), self.group))


class SoftSortMap(Map):
    """P = softmax(-|sort(s) 1' - 1 s'| / tau) over rows, tau = 1/n, D = diag(exp(lambda)) (D.2.2)."""

    rate = 1e-2

    def __init__(self, start: Tensor, group: Group, *, temperature: float | None = None) -> None:
        super().__init__()
        width = len(start)
        self.group, self.temperature = group, temperature or 1 / width
        order = start.abs().argmax(1)
        keys = torch.empty(width, dtype=start.dtype, device=start.device)
        # Row i of P picks the i-th largest key: the start is the sort of these keys.
        keys[order] = torch.linspace(1, 0, width, dtype=start.dtype, device=start.device)
        self.keys = nn.Parameter(keys)
        given = into_group(start.sum(1), group)
        self.register_buffer("sign", given.sign())
        self.log_scale = nn.Parameter(given.abs().log(), requires_grad=bool(group.positive))

    def matrix(self) -> Tensor:
        ordered = self.keys.sort(descending=True).values
        soft = torch.softmax(-(ordered[:, None] - self.keys[None, :]).abs() / self.temperature, dim=1)
        return self._scale()[:, None] * soft

    def rounded(self) -> Tensor:
        order = self.keys.detach().sort(descending=True, stable=True).indices
        return place(order, self._scale().detach())

    def _scale(self) -> Tensor:
        sign: Tensor = self.sign  # type: ignore[assignment]
        return sign * self.log_scale.exp()


class Stitch(nn.Module):
    """A's value -> B's value: resize the pixels, map the channels."""

    def __init__(self, channels: Map, a: Layout, b: Layout) -> None:
        super().__init__()
        self.channels, self.a, self.b = channels, a, b

    def forward(self, x: Tensor) -> Tensor:
        return self.b.restore(apply_map(self.channels.matrix(), resize(self.a.features(x), self.b.pixels)))


class FixedMap(Map):
    """A matrix that is not trained."""

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", matrix)

    def matrix(self) -> Tensor:
        return self.weight  # type: ignore[return-value]


def apply_map(matrix: Tensor, x: Tensor) -> Tensor:
    """M x along dim 1 of N x C x (pixels).

    >>> apply_map(torch.tensor([[0.0, 2.0]]), torch.ones(3, 2, 5, 5)).shape
    torch.Size([3, 1, 5, 5])
    """
    if x.ndim == 2:
        return x @ matrix.T
    if x.ndim == 4:
        return functional.conv2d(x, matrix[:, :, None, None])
    return torch.einsum("dc,nc...->nd...", matrix, x)


def resize(x: Tensor, size: tuple[int, ...]) -> Tensor:
    """N x C x (pixels) at another size: averages when smaller, linear interpolation when larger."""
    have = tuple(x.shape[2:])
    if have == size:
        return x
    smaller = tuple(min(h, w) for h, w in zip(have, size, strict=True))
    pools: dict[int, Any] = {1: functional.adaptive_avg_pool1d, 2: functional.adaptive_avg_pool2d}
    modes = {1: "linear", 2: "bilinear"}
    if smaller != have:
        x = pools[len(size)](x, smaller)
    if smaller != size:
        x = functional.interpolate(x, size, mode=modes[len(size)], align_corners=False)
    return x


def place(order: Tensor, scale: Tensor) -> Tensor:
    """The matrix with scale[i] at (i, order[i]) and zeros elsewhere."""
    matrix = torch.zeros(len(order), len(order), dtype=scale.dtype, device=scale.device)
    matrix[torch.arange(len(order), device=scale.device), order] = scale
    return matrix


def sinkhorn(matrix: Tensor, rounds: int = 16) -> Tensor:
    """Columns, then rows, divided by their sums, `rounds` times: towards a doubly stochastic matrix.

    >>> sinkhorn(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), 50).sum(0)
    tensor([1., 1.])
    """
    tiny = torch.finfo(matrix.dtype).tiny
    for _ in range(rounds):
        matrix = matrix / matrix.sum(0, keepdim=True).clamp_min(tiny)
        matrix = matrix / matrix.sum(1, keepdim=True).clamp_min(tiny)
    return matrix
