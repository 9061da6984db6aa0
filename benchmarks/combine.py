"""Combining measured: trained networks into one, beside Git Re-Basin's and REPAIR's procedures.

    python benchmarks/combine.py resnet20 --data ../shared/data
    python benchmarks/combine.py tiny10 three gpt vit modadd trunk --data ../shared/data
    python benchmarks/combine.py tiny10 --pairs 10 --ways combine --limit 1000 -o tried.json

works: resnet20   seed0 and seed1                    gpt     two character GPTs
       tiny10     pairs of ten, all 45 by default    vit     two vision transformers of unlike worth
       three      three ResNet20s                    modadd  two transformers that add mod 59
       trunk      CIFAR-10 and CIFAR-100: one trunk with 60 % of the parameters of two ResNet20s, two heads
       wider      tiny10 seed0, and seed1 with half of its channels split in two: 1.5 times the width
ways: plain        average, batch-norm statistics reset
      git-re-basin permutations by weights (Ainsworth et al. 2022, Algorithm 1), average, reset
      repair       permutations by activations, average, every layer rescaled (Jordan et al. 2022), reset
      combine      aligned by activations, every layer solved for by least squares
      loss         alignment learned on the outputs (of combine by loss: before the layers are solved for)
      apart        as combine, every layer of a residual branch on its own (--together 0)
      flipped      as apart, with the mirror images of the images as inputs too
      two sweeps   as apart, all layers solved for a second time
      follow       as two sweeps, unlike channels follow one network each; follow flipped: with mirror images
      zip          of trunk: side by side, merged, solved for; zip to layer2: with third stages of their own
      learned      then learned on the networks' mean outputs (images: --augment --hidden)
      learned apart  the same after apart
2,000 unlabelled training inputs serve for all of that; all test inputs, or --limit of them, for the one
number that is printed. Every number goes into the JSON file when it is known, and a second run goes on
from there; `python scripts/make_combine_table.py` writes the table of docs/combine.md from it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from intertwine import act, combine, trace, zoo
from intertwine.aligning import align
from intertwine.combining._worth import OneHead
from intertwine.data import evaluate, load_data
from intertwine.data.batches import Batches
from intertwine.data.normalize import parse_normalize
from intertwine.merging import widen

MEASURED = Path(__file__).resolve().parents[1] / "docs" / "measured" / "combine.json"
HELD = 25_600  # characters
EPOCHS = 60  # of images that are mirrored and shifted anew in each
HIDDEN = 10.0  # how much hidden values count beside the outputs
RATE = 1.5e-2
TRUNK: dict[str, Any] = {"epochs": 40, "learning_rate": 4e-3, "hidden": 5.0}  # 1.5e-2 loses what was there
PASSES = 12  # of transformers: with all that comes before, less than two CPU minutes of the GPTs
TEN = 10  # classes of the first head of a trunk
PRESET, HUNDRED = "cifar10-legacy", "0.5070,0.4865,0.4409/0.2673,0.2564,0.2761"
Make = Callable[[Sequence[nn.Module], Any], nn.Module]


def made(**options: Any) -> Make:
    """`combine` with these options; what is solved for is calibrated, since all of these are class scores."""
    sure = options.get("how", "layerwise") in ("layerwise", "zip")
    return lambda models, train: (
        combine(models, train_data=train, calibrate=sure, progress=_progress, **options).model
    )


def _progress(done: int, total: int, what: str) -> None:
    """A line for everything that is done: learning takes half an hour."""
    print(f"{time.process_time():8.0f} s  {what}: {done} of {total}", file=sys.stderr, flush=True)


def rebasin(models: Sequence[nn.Module], train: Any) -> nn.Module:
    """Git Re-Basin: permutations by weights, statistics reset."""
    symmetry = trace(models[0], train[:2], prove=False)
    others = (act(m, align(models[0], m, symmetry, group="permutation").element) for m in models[1:])
    return made(how="average", align="none")([models[0], *others], train)


IMAGES: dict[str, Make] = {
    "plain": made(how="average", align="none"),
    "git-re-basin": rebasin,
    "repair": made(how="average", repair="rescale"),
    "combine": made(),
    "apart": made(together=0),
    "flipped": made(together=0, flip=True),
    "two sweeps": made(together=0, sweeps=2),
    "follow": made(together=0, sweeps=2, follow=0.3),
    "follow flipped": made(together=0, sweeps=2, follow=0.4, flip=True),
    "learned": made(epochs=EPOCHS, learning_rate=RATE, augment=True, hidden=HIDDEN),
    "learned apart": made(together=0, epochs=EPOCHS, learning_rate=RATE, augment=True, hidden=HIDDEN),
}
TEXT: dict[str, Make] = {
    "plain": made(how="average", align="none"),
    "git-re-basin": rebasin,
    "activations": made(how="average", fold=False),
    "folded": made(how="average"),
    "combine": made(),
    "apart": made(together=0),
    "loss": made(align="loss", how="average"),
    "combine by loss": made(align="loss"),
    "learned": made(epochs=PASSES, learning_rate=4e-2),
    "learned apart": made(together=0, epochs=PASSES, learning_rate=4e-2),
}
UNFOLDED: dict[str, Make] = {
    "plain": made(how="average", align="none"),
    "git-re-basin": rebasin,
    "repair": made(how="average", repair="rescale"),
    "activations": made(how="average"),
    "combine": made(),
    "apart": made(together=0),
    "loss": made(how="average", align="loss"),
    "combine by loss": made(align="loss"),
    "learned": made(epochs=PASSES, learning_rate=2e-2),
    "learned apart": made(together=0, epochs=PASSES, learning_rate=2e-2),
}


@dataclass(frozen=True)
class Work:
    """Networks, unlabelled inputs, what the result is measured on, and the ways to make it."""

    name: str
    networks: dict[str, Callable[[], nn.Module]]
    train: Any
    test: Any
    ways: dict[str, Make] = field(default_factory=lambda: IMAGES)


class Store:
    """The JSON file: networks by name, and of every work its networks and ways. What it has is not measured
    again."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, Any]:
        """All of it."""
        return json.loads(self.path.read_text()) if self.path.exists() else {"networks": {}, "works": {}}

    def write(self, whole: dict[str, Any], what: str, found: dict[str, Any]) -> None:
        """One number more."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(whole, indent=1, sort_keys=True) + "\n")
        numbers = ", ".join(f"{name} {value:.4g}" for name, value in found.items())
        print(f"{what:50} {numbers}", flush=True)


def measure(work: Work, chosen: Sequence[str] | None, store: Store) -> None:
    """Every way that is not measured yet, and the networks themselves."""
    models = [make() for make in work.networks.values()]
    for k, (name, model) in enumerate(zip(work.networks, models, strict=True)):
        whole = store.read()
        if name not in whole["networks"]:
            own = work.test[k] if isinstance(work.test, list) else work.test
            whole["networks"][name] = _score(model, own)
            store.write(whole, name, whole["networks"][name])
    for way, make in work.ways.items():
        done = store.read()["works"].get(work.name, {}).get("ways", {})
        if (chosen and way not in chosen) or way in done:
            continue
        wall, cpu = time.perf_counter(), time.process_time()
        model = make(models, work.train)
        seconds = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}
        found = {**_score(model, work.test), **seconds}
        whole = store.read()  # another run may have written meanwhile
        row = whole["works"].setdefault(work.name, {"ways": {}})
        row |= {"networks": list(work.networks), "train_inputs": len(work.train)}
        row["test_inputs"] = len(work.test[1]) if isinstance(work.test, tuple) else len(_first(work.test))
        row["ways"][way] = found
        store.write(whole, f"{work.name}: {way}", found)


def _score(model: nn.Module, test: Any) -> dict[str, float]:
    """Of all outputs, or of the first ten and of the others, each on its own data, and their mean."""
    if not isinstance(test, list):
        found = evaluate(model, test)
        return {"accuracy": found.accuracy, "loss": found.loss}
    cuts = (0, TEN), (TEN, None)
    parts = [_score(OneHead(model, *cut), each) for cut, each in zip(cuts, test, strict=True)]
    mean = {name: sum(p[name] for p in parts) / len(parts) for name in parts[0]}
    each = {f"accuracy_{k + 1}": p["accuracy"] for k, p in enumerate(parts)}
    return {**mean, **each, "parameters": sum(p.numel() for p in model.parameters())}


def _first(test: Any) -> Any:
    return test[0] if isinstance(test, list) else test


def saved(folder: Path, name: str, *files: str) -> dict[str, Callable[[], nn.Module]]:
    """Trained networks of the zoo, by their files."""

    def load(file: str) -> nn.Module:
        classes = {"classes": 100} if "cifar100" in file else {}
        path = folder / "checkpoints" / f"{file}.safetensors"
        return zoo.load_weights(zoo.build(name, **classes), path).eval()

    return {file: partial(load, file) for file in files}


def images(
    args: argparse.Namespace, normalize: str = "cifar10-legacy", name: str = "cifar10"
) -> tuple[Tensor, Any]:
    """Unlabelled training images, and test images with labels."""
    folder, train = args.data / name, "train" if name == "cifar10" else "train-10k"
    both = ((train, args.train_limit), ("test", args.limit))
    found = [
        load_data(f"parquet:{folder / f'{file}.parquet'}", normalize=normalize, limit=n) for file, n in both
    ]
    return found[0].images, found[1]


def pairs(
    args: argparse.Namespace, name: str, each: Sequence[Sequence[str]], normalize: str
) -> Iterator[Work]:
    """Sets of networks of one shape."""
    train, test = images(args, normalize)
    for seeds in each:
        networks = saved(args.data, name, *(f"{name}-cifar10-{seed}" for seed in seeds))
        yield Work(" ".join([name, *seeds]), networks, train, test)


def resnet20(args: argparse.Namespace) -> Iterator[Work]:
    """The pair."""
    return pairs(args, "resnet20", [("seed0", "seed1")], "cifar10-legacy")


def three(args: argparse.Namespace) -> Iterator[Work]:
    """Three independent ResNet20s."""
    return pairs(args, "resnet20", [("seed0", "seed1", "c")], "cifar10-legacy")


def tiny10(args: argparse.Namespace) -> Iterator[Work]:
    """Pairs of ten."""
    every = list(combinations([f"seed{k}" for k in range(10)], 2))
    spread = [every[k * len(every) // args.pairs] for k in range(args.pairs)]
    return pairs(args, "tiny10", spread, "cifar10-legacy")


def vit(args: argparse.Namespace) -> Iterator[Work]:
    """One was trained briefly."""
    for work in pairs(args, "vit48", [("a", "b")], "0.5,0.5,0.5/0.5,0.5,0.5"):
        yield replace(work, ways=UNFOLDED)


def gpt(args: argparse.Namespace) -> Iterator[Work]:
    """Windows of 64 characters: the first of the training text, and the first of the held-out text."""
    text = f"text:{args.data / 'text' / 'tinyshakespeare.txt'}"
    files = [f"nanogpt64-shakespeare-seed{k}" for k in (0, 1)]
    test = load_data(f"{text}[90%:]", context=64, limit=HELD // 64)
    train = Batches(load_data(f"{text}[:90%]", context=64, limit=args.train_limit)).whole()[0]
    yield Work("nanogpt64 seed0 seed1", saved(args.data, "nanogpt64", *files), train, test, TEXT)


def modadd(args: argparse.Namespace) -> Iterator[Work]:
    """All 3,481 sums serve for both: there are no others."""
    every = torch.cartesian_prod(torch.arange(59), torch.arange(59))
    files = [f"modadd59-{which}" for which in "ab"]
    test = every, every.sum(1) % 59
    yield Work("modadd59 a b", saved(args.data, "modadd59", *files), every, test, UNFOLDED)


def wider(args: argparse.Namespace) -> Iterator[Work]:
    """tiny10's first pair; half of the channels of the second are split in two, and it computes the same."""
    (work,) = pairs(args, "tiny10", [("seed0", "seed1")], "cifar10-legacy")
    (a, first), (b, second) = work.networks.items()

    def split() -> nn.Module:
        model = second()
        symmetry = trace(model, work.train[:2], prove=False)
        copies = {a.name: [k % a.size for k in range(a.size * 3 // 2)] for a in symmetry.axes if a.mergeable}
        return widen(model, symmetry, copies)

    ways = {way: IMAGES[way] for way in ("repair", "combine")}
    yield replace(work, name="wider", networks={a: first, f"{b} wider": split}, ways=ways)


def trunk(args: argparse.Namespace) -> Iterator[Work]:
    """Half of the training images from each data set; the second network gets the first one's inputs."""
    train, test = zip(*(images(args, name=name) for name in ("cifar10", "cifar100")), strict=True)
    half = args.train_limit // 2
    files = [f"resnet20-{name}-c" for name in ("cifar10", "cifar100")]
    ten, hundred = (load for load in saved(args.data, "resnet20", *files).values())
    networks = {files[0]: ten, f"{files[1]} as {PRESET}": lambda: renormalised(hundred())}
    ways: dict[str, Make] = {
        "zip": made(how="zip", target_params=0.6),
        "zip to layer2": made(how="zip", target_params=0.6, trunk="layer2.*"),
        "learned": made(how="zip", target_params=0.6, trunk="layer2.*", augment=True, **TRUNK),
    }
    yield Work("trunk", networks, torch.cat([x[:half] for x in train]), list(test), ways)


def renormalised(model: nn.Module) -> nn.Module:
    """A network of CIFAR-100's normalisation for inputs of CIFAR-10's; only the border of padding differs."""
    (mean, std), (own, deviation) = (parse_normalize(text) for text in (PRESET, HUNDRED))  # type: ignore[misc]
    ratio = torch.tensor(std) / torch.tensor(deviation)
    shift = (torch.tensor(mean) - torch.tensor(own)) / torch.tensor(deviation)
    layers: Any = model
    with torch.no_grad():
        weight = layers.conv1.weight
        layers.bn1.running_mean -= (weight * shift.view(1, 3, 1, 1)).sum((1, 2, 3))
        weight *= ratio.view(1, 3, 1, 1)
    return model


WORKS = {work.__name__: work for work in (resnet20, tiny10, three, gpt, vit, modadd, trunk, wider)}


def main() -> None:
    """Parse and measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("works", nargs="+", choices=tuple(WORKS))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--ways", help="separated by commas; all without")
    parser.add_argument("--pairs", type=int, default=45, help="of tiny10, evenly out of 45")
    parser.add_argument("--train-limit", type=int, default=2000)
    parser.add_argument("--limit", type=int)
    parser.add_argument("-o", "--out", type=Path, default=MEASURED)
    args = parser.parse_args()
    if args.limit and args.out == MEASURED:
        parser.error("numbers on some of the inputs do not belong into the measured ones: give --out")
    for name in args.works:
        for work in WORKS[name](args):
            measure(work, args.ways.split(",") if args.ways else None, Store(args.out))


if __name__ == "__main__":
    main()
