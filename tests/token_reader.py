"""A small net with every kind of argument: tokens, real numbers, a mask."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Reader(nn.Module):
    """Classifies sequences of tokens, with a real number for each and a mask if they are given."""

    def __init__(self, hidden: int = 10) -> None:
        super().__init__()
        self.embed, self.extra = nn.Embedding(11, 6), nn.Parameter(torch.randn(1, 6))
        self.one, self.act, self.two = nn.Linear(6, hidden), nn.ReLU(), nn.Linear(hidden, 3)

    def forward(
        self, ids: Tensor, weight: Tensor | None = None, attention_mask: Tensor | None = None
    ) -> Tensor:
        x = self.embed(ids)
        if weight is not None:
            x = x + weight[..., None] @ self.extra
        hidden = self.act(self.one(x))
        if attention_mask is not None:
            hidden = hidden * attention_mask[..., None]
        out: Tensor = self.two(hidden.mean(1))
        return out
