"""Deliberately wrong rules: `verify` must see through each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from intertwine import Symmetry, assert_symmetric, trace, verify
from intertwine.activations import intertwiner
from intertwine.errors import VerificationFailed
from intertwine.ir.value import Value
from intertwine.rules import RULES, rule
from intertwine.rules.norm import batch_norm


class Net(nn.Module):
    """Everything that the wrong rules below are wrong about, each with a body of its own."""

    def __init__(self, body: Callable[[Net, Tensor], Tensor]) -> None:
        super().__init__()
        self.body = body
        self.first, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 5)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.body(self, self.first(x)).mean((2, 3)))


def pass_through(ctx: Any, x: Value, *args: Any, **kwargs: Any) -> Value:
    return x


def as_relu(ctx: Any, x: Value, *args: Any, **kwargs: Any) -> Value:
    return ctx.pointwise(x, intertwiner("relu"))


def as_tanh(ctx: Any, x: Value, *args: Any, **kwargs: Any) -> Value:
    return ctx.pointwise(x, intertwiner("tanh"))


def without_ties(ctx: Any, a: Value, b: Value, *args: Any, **kwargs: Any) -> Value:
    return a


def without_eps(
    ctx: Any, x: Value, gain: Any, shift: Any, mean: Any, var: Any, momentum: float, eps: float
) -> Any:
    return batch_norm(ctx, x, gain, shift, mean, var, momentum, 0.0)


def unmatched_concat(ctx: Any, values: Any, dim: int = 0) -> Value:
    return RULES_CAT(ctx, list(values)[::-1], dim)


RULES_CAT = RULES["cat.default"].apply

WRONG: dict[str, tuple[str, Callable[..., Any], Callable[[Net, Tensor], Tensor]]] = {
    "gelu is not relu": ("gelu.default", as_relu, lambda net, h: nn.functional.gelu(h)),
    "gelu is not linear": ("gelu.default", pass_through, lambda net, h: nn.functional.gelu(h)),
    "relu has no signs": ("relu.default", as_tanh, lambda net, h: net.second(h.relu()).relu()),
    "tanh has no scales": ("tanh.default", as_relu, lambda net, h: h.tanh()),
    "layer norm is not the identity": (
        "layer_norm.default",
        pass_through,
        lambda net, h: nn.functional.layer_norm(h, h.shape[1:]),
    ),
    "softmax is not the identity": ("softmax.int", pass_through, lambda net, h: h.softmax(1)),
    "sums tie": ("add.Tensor", without_ties, lambda net, h: h.relu() + net.second(h).relu()),
    "products tie": ("mul.Tensor", without_ties, lambda net, h: h.relu() * net.second(h).sigmoid()),
    "the eps of batch norm matters": (
        "_native_batch_norm_legit_no_training.default",
        without_eps,
        lambda net, h: net.norm(h).relu(),
    ),
    "max pooling is not linear": (
        "max_pool2d.default",
        pass_through,
        lambda net, h: nn.functional.max_pool2d(h, 2, 1, 1)[:, :, :4, :6],
    ),
    "concatenation keeps its order": (
        "cat.default",
        unmatched_concat,
        lambda net, h: torch.cat([h[:, :3].relu(), net.second(h)[:, 3:].tanh()], 1),
    ),
    "cumsum has an order": (
        "cumsum.default",
        pass_through,
        lambda net, h: net.second(h.cumsum(1)).relu(),
    ),
    "a flip is not the identity": ("flip.default", pass_through, lambda net, h: (h.flip(1) + h).relu()),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_rule_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    op, wrong, body = WRONG[name]
    torch.manual_seed(0)
    model, x = Net(body).eval(), torch.randn(2, 3, 4, 6)
    symmetry = trace(model, x)
    assert op in {str(n.target).removeprefix("aten.") for n in symmetry.traced.graph.nodes}
    right = verify(model, x, symmetry=symmetry, samples=2)
    assert right.exact and right.max_error <= 1e-10 and right.control_error >= 1e-4
    monkeypatch.setitem(RULES, op, replace(RULES[op], apply=wrong))
    report = verify(model, x, symmetry=Symmetry(symmetry.traced), samples=2)
    assert report.max_error > 1e-7 and not report.exact


def test_assert_symmetric_raises_on_a_wrong_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = Net(lambda net, h: nn.functional.gelu(h)).eval(), torch.randn(2, 3, 4, 6)
    assert assert_symmetric(model, x).exact
    monkeypatch.setitem(RULES, "gelu.default", replace(RULES["gelu.default"], apply=as_relu))
    with pytest.raises(VerificationFailed, match="a claimed symmetry changes the output by"):
        assert_symmetric(model, x)


def test_a_second_rule_for_an_op_raises() -> None:
    with pytest.raises(ValueError, match=r"two rules for relu\.default: unary and again"):

        @rule("relu.default")
        def again(ctx: Any, x: Value) -> Value:
            """Once more."""
            return x
