"""The caller's model is never touched, and what comes back keeps its device, dtype and mode."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from intertwine import act, trace, verify


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(32, 5)
    )


class Watched:
    """A model in training mode with gradients and hooks, and everything about it written down."""

    def __init__(self) -> None:
        self.model, self.x = small().train(), torch.randn(2, 3, 4, 4)
        calls: list[Any] = []
        self.model(self.x).sum().backward()
        self.model[0].register_forward_hook(lambda *a: calls.append(a))
        self.model[0].register_forward_pre_hook(lambda *a: calls.append(a))
        self.model[0].register_full_backward_hook(lambda *a: calls.append(a))
        self.model[4].eval()
        self.before = self.state()

    def state(self) -> dict[str, Any]:
        modules = list(self.model.modules())
        return {
            "weights": {n: t.clone() for n, t in self.model.state_dict().items()},
            "ids": [id(p) for p in self.model.parameters()],
            "grads": {n: p.grad.clone() for n, p in self.model.named_parameters()},
            "requires": [p.requires_grad for p in self.model.parameters()],
            "modes": [m.training for m in modules],
            "hooks": [
                (dict(m._forward_hooks), dict(m._forward_pre_hooks), dict(m._backward_hooks)) for m in modules
            ],
        }

    def assert_untouched(self) -> None:
        now = self.state()
        for key in ("weights", "grads"):
            assert all(torch.equal(t, now[key][n]) for n, t in self.before[key].items()), key
        for key in ("ids", "requires", "modes", "hooks"):
            assert now[key] == self.before[key], key


def test_trace_verify_and_act_leave_the_model_alone() -> None:
    watched = Watched()
    inputs = watched.x.clone()
    symmetry = trace(watched.model, watched.x)
    watched.assert_untouched()
    verify(watched.model, watched.x)
    watched.assert_untouched()
    act(watched.model, symmetry.sample(0))
    watched.assert_untouched()
    assert torch.equal(watched.x, inputs)


def test_a_hook_that_changes_the_output_is_part_of_the_function() -> None:
    model, x = small().eval().double(), torch.randn(2, 3, 4, 4, dtype=torch.float64)
    model[1].register_forward_hook(lambda module, args, out: out + torch.arange(8.0)[:, None, None])
    symmetry = trace(model, x)
    assert not symmetry.axis("0").group.permutation, "the hook tells the channels apart"
    assert torch.allclose(act(model, symmetry.sample(0))(x), model(x), atol=1e-10)


def test_the_random_state_is_left_alone() -> None:
    model, x = small().eval(), torch.randn(2, 3, 4, 4)
    state = torch.get_rng_state()
    trace(model, x).sample(3)
    verify(model, x)
    assert torch.equal(torch.get_rng_state(), state)


def test_act_keeps_mode_dtype_and_shared_parameters() -> None:
    watched = Watched()
    moved = act(watched.model, trace(watched.model, watched.x).sample(0))
    assert [m.training for m in moved.modules()] == watched.before["modes"]
    assert [p.requires_grad for p in moved.parameters()] == watched.before["requires"]
    assert [p.dtype for p in moved.parameters()] == [p.dtype for p in watched.model.parameters()]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_any_precision(dtype: torch.dtype) -> None:
    model, x = small().eval().to(dtype), torch.randn(2, 3, 4, 4, dtype=dtype)
    symmetry = trace(model, x)
    moved = act(model, symmetry.sample(0, spread=0.1))
    assert all(t.dtype == dtype for t in moved.state_dict().values() if t.is_floating_point())
    tolerance = {torch.float64: 1e-10, torch.float32: 1e-4, torch.bfloat16: 0.2}[dtype]
    with torch.no_grad():
        assert float((moved(x) - model(x)).abs().max()) <= tolerance
    assert verify(model, x).exact, "the proof runs in float64 whatever the model's own dtype is"


def test_a_symmetry_serves_every_model_of_its_architecture() -> None:
    model, other = small().eval(), copy.deepcopy(small()).eval()
    with torch.no_grad():
        for tensor in other.parameters():
            tensor.add_(torch.randn_like(tensor))
    x = torch.randn(3, 3, 4, 4)
    symmetry = trace(model, x)
    assert torch.allclose(act(other, symmetry.sample(0))(x), other(x), atol=1e-4)


def test_sampling_is_reproducible_and_takes_any_generator() -> None:
    model, x = small().eval(), torch.randn(2, 3, 4, 4)
    symmetry = trace(model, x)

    def weight(generator: Any) -> Tensor:
        return act(model, symmetry.sample(generator))[0].weight.detach()

    assert torch.equal(weight(7), weight(7)) and not torch.equal(weight(7), weight(8))
    assert torch.equal(weight(torch.Generator().manual_seed(1)), weight(torch.Generator().manual_seed(1)))


@pytest.mark.parametrize("part", ["permutation", "scale", "sign", "linear"])
def test_parts_of_the_group_can_be_sampled_alone(part: str) -> None:
    model = nn.Sequential(
        nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 5), nn.Linear(5, 2)
    )
    x = torch.randn(4, 3)
    symmetry = trace(model, x)
    moved = act(model.double(), symmetry.sample(0, parts=(part,)))
    before, after = model.state_dict(), moved.state_dict()
    changed = {n for n in before if not torch.equal(before[n], after[n])}
    expected = {"permutation": "024", "scale": "24", "sign": "02", "linear": "45"}[part]
    assert {n[0] for n in changed if n.endswith("weight")} == set(expected)
    assert torch.allclose(moved(x.double()), model(x.double()), atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_twin_shares_no_memory_with_the_model(dtype: torch.dtype) -> None:
    """Not even the weights that nothing moves: who trains the one does not change the other."""
    model, x = small().to(dtype).eval(), torch.randn(2, 3, 4, 4, dtype=dtype)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    twin = act(model, trace(model, x).sample(0))
    with torch.no_grad():
        for tensor in [*twin.parameters(), *twin.buffers()]:
            tensor.fill_(1)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
