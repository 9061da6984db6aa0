"""Table 4.1 of source 003: two networks with one representation and opposite functions.

The source takes Cats vs. Dogs and a ResNet18 of ImageNet32. cifar: the cats and dogs of CIFAR-10 and a
ResNet20. quick: two digits and the net that ships with the package.
"""

from __future__ import annotations

from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from intertwine.recipes import Outcome, Progress, Reproduction, Setting
from intertwine.recipes.cifar import load_checkpoint, load_images
from intertwine.recipes.claims import holds, number
from intertwine.recipes.pages import write_outcome

if TYPE_CHECKING:
    from torch import Tensor

    from intertwine.data import Dataset

DIGITS, CATS_AND_DOGS = (3, 8), (3, 5)
LIMIT = 4000  # images of CIFAR-10 of which the cats and dogs are taken, for training and for the test
REDUNDANT = "With many redundant features a tenth of them tells the classes apart almost as well as all do."
# Table 4.1: the first row (nothing masked) and the last (0.9)
SOURCE = {"jsd": (0.59, 0.29), "rank": (-0.95, -0.70)}


def _parts(setting: Setting) -> tuple[list[tuple[Tensor, Tensor]], str]:
    """Features and labels of both splits, and what they are of."""
    from intertwine import collect, zoo
    from intertwine.data import load_data

    def two(data: Dataset, pair: tuple[int, int], at: str) -> tuple[Tensor, Tensor]:
        chosen = (data.labels == pair[0]) | (data.labels == pair[1])
        features = collect(model, data.images[chosen], at=at)[at].flatten(1)
        return features, (data.labels[chosen] == pair[1]).long()

    if setting.preset == "cifar":
        model = load_checkpoint(setting, "resnet20-cifar10-seed0")
        parts = [load_images(setting, "cifar10-legacy", LIMIT, split=s) for s in ("train", "test")]
        return [two(part, CATS_AND_DOGS, "mean") for part in parts], "cats and dogs of CIFAR-10, ResNet20"
    model = zoo.load_weights(zoo.build("digits-vgg"), zoo.checkpoint("digits-vgg", 0))
    parts = [load_data("digits", split=split) for split in ("train", "test")]
    return [two(part, DIGITS, "features.17") for part in parts], "two digits, a small VGG"


def existence_proof_page(folder: Path, setting: Setting, progress: Progress) -> Outcome:
    """Two linear heads on one frozen base, the second trained on flipped labels, at five masks."""
    from intertwine.comparing.experiments import existence_proof

    (train, test), what = _parts(setting)
    progress(1, 2, "training the heads")
    rows = existence_proof(train, test, steps=100 if setting.quick else 300)
    first, last = rows[0], rows[-1]
    falls = all(a.jsd >= b.jsd for a, b in pairwise(rows))
    claims = [
        holds("CKA and CCA before the mask", "0.99 in every row", f"{first.cka:.3f} and {first.cca:.3f}",
              "both at least 0.99 (true by construction: the base is one)", min(first.cka,
              first.cca) >= 0.99),
        number("JSD, nothing masked", SOURCE["jsd"][0], first.jsd, within=0.05, factor=1.5),
        number("JSD, 0.9 masked", SOURCE["jsd"][1], last.jsd, within=0.05, factor=1.5, why=REDUNDANT),
        number("rank coefficient, nothing masked", SOURCE["rank"][0], first.rank_coefficient, within=0.05),
        number("rank coefficient, 0.9 masked", SOURCE["rank"][1], last.rank_coefficient, within=0.05),
        holds("JSD over the share masked", "the output similarity can be controlled by adjusting d_ratio",
              ", ".join(f"{r.jsd:.2f}" for r in rows), "falls, and ends below 0.8 of where it starts",
              falls and last.jsd < 0.8 * first.jsd,
              why=REDUNDANT),
    ]  # fmt: skip
    return write_outcome(
        folder, "functional-table4.1", "same features, opposite functions", {}, setting=setting,
        claims=claims,
        tables={f"masked: share of features that a head does not see ({what})": [asdict(r) for r in rows]},
        facts={"cka": first.cka, "cca": first.cca, "jsd": first.jsd, "spearman": first.rank_coefficient,
               "inputs": len(test[1])},
        differs=f"{what}; the source has Cats vs. Dogs at 224x224 and a ResNet18 of ImageNet32. Heads are "
                f"trained by "
        "L-BFGS. The source calls d_ratio the unmasked share, its table behaves as the masked one.",
    )  # fmt: skip


RECIPES = (
    Reproduction(
        "functional-table4.1",
        "two networks with one representation and opposite functions",
        "source 003, table 4.1",
        existence_proof_page,
        presets=("quick", "cifar"),
    ),
)
