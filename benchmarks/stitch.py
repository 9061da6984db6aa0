"""Stitching real pairs, and what the cache saves: tables for docs/stitch.md.

    python benchmarks/stitch.py table --data ../shared/data --pair resnet20 --kinds full,group
    python benchmarks/stitch.py table --data ../shared/data --pair tiny10
    python benchmarks/stitch.py cache --data ../shared/data
    python benchmarks/stitch.py width

table: penalties in points at every cut outside of residual blocks (--at all: inside too): closed form, after
the batch norms are measured again, after training. Training images are shifted and mirrored as the networks
were trained; cache: epochs of training one full stitch on cached values against running both networks in
full, which must give the same map; width: one epoch of the group stitch at growing width. One thread.
"""

from __future__ import annotations

import argparse
import copy
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from intertwine import zoo
from intertwine.data import PRESETS, load_data
from intertwine.stitching import Stitching, StitchReport, Training, parse_kind, stitch
from intertwine.stitching.augment import augment
from intertwine.stitching.cache import TensorStore, record
from intertwine.stitching.fit import Held, fit
from intertwine.stitching.junctions import find_junctions
from intertwine.stitching.start import closed_form
from intertwine.symmetry.surgery import Surgeon

# The checkpoints were trained on these statistics, shifts of 4 pixels over black, and mirroring.
NORMALIZE = "cifar10-legacy"


def load_pair(folder: Path, name: str, seeds: tuple[int, int] = (0, 1)) -> list[nn.Module]:
    files = [folder / "checkpoints" / f"{name}-cifar10-seed{seed}.safetensors" for seed in seeds]
    return [zoo.load_weights(zoo.build(name), file).eval() for file in files]


