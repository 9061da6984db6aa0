"""Loss of a character GPT against its size: every kind of axis under one budget, each kind alone, and others.

    python benchmarks/merge_transformers.py --data ../shared/data [--shares 0.9,0.8,0.7,0.6] [--seed 0]

Shares are of the model's own parameters (208,320), with everything that folding adds counted. `slicing` is
the published algorithm, transcribed: principal components of the folded stream, the same for all layers,
weights projected, nothing refitted. `written`: no data, the model calibrates on what it writes itself.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from intertwine import trace, zoo
from intertwine.errors import InputError
from intertwine.merging import Options, Planner, apply_merge, fold
from intertwine.merging.budget import Sizes, fit_budget
from intertwine.symmetry import Symmetry

HELD = 25_600
Ready = Callable[[float], nn.Module]


def characters(data: Path) -> tuple[Tensor, Tensor]:
    """Training and held-out windows of 64 characters, the latter with one more for the targets."""
    text = (data / "text" / "tinyshakespeare.txt").read_text()
    index = {c: i for i, c in enumerate(sorted(set(text)))}
    ids = torch.tensor([index[c] for c in text])
    start = int(0.9 * len(ids))
    return ids[:start], ids[start : start + HELD + 1]


@torch.no_grad()
def loss_of(model: nn.Module, held: Tensor) -> float:
    """Nats a character."""
    scores = model(held[:-1].view(-1, 64))
    return float(F.cross_entropy(scores.flatten(0, 1), held[1:]))


def size(model: nn.Module) -> int:
    """Parameters, tied ones once."""
    return sum(p.numel() for p in model.parameters())


def slicing(planner: Planner) -> Ready:
    """The stream alone, cut to the share, its weights projected and not refitted."""
    whole = planner.weighed
    sizes = Sizes(planner.model, planner.symmetry, whole)

    def at(share: float) -> nn.Module:
        plan = fit_budget(whole, sizes, share, "parameters")
        return apply_merge(planner.model, replace(plan, weights={}))

    return at


def methods(model: nn.Module, train: Tensor, example: Tensor) -> dict[str, tuple[nn.Module, Ready]]:
    """Name -> what is cut, and how."""
    folded = fold(model, example)
    traced: dict[int, Symmetry] = {id(m): trace(m, example) for m in (model, folded)}

    def planner(m: nn.Module, method: str, data: list[Tensor] | None, kinds: str = "all") -> Planner:
        own = {"kinds": kinds} if method == "sequential" else {}
        repair = "weights" if method == "sequential" else "none"
        return Planner(m, traced[id(m)], Options(method, repair=repair, parameters=own), None, data)

    def share(p: Planner) -> Ready:
        return lambda s: apply_merge(p.model, p.at_share(s, "parameters"))

    data = [train]
    return {
        "all kinds": (folded, share(planner(folded, "sequential", data))),
        "all kinds, written": (folded, share(planner(folded, "sequential", None))),
        "channels": (model, share(planner(model, "sequential", data, "channels"))),
        "rank": (model, share(planner(model, "sequential", data, "rank"))),
        "stream": (folded, share(planner(folded, "sequential", data, "stream"))),
        "slicing": (folded, slicing(planner(folded, "sequential", data, "stream"))),
        "magnitude": (model, share(planner(model, "magnitude", None))),
    }


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--shares", default="0.9,0.8,0.7,0.6")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--characters", type=int, default=32_768)
    args = parser.parse_args()
    train, held = characters(args.data)
    file = args.data / "checkpoints" / f"nanogpt64-shakespeare-seed{args.seed}.safetensors"
    model = zoo.load_weights(zoo.build("nanogpt64"), file).eval()
    shares = [float(s) for s in args.shares.split(",")]
    print(f"whole: {loss_of(model, held):.4f} nats, {size(model):,} parameters")
    print("| what | " + " | ".join(f"{s:.0%}" for s in shares) + " | s |")
    windows = train[: args.characters].view(-1, 64)
    for name, (base, at) in methods(model, windows, windows[:2]).items():
        row, start = [], time.perf_counter()
        for share in shares:
            try:
                small = at(share * size(model) / size(base))
            except InputError:
                row.append("cannot")
                continue
            assert size(small) <= share * size(model)
            row.append(f"{loss_of(small, held):.4f}")
        print(f"| {name} | " + " | ".join(row) + f" | {time.perf_counter() - start:.0f} |", flush=True)


if __name__ == "__main__":
    main()
