"""The stabiliser of a model's weights: planted automorphisms are found, alone and together, and no others."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from intertwine import Symmetry, act, automorphisms, trace
from intertwine.orbit import find_stabiliser


def mlp(activation: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 6), activation, nn.Linear(6, 5), activation, nn.Linear(5, 2)).double()


def traced(model: nn.Module, width: int = 3) -> Symmetry:
    return trace(model, torch.zeros(1, width, dtype=torch.float64))


@torch.no_grad()
def make_equal(model: nn.Module, here: int, there: int, factor: float = 1.0) -> None:
    """Channel `there` of axis 0 becomes `here`, rescaled."""
    for rows, by in ((model[0].weight, factor), (model[0].bias, factor), (model[2].weight.T, 1 / factor)):
        rows[there] = by * rows[here]


def check(model: nn.Module, symmetry: Symmetry) -> dict[str, list[list[int]]]:
    """The classes, and that every generator leaves every weight as it is but moves channels."""
    found = find_stabiliser(model, symmetry)
    for g in found.generators:
        assert not g.is_identity()
        for a, b in zip(act(model, g).parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)
    assert bool(found.generators) == bool(found.classes)
    return found.classes


@pytest.mark.parametrize("activation", [nn.ReLU(), nn.Tanh(), nn.GELU()], ids=["relu", "tanh", "gelu"])
def test_a_generic_model_has_no_automorphism(activation: nn.Module) -> None:
    model = mlp(activation)
    assert check(model, traced(model)) == {}


@pytest.mark.parametrize(("activation", "factor"), [(nn.ReLU(), 3.0), (nn.Tanh(), -1.0), (nn.GELU(), 1.0)])
def test_equal_channels_up_to_the_group_of_their_axis(activation: nn.Module, factor: float) -> None:
    model = mlp(activation)
    make_equal(model, 1, 4, factor)
    make_equal(model, 1, 5)
    make_equal(model, 0, 2)
    assert check(model, traced(model)) == {"0": [[0, 2], [1, 4, 5]]}


def test_what_the_group_does_not_allow_is_no_automorphism() -> None:
    model = mlp(nn.GELU())
    make_equal(model, 1, 4, 3.0)  # GELU does not commute with scales
    assert check(model, traced(model)) == {}
    near = mlp(nn.ReLU())
    make_equal(near, 1, 4)
    with torch.no_grad():
        near[0].bias[4] *= 1.001
    assert check(near, traced(near)) == {}


def test_automorphisms_move_with_the_model() -> None:
    model = mlp(nn.ReLU())
    make_equal(model, 1, 4, 2.0)
    symmetry = traced(model)
    g = symmetry.sample(3)
    moved = automorphisms(act(model, g), symmetry)
    flat = symmetry.axis("0").classes.reshape(-1).tolist()
    assert moved == {"0": [sorted(flat.index(g.relabel[flat[c]]) for c in (1, 4))]}


def test_two_equal_branches_are_exchanged_together() -> None:
    """No channel can be exchanged alone: the first axis of each branch has another reader."""
    model = mlp(nn.ReLU())
    with torch.no_grad():
        model[0].weight[3:], model[0].bias[3:] = model[0].weight[:3].clone(), model[0].bias[:3].clone()
        block = model[2].weight[:2, :3].clone()
        model[2].weight.zero_()
        model[2].weight[:2, :3], model[2].weight[2:4, 3:], model[2].weight[4] = block, block, torch.ones(6)
        model[2].bias[2:4] = model[2].bias[:2].clone()
        model[4].weight[:, 2:4] = model[4].weight[:, :2].clone()
    assert check(model, traced(model)) == {"0": [[0, 3], [1, 4], [2, 5]], "2": [[0, 2], [1, 3]]}


def test_equal_heads() -> None:
    torch.manual_seed(0)

    class Attend(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attend, self.leave = nn.MultiheadAttention(6, 3, batch_first=True), nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.leave(self.attend(x, x, x, need_weights=False)[0]).relu()

    model = Attend().double().eval()
    symmetry = trace(model, torch.randn(1, 4, 6, dtype=torch.float64))
    assert check(model, symmetry) == {}
    same = copy.deepcopy(model)
    with torch.no_grad():
        for part in same.attend.in_proj_weight.chunk(3):
            part[4:6] = part[0:2]
        same.attend.out_proj.weight[:, 4:6] = same.attend.out_proj.weight[:, 0:2]
    assert check(same, symmetry) == {"attend.in_proj_weight/blocks": [[0, 2]]}


def test_candidates_that_only_look_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs that no colour tells apart are tried, and none passes: the check on all weights decides."""
    import intertwine.orbit.stabiliser as module

    blind = lambda action, weights, marks: [np.zeros(action.structure.classes.count, int) for _ in marks]  # noqa: E731
    monkeypatch.setattr(module, "refine_colours", blind)
    model = mlp(nn.ReLU())
    assert automorphisms(model, traced(model)) == {}
