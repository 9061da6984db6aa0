"""`nanogpt64`: a character GPT of four pre-norm blocks, width 64, four heads, its head tied to its embedding.

x = wte[ids] + wpe[0..T); x += attention(ln_1(x)); x += mlp(ln_2(x)); logits = ln_f(x) wte'
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class CausalAttention(nn.Module):
    """softmax(q k' / sqrt(d)) v below the diagonal, for each head; q, k and v are one matrix."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        q, k, v = self.c_attn(x).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.c_proj(mixed.transpose(1, 2).reshape(batch, tokens, -1))
        return out


class CausalMLP(nn.Module):
    """c_proj(gelu(c_fc(x))), with the exact GELU."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.c_fc = nn.Linear(width, hidden)
        self.c_proj = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.c_proj(F.gelu(self.c_fc(x)))
        return out


class CausalBlock(nn.Module):
    """x += attention(ln_1(x)); x += mlp(ln_2(x))."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = CausalAttention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = CausalMLP(width, 4 * width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        out: Tensor = x + self.mlp(self.ln_2(x))
        return out


class NanoGPT(nn.Module):
    """Scores of the next token at every position: (batch, tokens) -> (batch, tokens, vocabulary)."""

    def __init__(self, vocabulary: int, context: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(context, width)
        self.h = nn.ModuleList(CausalBlock(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight)


def nanogpt(
    classes: int = 65, context: int = 64, width: int = 64, heads: int = 4, layers: int = 4
) -> NanoGPT:
    """The character GPT; `classes` is its vocabulary.

    >>> sum(p.numel() for p in nanogpt().parameters())
    208320
    """
    return NanoGPT(classes, context, width, heads, layers)
