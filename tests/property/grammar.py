"""Random nets from a grammar of layers, for property tests.

    net     = image* (pool | flatten) flat* linear   |   image* tokens token* linear
    image   = conv | grouped | depthwise | norm | activation | residual | concat | split | squeeze | ...
    token   = linear | norm | activation | attention (separate, packed, grouped) | gated MLP | residual ...

A layer maps a number of channels to another one; hypothesis draws, so a failure shrinks to few layers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

Draw = Callable[[Any], Any]
H, W = 4, 6

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "tanh": torch.tanh,
    "silu": F.silu,
    "leaky": F.leaky_relu,
    "abs": torch.abs,
    "square": torch.square,
    "sigmoid": torch.sigmoid,
    "softplus": F.softplus,
    "hardswish": F.hardswish,
    "identity": lambda x: x,
}


class Apply(nn.Module):
    """`function(self, x)` with the modules and parameters it needs; prints as its name."""

    def __init__(self, name: str, function: Callable[[Any, Tensor], Tensor], **parts: Any) -> None:
        super().__init__()
        self.name, self.function = name, function
        for key, part in parts.items():
            setattr(self, key, part)

    def forward(self, x: Tensor) -> Tensor:
        """The layer."""
        return self.function(self, x)

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Net:
    """A random net and an input for it."""

    model: nn.Module
    inputs: Tensor

    def __repr__(self) -> str:
        return " -> ".join(repr(layer) for layer in self.model)  # type: ignore[arg-type]


def param(*shape: int) -> nn.Parameter:
    """A random parameter."""
    return nn.Parameter(torch.randn(*shape))


def activation(draw: Draw) -> Apply:
    """A random elementwise function."""
    name = draw(st.sampled_from(sorted(ACTIVATIONS)))
    return Apply(name, lambda self, x: ACTIVATIONS[name](x))


# -- images: (batch, channels, H, W) -------------------------------------------------------------------------


def conv(draw: Draw, c: int) -> tuple[nn.Module, int]:
    """A plain or transposed convolution."""
    out, kernel = draw(st.sampled_from([4, 6, 8, 12])), draw(st.sampled_from([1, 3]))
    if draw(st.booleans()):
        return nn.ConvTranspose2d(c, out, kernel, padding=kernel // 2), out
    return nn.Conv2d(c, out, kernel, padding=kernel // 2, bias=draw(st.booleans())), out


def grouped(draw: Draw, c: int) -> tuple[nn.Module, int]:
    """A grouped or depthwise convolution, possibly with more outputs than inputs."""
    groups = draw(st.sampled_from([g for g in (2, 3, 4, c) if c % g == 0]))
    out = groups * draw(st.sampled_from([1, 2, 3]))
    kind = draw(st.sampled_from([nn.Conv2d, nn.Conv2d, nn.ConvTranspose2d]))
    return kind(c, out, 3, padding=1, groups=groups), out


def image_norm(draw: Draw, c: int) -> tuple[nn.Module, int]:
    """Batch, group, instance, layer norm over channels or over everything."""
    groups = draw(st.sampled_from([g for g in (1, 2, 3, 4) if c % g == 0]))
    kinds = [
        nn.BatchNorm2d(c),
        nn.BatchNorm2d(c, affine=False),
        nn.GroupNorm(groups, c),
        nn.InstanceNorm2d(c, affine=True),
        Apply(
            "channels-last layer norm",
            lambda s, x: s.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2),
            norm=nn.LayerNorm(c),
        ),
    ]
    return draw(st.sampled_from(kinds)), c


def image_activation(draw: Draw, c: int) -> tuple[nn.Module, int]:
    """An elementwise function, PReLU, or pooling."""
    more = [
        nn.PReLU(c),
        Apply("max pool", lambda s, x: F.max_pool2d(x, 3, 1, 1)),
        Apply("average pool", lambda s, x: F.avg_pool2d(x, 3, 1, 1)),
        Apply("soft pixels", lambda s, x: x.flatten(2).softmax(-1).view_as(x)),
    ]
    return (activation(draw) if draw(st.booleans()) else draw(st.sampled_from(more))), c


def residual(draw: Draw, c: int) -> tuple[nn.Module, int]:
    """x + act(conv(x)), possibly twice through the same weights, or a pre-activation block."""
    act, twice = activation(draw), draw(st.booleans())
    body = nn.Conv2d(c, c, 3, padding=1)

    def run(self: Any, x: Tensor) -> Tensor:
        x = x + self.act(self.body(x))
        return x + self.act(self.body(x)) if twice else x

    return Apply(f"residual({act}{' twice' if twice else ''})", run, body=body, act=act), c


def padded(draw: Draw, c: int) -> tuple[nn.Module, int]:
    """pad(x) + conv(x): the zero-padded shortcut of a ResNet."""
    more = draw(st.sampled_from([2, 3]))
    before = draw(st.integers(0, more))
    body = nn.Conv2d(c, c + more, 3, padding=1)
    widths = (0, 0, 0, 0, before, more - before)
    return Apply("padded shortcut", lambda s, x: F.relu(F.pad(x, widths) + s.body(x)), body=body), c + more


def concat(draw: Draw, c: int) -> tuple[nn.Module, int]:
    """[x, act(conv(x))]: dense connections."""
    act, growth = activation(draw), draw(st.sampled_from([2, 4]))
    body = nn.Conv2d(c, growth, 1)
    return Apply(
        f"concat({act})", lambda s, x: torch.cat([x, s.act(s.body(x))], 1), body=body, act=act
    ), c + growth


def split(draw: Draw, c: int) -> tuple[nn.Module, int]:
    """Split the channels, treat the parts differently, put them together again, perhaps in another order."""
    left, right, swap = activation(draw), activation(draw), draw(st.booleans())
    k = draw(st.integers(1, c - 1))

    def run(self: Any, x: Tensor) -> Tensor:
        a, b = x.split([k, c - k], 1)
        return torch.cat([right(b), left(a)] if swap else [left(a), right(b)], 1)

    return Apply(f"split({left}, {right})", run), c


def squeeze(draw: Draw, c: int) -> tuple[nn.Module, int]:
    """Squeeze and excite."""
    act = activation(draw)

    def run(self: Any, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.up(self.act(self.down(x.mean((2, 3))))))
        return x * gate[:, :, None, None]

    return Apply(f"squeeze({act})", run, down=nn.Linear(c, 3), up=nn.Linear(3, c), act=act), c


def rearrange(draw: Draw, c: int) -> tuple[nn.Module, int]:
    """Channel shuffle, flips and rolls with a shortcut, pixel shuffles."""
    groups = draw(st.sampled_from([g for g in (2, 3, 4) if c % g == 0] or [1]))

    def shuffled(x: Tensor) -> Tensor:
        return x.view(x.shape[0], groups, -1, *x.shape[2:]).transpose(1, 2).reshape(x.shape)

    kinds: dict[str, tuple[Callable[[Any, Tensor], Tensor], int]] = {
        f"shuffle {groups}": (lambda s, x: shuffled(x), c),
        f"x + shuffle {groups}": (lambda s, x: F.relu(x + shuffled(x)), c),
        "x + flip": (lambda s, x: torch.tanh(x + x.flip(1)), c),
        "x + roll": (lambda s, x: F.gelu(x + x.roll(2, 1)), c),
        "unshuffle, shuffle": (lambda s, x: F.pixel_shuffle(F.relu(F.pixel_unshuffle(x, 2)), 2), c),
        "odd and even": (lambda s, x: torch.cat([x[:, ::2], x[:, 1::2]], 1), c),
        "stripes": (lambda s, x: x.view(x.shape[0], c, 2, -1).transpose(2, 3).reshape(x.shape), c),
    }
    if c % 4 == 0:
        kinds["shuffle, unshuffle"] = (lambda s, x: F.pixel_unshuffle(F.relu(F.pixel_shuffle(x, 2)), 2), c)
    name = draw(st.sampled_from(sorted(kinds)))
    run, out = kinds[name]
    return Apply(name, run), out


IMAGE = [
    conv,
    conv,
    grouped,
    image_norm,
    image_activation,
    residual,
    padded,
    concat,
    split,
    squeeze,
    rearrange,
]

# -- tokens: (batch, tokens, channels) ----------------------------------------------------------------------


def linear(draw: Draw, c: int) -> tuple[nn.Module, int]:
    """A linear layer."""
    out = draw(st.sampled_from([4, 6, 8, 12]))
    return nn.Linear(c, out, bias=draw(st.booleans())), out


def token_norm(draw: Draw, c: int) -> tuple[nn.Module, int]:
    """Layer norm, RMS norm with and without a gain, by hand, softmax."""
    by_hand = Apply(
        "RMS norm by hand",
        lambda s, x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * s.gain,
        gain=param(c),
    )
    soft = Apply("softmax", lambda s, x: x.softmax(-1))
    plain = nn.RMSNorm(c, elementwise_affine=False)
    return draw(st.sampled_from([nn.LayerNorm(c), nn.RMSNorm(c), plain, by_hand, soft])), c


def token_activation(draw: Draw, c: int) -> tuple[nn.Module, int]:
    """An elementwise function."""
    return activation(draw), c


def attention(draw: Draw, c: int) -> tuple[nn.Module, int]:
    """Attention: separate, packed or grouped-query projections, causal or not, norms on q and k or not."""
    heads, dim = draw(st.sampled_from([(2, 3), (4, 2)]))
    kind = draw(st.sampled_from(["separate", "packed", "interleaved", "grouped"]))
    causal, normed = draw(st.booleans()), draw(st.booleans())
    few = heads // 2 if kind == "grouped" else heads
    width = heads * dim
    joint = kind in ("packed", "interleaved")
    sizes = (3 * width,) if joint else (width, few * dim, few * dim)
    maps = nn.ModuleList(nn.Linear(c, size) for size in sizes)

    def run(self: Any, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        if kind == "packed":
            q, k, v = self.maps[0](x).view(b, t, 3, heads, dim).permute(2, 0, 3, 1, 4)
        elif kind == "interleaved":
            q, k, v = self.maps[0](x).view(b, t, heads, 3, dim).permute(3, 0, 2, 1, 4)
        else:
            q, k, v = (m(x).view(b, t, -1, dim).transpose(1, 2) for m in self.maps)
        if normed:
            q, k = F.rms_norm(q, (dim,)), F.layer_norm(k, (dim,))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=kind == "grouped")
        return self.out(y.transpose(1, 2).reshape(b, t, width))

    name = f"{kind} attention{' causal' if causal else ''}{' normed' if normed else ''}"
    return Apply(name, run, maps=maps, out=nn.Linear(width, 6)), 6


def gated(draw: Draw, c: int) -> tuple[nn.Module, int]:
    """down(act(gate(x)) * up(x)), with gate and up in one weight or in two."""
    act, packed = activation(draw), draw(st.booleans())
    maps = nn.ModuleList([nn.Linear(c, 10)] if packed else [nn.Linear(c, 5), nn.Linear(c, 5)])

    def run(self: Any, x: Tensor) -> Tensor:
        gate, up = self.maps[0](x).chunk(2, -1) if packed else (m(x) for m in self.maps)
        return self.down(self.act(gate) * up)

    return Apply(
        f"gated({act}{' packed' if packed else ''})", run, maps=maps, down=nn.Linear(5, 7), act=act
    ), 7


def mixed(draw: Draw, c: int) -> tuple[nn.Module, int]:
    """Mixing over tokens, a positional embedding, a class token."""
    kinds: dict[str, Callable[[], Apply]] = {
        "token mixing": lambda: Apply(
            "token mixing",
            lambda s, x: x + s.b(F.gelu(s.a(x.transpose(1, 2)))).transpose(1, 2),
            a=nn.Linear(H * W, 5),
            b=nn.Linear(5, H * W),
        ),
        "positions": lambda: Apply("positions", lambda s, x: x + s.where, where=param(H * W, c)),
        "shared query": lambda: Apply(
            "shared query",
            lambda s, x: (s.q @ x.transpose(1, 2)).softmax(-1).transpose(1, 2) * x,
            q=param(1, 1, c),
        ),
        "gain": lambda: Apply("gain", lambda s, x: x * s.gain, gain=param(c)),
    }
    return kinds[draw(st.sampled_from(sorted(kinds)))](), c


def token_residual(draw: Draw, c: int) -> tuple[nn.Module, int]:
    """x + W f(norm(x)), as in a transformer block."""
    layer, width = draw(st.sampled_from([attention, gated, linear]))(draw, c)
    norm, _ = token_norm(draw, c)
    back = nn.Linear(width, c)
    return (
        Apply(
            f"residual({norm}, {layer})",
            lambda s, x: x + s.back(s.layer(s.norm(x))),
            norm=norm,
            layer=layer,
            back=back,
        ),
        c,
    )


TOKEN = [linear, token_norm, token_activation, attention, gated, mixed, token_residual, token_residual]

# -- vectors: (batch, channels) ------------------------------------------------------------------------------


def flat_norm(draw: Draw, c: int) -> tuple[nn.Module, int]:
    """Batch, layer and RMS norm of vectors."""
    return draw(st.sampled_from([nn.BatchNorm1d(c), nn.LayerNorm(c), nn.RMSNorm(c)])), c


def flat_shape(draw: Draw, c: int) -> tuple[nn.Module, int]:
    """Vectors read as matrices: transposed, copied, repeated, added to a parameter."""
    rows = next(r for r in (4, 3, 2, 5, 7, 1) if c % r == 0)
    kinds: dict[str, tuple[Callable[[Any, Tensor], Tensor], int]] = {
        "transposed": (lambda s, x: F.relu(x.view(-1, rows, c // rows).transpose(1, 2).reshape(-1, c)), c),
        "repeated": (lambda s, x: x.repeat(1, 2), 2 * c),
        "interleaved": (lambda s, x: x.repeat_interleave(2, 1), 2 * c),
        "twice": (lambda s, x: torch.cat([x, F.relu(x)], 1), 2 * c),
        "row means": (lambda s, x: x.view(-1, rows, c // rows).mean(1), c // rows),
        "row softmax": (lambda s, x: x.view(-1, rows, c // rows).softmax(2).flatten(1), c),
        "shifted": (lambda s, x: F.relu(x + s.shift), c),
        "repeated and shifted": (lambda s, x: F.relu(x.repeat(1, 2) + s.wide), 2 * c),
    }
    name = draw(st.sampled_from(sorted(kinds)))
    run, out = kinds[name]
    parts = {"shift": param(c)} if name == "shifted" else {"wide": param(2 * c)} if "shifted" in name else {}
    return Apply(name, run, **parts), out


FLAT = [linear, linear, token_activation, flat_norm, flat_shape, gated]


@st.composite
def nets(draw: Draw, most: int = 3) -> Net:
    """A random net whose input is an image of 3 channels."""
    torch.manual_seed(draw(st.integers(0, 3)))
    layers: list[nn.Module] = [nn.Conv2d(3, 8, 3, padding=1)]
    c = 8

    def grow(kinds: list[Any], least: int) -> None:
        nonlocal c
        for kind in draw(st.lists(st.sampled_from(kinds), min_size=least, max_size=most)):
            layer, c = kind(draw, c)
            layers.append(layer)

    grow(IMAGE, 1)
    ending = draw(st.sampled_from(["pool", "flatten", "tokens", "tokens"]))
    if ending == "tokens":
        layers.append(Apply("tokens", lambda s, x: x.flatten(2).transpose(1, 2)))
        grow(TOKEN, 1)
    elif ending == "flatten":
        layers.append(nn.Flatten())
        c *= H * W
        layers.append(nn.Linear(c, 12)) if draw(st.booleans()) else None
        c = 12 if isinstance(layers[-1], nn.Linear) else c
        grow(FLAT, 0)
    else:
        layers.append(Apply("pool", lambda s, x: x.mean((2, 3))))
        grow(FLAT, 0)
    layers.append(nn.Linear(c, 3))
    model = nn.Sequential(*layers).double().eval()
    _make_generic(model)
    return Net(model, torch.randn(2, 3, H, W, dtype=torch.float64))


def _make_generic(model: nn.Module) -> None:
    """No weight keeps a value under which a wrong action would look right (unit gains, zero means)."""
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if name.endswith("running_var"):
                tensor.uniform_(0.5, 2)
            elif tensor.is_floating_point() and tensor.dim() == 1:
                tensor.normal_(0.3, 0.7)
