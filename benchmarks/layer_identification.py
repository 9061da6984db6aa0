"""For each layer of one network, is the most similar layer of another the same? (Kornblith et al., s. 6.1)

    python benchmarks/layer_identification.py [--inputs 500] [--nets 10] [--measures cka,svcca] [--json]

Ten independently trained tiny10 networks, eight layers each, all ordered pairs: chance is 1/8. Needs the
shared CIFAR-10 test set and checkpoints; prints one line a measure and treatment of pixels.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from pathlib import Path

import numpy as np
import torch

from intertwine import zoo
from intertwine.comparing import MEASURES, Features, StreamedMoments, collect
from intertwine.comparing.features import rows
from intertwine.data import load_data

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


def load_features(nets: int, inputs: int) -> list[Features]:
    """Features of every ReLU of each network on the first test images."""
    data = load_data(
        f"parquet:{SHARED / 'cifar10' / 'test.parquet'}", normalize="cifar10-legacy", limit=inputs
    )
    found = []
    for seed in range(nets):
        model = zoo.resolve("zoo:tiny10").model
        zoo.load_weights(model, SHARED / "checkpoints" / f"tiny10-cifar10-seed{seed}.safetensors")
        found.append(collect(model, data, at="relu*"))
    return found


def share_identified(grid: np.ndarray) -> tuple[int, int]:
    """Right answers in both directions: rows ask for columns, columns for rows."""
    size = len(grid)
    right = (grid.argmax(1) == np.arange(size)).sum() + (grid.argmax(0) == np.arange(size)).sum()
    return int(right), 2 * size


def streamed(features: list[Features], names: list[str], pixels: str) -> dict[str, float]:
    """Covariance measures, by moments; one accumulation a pair of networks serves them all."""
    right: dict[str, list[tuple[int, int]]] = {name: [] for name in names}
    for a, b in itertools.combinations(features, 2):
        moments = StreamedMoments(pixels=pixels)  # type: ignore[arg-type]
        for start in range(0, len(a.outputs), 250):
            where = slice(start, start + 250)
            moments.update({k: v[where] for k, v in a.items()}, {k: v[where] for k, v in b.items()})
        for name in names:
            measure = MEASURES[name].of_moments
            grid = np.array([[measure(moments.pair(p, q)) for q in b] for p in a])
            right[name].append(share_identified(grid))
    return {name: sum(r for r, _ in found) / sum(n for _, n in found) for name, found in right.items()}


def by_kernels(features: list[Features], name: str, pixels: str) -> float:
    """Kernel measures: a summary for each layer of each network, then all pairs of summaries."""
    measure = MEASURES[name]
    kept = [
        [measure.summary(rows(v, "pool") if pixels == "pool" else v) for v in network.values()]
        for network in features
    ]
    found = []
    for a, b in itertools.combinations(kept, 2):
        found.append(share_identified(np.array([[measure.between_summaries(x, y) for y in b] for x in a])))
    return sum(r for r, _ in found) / sum(n for _, n in found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inputs", type=int, default=500)
    parser.add_argument("--nets", type=int, default=10)
    parser.add_argument("--measures", default=",".join(MEASURES))
    parser.add_argument("--pixels", default="pool,samples,flatten")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    features = load_features(args.nets, args.inputs)
    wanted, results = args.measures.split(","), []

    def report(name: str, pixels: str, share: float, seconds: float) -> None:
        results.append({"measure": name, "pixels": pixels, "identified": share, "seconds": seconds})
        if not args.json:
            print(f"{name:24} {pixels:8} {share:.4f}   ({seconds:.0f} s)", flush=True)

    for pixels in ("pool", "samples"):
        names = [name for name in wanted if MEASURES[name].streams]
        if names and pixels in args.pixels.split(","):
            start = time.perf_counter()
            shares = streamed(features, names, pixels)
            for name in names:
                report(name, pixels, shares[name], time.perf_counter() - start)
    for name in wanted:
        if MEASURES[name].prepare is not None and "flatten" in args.pixels.split(","):
            start = time.perf_counter()
            report(name, "flatten", by_kernels(features, name, "flatten"), time.perf_counter() - start)
    if args.json:
        print(json.dumps({"nets": args.nets, "inputs": args.inputs, "results": results}, indent=2))


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
