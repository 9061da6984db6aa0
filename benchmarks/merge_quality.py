"""Accuracy against kept parameters, for every method and repair, on real CIFAR-10 checkpoints.

    python benchmarks/merge_quality.py tiny10 resnet20 resnet20-pad --data ../shared/data
    python scripts/make_quality_table.py                   # the tables of docs/merge.md
    python benchmarks/merge_quality.py vgg16 --data ../shared/data --limit 500 -o tried.json

Every row goes into docs/measured/merge_quality.json when it is known; a model that is asked for with other
images or shares begins anew. Merging sees no image except with repair=data; the method was developed with a
look at the first 500 to 1,000 test images. Seconds are CPU seconds of making the plans.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from intertwine import trace, zoo
from intertwine.data import evaluate, load_data
from intertwine.files import write_bytes
from intertwine.merging import Options, Planner, apply_merge, reestimate_norms

MEASURED = Path(__file__).resolve().parents[1] / "docs" / "measured" / "merge_quality.json"
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
    """Measure what is not measured yet."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", choices=tuple(MODELS))
    parser.add_argument("--data", type=Path, required=True, help="folder with cifar10/ and checkpoints/")
    parser.add_argument("--shares", default="0.9,0.75,0.5,0.35,0.25")
    parser.add_argument("--combinations", default=COMBINATIONS, help="METHOD+REPAIR, separated by spaces")
    parser.add_argument("--limit", type=int, default=1000, help="test images")
    parser.add_argument("--unlabelled", type=int, default=500, help="training images for repair=data")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("-o", "--out", type=Path, default=MEASURED)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for name in args.models:
        measure(name, args)


def measure(name: str, args: argparse.Namespace) -> None:
    """All combinations of one model."""
    file, normalize = MODELS[name]
    source = zoo.resolve(f"zoo:{name}")
    model = zoo.load_weights(source.model, args.data / "checkpoints" / f"{file}.safetensors")
    symmetry = trace(model, source.example)
    counts = {"test": args.limit, "train": args.unlabelled}
    test, train = (
        load_data(f"parquet:{args.data}/cifar10/{part}.parquet", normalize=normalize, limit=count)
        for part, count in counts.items()
    )
    images = [batch for batch, _ in train.batches(100)]
    full = sum(p.numel() for p in model.parameters())
    shares = [float(s) for s in args.shares.split(",")]
    whole = json.loads(args.out.read_text(encoding="utf-8")) if args.out.is_file() else {}
    found: dict[str, Any] = {
        "images": len(test),
        "unlabelled": len(train),
        "parameters": full,
        "shares": shares,
    }
    known = whole.get(name, {})
    if any(known.get(key) != value for key, value in found.items()):
        known = {**found, "accuracy": evaluate(model, test).accuracy, "rows": {}}
    whole[name] = known
    for combination in args.combinations.split():
        if combination in known["rows"]:
            continue
        method, repair = combination.split("+")
        start = time.process_time()
        planner = Planner(model, symmetry, Options(method, order="independent", repair=repair), data=images)
        plans = [planner.at_share(share, "parameters") for share in shares]
        row: dict[str, Any] = {"seconds": round(time.process_time() - start, 1), "accuracy": []}
        for plan in plans:
            small = apply_merge(model, plan)
            if repair == "data":
                small = reestimate_norms(small, images, model, plan)
            row["accuracy"].append(evaluate(small, test).accuracy)
        known["rows"][combination] = row
        write_bytes(args.out, (json.dumps(whole, indent=1, sort_keys=True) + "\n").encode())
        print(name, combination, " ".join(f"{a:.2%}" for a in row["accuracy"]), row["seconds"], flush=True)


if __name__ == "__main__":
    main()
