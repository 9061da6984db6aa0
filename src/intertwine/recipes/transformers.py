"""Figure 12 of source 002 and its question: what does G_ReLU cost where no ReLU acts?

The source stitches ten Compact Convolutional Transformers after every block, where no activation follows.
Here it is asked of transformers that others trained: two small vision transformers of CIFAR-10, two character
GPTs, which guess the character after a window, and two that add modulo 59, whose MLP has a ReLU, so that one
cut is where G_ReLU is the layer's own group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intertwine.recipes import Outcome, Progress, Reproduction, Setting
from intertwine.recipes.cifar import CHECKPOINTS, find, load_checkpoint, load_images
from intertwine.recipes.claims import above
from intertwine.recipes.pages import write_outcome

if TYPE_CHECKING:
    from torch import Tensor, nn

    from intertwine.comparing.statistics import Interval

KINDS = ("full", "grelu", "group")
IMAGES = 300  # to train on, and to test on
EPOCHS = 1
INDEPENDENT = (
    "Every difference is above 0; the intervals take two stitches as measured on different inputs, which "
    "makes them too wide, and of the vision transformers one was trained only briefly."
)
DIFFERS = (
    "Two vision transformers (74.6 % and 47.0 % of CIFAR-10; patches of 4, width 48, four blocks), two "
    "character GPTs (width 64, four blocks) and two "
    "transformers that add modulo 59, one pair of each, both ways round, where the source has five pairs of "
    "Compact Convolutional Transformers of 98 %; intervals are over test inputs, not over nets. Stitches "
    "start from their closed form and are trained for one epoch on the outputs of the upper net; {n} "
    "training inputs."
)


@dataclass(frozen=True)
class Case:
    """Two nets of one architecture, inputs with labels to train and to test on, and where they are cut."""

    name: str
    nets: tuple[nn.Module, nn.Module]
    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    after_blocks: tuple[str, ...]
    after_relu: tuple[str, ...] = ()


def load_cases(setting: Setting) -> list[Case]:
    """The pairs that are here."""
    import torch

    names = ("vit48-cifar10-a", "vit48-cifar10-b")
    how = CHECKPOINTS[names[0]].normalize
    parts = [load_images(setting, how, IMAGES, split=s) for s in ("train", "test")]
    images = [(part.images, part.labels) for part in parts]
    vits = (load_checkpoint(setting, names[0]), load_checkpoint(setting, names[1]))
    blocks = tuple(f"encoder.blocks.{k}.add_1" for k in range(4))
    sums = torch.cartesian_prod(torch.arange(59), torch.arange(59))
    sums = sums[torch.randperm(len(sums), generator=torch.Generator().manual_seed(0))]
    half = [(s, s.sum(1) % 59) for s in (sums[:1000], sums[1000:2000])]
    adders = (load_checkpoint(setting, "modadd59-a"), load_checkpoint(setting, "modadd59-b"))
    gpts = [last_position(load_checkpoint(setting, f"nanogpt64-shakespeare-seed{k}")) for k in (0, 1)]
    text = load_windows(setting, 2 * IMAGES)
    written = tuple(f"net.h.{k}.add_1" for k in range(4))
    return [
        Case("ViT", vits, images[0], images[1], blocks),
        Case("GPT", (gpts[0], gpts[1]), text[0], text[1], written),
        Case("addition", adders, half[0], half[1], ("blocks.0.add_1",), ("blocks.0.mlp.relu",)),
    ]


def last_position(model: nn.Module) -> nn.Module:
    """The scores after the last token only: one guess a window."""
    from torch import nn

    class LastPosition(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = model

        def forward(self, ids: Tensor) -> Tensor:
            scores: Tensor = self.net(ids)
            return scores[:, -1]

    return LastPosition().eval()


def load_windows(setting: Setting, count: int, length: int = 64) -> list[tuple[Tensor, Tensor]]:
    """Windows and the character after each: of what the GPTs were trained on, and of the rest."""
    import torch

    text = find(setting, "text/tinyshakespeare.txt").read_text(encoding="utf-8")
    place = {character: k for k, character in enumerate(sorted(set(text)))}
    ids = torch.tensor([place[character] for character in text])
    edge = len(ids) * 9 // 10
    found = []
    for part in (ids[:edge], ids[edge:]):
        windows = part.unfold(0, length + 1, max(1, (len(part) - length - 1) // count))[:count]
        found.append((windows[:, :-1].contiguous(), windows[:, -1].contiguous()))
    return found


def transformers(name: str, folder: Path, setting: Setting, progress: Progress) -> Outcome:
    """Penalties of full, G_ReLU and own-group stitches, after blocks and after a ReLU."""
    from intertwine.pages.similarity_figures import curves
    from intertwine.stitching import stitch

    cases = load_cases(setting)
    rows: list[dict[str, Any]] = []
    for case in cases:
        cuts = [*case.after_blocks, *case.after_relu]
        for way, (lower, upper) in (("a below b", case.nets), ("b below a", case.nets[::-1])):
            progress(len({(row["net"], row["way"]) for row in rows}), 2 * len(cases),
                     f"stitching {case.name}, {way}")  # fmt: skip
            report = stitch(lower, upper, case.train, case.test, at=cuts, kinds=KINDS, epochs=EPOCHS)
            whole = (report.accuracy_a + report.accuracy_b) / 2
            for cut in cuts:
                costs = {k: report[cut, k].trained for k in KINDS}
                rows.append({
                    "net": case.name, "way": way, "cut after": cut, "its group": report[cut, "group"].group,
                    "ReLU": cut in case.after_relu, "accuracy": whole, "inputs": len(case.test[1]), **costs,
                })  # fmt: skip
    after = [row for row in rows if not row["ReLU"]]
    claims = [
        above("G_ReLU minus linear after every block", "The large stitching penalties for G_ReLU are "
              "expected due to the lack of activation functions after the linear (feedforward) layers for "
              "each encoder layer",
              [_difference(row, "grelu", "full") for row in after],
              names=[f"{row['net']} {row['cut after']}, {row['way']}:" for row in after], unit=" points",
              why=INDEPENDENT),
        above("G_ReLU after a block minus after the ReLU inside it, addition", "(ours: the source's reason, "
              "tested where a net has both kinds of cuts)", _block_minus_relu(rows),
              names=("a below b", "b below a"), unit=" points",
              why="Two nets that add by different frequencies may have no ReLU units in common to permute."),
    ]  # fmt: skip
    figures = {
        f"{case.name}, {way}: penalty after training; 95 % intervals, {len(case.test[1]):,} inputs": curves(
            {k: [row[k] for row in chosen] for k in KINDS},
            [f"{row['cut after']}{' (ReLU)' if row['ReLU'] else ''}" for row in chosen],
            bands={k: _bands(chosen, k) for k in KINDS}, x_title="cut after",
            y_title="penalty, points of accuracy",
        )
        for case in cases
        for way in ("a below b", "b below a")
        if (chosen := [row for row in rows if (row["net"], row["way"]) == (case.name, way)])
    }  # fmt: skip
    return write_outcome(
        folder, name, "stitching of transformers", figures, setting=setting, claims=claims,
        tables={"Penalties; full, G_ReLU, and the layer's own group": rows}, facts={"rows": rows},
        differs=DIFFERS.format(n=" and ".join(str(len(case.train[1])) for case in cases)),
    )  # fmt: skip


def _difference(row: dict[str, Any], high: str, low: str) -> Interval:
    """Points between two stitches on the same inputs; the interval is that of independent ones: too wide."""
    return _between((row, high), (row, low))


def _between(high: tuple[dict[str, Any], str], low: tuple[dict[str, Any], str]) -> Interval:
    from intertwine.comparing.statistics import Interval

    shares = [row["accuracy"] - row[kind] / 100 for row, kind in (high, low)]
    half = 196 * (sum(max(s * (1 - s), 0.0) for s in shares) / high[0]["inputs"]) ** 0.5
    value = high[0][high[1]] - low[0][low[1]]
    return Interval(value, value - half, value + half)


def _block_minus_relu(rows: Sequence[dict[str, Any]]) -> list[Interval]:
    found = [row for row in rows if row["net"] == "addition"]
    ways = dict.fromkeys(row["way"] for row in found)
    pairs = [{row["ReLU"]: row for row in found if row["way"] == way} for way in ways]
    return [_between((pair[False], "grelu"), (pair[True], "grelu")) for pair in pairs]


def _bands(rows: Sequence[dict[str, Any]], kind: str) -> tuple[list[float], list[float]]:
    from intertwine.recipes.claims import share_interval

    low, high = [], []
    for row in rows:
        found = share_interval(min(max(row["accuracy"] - row[kind] / 100, 0.0), 1.0), row["inputs"])
        low.append(100 * (row["accuracy"] - found.high))
        high.append(100 * (row["accuracy"] - found.low))
    return low, high


RECIPES = (
    Reproduction(
        "symmetry-fig12", "stitching of transformers", "source 002, figure 12",
        partial(transformers, "symmetry-fig12"), preset="cifar", presets=("cifar",),
    ),
)  # fmt: skip
