"""Axes of one channel: their scale is claimed where the channel is read as one, and nowhere else."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from intertwine import Symmetry, act, trace, verify
from intertwine.graph.export import export


def chain(*functions: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(5, 1), *functions, nn.Linear(1, 3)).double()


@pytest.mark.parametrize(
    ("between", "group"),
    [
        ((), "nonzero diagonal"), ((nn.ReLU(),), "positive diagonal"), ((nn.Tanh(),), "sign diagonal"),
        ((nn.GELU(),), None), ((nn.Softmax(-1),), None), ((nn.LayerNorm(1),), None),
    ],
)  # fmt: skip
def test_the_group_is_that_of_the_function(between: tuple[nn.Module, ...], group: str | None) -> None:
    torch.manual_seed(0)
    model, x = chain(*between), torch.randn(4, 5, dtype=torch.float64)
    symmetry = trace(model, x)
    found = {axis.name: str(axis.group) for axis in symmetry.axes}
    assert found.get("0") == group
    if group is not None:
        checked = verify(model, x, symmetry=symmetry, samples=3)
        assert checked.exact and checked.max_error <= 1e-10


def test_the_channel_is_rescaled_and_its_reader_undoes_it() -> None:
    torch.manual_seed(0)
    model, x = chain(nn.ReLU()), torch.randn(4, 5, dtype=torch.float64)
    symmetry = Symmetry(export(model, (x,)))
    moved = act(model, symmetry.sample(0))
    factor = (moved[0].weight / model[0].weight).mean().detach()
    assert factor > 0 and abs(float(factor.log())) > 0.05
    assert torch.allclose(moved[2].weight * factor, model[2].weight, rtol=1e-12)
    with torch.no_grad():
        assert torch.allclose(moved(x), model(x), rtol=1e-12)
        moved[2].weight.copy_(model[2].weight)  # the control: the reader is left behind
        assert (moved(x) - model(x)).abs().max() > 1e-3


class Gate(nn.Module):
    """One channel that meets several: a scale of it would have to be undone in all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.wide, self.last = nn.Linear(5, 1), nn.Linear(5, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last((self.wide(x) + self.gate(x).relu()).tanh())


def test_one_channel_added_to_several_has_no_scale() -> None:
    model, x = Gate().double(), torch.randn(4, 5, dtype=torch.float64)
    symmetry = Symmetry(export(model, (x,)))
    assert [axis.name for axis in symmetry.axes if axis.name == "gate"] == []
    with torch.no_grad():
        assert torch.allclose(act(model, symmetry.sample(0))(x), model(x), rtol=1e-10)
