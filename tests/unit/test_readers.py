"""A weight that sums over an axis is known as its reader however the product is written: duplicates merge."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from intertwine import Symmetry
from intertwine.graph.export import export
from intertwine.merging import apply_merge, plan_merge

FORMS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], tuple[int, ...], int]] = {
    "a product": (lambda h, w: h @ w, (4, 2), 0),
    "a transpose": (lambda h, w: h @ w.T, (2, 4), 1),
    "einsum": (lambda h, w: torch.einsum("bh,oh->bo", h, w), (2, 4), 1),
    "a sum of products": (lambda h, w: (h[:, None] * w).sum(-1), (2, 4), 1),
    "a slice": (lambda h, w: h @ w[1], (3, 4, 2), 1),
    "chosen by index": (lambda h, w: (h[:, None] @ w[torch.arange(len(h)) % 3])[:, 0], (3, 4, 2), 1),
}


class Read(nn.Module):
    """Four units, of which 0 and 2 are alike, and one way to read them."""

    def __init__(self, read: Callable[[Tensor, Tensor], Tensor], shape: tuple[int, ...], dim: int) -> None:
        super().__init__()
        self.read, self.first, self.weight = read, nn.Linear(5, 4), nn.Parameter(torch.randn(shape))
        with torch.no_grad():
            self.first.weight[2], self.first.bias[2] = self.first.weight[0], self.first.bias[0]
            rows = self.weight.movedim(dim, 0)
            rows[2] = rows[0]

    def forward(self, x: Tensor) -> Tensor:
        return self.read(self.first(x).relu(), self.weight)


@pytest.mark.parametrize("form", FORMS)
def test_readers_of_duplicates_add_up(form: str) -> None:
    read, shape, dim = FORMS[form]
    torch.manual_seed(0)
    net, x = Read(read, shape, dim).double(), torch.randn(6, 5, dtype=torch.float64)
    symmetry = Symmetry(export(net, (x,)))
    assert {(m.param, m.dim): m.role for m in symmetry.axis("first").members}["weight", dim] == "in"
    small = apply_merge(net, plan_merge(net, symmetry, method="ifm", beta=1e-12))
    assert small.first.out_features == 3
    assert torch.allclose(small(x), net(x), rtol=0, atol=1e-12)


def test_of_two_weights_that_meet_none_reads() -> None:
    """(A B) x: what A and B share is summed once, and neither alone may add up."""

    class Low(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Parameter(torch.randn(4, 3)), nn.Parameter(torch.randn(3, 5))

        def forward(self, x: Tensor) -> Tensor:
            return x @ (self.a @ self.b).T

    symmetry = Symmetry(export(Low(), (torch.randn(2, 5),)))
    roles = {(m.param, m.dim): m.role for axis in symmetry.axes for m in axis.members}
    assert roles["a", 1] == roles["b", 0] == "other"
    assert not any(axis.mergeable for axis in symmetry.axes)


def test_what_two_activations_share_is_not_merged() -> None:
    """q k': two equal channels count twice there, and no weight can make up for it."""

    class Scores(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k = nn.Linear(5, 4), nn.Linear(5, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.q(x) @ self.k(x).T

    axis = Symmetry(export(Scores(), (torch.randn(3, 5),))).axis("q")
    assert (axis.group.name, axis.mergeable) == ("general linear", False)