def load_images(
    folder: Path, train: int, test: int, first: int = 0
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    parts = [
        load_data(f"parquet:{folder}/cifar10/{split}.parquet", normalize=NORMALIZE, limit=limit)
        for split, limit in (("train", train), ("test", first + test))
    ]
    statistics = PRESETS[NORMALIZE]
    assert statistics is not None
    black = [-m / s for m, s in zip(*statistics, strict=True)]
    moved = augment(parts[0].images, 4, flip=True, black=black)
    return (moved, parts[0].labels), (parts[1].images[first:], parts[1].labels[first:])


def table(args: argparse.Namespace) -> None:
    a, b = load_pair(args.data, args.pair)
    train, test = load_images(args.data, args.train, args.test, args.first)
    started = time.process_time()

    def show(s: Stitching) -> None:
        seconds = time.process_time() - started
        print(f"# {s.layer} {s.kind}: {s.start:.1f} {s.reset:.1f} {s.trained:.1f} ({s.how}, {seconds:.0f} s)",
              flush=True)  # fmt: skip

    report = stitch(
        a, b, train, test, at=args.at.split(",") if args.at not in ("all", "outside") else args.at,
        kinds=args.kinds.split(","), batch=50, each=show,
        training=Training(epochs=args.epochs, polish=args.epochs),
    )  # fmt: skip
    seconds = time.process_time() - started
    print(f"\nA {report.accuracy_a:.2%}, B {report.accuracy_b:.2%} on {report.test_inputs:,} test images; "
          f"{report.train_inputs:,} training images; {seconds:.0f} s of one core\n")  # fmt: skip
    print(markdown(report))


def markdown(report: StitchReport) -> str:
    """A row a cut, three columns a kind."""
    heads = [f"{kind} {what}" for kind in report.kinds for what in ("start", "reset", "trained")]
    lines = ["| cut after | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for layer in report.layers:
        found = [report[layer, kind] for kind in report.kinds]
        cells = [f"{value:.1f}" for s in found for value in (s.start, s.reset, s.trained)]
        star = " *" if found[0].inside else ""
        lines.append(f"| `{layer}`{star} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def cache(args: argparse.Namespace) -> None:
    """Train a full stitch at each cut for some epochs, both ways; the maps must agree. CPU seconds."""
    a, b = load_pair(args.data, "resnet20")
    (images, labels), _ = load_images(args.data, args.train, 1)
    sides = [Surgeon(net, (images[:50],)) for net in (a, b)]
    junctions = find_junctions(sides[0], sides[1], args.at.split(","))
    moments = record(*sides, junctions, images, labels, TensorStore()).moments
    print("| cut after | cached, s | both networks in full, s | ratio | difference | two steps in float64 |")
    print("|---|---|---|---|---|---|")
    begin = time.process_time()
    kept = record(*sides, junctions, images, labels, TensorStore(), moments=False)
    totals = [time.process_time() - begin, 0.0]
    print(f"| one recording pass for all | {totals[0]:.1f} | | | | |")
    for k, junction in enumerate(junctions):
        start = closed_form(parse_kind("full"), moments[k], junction.group).float()
        begin = time.process_time()
        held = Held(junction, sides[1].suffix(junction.b), kept.values[k], labels, images.device)
        fast = fit(parse_kind("full"), start, held, Training(epochs=args.epochs, loss="labels"))
        seconds = [time.process_time() - begin]
        begin = time.process_time()
        slow = naive(a, b, images, labels, junction.name, start, args.epochs)
        seconds.append(time.process_time() - begin)
        totals = [t + s for t, s in zip(totals, seconds, strict=True)]
        gap = float((fast - slow).abs().max())
        exact = difference(a, b, images[:100], labels[:100], junction.name, start)
        assert exact < 1e-8, f"the two ways disagree by {exact} in float64"
        cells = [f"`{junction.name}`", *(f"{s:.1f}" for s in seconds), f"{seconds[1] / seconds[0]:.1f}"]
        print("| " + " | ".join(cells) + f" | {gap:.1e} | {exact:.1e} |", flush=True)
    print(f"| together | {totals[0]:.1f} | {totals[1]:.1f} | {totals[1] / totals[0]:.1f} | | |")


def difference(a: nn.Module, b: nn.Module, images: Tensor, labels: Tensor, name: str, start: Tensor) -> float:
    """The largest difference of the maps after two steps in float64, where rounding hides nothing."""
    a, b = (copy.deepcopy(net).double() for net in (a, b))
    images, start = images.double(), start.double()
    sides = [Surgeon(net, (images[:50],)) for net in (a, b)]
    (junction,) = find_junctions(sides[0], sides[1], name)
    kept = record(*sides, [junction], images, labels, TensorStore(), moments=False)
    held = Held(junction, sides[1].suffix(junction.b), kept.values[0], labels, images.device)
    fast = fit(parse_kind("full"), start, held, Training(epochs=1, loss="labels"))
    return float((fast - naive(a, b, images, labels, name, start, 1)).abs().max())


def naive(
    a: nn.Module, b: nn.Module, images: Tensor, labels: Tensor, name: str, start: Tensor, epochs: int
) -> Tensor:
    """What hooks do: all of A runs, then all of B with its value replaced, in every step of every epoch.

    B normalises by the batch, as in the library; its weights keep their gradients switched on, as in code
    that hands the stitch alone to the optimiser.
    """
    weight = nn.Parameter(start.clone())
    optimizer = torch.optim.Adam([weight], lr=5e-3)
    steps = epochs * (len(labels) // 50)
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, steps)
    random = torch.Generator().manual_seed(0)
    taken: list[Tensor] = []
    path = name.rsplit(".", 1)[0]
    hooks = [
        a.get_submodule(path).register_forward_hook(lambda m, i, o: taken.append(o.detach())),
        b.get_submodule(path).register_forward_hook(
            lambda m, i, o: nn.functional.conv2d(taken.pop(), weight[:, :, None, None])
        ),
    ]
    momenta = {m: m.momentum for m in b.modules() if isinstance(m, nn.BatchNorm2d)}
    b.train()
    for module in momenta:
        module.momentum = 0.0  # batch statistics without touching the stored ones
    for _ in range(epochs):
        for chosen in torch.randperm(len(labels), generator=random).split(50):
            with torch.no_grad():
                a(images[chosen])
            optimizer.zero_grad()
            nn.functional.cross_entropy(b(images[chosen]), labels[chosen]).backward()
            optimizer.step()
            decay.step()
            b.zero_grad()
    for module, momentum in momenta.items():
        module.momentum = momentum
    b.eval()
    for hook in hooks:
        hook.remove()
    return weight.detach()


def width(args: argparse.Namespace) -> None:
    """Closed form and one epoch of the group stitch of a two-layer net, 1,000 inputs."""
    print("| width | closed form, s | one epoch, s |")
    print("|---|---|---|")
    for size in (64, 128, 256, 512, 1024):
        torch.manual_seed(0)
        nets = [nn.Sequential(nn.Linear(32, size), nn.ReLU(), nn.Linear(size, 10)) for _ in range(2)]
        x, labels = torch.randn(1000, 32), torch.randint(10, (1000,))
        sides = [Surgeon(net, (x[:50],)) for net in nets]
        (junction,) = find_junctions(sides[0], sides[1], "1")
        kept = record(*sides, [junction], x, labels, TensorStore())
        begin = time.perf_counter()
        start = closed_form(parse_kind("group"), kept.moments[0], junction.group).float()
        first = time.perf_counter() - begin
        held = Held(junction, sides[1].suffix(junction.b), kept.values[0], labels, x.device)
        begin = time.perf_counter()
        fit(parse_kind("group"), start, held, Training(epochs=1, polish=0))
        print(f"| {size} | {first:.3f} | {time.perf_counter() - begin:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["table", "cache", "width"])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--pair", choices=["resnet20", "tiny10"], default="resnet20")
    parser.add_argument("--kinds", default="identity,group,rank:4,full")
    parser.add_argument("--at", default=None)
    parser.add_argument("--train", type=int, default=2000)
    parser.add_argument("--test", type=int, default=2000)
    parser.add_argument(
        "--first", type=int, default=2000, help="the first test image; earlier ones served tuning"
    )
    parser.add_argument("--epochs", type=int, default=None)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.what == "width":
        width(args)
    elif args.what == "cache":
        args.at = args.at or "layer1.2.relu_1,layer2.2.relu_1,layer3.1.relu_1"
        args.epochs = args.epochs or 5
        cache(args)
    else:
        args.at, args.epochs = args.at or "outside", 2 if args.epochs is None else args.epochs
        table(args)


if __name__ == "__main__":
    main()
