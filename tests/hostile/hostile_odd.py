"""Models that are rare but legal, by every verb: without weights, of other precisions, with odd outputs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

MODELS = """
import torch
from torch import nn
x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
class Net(nn.Module):
    def __init__(self, after=lambda y: y):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.after = nn.Linear(3, 4), nn.Linear(4, 2), after
    def forward(self, x, *, scale=1.0): return self.after(self.b(torch.relu(self.a(x))) * scale)
class Stored(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("b", torch.ones(3))
    def forward(self, x): return x * self.b
class Constant(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(2))
    def forward(self, x): return self.w.expand(x.shape[0], 2)
class Whole(Net):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(3, dtype=torch.int64), requires_grad=False)
    def forward(self, x): return super().forward(x * self.w)
def filled(number):
    net = Net()
    for p in net.parameters(): p.data.mul_(number)
    return net, x
def huge(): return filled(1e30)
def zeros(): return filled(0)
def half(): return Net().half(), x.half()
def double(): return Net().double(), x.double()
def whole_weights(): return Whole(), x
def no_layers(): return nn.Sequential(), x
def no_weights(): return nn.ReLU(), x
def stored(): return Stored(), x
def constant(): return Constant(), x
def no_hidden(): return nn.Linear(3, 2), x
def one_row(): return Net(), x[0]
def tokens(): return nn.Sequential(nn.Embedding(5, 4), nn.ReLU(), nn.Linear(4, 2)), torch.ones(2, 3).long()
def by_name(): return Net(), x, {"scale": 2.0}
def complex_scores(): return Net(torch.fft.fft), x
def one_number(): return Net(torch.sum), x
def no_rows(): return Net(lambda y: 1 * x), x
def order(): return Net(lambda y: y.argmax(1)), x
def never_finite(): return Net(lambda y: y / 0.0), x
def script(): return torch.jit.trace(Net().eval(), x), x
"""
MODEL, DATA = "MODEL", "DATA"
LINES = tuple(
    (line + " --json").split()
    for line in (
        "verify MODEL",
        "merge MODEL --method sequential --target-params 0.5 --data DATA",
        "merge MODEL --method ward --beta 0.3 --repair data --data DATA",
        "align MODEL MODEL --by both --data DATA",
        "interpolate MODEL MODEL --repair --points 2 --data DATA",
        "interpolate MODEL MODEL --stages --points 2 --data DATA",
        "combine MODEL MODEL --data DATA",
        "combine MODEL MODEL --how zip --data DATA",
        "combine MODEL MODEL --how fisher --data DATA",
        "compare MODEL MODEL --data DATA",
        "stitch MODEL MODEL --epochs 1 --data DATA",
        "rotate MODEL --at 1 --epochs 1 --data DATA",
        "explore MODEL --plane random --points 2 --seconds 1 --data DATA",
        "explore MODEL --steps 3 --points 2 --seconds 1",
        "attribute MODEL --axis a --channel 1 --data DATA",
        "dimension MODEL --data DATA",
    )
)


def odd_lines(folder: Path) -> Iterator[tuple[str, ...]]:
    """Command lines of every verb with every one of these models."""
    path, data = folder / "odd.py", folder / "odd.npz"
    path.write_text(MODELS)
    images = np.random.default_rng(0).normal(size=(20, 3)).astype("float32")
    np.savez(data, images=images, labels=np.arange(20) % 2)
    for name in re.findall(r"^def (\w+)\(\)", MODELS, re.MULTILINE):
        words = {MODEL: f"{path}:{name}", DATA: f"npz:{data}"}
        yield from (tuple(words.get(word, word) for word in line) for line in LINES)
