"""The nets that the recipes of source 002 work on, and what its claims read from pairs of them.

paper: Myrtle CNN, ResNet20 (the one with 269,722 parameters, which pads its shortcuts) and ResNet18 on
CIFAR-10, Adam for 50 epochs as in its appendix D. cifar: eight-layer CNNs and ResNet20s that others trained.
quick: narrow nets on scikit-learn's digits, trained in seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from intertwine.recipes import Progress, Setting
from intertwine.recipes.cifar import CHECKPOINTS, RESNET20, TINY10, load_checkpoint, load_images
from intertwine.recipes.nets import Net, load_net_data, train_net

if TYPE_CHECKING:
    from torch import nn

    from intertwine.comparing.statistics import Interval
    from intertwine.data import Dataset

_DIGITS = Net("digits-vgg", "digits", "digits", {"width": 8}, 10)
SMALL = {
    "myrtle": _DIGITS,
    "myrtle-plain": _DIGITS,
    "myrtle-constant": Net("digits-vgg", "digits", "digits", {"width": 16, "constant": True}, 10),
    "resnet20-pad": Net("resnet20", "digits", "digits", {"width": 8}, 10),
    "resnet18": Net("resnet18", "digits", "digits", {"width": 8}, 10),
}
TRAINED = {"myrtle": TINY10, "resnet20-pad": RESNET20}
# How many images are stitched or measured on, by preset: (training, test).
IMAGES: dict[str, tuple[int, int | None]] = {
    "quick": (1000, None),
    "cifar": (500, 500),
    "paper": (50_000, None),
}
NETS = {"quick": 3, "cifar": 10}


@dataclass(frozen=True)
class Seeds:
    """Trained nets of one architecture and the data they are compared on."""

    nets: list[nn.Module]
    train: Dataset
    test: Dataset
    kind: str
    pattern: str = ""  # of the layers that are looked at, where not all are

    @property
    def what(self) -> str:
        """How many of what."""
        return f"{len(self.nets)} {self.kind}"

    @cached_property
    def layers(self) -> list[str]:
        """The values after activations, which the source cuts at."""
        from intertwine import trace

        values = trace(self.nets[0], self.test.images[:2]).values.by_input
        found = [v.name for v in values if v.is_layer and v.family == "pointwise"]
        return [name for name in found if re.search(self.pattern, name)]

    @cached_property
    def inside(self) -> dict[str, bool]:
        """Layer -> whether it lies inside a residual block."""
        from intertwine.symmetry.surgery import Surgeon

        surgeon = Surgeon(self.nets[0], (self.test.images[:2],))
        return {layer: surgeon.cut(layer).inside for layer in self.layers}


def paper_net(model: str) -> Net:
    """The source's net."""
    return Net(model, "cifar10", "godfrey")


def load_seeds(model: str, count: int, folder: Path, setting: Setting, progress: Progress) -> Seeds:
    """`count` nets in the paper's setting, as many as there are (up to `NETS`) in the others."""
    train, test = IMAGES[setting.preset]
    if setting.preset == "cifar":
        names = TRAINED[model][: NETS["cifar"]]
        nets = [load_checkpoint(setting, name) for name in names]
        how = CHECKPOINTS[names[0]]
        parts = [
            load_images(setting, how.normalize, n, split=s) for s, n in (("train", train), ("test", test))
        ]
        return Seeds(nets, parts[0], parts[1], f"{how.model} on CIFAR-10, trained by others")
    net = SMALL[model] if setting.quick else paper_net(model)
    splits = load_net_data(net)
    total = min(count, NETS["quick"]) if setting.quick else count
    nets = [train_net(net, splits, folder, seed, progress)[0] for seed in range(total)]
    kind = f"{net.model} on {net.data}"
    if setting.quick:
        width = f"{'constant ' if net.options.get('constant') else ''}width {net.options['width']}"
        kind = f"{net.model} of {width} on digits of 8x8 pixels"
    return Seeds(
        nets, splits.train.take(train), splits.test if test is None else splits.test.take(test), kind
    )


