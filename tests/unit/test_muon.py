"""Muon: what it does to kernels, that it is SGD elsewhere, and that it sees directions only."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from intertwine.errors import InputError
from intertwine.training import parse_recipe
from intertwine.training.muon import Muon, equalize
from intertwine.training.recipe import Optimizer, Recipe
from intertwine.training.schedule import make_optimizer, set_learning_rate

MUON = Optimizer("muon", 0.1, turn=0.02, momentum=0.9, nesterov=True, weight_decay=1e-3)


@pytest.mark.parametrize("shape", [(6, 40), (40, 6), (12, 12), (1, 9)])
def test_singular_values_come_near_one_and_vectors_stay(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    u, s, vh = torch.linalg.svd(torch.randn(shape, dtype=torch.float64), full_matrices=False)
    s[: len(s) // 2] *= 30
    turned = u.T @ equalize((u * s @ vh)[None])[0] @ vh.T
    assert (turned - torch.diag(turned.diagonal())).abs().max() < 1e-12
    assert turned.diagonal().min() > 0.6 and turned.diagonal().max() < 1.25


def net(scale: float = 1.0) -> nn.Sequential:
    torch.manual_seed(1)
    made = nn.Sequential(
        nn.Conv2d(2, 6, 3, bias=False),
        nn.BatchNorm2d(6, eps=1e-14),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(54, 3),
    ).double()
    with torch.no_grad():
        made[0].weight.mul_(scale)
    return made


def steps(model: nn.Module, recipe: Optimizer, count: int = 6) -> nn.Module:
    """The model after some steps on random data, always the same."""
    source = torch.Generator().manual_seed(2)
    optimizer = make_optimizer(model, recipe)
    for _ in range(count):
        images = torch.randn(16, 2, 5, 5, generator=source, dtype=torch.float64)
        labels = torch.randint(3, (16,), generator=source)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    return model


def test_kernels_turn_by_the_step_that_was_asked_and_keep_their_norm() -> None:
    model = net()
    before = model[0].weight.detach().clone()
    after = steps(model, MUON, 1)[0].weight.detach()
    assert float(after.norm()) == pytest.approx(float(before.norm()), rel=1e-12)
    # A step of 0.02 norms, put back on the sphere: near 0.02 as a chord, less what it had along the radius.
    assert 0.018 < float((after - before).norm() / before.norm()) < 0.0201


def test_nets_that_differ_by_a_scale_stay_one_function() -> None:
    """The symmetry that the optimizer is made for; SGD breaks it."""
    images = torch.randn(8, 2, 5, 5, dtype=torch.float64)

    def gap(recipe: Optimizer) -> float:
        one, other = (steps(net(scale), recipe) for scale in (1.0, 7.0))
        return float((one(images) - other(images)).detach().abs().max())

    assert gap(MUON) < 1e-10
    assert gap(Optimizer("sgd", 0.1, momentum=0.9)) > 1e-3


def test_all_but_kernels_move_as_with_sgd() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(50, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)
    ).double()
    sgd = Optimizer("sgd", 0.1, momentum=0.9, nesterov=True, weight_decay=1e-3)
    a, b = (steps(copy.deepcopy(model), recipe).state_dict() for recipe in (MUON, sgd))
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_only_convolutions_have_kernels() -> None:
    """Tokens, positions and layer scales can have three dimensions too; their norms have to be learned."""

    class Token(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patch, self.token = nn.Conv1d(2, 4, 3), nn.Parameter(torch.ones(1, 1, 4))
            self.scale, self.up = nn.Parameter(torch.ones(4, 1, 1)), nn.ConvTranspose1d(4, 2, 3)

    model = Token()
    groups = {group["turns"]: group["params"] for group in make_optimizer(model, MUON).param_groups}
    assert len(groups[True]) == 1 and groups[True][0] is model.patch.weight
    assert len(groups[False]) == len(list(model.parameters())) - 1


def test_a_kernel_of_zeros_can_leave_zero() -> None:
    """On a sphere of radius zero nothing would ever move."""
    model = net(0.0)
    model[1] = model[2] = nn.Identity()  # which have no gradient at zero
    assert steps(model, MUON, 2)[0].weight.detach().norm() > 0


def test_the_schedule_scales_both_rates() -> None:
    recipe = Recipe(epochs=10, batch=1, optimizer=MUON)
    halves = Recipe(10, 1, MUON, parse_recipe("epochs: 10\nbatch: 1\nschedule: {kind: one-cycle}").schedule)
    optimizer = make_optimizer(net(), MUON)
    assert isinstance(optimizer, Muon)
    for which, share in ((recipe, 1.0), (halves, 0.5)):
        assert set_learning_rate(optimizer, which, 5.0) == pytest.approx(0.1 * share)
        rates = [(group["turns"], group["lr"]) for group in optimizer.param_groups]
        assert rates == [(False, pytest.approx(0.1 * share)), (True, pytest.approx(0.02 * share))]


def test_a_step_needs_only_the_gradients_that_are_there() -> None:
    model = net()
    before: dict[str, Tensor] = copy.deepcopy(model.state_dict())
    model[4].bias.grad = torch.ones_like(model[4].bias)
    make_optimizer(model, MUON).step()
    changed = [name for name, value in model.state_dict().items() if not torch.equal(value, before[name])]
    assert changed == ["4.bias"]


@pytest.mark.parametrize("line", ["{name: muon}", "{name: sgd, turn: 0.1}", "{name: muon, turn: -1}"])
def test_turn_belongs_to_muon(line: str) -> None:
    with pytest.raises(InputError, match="turn"):
        parse_recipe(f"epochs: 1\nbatch: 1\noptimizer: {line}")
