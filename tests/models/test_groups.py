"""What the group of an axis is, on nets whose answer is known from the sources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from intertwine import Group, Symmetry, act, trace, verify, zoo


def traced(model: nn.Module, *inputs: Any, **kwargs: Any) -> Symmetry:
    """The symmetry, after the proof that it holds."""
    symmetry = trace(model.eval(), inputs, kwargs or None)
    report = verify(model, inputs, kwargs=kwargs or None, symmetry=symmetry, seed=2)  # the proof has two
    assert report.max_error <= 1e-10 and report.control_error >= 1e-4
    return symmetry


def mlp(act: Callable[[], nn.Module]) -> Group:
    net = nn.Sequential(nn.Linear(5, 8), act(), nn.Linear(8, 3))
    return traced(net, torch.randn(4, 5)).axis("0").group


@pytest.mark.parametrize(
    ("act", "name", "positive", "sign"),
    [
        (nn.ReLU, "positive monomial", 1, 0),
        (nn.LeakyReLU, "positive monomial", 1, 0),
        (nn.GELU, "permutation", 0, 0),
        (nn.Sigmoid, "permutation", 0, 0),
        (nn.SiLU, "permutation", 0, 0),
        (nn.Softplus, "permutation", 0, 0),
        (nn.ELU, "permutation", 0, 0),
        (nn.Tanh, "signed permutation", 0, 1),
        (nn.Softsign, "signed permutation", 0, 1),
    ],
)
def test_activations_in_an_mlp(act: Callable[[], nn.Module], name: str, positive: int, sign: int) -> None:
    group = mlp(act)
    assert (group.name, group.positive, group.sign) == (name, positive, sign)


def test_a_linear_bottleneck_has_gl() -> None:
    assert mlp(nn.Identity).name == "general linear"


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.last = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.relu(self.norm(self.conv(x))).mean((2, 3)))


def test_conv_bn_relu_has_two_positive_scalings() -> None:
    """Eq. E.47 of source 002: one scaling before the norm and one after it."""
    symmetry = traced(ConvNet(), torch.randn(2, 3, 6, 7))
    axis = symmetry.axis("conv")
    assert axis.group.permutation and axis.group.positive == 2
    assert {(m.param, m.role) for m in axis.members} == {
        ("conv.weight", "out"),
        ("conv.bias", "bias"),
        ("norm.weight", "gain"),
        ("norm.bias", "shift"),
        ("norm.running_mean", "mean"),
        ("norm.running_var", "var"),
        ("last.weight", "in"),
    }


class Attention(nn.Module):
    """Multi-head attention with separate, packed or grouped-query projections."""

    def __init__(self, kind: str, heads: int = 4, dim: int = 3) -> None:
        super().__init__()
        self.kind, self.heads, self.dim = kind, heads, dim
        width = heads * dim
        few = heads // 2 if kind == "grouped" else heads
        self.embed, self.out = nn.Linear(5, 7), nn.Linear(width, 6)
        if kind == "packed":
            self.qkv = nn.Linear(7, 3 * width)
        else:
            self.q, self.k, self.v = nn.Linear(7, width), nn.Linear(7, few * dim), nn.Linear(7, few * dim)

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(self.embed(x))
        b, t, _ = x.shape
        if self.kind == "packed":
            q, k, v = self.qkv(x).view(b, t, 3, self.heads, self.dim).permute(2, 0, 3, 1, 4)
        else:
            q, k, v = (m(x).view(b, t, -1, self.dim).transpose(1, 2) for m in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, enable_gqa=self.kind == "grouped")
        return self.out(y.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("kind", ["separate", "packed"])
def test_attention_has_gl_in_every_head(kind: str) -> None:
    symmetry = traced(Attention(kind), torch.randn(2, 5, 5))
    linear = [a for a in symmetry.axes if a.group.name == "general linear" and a.group.blocks == 4]
    assert [a.size for a in linear] == [12, 12], "q with k, and v with o"
    heads = [a for a in symmetry.axes if a.size == 4 and a.group.name == "permutation"]
    assert len(heads) == 1, "the heads move as one axis across q, k, v and o"
    ends = [("out.weight", 1) in {(m.param, m.dim) for m in a.members} for a in linear]
    assert sorted(ends) == [False, True], "only v meets o"


def test_grouped_queries_share_their_keys() -> None:
    symmetry = traced(Attention("grouped"), torch.randn(2, 5, 5))
    linear = [a for a in symmetry.axes if a.group.name == "general linear" and a.group.blocks == 2]
    assert [a.size for a in linear] == [6, 6]
    assert any({m.param for m in a.members} >= {"q.weight", "k.weight"} for a in linear)


class Gated(nn.Module):
    """x + down(silu(gate(norm(x))) * up(norm(x)))."""

    def __init__(self, act: Callable[[Tensor], Tensor] = F.silu) -> None:
        super().__init__()
        self.act = act
        self.embed, self.norm, self.last = nn.Linear(5, 8), nn.RMSNorm(8), nn.Linear(8, 3)
        self.gate, self.up, self.down = nn.Linear(8, 11), nn.Linear(8, 11), nn.Linear(11, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        h = self.norm(x)
        return self.last(x + self.down(self.act(self.gate(h)) * self.up(h)))


def test_the_up_half_of_a_gated_mlp_scales() -> None:
    symmetry = traced(Gated(), torch.randn(4, 5))
    (axis,) = [a for a in symmetry.axes if a.size == 11]
    assert axis.group.permutation and axis.group.positive == 1 and axis.group.sign == 1
    assert {m.param for m in axis.members if m.role == "out"} == {"gate.weight", "up.weight"}


def test_a_plain_rms_norm_has_rotations() -> None:
    net = nn.Sequential(nn.Linear(5, 8), nn.RMSNorm(8, elementwise_affine=False), nn.Linear(8, 3))
    assert traced(net, torch.randn(4, 5)).axis("0").group.name == "orthogonal"


def test_residual_streams_are_one_axis_across_blocks() -> None:
    """E.9.2 of source 002."""
    source = zoo.resolve("zoo:resnet20", input="1x3x16x16")
    symmetry = trace(source.model, source.example)
    streams = sorted((a for a in symmetry.axes if a.group.permutation), key=lambda a: -len(a.members))[:3]
    assert sorted(a.size for a in streams) == [16, 32, 64]
    for axis in streams:
        makers = {m.param for m in axis.members if m.role == "out"}
        assert len(makers) >= 3, "the stem or shortcut and the last convolution of every block"


# -- things that real models do ------------------------------------------------------------------------------


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mix, self.head = nn.Embedding(11, 6), nn.Linear(6, 6), nn.Linear(6, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(F.relu(self.mix(self.embed(tokens))))


def test_tied_weights_are_one_weight() -> None:
    model = Tied()
    symmetry = traced(model, torch.randint(0, 11, (2, 5)))
    assert symmetry.alias["head.weight"] == symmetry.alias["embed.weight"]
    moved = act(model, symmetry.sample(0))
    assert moved.head.weight is moved.embed.weight
    tokens = torch.randint(0, 11, (2, 5))
    assert torch.allclose(moved(tokens), model(tokens), atol=1e-4)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.again, self.last = nn.Linear(5, 7), nn.Linear(7, 7), nn.Linear(7, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        for _ in range(3):
            h = F.relu(self.again(h))
        return self.last(h)


def test_a_module_that_runs_three_times_keeps_one_axis() -> None:
    symmetry = traced(Recurrent(), torch.randn(4, 5))
    (axis,) = [a for a in symmetry.axes if a.size == 7]
    assert {("again.weight", 0), ("again.weight", 1)} <= {(m.param, m.dim) for m in axis.members}


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(5, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor, *, scale: float, flags: dict[str, bool]) -> dict[str, Any]:
        h = self.first(x)
        h.relu_()
        h[:, :4] *= scale
        if flags["shift"]:
            h += 1
        return {"out": self.last(h), "extra": (h.sum(1), [h.amax(1)])}


def test_in_place_ops_dict_outputs_and_inputs_that_are_no_tensors() -> None:
    symmetry = traced(InPlace(), torch.randn(4, 5), scale=2.0, flags={"shift": True})
    assert sorted(a.size for a in symmetry.axes if a.group.permutation) == [4, 4]


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm, self.last = nn.Linear(5, 6), nn.LSTM(6, 9, batch_first=True), nn.Linear(9, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.last(self.lstm(self.embed(x))[0])))


def test_an_lstm_moves_its_state_and_what_is_before_it() -> None:
    symmetry = traced(Lstm(), torch.randn(2, 4, 5))
    assert not symmetry.unknown_ops
    read = ("lstm.weight_hh_l0", 1)
    state = next(a for a in symmetry.axes if read in [(m.param, m.dim) for m in a.members])
    assert state.group.name == "signed permutation" and state.size == 9
    assert symmetry.axis("embed").group.name == "general linear"
    assert symmetry.axis("last").group.name == "positive monomial"


def test_an_empty_slice_that_is_written_changes_nothing() -> None:
    """Swin's mask without a shift: `mask[-0:0] = 1` writes to no position."""

    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(5, 8), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            mask = x.new_zeros(4, 6)
            mask[0:-4, 1:3] = 1.0
            return self.last(torch.relu(self.first(x))) + mask.sum()

    assert traced(Masked(), torch.randn(4, 5)).axis("first").group.name == "positive monomial"
