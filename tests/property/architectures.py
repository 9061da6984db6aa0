"""A dozen small nets with the parts of real architectures: name -> a function that builds (model, inputs)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from intertwine import Symmetry, trace

Built = tuple[nn.Module, Tensor]
Build = Callable[[], Built]


class Run(nn.Module):
    """`run(self, x)` with named parts."""

    def __init__(self, run: Callable[..., Tensor], **parts: nn.Module) -> None:
        super().__init__()
        self.run = run
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


def mlp() -> Built:
    """Positive scales on one axis, signs on the other."""
    maps = nn.Linear(5, 9), nn.Linear(9, 7), nn.Linear(7, 3)
    return nn.Sequential(maps[0], nn.ReLU(), maps[1], nn.Tanh(), maps[2]), tokens(4, 5)


def cnn() -> Built:
    """Convolutions with batch norm, pooled."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4),
    ), images(3)  # fmt: skip


def grouped() -> Built:
    """Groups inside groups, flattened."""
    return nn.Sequential(
        nn.Conv2d(4, 8, 3, padding=1, groups=2), nn.ReLU(), nn.Conv2d(8, 12, 3, groups=4), nn.ReLU(),
        nn.Flatten(), nn.Linear(12 * 16, 3),
    ), images(4)  # fmt: skip


def depthwise() -> Built:
    """An inverted residual block, as in MobileNet."""
    block = nn.Sequential(
        nn.Conv2d(6, 12, 1), nn.BatchNorm2d(12), nn.ReLU6(), nn.Conv2d(12, 12, 3, padding=1, groups=12),
        nn.BatchNorm2d(12), nn.ReLU6(), nn.Conv2d(12, 6, 1),
    )  # fmt: skip
    parts = {"stem": nn.Conv2d(3, 6, 3, padding=1), "block": block, "head": nn.Linear(6, 3)}

    def run(net: nn.Module, x: Tensor) -> Tensor:
        x = net.stem(x)
        return net.head(F.relu(x + net.block(x)).mean((2, 3)))

    return Run(run, **parts), images(3)


def encoder() -> Built:
    """A layer of a transformer with layer norm."""
    layer = nn.TransformerEncoderLayer(12, 3, 16, batch_first=True, dropout=0.0)
    return nn.Sequential(nn.Linear(5, 12), layer, nn.Linear(12, 2)), tokens(2, 6, 5)


def attention() -> Built:
    """Multi-head attention between linear maps: matrices everywhere, biases of zero."""

    def run(net: nn.Module, x: Tensor) -> Tensor:
        h = net.enter(x)
        return net.leave(net.attend(h, h, h, need_weights=False)[0])

    attend = nn.MultiheadAttention(12, 3, batch_first=True)
    return Run(run, enter=nn.Linear(5, 12), attend=attend, leave=nn.Linear(12, 4)), tokens(2, 6, 5)


def gated() -> Built:
    """SwiGLU beside a skip, before RMS norm."""

    def run(net: nn.Module, x: Tensor) -> Tensor:
        x = net.enter(x)
        x = x + net.down(F.silu(net.gate(x)) * net.up(x))
        return net.leave(net.norm(x))

    maps = {"gate": nn.Linear(6, 10), "up": nn.Linear(6, 10), "down": nn.Linear(10, 6)}
    return Run(run, enter=nn.Linear(4, 6), **maps, norm=nn.RMSNorm(6), leave=nn.Linear(6, 2)), tokens(3, 4)


def chain() -> Built:
    """Linear maps only."""
    return nn.Sequential(nn.Linear(5, 6), nn.Linear(6, 4), nn.Linear(4, 3)), tokens(4, 5)


