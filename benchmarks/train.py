"""The fast recipe against a plain float32 DataLoader loop: same model, data, epochs, optimizer, one thread.

    python benchmarks/train.py [--model resnet20] [--data cifar10] [--images 10000] [--epochs 3] [--seeds 2]

The plain loop is the one in every tutorial: a Dataset that flips and crops one image at a time, a DataLoader,
contiguous float32 tensors, full-size images throughout. It runs twice, with SGD and with the recipe's own
optimizer, both with the recipe's schedule. All sides are tested once on the same 2,000 held-out images,
within the clock; importing Lightning Fabric (2 s, once) is outside. Times are CPU seconds of this process on
one thread, which other work on the machine disturbs least.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from intertwine.data import evaluate
from intertwine.training import Recipe, Splits, build_model, load_splits, read_recipe, train
from intertwine.training.loop import make_fabric
from intertwine.training.recipe import Optimizer
from intertwine.training.schedule import make_optimizer, set_learning_rate

SGD = Optimizer("sgd", 0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)


class OneByOne(TorchDataset[tuple[Tensor, int]]):
    """Images one at a time, each flipped and shifted on its own."""

    def __init__(self, splits: Splits, recipe: Recipe) -> None:
        self.images, self.labels, self.augment = splits.train.images, splits.train.labels, recipe.augment

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image, p = self.images[index], self.augment.translate
        height, width = image.shape[1:]
        if p:
            top, left = (int(torch.randint(2 * p + 1, ())) for _ in range(2))
            image = F.pad(image, (p, p, p, p))[:, top : top + height, left : left + width]
        if self.augment.flip and torch.rand(()) < 0.5:
            image = image.flip(2)
        return image, int(self.labels[index])


def plain(model: nn.Module, splits: Splits, recipe: Recipe, seed: int) -> tuple[float, float]:
    """(CPU seconds, test accuracy) of the tutorial loop."""
    torch.manual_seed(seed)
    net = copy.deepcopy(model).train()
    optimizer = make_optimizer(net, recipe.optimizer)
    loader = DataLoader(OneByOne(splits, recipe), batch_size=recipe.batch, shuffle=True)
    start = time.process_time()
    for epoch in range(recipe.epochs):
        for step, (images, labels) in enumerate(loader):
            set_learning_rate(optimizer, recipe, epoch + step / len(loader))
            loss = F.cross_entropy(net(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    accuracy = evaluate(net, splits.test).accuracy
    return time.process_time() - start, accuracy


def fast(model: nn.Module, splits: Splits, recipe: Recipe, seed: int) -> tuple[float, float]:
    """(CPU seconds, test accuracy) of `train`, with all the files it writes."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        run = train(model, splits, recipe, Path(folder) / "run", seed=seed)
        return time.process_time() - start, run.accuracy


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="resnet20")
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    recipe = replace(read_recipe("fast"), epochs=args.epochs, evaluate_every=args.epochs)
    splits = load_splits(args.data, normalize=recipe.normalize or "none", limit=args.images)
    splits = Splits(splits.name, splits.train, splits.test.take(2000))
    sides = {
        "plain, sgd": (plain, replace(recipe, optimizer=SGD)),
        f"plain, {recipe.optimizer.name}": (plain, recipe),
        "fast": (fast, recipe),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    make_fabric(recipe, "cpu", 1)  # imports what `train` needs
    for seed in range(args.seeds):
        model = build_model(args.model, splits, seed=seed)
        for name, (run, how) in sides.items():
            found[name].append(run(model, splits, how, seed))
        print(json.dumps({"seed": seed, **{k: v[-1] for k, v in found.items()}}), flush=True)
    total = len(splits.train) * args.epochs
    rates = {k: total / statistics.median(s for s, _ in v) for k, v in found.items()}
    print(f"{args.model}, {len(splits.train):,} images, {args.epochs} epochs, {args.seeds} seeds, one thread")
    for name, runs in found.items():
        accuracies = ", ".join(f"{accuracy:.2%}" for _, accuracy in runs)
        ratio = rates["fast"] / rates[name]
        print(f"  {name:12} {rates[name]:5.0f} images/s (fast: {ratio:.2f} times)  accuracy {accuracies}")


if __name__ == "__main__":
    main()
