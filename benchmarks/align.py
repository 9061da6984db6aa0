"""Alignment measured: planted elements, barriers of real pairs, speed and growth.

    python benchmarks/align.py planted --seeds 100 --models tiny10,resnet20,vgg16
    python benchmarks/align.py planted --seeds 100 --minutes 20 --models convnext-tiny,vit-tiny,gpt2-block
    python benchmarks/align.py barrier --data ../shared/data --pairs resnet20:0:1,tiny10:0:1
    python benchmarks/align.py speed --out docs/measured/align.json
    python benchmarks/align.py growth --out docs/measured/align.json
    python scripts/make_align_table.py

planted: B = g A with a random g of the whole group, log-normal scales; recovered means that A, the aligned B
and the mean of both agree to 1e-5 of the largest output in float32. barrier: cross entropy above the line.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from intertwine import act, trace, zoo
from intertwine.aligning import Mixer, align, alignment_report, check_llfc, interpolation_curve, mix
from intertwine.data import load_data
from intertwine.symmetry.prove import make_generic
from intertwine.vision_shim import import_vision

TOLERANCE = 1e-5
TIMES = 3  # a row of `speed` is measured: a machine is shared


class Block(nn.Module):
    """A transformer block of the size of GPT-2's: 768 wide, 12 heads, as `transformers` builds it."""

    def __init__(self) -> None:
        super().__init__()
        import_vision("transformers")  # it imports torchvision
        from transformers import GPT2Config
        from transformers.models.gpt2.modeling_gpt2 import GPT2Block

        config = GPT2Config()
        config._attn_implementation = "sdpa"
        self.embed = nn.Embedding(1000, 768)
        self.block = GPT2Block(config, layer_idx=0)
        self.norm, self.head = nn.LayerNorm(768), nn.Linear(768, 1000, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        out = self.block(self.embed(tokens))
        return self.head(self.norm(out[0] if isinstance(out, tuple) else out))


def _timm(name: str) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        return import_vision("timm").create_model(name).eval()

    return build


IMAGE, LARGE = (2, 3, 32, 32), (2, 3, 224, 224)
MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "tiny10": (lambda: zoo.build("tiny10"), lambda: torch.randn(IMAGE)),
    "resnet20": (lambda: zoo.build("resnet20"), lambda: torch.randn(IMAGE)),
    "vgg16": (lambda: zoo.build("vgg16"), lambda: torch.randn(IMAGE)),
    "convnext-tiny": (_timm("convnext_tiny"), lambda: torch.randn(LARGE)),
    "vit-tiny": (_timm("vit_tiny_patch16_224"), lambda: torch.randn(LARGE)),
    "gpt2-block": (lambda: Block().eval(), lambda: torch.randint(1000, (2, 32))),
}


def generic(model: nn.Module, symmetry: Any) -> None:
    """Constant weights (unit gains, zero biases) become random: on them every permutation looks right."""
    generator = torch.Generator().manual_seed(0)
    for tensor in symmetry.weights(model).values():
        tensor.data.copy_(make_generic(tensor, generator))