def windows() -> Built:
    """Attention inside windows that are cut from an image and put back, as in Swin."""

    def run(net: nn.Module, x: Tensor) -> Tensor:
        x = net.stem(x).permute(0, 2, 3, 1)
        b, h, w, c = x.shape
        cut = net.norm(x).view(b, h // 2, 2, w // 2, 2, c).transpose(2, 3).reshape(-1, 4, c)
        q, k, v = net.qkv(cut).view(-1, 4, 3, 2, c // 2).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(-1, 4, c)
        y = net.out(y).view(b, h // 2, w // 2, 2, 2, c).transpose(2, 3).reshape(b, h, w, c)
        return net.head((x + y).mean((1, 2)))

    parts = {"stem": nn.Conv2d(3, 8, 3, padding=1), "norm": nn.LayerNorm(8), "qkv": nn.Linear(8, 24)}
    return Run(run, **parts, out=nn.Linear(8, 8), head=nn.Linear(8, 3)), images(3)


def mixer() -> Built:
    """Mixing over tokens, then over channels."""

    def run(net: nn.Module, x: Tensor) -> Tensor:
        x = net.enter(x)
        x = x + net.mix(net.first(x).transpose(1, 2)).transpose(1, 2)
        return net.leave((x + net.think(net.second(x))).mean(1))

    mix = nn.Sequential(nn.Linear(6, 7), nn.GELU(), nn.Linear(7, 6))
    think = nn.Sequential(nn.Linear(8, 9), nn.GELU(), nn.Linear(9, 8))
    norms = {"first": nn.LayerNorm(8), "second": nn.LayerNorm(8)}
    ends = {"enter": nn.Linear(5, 8), "leave": nn.Linear(8, 2)}
    return Run(run, **ends, **norms, mix=mix, think=think), tokens(2, 6, 5)


def residual() -> Built:
    """Two basic blocks with batch norm on one stream."""

    def block() -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(6, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 6, 3, padding=1),
            nn.BatchNorm2d(6),
        )  # fmt: skip

    def run(net: nn.Module, x: Tensor) -> Tensor:
        x = F.relu(net.stem(x))
        x = F.relu(x + net.one(x))
        return net.head(F.relu(x + net.two(x)).mean((2, 3)))

    return Run(run, stem=nn.Conv2d(3, 6, 3), one=block(), two=block(), head=nn.Linear(6, 3)), images(3)


def shuffled() -> Built:
    """Grouped convolutions with a channel shuffle between them."""

    def run(net: nn.Module, x: Tensor) -> Tensor:
        x = F.relu(net.first(x)).unflatten(1, (2, 4)).transpose(1, 2).flatten(1, 2)
        return net.head(F.relu(net.second(x)).mean((2, 3)))

    maps = {"first": nn.Conv2d(4, 8, 3, groups=2), "second": nn.Conv2d(8, 8, 3, groups=2)}
    return Run(run, **maps, head=nn.Linear(8, 3)), images(4)


def crossed() -> Built:
    """Heads of two layers that share an axis of their channels, each scaled by itself, as in ConvBERT."""

    def run(net: nn.Module, x: Tensor) -> Tensor:
        heads, width = len(net.gate.bias), len(net.value.bias) // len(net.gate.bias)
        kernel = net.kernel(x).unflatten(2, (-1, 3, 1)).softmax(3)
        near = F.pad(net.near(x), (0, 0, 1, 1)).unfold(1, 3, 1).unflatten(2, (-1, width))
        gated = net.value(x).unflatten(2, (heads, width)) * torch.sigmoid(net.gate(x))[..., None]
        return net.leave(torch.cat([gated, (near @ kernel)[..., 0]], 2).flatten(2))

    parts = {"gate": nn.Linear(5, 3), "value": nn.Linear(5, 24), "near": nn.Linear(5, 16)}
    return Run(run, **parts, kernel=nn.Linear(5, 6), leave=nn.Linear(40, 2)), tokens(2, 6, 5)


def tokens(*shape: int) -> Tensor:
    """Inputs of that shape."""
    return torch.randn(*shape)


def images(channels: int) -> Tensor:
    """Two images of 6 by 6."""
    return torch.randn(2, channels, 6, 6)


ARCHITECTURES: dict[str, Build] = {
    build.__name__: build
    for build in (
        mlp, cnn, grouped, depthwise, encoder, attention, gated, chain, windows, mixer, residual, shuffled,
        crossed,
    )
}  # fmt: skip


def built(name: str, *, generic: bool = False) -> Built:
    """In float64 and evaluation mode; generic: no gain is 1, no shift or statistic 0."""
    torch.manual_seed(0)
    model, x = ARCHITECTURES[name]()
    with torch.no_grad():
        for key, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if generic and tensor.dim() == 1 and tensor.is_floating_point():
                tensor.uniform_(0.5, 2) if key.endswith("var") else tensor.normal_(0.3, 0.7)
    return model.double().eval(), x.double()


@cache
def symmetry_of(name: str) -> Symmetry:
    """Inferred and proved once: it does not depend on the weights."""
    return trace(*built(name))
