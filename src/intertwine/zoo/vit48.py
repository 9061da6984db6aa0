"""`vit48`: a vision transformer of width 48, patches of 4x4, four pre-norm blocks, *no* final norm."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Patches(nn.Module):
    """A convolution whose stride is its kernel: one token a patch."""

    def __init__(self, channels: int, patch: int, width: int) -> None:
        super().__init__()
        self.projection = nn.Conv2d(channels, width, patch, stride=patch)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.projection(x)
        return out.flatten(2).transpose(1, 2)


class PatchEmbedding(nn.Module):
    """[class token, patches] + positions."""

    def __init__(self, channels: int, size: int, patch: int, width: int) -> None:
        super().__init__()
        self.patch_embeddings = Patches(channels, patch, width)
        self.cls_token = nn.Parameter(0.02 * torch.randn(1, 1, width))
        self.position_embeddings = nn.Parameter(0.02 * torch.randn(1, (size // patch) ** 2 + 1, width))

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patch_embeddings(x)
        first = self.cls_token.expand(len(tokens), -1, -1)
        return torch.cat([first, tokens], 1) + self.position_embeddings


class PatchAttention(nn.Module):
    """softmax(q k' / sqrt(d)) v for each head; q, k and v are one matrix."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv_projection = nn.Linear(width, 3 * width)
        self.output_projection = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        parts = self.qkv_projection(x).chunk(3, -1)
        q, k, v = (part.view(batch, tokens, self.heads, -1).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(q, k, v)
        out: Tensor = self.output_projection(mixed.transpose(1, 2).reshape(batch, tokens, -1))
        return out


class PatchMLP(nn.Module):
    """dense_2(gelu(dense_1(x))), with GELU's tanh approximation."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.dense_1 = nn.Linear(width, hidden)
        self.dense_2 = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.dense_2(F.gelu(self.dense_1(x), approximate="tanh"))
        return out


class PatchBlock(nn.Module):
    """x += attention(layernorm_1(x)); x += mlp(layernorm_2(x))."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = PatchAttention(width, heads)
        self.layernorm_1 = nn.LayerNorm(width)
        self.mlp = PatchMLP(width, 4 * width)
        self.layernorm_2 = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.layernorm_1(x))
        out: Tensor = x + self.mlp(self.layernorm_2(x))
        return out


class PatchEncoder(nn.Module):
    """The blocks, one after the other."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(PatchBlock(width, heads) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class ViT48(nn.Module):
    """Class scores from the class token."""

    def __init__(self, classes: int, channels: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.embedding = PatchEmbedding(channels, 32, 4, width)
        self.encoder = PatchEncoder(width, heads, layers)
        self.classifier = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.classifier(self.encoder(self.embedding(x))[:, 0])
        return out


def vit48(classes: int = 10, in_channels: int = 3, width: int = 48, heads: int = 4, layers: int = 4) -> ViT48:
    """The small vision transformer for CIFAR.

    >>> sum(p.numel() for p in vit48().parameters())
    119098
    """
    return ViT48(classes, in_channels, width, heads, layers)