@torch.no_grad()
def planted(names: list[str], seeds: int, minutes: float) -> None:
    print("| model | parameters | seeds | recovered | worst error | worst distance | CPU seconds each |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for name in names:
        build, example = MODELS[name]
        torch.manual_seed(0)
        model, x = build(), example()
        symmetry = trace(model, x)
        generic(model, symmetry)
        wanted = model(x)
        errors, distances, seconds = [], [], 0.0
        end = time.monotonic() + 60 * minutes
        for seed in range(seeds):
            if time.monotonic() > end and errors:
                break
            other = act(model, symmetry.sample(seed))
            start = time.process_time()
            found = align(model, other, symmetry, seed=seed)
            seconds += time.process_time() - start
            aligned = act(other, found.element)
            # The aligned model computes the same whatever the element; the mean of both only if it is right.
            outputs = torch.stack([aligned(x), mix([model, aligned], [0.5, 0.5])(x)])
            errors.append(float((outputs - wanted).abs().max() / wanted.abs().max()))
            distances.append(found.distance_after)
            print(f"{name} seed {seed}: {errors[-1]:.1e}", file=sys.stderr, flush=True)
        size = sum(p.numel() for p in model.parameters())
        right = sum(e <= TOLERANCE for e in errors)
        print(
            f"| {name} | {size:,} | {len(errors)} | {right} of {len(errors)} | {max(errors):.1e} "
            f"| {max(distances):.1e} | {seconds / len(errors):.1f} |",
            flush=True,
        )


def barrier(folder: Path, pairs: list[str], bys: list[str], limit: int, points: int) -> None:
    test = load_data(f"parquet:{folder}/cifar10/test.parquet", normalize="cifar10-legacy", limit=limit)
    train = load_data(f"parquet:{folder}/cifar10/train.parquet", normalize="cifar10-legacy", limit=limit)
    ts = [k / (points - 1) for k in range(points)]
    print("| pair | aligned by | group | statistics | barrier | least accuracy |\n|---|---|---|---|---|---|")
    for pair in pairs:
        name, *seeds = pair.split(":")
        models = [
            zoo.load_weights(zoo.build(name), folder / f"checkpoints/{name}-cifar10-seed{s}.safetensors")
            for s in seeds
        ]
        symmetry = trace(models[0], torch.zeros(1, 3, 32, 32))
        for by, group in [("-", "none"), *((by, g) for by in bys for g in ("permutation", "full"))]:
            moved = list(models)
            if group != "none":
                moved[1:] = [
                    act(m, align(models[0], m, symmetry, by=by, group=group, data=train).element)  # type: ignore[arg-type]
                    for m in models[1:]
                ]
            for repair in ("none", "reset", "repair"):
                curve = interpolation_curve(moved, test, ts, repair=repair, train_data=train)  # type: ignore[arg-type]
                least = min(s.accuracy for line in curve.lines for s in line.scores)
                cells = [
                    f"{name} {'-'.join(seeds)}",
                    by,
                    group,
                    repair,
                    f"{curve.barrier:.3f}",
                    f"{least:.3f}",
                ]
                print(f"| {' | '.join(cells)} |", flush=True)
            middle = Mixer(moved[:2], "reset", train).mixed([0.5, 0.5])
            cosines = [
                layer.cosine for layer in check_llfc(moved[0], moved[1], test, middle=middle, limit=200)
            ]
            print(f"  LLFC cosines {by} {group}:", " ".join(f"{c:.2f}" for c in cosines), flush=True)
        report = alignment_report(models[0], models[1], symmetry)
        print(f"  explained: {report.to_dict()}", flush=True)


def speed() -> list[dict[str, Any]]:
    """CPU seconds of weight matching between two unrelated ResNet20, and of recovering a planted element."""
    torch.manual_seed(0)
    a, b = zoo.build("resnet20"), zoo.build("resnet20")
    symmetry = trace(a, torch.zeros(1, 3, 32, 32))
    generic(a, symmetry)
    jobs = {
        "weight matching (permutations), unrelated models, no restarts": (b, "permutation", 0),
        "weight matching (permutations), unrelated models, 3 restarts": (b, "permutation", 3),
        "whole group, unrelated models, 3 restarts": (b, "full", 3),
        "whole group, planted": (act(a, symmetry.sample(0)), "full", 3),
    }
    rows = []
    for what, (other, group, restarts) in jobs.items():
        seconds = []
        for _ in range(TIMES):
            start = time.process_time()
            found = align(a, other, symmetry, group=group, restarts=restarts)  # type: ignore[arg-type]
            seconds.append(time.process_time() - start)
        rows.append({"what": what, "CPU seconds": seconds, "distance after": found.distance_after})
        print(rows[-1], flush=True)
    return rows


def growth(widths: list[int]) -> list[dict[str, Any]]:
    """CPU seconds against width, for two unrelated perceptrons with two hidden layers."""
    rows = []
    for width in widths:
        torch.manual_seed(0)
        nets = [
            nn.Sequential(
                nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
            )
            for _ in range(2)
        ]
        symmetry = trace(nets[0], torch.zeros(1, 64))
        seconds = []
        for other, group in ((nets[1], "permutation"), (act(nets[0], symmetry.sample(0)), "full")):
            start = time.process_time()
            align(nets[0], other, symmetry, group=group, restarts=0)  # type: ignore[arg-type]
            seconds.append(time.process_time() - start)
        rows.append({"width": width, "permutations": seconds[0], "whole group, planted": seconds[1]})
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("section", choices=("planted", "barrier", "speed", "growth"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=60.0, help="planted: at most this long for a model")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--pairs", default="resnet20:0:1,tiny10:0:1,tiny10:2:3")
    parser.add_argument("--by", default="weights,activations,both")
    parser.add_argument("--limit", type=int, default=1000)
    parser.add_argument("--points", type=int, default=11)
    parser.add_argument("--widths", default="64,128,256,512,1024,2048")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="speed, growth: put the rows into this file")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.section == "planted":
        planted(args.models.split(","), args.seeds, args.minutes)
    elif args.section == "barrier":
        barrier(args.data, args.pairs.split(","), args.by.split(","), args.limit, args.points)
    else:
        rows = speed() if args.section == "speed" else growth([int(w) for w in args.widths.split(",")])
        if args.out:
            known = json.loads(args.out.read_text(encoding="utf-8")) if args.out.exists() else {}
            text = json.dumps({**known, args.section: rows}, indent=1)
            args.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
