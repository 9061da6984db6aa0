"""`cct6`: a compact convolutional transformer with six blocks and sinusoidal positions (source 002, D.4).

CCT-6/3x1 of Hassani et al.: one 3x3 convolution with ReLU and max pooling makes the tokens, six blocks of
width 256 with four heads and an MLP of twice the width, then a mean over tokens weighted by what they say of
themselves (sequence pooling), and one linear layer. As in the published code, the second norm of a block sits
on the residual stream: x = norm1(x + attention(pre_norm(x))), x = x + mlp(x).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def sinusoids(tokens: int, width: int) -> Tensor:
    """1 x tokens x width: sin and cos of position / 10000^(2i / width), in turn.

    >>> sinusoids(3, 4)[0, 0]
    tensor([0., 1., 0., 1.])
    """
    place = torch.arange(tokens, dtype=torch.float64)[:, None]
    angle = place / 10000 ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
    return torch.stack([angle.sin(), angle.cos()], 2).reshape(1, tokens, width).float()


class Attention(nn.Module):
    """softmax(q k' / sqrt(d)) v for each head, then one linear map."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0)
        out: Tensor = self.proj(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return out


class CctBlock(nn.Module):
    """x = norm1(x + attention(pre_norm(x))); x + linear2(gelu(linear1(x)))."""

    def __init__(self, width: int, heads: int, ratio: int, dropout: float) -> None:
        super().__init__()
        self.pre_norm = nn.LayerNorm(width)
        self.self_attn = Attention(width, heads, dropout)
        self.norm1 = nn.LayerNorm(width)
        self.linear1 = nn.Linear(width, ratio * width)
        self.linear2 = nn.Linear(ratio * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(x + self.self_attn(self.pre_norm(x)))
        out: Tensor = x + self.linear2(F.gelu(self.linear1(x)))
        return out


class CCT(nn.Module):
    """Convolutional tokens + sinusoids, blocks, sequence pooling, linear."""

    positions: Tensor

    def __init__(
        self, depth: int, *, width: int, heads: int, classes: int, in_channels: int, size: int, dropout: float
    ) -> None:
        super().__init__()
        self.tokenizer = nn.Conv2d(in_channels, width, 3, padding=1, bias=False)
        self.pool = nn.MaxPool2d(3, 2, 1)
        tokens = math.ceil(size / 2) ** 2
        self.register_buffer("positions", sinusoids(tokens, width))
        self.blocks = nn.Sequential(*(CctBlock(width, heads, 2, dropout) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.attention_pool = nn.Linear(width, 1)
        self.fc = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(torch.relu(self.tokenizer(x))).flatten(2).transpose(1, 2)
        x = self.norm(self.blocks(x + self.positions))
        weights = torch.softmax(self.attention_pool(x), 1)
        out: Tensor = self.fc((weights.transpose(1, 2) @ x)[:, 0])
        return out


def cct(
    depth: int = 6, *, classes: int = 10, in_channels: int = 3, width: int = 256, heads: int = 4,
    size: int = 32, dropout: float = 0.1,
) -> CCT:  # fmt: skip
    """A compact convolutional transformer for images of `size` x `size`; `dropout` is that of attention.

    >>> sum(p.numel() for p in cct().parameters())
    3168267
    """
    return CCT(
        depth, width=width, heads=heads, classes=classes, in_channels=in_channels, size=size, dropout=dropout
    )
