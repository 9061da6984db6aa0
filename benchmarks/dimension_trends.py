"""Functional dimension with depth, width and input dimension, and over training.

    python benchmarks/dimension_trends.py [--nets 40] [-o docs/measured/dimension-trends.json]

Random ReLU nets (normal weights of variance 2 / inputs, normal biases of variance 0.01) of one width: in how
many of them do rank and orbit add up to the parameters, so that no symmetry is hidden? Grigsby, Lindsey and
Rolnick (Hidden symmetries of ReLU networks, 2023): the share falls with depth, and rises with width and with
the dimension of the input. Their nets are as wide as their inputs; here width also grows on its own. Then one
net on digits (pixels averaged to 4 x 4), as it is trained: on random inputs and on the digits themselves.
What is in the JSON already is not measured again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from intertwine import Symmetry
from intertwine.data import load_data
from intertwine.graph.example import Example
from intertwine.graph.export import export
from intertwine.tangent.coordinates import coordinates_of
from intertwine.tangent.generators import tangents
from intertwine.tangent.jacobian import Jacobian
from intertwine.tangent.settled import settled_null
from intertwine.tangent.spaces import span

SPREAD = (0.1, 0.3, 1.0, 3.0, 10.0)  # lengths of inputs: cells far out count as much as those near 0
ROWS = 64
DEPTHS, WIDTHS, INPUTS = (1, 2, 3, 4), (2, 4, 6, 8), (1, 2, 4, 8)
STEPS = (0, 10, 30, 100, 300, 1000)


def relu_net(inputs: int, width: int, depth: int, outputs: int = 1) -> nn.Sequential:
    """Hidden layers of one width."""
    sizes = [inputs, *[width] * depth]
    layers = [m for a, b in pairwise(sizes) for m in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(width, outputs)).double()


def drawn(net: nn.Sequential, seed: int) -> None:
    """Fresh weights."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in net:
            if isinstance(layer, nn.Linear):
                layer.weight.normal_(0, (2 / layer.in_features) ** 0.5, generator=generator)
                layer.bias.normal_(0, 0.1, generator=generator)


def scattered(inputs: int, seed: int) -> Iterator[Example]:
    """Batches of normal rows of very different lengths, without end."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        x = torch.randn(ROWS, inputs, generator=generator, dtype=torch.float64)
        size = torch.tensor(SPREAD, dtype=torch.float64)[
            torch.randint(len(SPREAD), (ROWS, 1), generator=generator)
        ]
        yield Example.of(size * x, None)


def measured(symmetry: Symmetry, net: nn.Module, examples: Iterator[Example]) -> dict[str, Any]:
    """Parameters, orbit and rank at the net's weights."""
    theta = coordinates_of(net, symmetry)
    columns = tangents(symmetry, theta).toarray()
    length = (columns**2).sum(0) ** 0.5
    orbit = span(columns[:, length > 0] / length[length > 0], 1e-10).shape[1]
    rank, _, _, _, settled = settled_null(Jacobian(symmetry.traced, net, theta), examples, theta.size - orbit)
    return {"parameters": theta.size, "orbit": orbit, "rank": rank.rank, "settled": settled}


def trend(inputs: int, width: int, depth: int, count: int) -> dict[str, Any]:
    """Of `count` random nets of one shape, how many hide nothing."""
    net = relu_net(inputs, width, depth)
    symmetry = Symmetry(export(net, (torch.randn(ROWS, inputs, dtype=torch.float64),)))
    found = []
    for seed in range(count):
        drawn(net, seed)
        found.append(measured(symmetry, net, scattered(inputs, seed)))
    most = found[0]["parameters"] - depth * width
    certain = [f for f in found if f["settled"]]
    return {
        "inputs": inputs, "width": width, "depth": depth, "nets": len(found),
        "unsettled": len(found) - len(certain),
        "complete": sum(f["orbit"] + f["rank"] == f["parameters"] for f in certain),
        "share of the largest rank": sum(f["rank"] for f in certain) / max(1, len(certain) * most),
    }  # fmt: skip


def small_digits(split: str) -> tuple[Tensor, Tensor]:
    """Digits of 4 x 4 pixels."""
    data = load_data("digits", split=split)
    return F.avg_pool2d(data.images.double(), 2).flatten(1), data.labels


def over_training() -> list[dict[str, Any]]:
    """One net on digits, after each of so many steps."""
    x, y = small_digits("train")
    net = relu_net(16, 10, 2, outputs=10)
    drawn(net, 0)
    symmetry = Symmetry(export(net, (x[:ROWS],)))
    optimizer = torch.optim.Adam(net.parameters(), 3e-3)
    generator, rows = torch.Generator().manual_seed(0), []
    for step in range(STEPS[-1] + 1):
        if step in STEPS:
            with torch.no_grad():
                accuracy = float((net(x).argmax(1) == y).double().mean())
            own = (Example.of(x[k : k + ROWS], None) for k in range(0, len(x) - ROWS, ROWS))
            rows.append({
                "step": step, "accuracy": accuracy, "random": measured(symmetry, net, scattered(16, 1)),
                "digits": measured(symmetry, net, own),
            })  # fmt: skip
        chosen = torch.randint(len(x), (128,), generator=generator)
        optimizer.zero_grad()
        F.cross_entropy(net(x[chosen]), y[chosen]).backward()
        optimizer.step()
    return rows


def main() -> None:
    """Measure what is not there yet."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--nets", type=int, default=40, help="random nets of each shape")
    parser.add_argument("-o", "--out", type=Path, default=Path("docs/measured/dimension-trends.json"))
    args = parser.parse_args()
    known = json.loads(args.out.read_text()) if args.out.exists() else {"trends": {}}
    shapes = [(4, width, depth) for width in WIDTHS for depth in DEPTHS]
    shapes += [(inputs, 4, depth) for inputs in INPUTS for depth in DEPTHS]
    # As published: both grow.
    shapes += [(width, width, depth) for depth in (2, 3) for width in (*WIDTHS, 12)]
    for inputs, width, depth in dict.fromkeys(shapes):
        name = f"{inputs} inputs, width {width}, depth {depth}"
        if known["trends"].get(name, {}).get("nets") != args.nets:
            start = time.process_time()
            known["trends"][name] = row = trend(inputs, width, depth, args.nets)
            print(row, round(time.process_time() - start, 1), file=sys.stderr, flush=True)
            args.out.write_text(json.dumps(known, indent=1) + "\n")
    if "training" not in known:
        known["training"] = over_training()
        args.out.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
