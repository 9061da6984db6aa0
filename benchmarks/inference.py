"""Seconds of export, inference and verification a model, and how inference grows with the graph.

    python benchmarks/inference.py [--quick]

Inference is timed three times and the fastest counts; every model is also verified, so that a fast wrong
answer does not count. The growth is the slope of log(seconds) against log(nodes) over ResNets and
transformers of growing depth: 1 is linear. What the proof of `trace` costs beside the export is the column
`prove`.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional as F

from intertwine import trace
from intertwine.symmetry import Symmetry
from intertwine.zoo import resolve
from intertwine.zoo.resnet_cifar import resnet_cifar

MODELS = [
    "zoo:vgg16",
    "torchvision:resnet18",
    "torchvision:resnet50",
    "torchvision:densenet121",
    "torchvision:mobilenet_v2",
    "torchvision:shufflenet_v2_x1_0",
    "torchvision:vit_b_16",
    "torchvision:swin_t",
    "timm:levit_128",
    "hf:llama",
]
RESNETS = [20, 56, 110, 302, 602, 1202]  # 6 n + 2 layers
TRANSFORMERS = [12, 24, 48, 96, 192]  # blocks


class Block(nn.Module):
    """One block of a pre-norm transformer with packed queries, keys and values."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        packed = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = packed.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        x = x + self.project(mixed.reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def transformer(blocks: int) -> tuple[nn.Module, Tensor]:
    """A small language model of many blocks, and an example."""
    body = nn.Sequential(nn.Embedding(50, 32), *(Block() for _ in range(blocks)), nn.LayerNorm(32))
    return nn.Sequential(body, nn.Linear(32, 50)).eval(), torch.randint(0, 50, (2, 8))


def resnet(depth: int) -> tuple[nn.Module, Tensor]:
    """A CIFAR ResNet of any depth, and an example."""
    return resnet_cifar(depth).eval(), torch.randn(2, 3, 32, 32)


def measure(model: nn.Module, example: Any, kwargs: Any = None) -> dict[str, float]:
    """Nodes; seconds of export, inference and proof; the largest error of the proof."""
    symmetry = trace(model, example, kwargs)
    assert symmetry.proof is not None and not symmetry.proof.refuted
    inferred = math.inf
    for _ in range(3):
        start = time.perf_counter()
        Symmetry(symmetry.traced)
        inferred = min(inferred, time.perf_counter() - start)
    found = {"nodes": len(symmetry.traced.graph.nodes), "export": symmetry.seconds["export"]}
    return found | {"infer": inferred, "prove": symmetry.seconds["prove"], "error": symmetry.proof.max_error}


def growth(name: str, build: Callable[[int], tuple[nn.Module, Tensor]], depths: list[int]) -> None:
    """Print seconds by depth, and the slope."""
    table = Table(name, "nodes", "export s", "infer s", "prove s", "ms a node", title=f"growth: {name}")
    points = []
    for depth in depths:
        row = measure(*build(depth))
        points.append((math.log(row["nodes"]), math.log(row["infer"])))
        cells = [f"{row[k]:.2f}" for k in ("export", "infer", "prove")]
        table.add_row(str(depth), str(row["nodes"]), *cells, f"{1000 * row['infer'] / row['nodes']:.3f}")
    console = Console()
    console.print(table)
    x, y = torch.tensor(points).T
    slope = float(((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum())
    console.print(f"{name}: log-log slope over depth: {slope:.2f} (1 is linear)")


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="the small models only")
    args = parser.parse_args()
    table = Table("model", "nodes", "export s", "infer s", "prove s", "prove / export", "error")
    for spec in MODELS[:2] if args.quick else MODELS:
        source = resolve(spec)
        row = measure(source.model, source.example, source.kwargs)
        cells = [f"{row[k]:.2f}" for k in ("export", "infer", "prove")]
        share = f"{row['prove'] / row['export']:.2f}"
        table.add_row(spec, str(row["nodes"]), *cells, share, f"{row['error']:.0e}")
    Console().print(table)
    growth("ResNets, layers", resnet, RESNETS[:3] if args.quick else RESNETS)
    growth("transformers, blocks", transformer, TRANSFORMERS[:3] if args.quick else TRANSFORMERS)


if __name__ == "__main__":
    main()
