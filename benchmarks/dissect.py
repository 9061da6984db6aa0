"""What dissection costs beside the bare forward pass, and what a rotation of a wide layer costs.

    python benchmarks/dissect.py pass --data ../shared/data    # resnet20, a layer of 64 units, one rotation
    python benchmarks/dissect.py width --units 64,256,1024,2048

pass: seconds of dissecting `shapes` along one rotation against those of the forward pass alone on the same
batches; both are the median of --rounds. width: seconds of the Schur form, of one power, and of thresholds
and overlaps for one basis of random activations. One thread. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from intertwine import dissect, zoo
from intertwine.data.shapes import shapes
from intertwine.inside.overlap import Overlap
from intertwine.inside.quantile import Quantile
from intertwine.inside.rotations import Geodesic, random_rotation


def seconds(work: Callable[[], object], rounds: int) -> float:
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def one_pass(args: argparse.Namespace) -> None:
    model = zoo.build("resnet20")
    if args.data is not None:
        zoo.load_weights(model, args.data / "checkpoints" / "resnet20-cifar10-seed0.safetensors")
    model.eval()
    data = shapes(args.images, 32)
    batches = [data.rows(range(i, min(i + 32, len(data)))) for i in range(0, len(data), 32)]

    def forward() -> None:
        with torch.no_grad():
            for batch in batches:
                model(batch)

    def whole() -> None:
        dissect(model, data, "layer3.2.relu_1", rotate="orthogonal", powers=(1.0,), examples=0)

    forward(), whole()
    bare, full = seconds(forward, args.rounds), seconds(whole, args.rounds)
    print(
        f"forward {bare:.2f} s, dissection with export and one rotation {full:.2f} s: {full / bare:.2f} times"
    )


def widths(args: argparse.Namespace) -> None:
    rng, data = np.random.default_rng(0), shapes(args.images, 112)
    for units in map(int, args.units.split(",")):
        q = random_rotation(units)
        start = time.perf_counter()
        path = Geodesic(q)
        schur = time.perf_counter() - start
        power = seconds(lambda p=path: p.power(0.5), 1)
        rows = torch.from_numpy(rng.standard_normal((args.images * 49, units), np.float32)).relu()
        turn = torch.from_numpy(path.power(0.5)).float()

        def read(rows: torch.Tensor = rows, turn: torch.Tensor = turn, units: int = units) -> None:
            turned = rows @ turn
            running = Quantile(0.995, len(turned))
            running.add(turned)
            level, count = running.value(), Overlap(units, data.categories)
            for i in range(args.images):
                maps = turned[49 * i : 49 * (i + 1)].T.reshape(units, 7, 7)
                count.add(maps, level, data.annotation(i), (112, 112))

        print(f"{units} units: Schur {schur:.1f} s, a power {power:.1f} s, a basis {seconds(read, 1):.1f} s "
              f"for {args.images} images")  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["pass", "width"])
    parser.add_argument("--data", type=Path, help="../shared/data for trained weights")
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--units", default="64,256,1024")
    torch.set_num_threads(1)
    chosen = parser.parse_args()
    one_pass(chosen) if chosen.what == "pass" else widths(chosen)
