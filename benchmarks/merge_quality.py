"""Accuracy against kept parameters, for every method and repair, on real CIFAR-10 checkpoints.

    python benchmarks/merge_quality.py --data ../shared/data --model vgg16 --limit 2000 --out vgg16.json

Prints a Markdown table and writes every point as JSON. Merging sees no image except with repair=data; the
method was developed with a look at the first 500 to 1,000 test images.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch

from intertwine import trace, zoo
from intertwine.data import evaluate, load_data
from intertwine.merging import Options, Planner, apply_merge, reestimate_norms

MODELS = {
    "vgg16": ("vgg16-cifar10", "cifar10"),
    "resnet20": ("resnet20-cifar10-seed0", "cifar10-legacy"),
    "resnet20-pad": ("resnet20a-cifar10", "imagenet"),
    "tiny10": ("tiny10-cifar10-seed0", "cifar10-legacy"),
}
COMBINATIONS = (
    "moments+weights moments+data ifm+none ifm+weights ward+none ward+weights folding+none folding+weights "
    "magnitude+none magnitude+weights"
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with cifar10/ and checkpoints/")
    parser.add_argument("--model", choices=MODELS, default="vgg16")
    parser.add_argument("--shares", default="0.9,0.75,0.5,0.35,0.25")
    parser.add_argument("--combinations", default=COMBINATIONS, help="METHOD+REPAIR, separated by spaces")
    parser.add_argument("--limit", type=int, default=2000, help="test images")
    parser.add_argument("--unlabelled", type=int, default=2000, help="training images for repair=data")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    file, normalize = MODELS[args.model]
    source = zoo.resolve(f"zoo:{args.model}")
    model = zoo.load_weights(source.model, args.data / "checkpoints" / f"{file}.safetensors")
    symmetry = trace(model, source.example)
    test = load_data(f"parquet:{args.data}/cifar10/test.parquet", normalize=normalize, limit=args.limit)
    train = load_data(
        f"parquet:{args.data}/cifar10/train.parquet", normalize=normalize, limit=args.unlabelled
    )
    images = [batch for batch, _ in train.batches(100)]
    full = sum(p.numel() for p in model.parameters())
    shares = [float(s) for s in args.shares.split(",")]
    base = evaluate(model, test).accuracy
    points = [{"model": args.model, "method": "none", "kept": 1.0, "accuracy": base, "images": len(test)}]
    print(f"{args.model}: {base:.2%} of {len(test)} images, {full:,} parameters\n")
    print("| method | repair | " + " | ".join(f"{s:.0%}" for s in shares) + " | plan, s |")
    print("|---|---|" + "---|" * (len(shares) + 1))
    for name in args.combinations.split():
        method, repair = name.split("+")
        start = time.perf_counter()
        planner = Planner(model, symmetry, Options(method, order="independent", repair=repair), data=images)
        plans = [planner.at_share(share, "parameters") for share in shares]
        seconds = time.perf_counter() - start
        cells = []
        for share, plan in zip(shares, plans, strict=True):
            small = apply_merge(model, plan)
            if repair == "data":
                small = reestimate_norms(small, images, model, plan)
            kept = sum(p.numel() for p in small.parameters()) / full
            accuracy = evaluate(small, test).accuracy
            point = {"model": args.model, "method": method, "repair": repair, "target": share, "kept": kept}
            points.append({**point, "accuracy": accuracy, "widths": plan.complexity})
            cells.append(f"{accuracy:.2%}")
        print(f"| {method} | {repair} | " + " | ".join(cells) + f" | {seconds:.1f} |", flush=True)
    if args.out is not None:
        args.out.write_text(json.dumps(points, indent=1))


if __name__ == "__main__":
    main()
