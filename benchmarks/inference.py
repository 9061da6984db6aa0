"""Seconds of export, inference and verification a model, and how inference grows with the graph.

    python benchmarks/inference.py [--quick]

Inference is timed three times and the fastest counts; every model is also verified, so that a fast wrong
answer does not count. The growth is the slope of log(seconds) against log(nodes) over ResNets of growing
depth: 1 is linear.
"""

from __future__ import annotations

import argparse
import math
import time

import torch
from rich.console import Console
from rich.table import Table

from intertwine import verify
from intertwine.symmetry import Symmetry
from intertwine.trace.export import export
from intertwine.zoo import resolve

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
DEPTHS = ["zoo:resnet20", "zoo:resnet32", "zoo:resnet44", "zoo:resnet56", "zoo:resnet110"]


def measure(spec: str) -> tuple[int, float, float, float, float]:
    """Nodes, seconds of export, of inference and of verification, and the error of the verification."""
    source = resolve(spec)
    start = time.perf_counter()
    traced = export(source.model, source.example, source.kwargs)
    exported = time.perf_counter() - start
    inferred = math.inf
    for _ in range(3):
        start = time.perf_counter()
        symmetry = Symmetry(traced)
        inferred = min(inferred, time.perf_counter() - start)
    report = verify(source.model, source.example, kwargs=source.kwargs, symmetry=symmetry)
    if not report.exact:
        raise SystemExit(f"{spec}: {report.verdict}, error {report.max_error:.1e}")
    return len(traced.graph.nodes), exported, inferred, report.seconds["verify"], report.max_error


def main() -> None:
    """Measure and print two tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="the small models only")
    args = parser.parse_args()
    console = Console()
    table = Table("model", "nodes", "export s", "infer s", "verify s", "error", title="seconds a model")
    for spec in MODELS[:2] if args.quick else MODELS:
        nodes, exported, inferred, verified, error = measure(spec)
        table.add_row(
            spec, str(nodes), f"{exported:.2f}", f"{inferred:.3f}", f"{verified:.2f}", f"{error:.0e}"
        )
    console.print(table)
    points = []
    growth = Table("model", "nodes", "infer s", "ms a node", title="growth with depth")
    for spec in DEPTHS:
        nodes, _, inferred, _, _ = measure(spec)
        points.append((math.log(nodes), math.log(inferred)))
        growth.add_row(spec, str(nodes), f"{inferred:.3f}", f"{1000 * inferred / nodes:.3f}")
    console.print(growth)
    x, y = torch.tensor(points).T
    slope = float(((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum())
    console.print(f"log-log slope over depth: {slope:.2f} (1 is linear)")


if __name__ == "__main__":
    main()
