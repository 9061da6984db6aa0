"""Train the checkpoints that ship with the package: `digits-vgg` on scikit-learn's digits, seeds 0 and 1.

    python scripts/train_digits.py    # both seeds, a minute or two, into zoo/checkpoints
    python scripts/train_digits.py --out DIR --epochs 5

The split is that of `intertwine.data` (1,297 train, 500 test). The script fails if a net stays below
97 % on the test.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from intertwine import zoo
from intertwine.data import Dataset, evaluate, load_data

CHECKPOINTS = Path(__file__).resolve().parents[1] / "src" / "intertwine" / "zoo" / "checkpoints"
LEAST_ACCURACY = 0.97


def shift(images: Tensor, generator: torch.Generator) -> Tensor:
    """Move each batch by up to one pixel, zeros flow in: 1,297 images are few."""
    dx, dy = (int(v) for v in torch.randint(0, 3, (2,), generator=generator))
    height, width = images.shape[2:]
    return F.pad(images, (1, 1, 1, 1))[:, :, dy : dy + height, dx : dx + width]


def train(seed: int, data: Dataset, epochs: int) -> nn.Module:
    """SGD with momentum and a one-cycle learning rate; everything random comes from the seed."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = zoo.build("digits-vgg").train()
    steps = -(-len(data) // 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=epochs * steps)
    for _ in range(epochs):
        for chosen in torch.randperm(len(data), generator=generator).split(64):
            loss = F.cross_entropy(model(shift(data.images[chosen], generator)), data.labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model.eval()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=CHECKPOINTS)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    data, test = load_data("digits", split="train"), load_data("digits", split="test")
    for seed in args.seeds:
        model = train(seed, data, args.epochs)
        accuracy, loss = evaluate(model, test)
        print(f"seed {seed}: test accuracy {accuracy:.1%}, loss {loss:.3f}")
        if accuracy < LEAST_ACCURACY:
            raise SystemExit(f"seed {seed} stays below {LEAST_ACCURACY:.0%}; nothing was written for it")
        print(zoo.save_weights(model, args.out / f"digits-vgg-seed{seed}.safetensors"))


if __name__ == "__main__":
    main()
