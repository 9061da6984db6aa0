"""Combining measured: pairs of trained networks into one, beside Git Re-Basin's and REPAIR's procedures.

    python benchmarks/combine.py pairs --data ../shared/data -o docs/measured/combine.json
    python benchmarks/combine.py pairs --data ../shared/data --pairs tiny10:all --ways combine
    python benchmarks/combine.py three --data ../shared/data

ways: plain        average, batch-norm statistics reset
      git-re-basin permutations by weights (Ainsworth et al. 2022, Algorithm 1), average, reset
      repair       permutations by activations, average, every layer rescaled (Jordan et al. 2022), reset
      combine      aligned by activations, every layer solved for by least squares
2,000 unlabelled training inputs serve for activations, statistics and least squares; all test inputs, or
--limit of them, for the one number that is printed.
Results are added to the JSON file under the name of the work.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from torch import nn

from intertwine import act, combine, trace, zoo
from intertwine.aligning import align
from intertwine.data import evaluate, load_data

SEEDS = 10  # of tiny10


def plain(models: Sequence[nn.Module], train: Any) -> nn.Module:
    """The average as it is."""
    return combine(models, train_data=train, how="average", align="none", repair="reset").model


def rebasin(models: Sequence[nn.Module], train: Any) -> nn.Module:
    """Git Re-Basin: permutations by weights, statistics reset."""
    symmetry = trace(models[0], train[:2], prove=False)
    moved = [
        models[0],
        *(act(m, align(models[0], m, symmetry, group="permutation").element) for m in models[1:]),
    ]
    return combine(moved, train_data=train, how="average", align="none", repair="reset").model


def repair(models: Sequence[nn.Module], train: Any) -> nn.Module:
    """REPAIR: permutations by activations, statistics of every layer put back."""
    return combine(models, train_data=train, how="average", repair="rescale").model


def layerwise(models: Sequence[nn.Module], train: Any) -> nn.Module:
    """Ours."""
    return combine(models, train_data=train).model


WAYS: dict[str, Callable[[Sequence[nn.Module], Any], nn.Module]] = {
    "plain": plain,
    "git-re-basin": rebasin,
    "repair": repair,
    "combine": layerwise,
}


def loaded(folder: Path, name: str, which: str) -> nn.Module:
    """A trained network: `resnet20`, `seed0`."""
    return zoo.load_weights(
        zoo.build(name), folder / "checkpoints" / f"{name}-cifar10-{which}.safetensors"
    ).eval()


def cifar(args: argparse.Namespace) -> tuple[torch.Tensor, Any]:
    """Unlabelled training images, and test images with labels."""
    folder = args.data / "cifar10"
    train = load_data(
        f"parquet:{folder / 'train.parquet'}", normalize="cifar10-legacy", limit=args.train_limit
    )
    test = load_data(f"parquet:{folder / 'test.parquet'}", normalize="cifar10-legacy", limit=args.limit)
    return train.images, test


def measure(args: argparse.Namespace, work: str, models: Sequence[nn.Module], train: Any, test: Any) -> None:
    """Every way on one set of networks."""
    rows: dict[str, Any] = {}
    if not args.no_ends:
        for k, model in enumerate(models):
            found = evaluate(model, test)
            rows[f"network {k + 1}"] = {"accuracy": found.accuracy, "loss": found.loss}
    for way in args.ways.split(","):
        wall, cpu = time.perf_counter(), time.process_time()
        model = WAYS[way](models, train)
        seconds = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}
        found = evaluate(model, test)
        rows[way] = {"accuracy": found.accuracy, "loss": found.loss, **seconds}
        print(f"{work:30} {way:14} accuracy {found.accuracy:.4f} loss {found.loss:.4f} "
              f"cpu {seconds['cpu_seconds']:.0f} s", flush=True)  # fmt: skip
    settings = {"train inputs": len(train), "test inputs": len(test)}
    add(args.output, work, {**settings, "ways": rows})


def add(path: Path | None, work: str, found: dict[str, Any]) -> None:
    """Into the JSON file; ways that were measured before stay."""
    if path is None:
        return
    whole = json.loads(path.read_text()) if path.exists() else {}
    old = whole.get(work, {})
    whole[work] = {**old, **found, "ways": {**old.get("ways", {}), **found.get("ways", {})}}
    path.write_text(json.dumps(whole, indent=1, sort_keys=True) + "\n")


def pairs(args: argparse.Namespace) -> None:
    """resnet20:seed0:seed1, tiny10:seed0:seed1, or tiny10:all."""
    train, test = cifar(args)
    for spec in args.pairs.split(","):
        name, *which = spec.split(":")
        seeds = combinations([f"seed{k}" for k in range(SEEDS)], 2) if which == ["all"] else [tuple(which)]
        for chosen in seeds:
            models = [loaded(args.data, name, each) for each in chosen]
            measure(args, f"{name} {' '.join(chosen)}", models, train, test)


def three(args: argparse.Namespace) -> None:
    """Three independent ResNet20s into one."""
    train, test = cifar(args)
    models = [loaded(args.data, "resnet20", which) for which in ("seed0", "seed1", "c")]
    measure(args, "resnet20 seed0 seed1 c", models, train, test)


def main() -> None:
    """Parse and measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("pairs", "three"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--pairs", default="resnet20:seed0:seed1")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--train-limit", type=int, default=2000)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--no-ends", action="store_true", help="do not measure the networks themselves")
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    {"pairs": pairs, "three": three}[args.what](args)


if __name__ == "__main__":
    main()
