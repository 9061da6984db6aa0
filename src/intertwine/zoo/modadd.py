"""`modadd59`: one transformer layer without norms that adds two numbers mod 59."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Embed(nn.Module):
    """The columns of W_E, one a token."""

    def __init__(self, width: int, vocabulary: int) -> None:
        super().__init__()
        self.W_E = nn.Parameter(torch.randn(width, vocabulary) / math.sqrt(width))

    def forward(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.W_E.T)


class PositionEmbed(nn.Module):
    """x + W_pos."""

    def __init__(self, width: int, tokens: int) -> None:
        super().__init__()
        self.W_pos = nn.Parameter(torch.randn(tokens, width) / math.sqrt(width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.W_pos


class PairAttention(nn.Module):
    """softmax(q k' / sqrt(d)) v for each head, both tokens see each other; no biases."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        size = width // heads
        self.W_K = nn.Parameter(torch.randn(heads, size, width) / math.sqrt(width))
        self.W_Q = nn.Parameter(torch.randn(heads, size, width) / math.sqrt(width))
        self.W_V = nn.Parameter(torch.randn(heads, size, width) / math.sqrt(width))
        self.W_O = nn.Parameter(torch.randn(width, width) / math.sqrt(width))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (torch.einsum("ihd,bpd->biph", w, x) for w in (self.W_Q, self.W_K, self.W_V))
        mixed = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), -1) @ v
        return F.linear(mixed.transpose(1, 2).flatten(2), self.W_O)


class PairMLP(nn.Module):
    """W_out relu(W_in x + b_in) + b_out."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.W_in = nn.Parameter(torch.randn(hidden, width) / math.sqrt(width))
        self.b_in = nn.Parameter(torch.zeros(hidden))
        self.W_out = nn.Parameter(torch.randn(width, hidden) / math.sqrt(width))
        self.b_out = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(F.linear(x, self.W_in, self.b_in).relu(), self.W_out, self.b_out)


class PairBlock(nn.Module):
    """x += attention(x); x += mlp(x)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attn = PairAttention(width, heads)
        self.mlp = PairMLP(width, 4 * width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(x)
        out: Tensor = x + self.mlp(x)
        return out


class Unembed(nn.Module):
    """x W_U."""

    def __init__(self, width: int, vocabulary: int) -> None:
        super().__init__()
        self.W_U = nn.Parameter(torch.randn(width, vocabulary) / math.sqrt(width))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.W_U


class ModularAddition(nn.Module):
    """Scores of (a + b) mod n for each pair: (batch, 2) -> (batch, n)."""

    def __init__(self, modulus: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.embed = Embed(width, modulus)
        self.pos_embed = PositionEmbed(width, 2)
        self.blocks = nn.ModuleList(PairBlock(width, heads) for _ in range(layers))
        self.unembed = Unembed(width, modulus)

    def forward(self, pair: Tensor) -> Tensor:
        x = self.pos_embed(self.embed(pair))
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.unembed(x[:, -1])
        return out


def modadd(classes: int = 59, width: int = 128, heads: int = 4, layers: int = 1) -> ModularAddition:
    """The one-layer transformer; `classes` is the modulus.

    >>> tuple(modadd()(torch.tensor([[3, 58]])).shape)
    (1, 59)
    """
    return ModularAddition(classes, width, heads, layers)