def measured_once(
    folder: Path, name: str, seeds: Seeds, make: Callable[[], list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """What `make` measures on these nets and images, read where another figure measured it before."""
    import hashlib
    import json

    from intertwine.files import write_bytes
    from intertwine.plain import to_json

    digest = hashlib.sha256(seeds.train.fingerprint() + seeds.test.fingerprint())
    digest.update(repr(seeds.layers).encode())
    for net in seeds.nets:
        for weight in net.state_dict().values():
            digest.update(weight.contiguous().numpy().tobytes())
    path = folder / "runs" / f"{name}-{digest.hexdigest()[:16]}.json"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, to_json(make()).encode())
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return found


def star(layers: list[str], inside: Mapping[str, bool]) -> list[str]:
    """Names as the source writes them: * for what lies inside a residual block."""
    return [f"{layer}*" if inside[layer] else layer for layer in layers]


@dataclass(frozen=True)
class Pairs:
    """values[name]: networks x networks x layers, of one kind of stitch or one measure."""

    layers: list[str]
    inside: Mapping[str, bool]
    values: dict[str, np.ndarray]

    @classmethod
    def measured(
        cls, seeds: Seeds, measure: Callable[[nn.Module, nn.Module], Mapping[str, list[float]]]
    ) -> Pairs:
        """`measure` of every pair, kind -> a number a layer; a pair counts the same both ways round."""
        count, layers = len(seeds.nets), seeds.layers
        values: dict[str, np.ndarray] = {}
        for i, j in combinations(range(count), 2):
            for kind, numbers in measure(seeds.nets[i], seeds.nets[j]).items():
                table = values.setdefault(kind, np.full((count, count, len(layers)), np.nan))
                table[i, j] = table[j, i] = numbers
        return cls(layers, seeds.inside, values)

    def at(self, chosen: str) -> np.ndarray:
        """Which layers: all, inside or outside of residual blocks."""
        mask = np.array([self.inside[layer] for layer in self.layers])
        return {"all": np.ones_like(mask), "inside": mask, "outside": ~mask}[chosen]

    def mean(self, kind: str, chosen: str = "all") -> np.ndarray:
        """Networks x networks: the mean over layers."""
        result: np.ndarray = self.values[kind][:, :, self.at(chosen)].mean(2)
        return result

    def interval(self, numbers: np.ndarray) -> Interval:
        """A number of every pair (networks x networks) as an interval over networks; none below three."""
        from intertwine.comparing.statistics import Interval, seed_interval

        known = numbers[~np.eye(len(numbers), dtype=bool)]
        if len(numbers) < 3 or np.isnan(known).any():
            return Interval(float(known.mean()), float("nan"), float("nan"))
        return seed_interval(numbers)

    def by_layer(self, kind: str) -> list[Interval]:
        """One interval a layer."""
        return [self.interval(self.values[kind][:, :, k]) for k in range(len(self.layers))]

    def rows(self) -> list[dict[str, object]]:
        """One row a layer, every kind with half its interval."""
        found = {kind: self.by_layer(kind) for kind in self.values}
        return [
            {"layer": name}
            | {key: value for kind in found for key, value in (
                (kind, found[kind][k].value), (f"{kind} ±", (found[kind][k].high - found[kind][k].low) / 2))}
            for k, name in enumerate(star(self.layers, self.inside))
        ]  # fmt: skip

    def figure(self, x_title: str, y_title: str, kinds: list[str] | None = None) -> object:
        """A line a kind with its intervals."""
        from intertwine.pages.similarity_figures import curves

        chosen = {kind: self.by_layer(kind) for kind in kinds or self.values}
        bands = {k: ([i.low for i in v], [i.high for i in v]) for k, v in chosen.items()}
        series = {k: [i.value for i in v] for k, v in chosen.items()}
        names = star(self.layers, self.inside)
        return curves(series, names, bands=bands, x_title=x_title, y_title=y_title)
