"""Features of images put where a mask says (`masked_scatter`): rows let channels pass, entries do not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from intertwine import trace, verify


class Placed(nn.Module):
    """Rows of one layer in places of another's."""

    def __init__(self, mask: str) -> None:
        super().__init__()
        self.text, self.image, self.head = nn.Linear(3, 8), nn.Linear(5, 8), nn.Linear(8, 2)
        self.mask = mask

    def forward(self, x: Tensor, pixels: Tensor) -> Tensor:
        text, image = self.text(x), self.image(pixels)
        rows = x[..., :1] > 0
        mask = {"rows": rows, "expanded": rows.expand_as(text), "entries": text > 0}[self.mask]
        return self.head(torch.relu(text.masked_scatter(mask, image)))


@pytest.mark.parametrize("mask", ["rows", "expanded"])
def test_rows_move_and_scale_together(mask: str) -> None:
    torch.manual_seed(0)
    net, example = Placed(mask), (torch.randn(2, 4, 3), torch.randn(8, 5))
    report = verify(net, example)
    assert report.exact and report.parameter_coverage > 0.9
    axis = trace(net, example, prove=False).axis("text")
    assert str(axis.group) == "positive monomial" and axis.size == 8


def test_entries_in_their_order_are_frozen() -> None:
    torch.manual_seed(0)
    example = (torch.randn(2, 4, 3), torch.randn(8, 5))
    symmetry = trace(Placed("entries"), example, prove=False)
    assert all(axis.group.name == "trivial" for axis in symmetry.axes)
