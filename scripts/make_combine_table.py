"""Write what combining is worth into docs/combine.md, from docs/measured/combine.json.

python scripts/make_combine_table.py           # rewrite the table
python scripts/make_combine_table.py --check   # exit 1 if it is out of date

The numbers are those of benchmarks/combine.py; of works with several pairs the mean over pairs and its 95 %
interval are shown.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from typing import Any

from marked import DOCS, mark, parser, put, rewrite

PAGE, MEASURED = DOCS / "combine.md", DOCS / "measured" / "combine.json"
START = mark("make_combine_table")
# Works in the order of the table: what their names begin with, how they are called, what is asked for.
WORKS = (
    ("resnet20 seed0 seed1", "ResNet20 pair", "86 %, learned 88 %, barrier 0.25"),
    ("tiny10", "tiny10 pairs", "80 %"),
    (
        "wider",
        "tiny10 seed0, and seed1 split to 1.5 times the width",
        "within 2 points of tiny10 pairs",
    ),
    ("resnet20 seed0 seed1 c", "three ResNet20s", "82 %"),
    ("nanogpt64", "character GPT pair", "loss 2.0; learned 1.85"),
    ("trunk", "CIFAR-10 and CIFAR-100 on one trunk, 60 % of the parameters", "each within 10 points"),
    ("vit48", "ViT pair", "recorded"),
    ("modadd59", "modular addition pair", "recorded"),
)
WAYS = (
    ("plain", "averaged as they are"),
    ("git-re-basin", "Git Re-Basin"),
    ("repair", "REPAIR"),
    ("activations", "aligned by activations, averaged"),
    ("folded", "folded, aligned by activations, averaged"),
    ("loss", "aligned by loss, averaged"),
    ("combine", "**combine**"),
    ("zip", "**combine** `--how zip`"),
    ("zip to layer2", "**combine** `--how zip --trunk 'layer2.*'`"),
    ("combine by loss", "combine `--align loss`"),
    ("apart", "combine `--together 0`"),
    ("flipped", "combine `--together 0 --flip`"),
    ("two sweeps", "combine `--together 0 --sweeps 2`"),
    ("follow", "combine `--together 0 --sweeps 2 --follow 0.3`"),
    ("follow flipped", "combine `--together 0 --sweeps 2 --follow 0.4 --flip`"),
    ("learned", "combine `--epochs`, images with `--augment --hidden`"),
    ("learned apart", "combine `--together 0 --epochs`, images with `--augment --hidden`"),
)
SIGMAS = 1.96


def mean(values: list[float], digits: int, unit: str = "") -> str:
    """The mean, with its interval where there are several."""
    middle = f"{statistics.fmean(values):.{digits}f}"
    if len(values) < 2:
        return f"{middle}{unit}"
    half = SIGMAS * statistics.stdev(values) / math.sqrt(len(values))
    return f"{middle} ± {half:.{digits}f}{unit}"


def chosen(measured: dict[str, Any], start: str) -> list[dict[str, Any]]:
    """The works of a row: the one of that name, or all whose names begin with it."""
    works = measured["works"]
    if start in works:
        return [works[start]]
    return [work for name, work in sorted(works.items()) if name.startswith(f"{start} ")]


def rows(measured: dict[str, Any]) -> list[list[str]]:
    """A row for every work and way that was measured."""
    found = []
    for start, name, asked in WORKS:
        works = chosen(measured, start)
        networks = [measured["networks"][n] for work in works for n in work["networks"]]
        if not works:
            continue
        unlike = list({n: None for work in works for n in work["networks"]})
        ends = [measured["networks"][n] for n in unlike]
        heads = any("accuracy_1" in way for work in works for way in work["ways"].values())
        groups = [[end] for end in ends] if heads else [ends]  # of several tasks there is no mean
        size = f"{works[0]['test_inputs']:,} inputs, {asked} asked"
        found.append(
            [
                f"**{name}** ({size})",
                "the networks themselves",
                str(len(networks)),
                " and ".join(map(_accuracy, groups)),
                " and ".join(map(_loss, groups)),
                "",
                "",
            ]
        )
        for way, label in WAYS:
            those = [work for work in works if way in work["ways"]]
            if those:
                numbers = [work["ways"][way] for work in those]
                barriers = [_barrier(work, way, measured) for work in those]
                cpu = mean([n["cpu_seconds"] for n in numbers][:1], 0)
                row = ["", label, str(len(those)), _accuracy(numbers), _loss(numbers), mean(barriers, 2), cpu]
                found.append(row)
    return found


def _accuracy(numbers: list[dict[str, float]]) -> str:
    if "accuracy_1" in numbers[0]:  # of each head
        return " and ".join(mean([100 * n[f"accuracy_{k}"] for n in numbers], 2, " %") for k in (1, 2))
    return mean([100 * n["accuracy"] for n in numbers], 2, " %")


def _loss(numbers: list[dict[str, float]]) -> str:
    return mean([n["loss"] for n in numbers], 3)


def _barrier(work: dict[str, Any], way: str, measured: dict[str, Any]) -> float:
    """Loss at the middle above the mean loss of the networks."""
    ends = statistics.fmean(measured["networks"][n]["loss"] for n in work["networks"])
    return float(work["ways"][way]["loss"] - ends)


def table(measured: dict[str, Any]) -> str:
    """Markdown."""
    columns = ["work", "way", "n", "accuracy", "loss", "above the networks' loss", "CPU s"]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows(measured)), ""])


def render(page: str) -> str:
    """The page with a fresh table."""
    return put(page, START, table(json.loads(MEASURED.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    sys.exit(rewrite(PAGE, render, parser(__doc__).parse_args().check))
