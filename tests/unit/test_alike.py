"""Two models are called the same program only where forward can see no difference but the weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from intertwine import compare, find_isomorphism, trace
from intertwine.errors import InputError
from intertwine.graph.alike import same_program
from intertwine.zoo import resolve


class Own(list[Any]):
    """A list with attributes."""

    all: list[Any]
    number: int


class Net(nn.Module):
    """Everything that a forward can read; `change` sets one thing otherwise."""

    def __init__(self, change: Callable[[Net], Any] = lambda net: None) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("index", torch.arange(4))
        self.register_buffer("scale", torch.ones(4), persistent=False)
        self._slope = 0.1
        self.settings: dict[str, Any] = {"shift": [0.0, 1.0], "act": F.relu, "own": Own([1])}
        self.ring = [Own() for _ in range(40)]
        for each in self.ring:  # everybody knows everybody
            each.all, each.number = self.ring, 7
        self.kept = [self.second]
        self.constant = torch.ones(4)
        change(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(F.leaky_relu(self.first(x), self._slope)) * self.scale * self.constant
        return self.kept[0](hidden[:, self.index]) + self.settings["shift"][0]


CHANGES: dict[str, Callable[[Net], Any]] = {
    "a private number": lambda net: setattr(net, "_slope", 0.3),
    "a setting in a list in a dict": lambda net: net.settings["shift"].__setitem__(0, 1.0),
    "the sign of a zero": lambda net: net.settings["shift"].__setitem__(0, -0.0),
    "an attribute of a list": lambda net: setattr(net.settings["own"], "scale", 2.0),
    "an object in a ring": lambda net: setattr(net.ring[7], "number", 8),
    "a function": lambda net: net.settings.__setitem__("act", F.gelu),
    "a buffer that is not saved": lambda net: net.scale.mul_(2),
    "a buffer of whole numbers": lambda net: setattr(net, "index", torch.tensor([1, 0, 2, 3])),
    "a tensor that is not registered": lambda net: setattr(net, "constant", torch.zeros(4)),
    "another module in a list": lambda net: setattr(net, "kept", [net.first]),
    "a weight tied": lambda net: setattr(net.second, "bias", net.first.bias),
    "a weight missing": lambda net: net.second.register_parameter("bias", None),
    "a module of another class": lambda net: setattr(net, "norm", nn.LayerNorm(4)),
    "an option of a module": lambda net: setattr(net.norm, "eps", 0.1),
    "a hook": lambda net: net.first.register_forward_hook(lambda m, i, o: 2 * o),
    "a forward of its own": lambda net: setattr(
        net.first, "forward", lambda x: F.linear(x, net.first.weight)
    ),
    "another precision": lambda net: net.double(),
    "an attribute more": lambda net: setattr(net, "more", 1),
}


def test_two_seeds_run_the_same_program() -> None:
    assert same_program(Net(), Net())
    assert same_program(Net().eval(), Net())  # graphs are of models in eval mode


@pytest.mark.parametrize("what", CHANGES)
def test_every_difference_that_forward_can_see_is_one(what: str) -> None:
    assert not same_program(Net(), Net(CHANGES[what]))
    assert not same_program(Net(CHANGES[what]), Net())


@pytest.mark.parametrize("spec", ["zoo:resnet20", "hf:bert", "timm:vit_tiny_patch16_224"])
def test_real_models_of_two_seeds_need_one_export(spec: str) -> None:
    nets = [resolve(spec, seed=seed).model for seed in (0, 1)]
    assert same_program(*nets)


def test_the_same_hook_on_both_is_no_difference() -> None:
    def twice(module: nn.Module, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        return 2 * output

    assert same_program(*(Net(lambda net: net.first.register_forward_hook(twice)) for _ in range(2)))


def test_compare_does_not_take_the_constants_of_the_other_model() -> None:
    torch.manual_seed(0)
    a = Net().eval()
    b = Net(lambda net: net.scale.copy_(torch.tensor([1.0, -3.0, 0.0, 5.0]))).eval()
    b.load_state_dict(a.state_dict())
    result = compare(a, b, torch.randn(60, 3), "cka", at="second", function=True)
    assert result.values["cka"][0, 0] < 0.999


def test_models_that_differ_in_a_private_setting_are_not_isomorphic() -> None:
    a = Net().eval()
    b = Net(CHANGES["a private number"]).eval()
    b.load_state_dict(a.state_dict())
    with pytest.raises(InputError, match="differ"):
        find_isomorphism(a, b, trace(a, torch.randn(8, 3)))
