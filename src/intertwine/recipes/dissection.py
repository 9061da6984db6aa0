"""Figures 3 and 18 to 25 of source 002: are units interpretable, and in which basis?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from intertwine.recipes import Outcome, Progress, Reproduction, Setting, dissected
from intertwine.recipes.claims import Claim, Verdict, above, holds, mean_interval
from intertwine.recipes.dissected import NETS, dissect_nets
from intertwine.recipes.pages import add_verdict, judge, write_outcome

if TYPE_CHECKING:
    from intertwine.comparing.statistics import Interval
    from intertwine.inside import Dissection, LayerReading

STAYS = 0.05  # a share of units that moves by less than this is said to stay
THREE = (0.0, 0.4, 1.0)  # the powers of figures 20 to 25
QUICK = (
    "Three small nets trained for minutes on generated pictures, not ImageNet; 31 generated concepts, not "
    "the 1,197 of Broden. What can be compared is how the share of interpretable units moves with the "
    "rotation and which net it is; the shares themselves cannot."
)

PAPER = (
    "The published ResNet50 and ConvNeXt of torchvision, not those that the source trained; one net of each, "
    f"so that intervals are over {dissected.DRAWS} draws of the rotation."
)

Measure = Callable[["LayerReading"], float]


def by_power(found: list[Dissection], measure: Measure, layer: int = 0) -> dict[float, list[float]]:
    """alpha -> a number a net, the mean over draws; of a single net, one a draw. Layer 1: inside a block."""
    out: dict[float, list[float]] = {}
    for one in found:
        readings = one.of(list(one.groups)[layer])
        for alpha in sorted({r.alpha for r in readings}):
            values = [float(measure(r)) for r in readings if r.alpha == alpha]
            out.setdefault(alpha, []).extend([float(np.mean(values))] if len(found) > 1 else values)
    return out


def share(reading: LayerReading) -> float:
    """Interpretable units among all."""
    return reading.share


# Net -> (what the source says, what the share does under a full rotation): on
# residual outputs, and inside blocks.
SENTENCES: tuple[dict[str, tuple[str, str]], ...] = (
    {"ResNet": ("interpretability decreases as we rotate away from the axis", "falls"),
     "open ResNet": ("the number of interpretable units remains constant", "stays"),
     "ConvNeXt": ("for the ConvNeXt model it actually increases", "rises")},
    {"ResNet": ("the percentage of interpretable units actually tends to increase", "rises"),
     "open ResNet": ("the percentage of interpretable units actually tends to increase", "rises")},
)  # fmt: skip
WORDS = {"falls": "the interval lies below 0", "rises": "the interval lies above 0",
         "stays": f"the interval lies within {STAYS:g} of 0"}  # fmt: skip


def change(points: Mapping[float, list[float]]) -> Interval:
    """What a full rotation does to a number of every net (of a single net: in every draw)."""
    own, turned = points[0.0], points[max(points)]
    first = own if len(own) == len(turned) else own * len(turned)
    return mean_interval([b - a for a, b in zip(first, turned, strict=True)])


def trend(found: Interval) -> str:
    """The change in words, or that it cannot be told.

    >>> from intertwine.comparing.statistics import Interval
    >>> trend(Interval(0.1, 0.02, 0.2)), trend(Interval(0.0, -0.02, 0.02)), trend(Interval(0.0, -0.2, 0.2))
    ('rises', 'stays', 'cannot be told')
    """
    if max(abs(found.low), abs(found.high)) < STAYS:
        return "stays"
    if not found.low <= 0 <= found.high:
        return "falls" if found.value < 0 else "rises"
    return "cannot be told"


def _trend_claim(label: str, points: Mapping[float, list[float]], sentence: str, expected: str) -> Claim:
    found, word = change(points), "too few nets for an interval"
    known = found.low == found.low
    # a change that is both within 0.05 and on one side of 0 stays, and it falls or rises
    passed = {"falls": found.high < 0, "rises": found.low > 0, "stays": trend(found) == "stays"}[expected]
    if known:
        word = trend(found)
    here = f"{found.value:+.3f} [{found.low:+.3f}, {found.high:+.3f}] of {np.mean(points[0.0]):.2f}: {word}"
    why = (
        "Three seeds of nets trained for minutes: the interval is wider than the change, and the ConvNeXt "
        "has hardly learnt its task."
    )
    return holds(f"{label}: change of the share of interpretable units under a full rotation", sentence,
                 here, f"{WORDS[expected]} (95 % over nets)", passed if known else None, why=why)  # fmt: skip


def rotations(name: str, layer: int, folder: Path, setting: Setting, progress: Progress) -> Outcome:
    """Figs. 3 and 19: the share of interpretable units along Q^alpha, and under the layer's own group."""
    from intertwine.pages.dissect_page import share_figure

    quick, only = setting.quick, tuple(SENTENCES[layer])
    found, facts = dissect_nets(folder, quick, only, progress)
    curves, claims, rows = {}, [], []
    for label, one in found.items():
        points = by_power(one, share, layer)
        means = {alpha: mean_interval(values) for alpha, values in points.items()}
        curves[label] = [(alpha, m.value, (m.high - m.low) / 2) for alpha, m in means.items()]
        claims.append(_trend_claim(label, points, *SENTENCES[layer][label]))
        rows += [{"net": label, "alpha": a, "share": m, "half of the interval": d}
                 for a, m, d in curves[label]]  # fmt: skip
    groups = {label: one[0].groups for label, one in found.items()}
    if layer == 0:
        moved, _ = dissect_nets(folder, quick, only, progress, rotate="group")
        for label, one in moved.items():
            own, *others = one[0].of()
            equal = all(sorted(reading.iou) == sorted(own.iou) for reading in others)
            group = next(iter(groups[label].values()))
            # permutations and positive scales change nothing; a sign, or a rotation, makes other units
            facts[f"{label}: elements of its own group ({group})"] = (
                "every IoU is equal" if equal else "IoUs change"
            )
    many, draws = len(next(iter(found.values()))), dissected.DRAWS
    over = f"{many} seeds, each the mean of {draws} rotations" if many > 1 else f"{draws} rotations"
    return write_outcome(
        folder, name, "interpretable units under rotations",
        {f"Share of interpretable units {'inside' if layer else 'at the output'} of the last residual block; "
         f"95 % intervals over {over}": share_figure(curves)}, tables={"Shares": rows},
        setting=setting, facts={**facts, "groups": groups}, claims=claims, differs=QUICK if quick else PAPER,
    )  # fmt: skip


def mean_counts(
    found: list[Dissection], measure: Callable[[LayerReading], Mapping[str, int]]
) -> dict[float, dict[str, float]]:
    """alpha -> category or concept -> its count, the mean over nets and draws; the largest first."""
    out: dict[float, dict[str, float]] = {}
    for alpha in sorted({r.alpha for one in found for r in one.of()} & set(THREE)):
        counts = [measure(r) for one in found for r in one.of() if r.alpha == alpha]
        keys = dict.fromkeys(key for count in counts for key in count)
        means = {key: float(np.mean([count.get(key, 0) for count in counts])) for key in keys}
        out[alpha] = dict(sorted(means.items(), key=lambda item: -item[1]))
    return out


def categories(name: str, only: str | None, folder: Path, setting: Setting, progress: Progress) -> Outcome:
    """Fig. 18 (all nets) and Figs. 20, 22, 24 (one): distinct concepts by category at three powers."""
    from intertwine.inside import LayerReading
    from intertwine.pages.dissect_page import category_figure, concept_figure

    quick = setting.quick
    needed = tuple(NETS) if only is None else ("ResNet", only) if only == "open ResNet" else (only,)
    found, facts = dissect_nets(folder, quick, needed, progress)
    shown = {label: one for label, one in found.items() if only in (None, label)}
    over = f"mean over {len(next(iter(found.values())))} nets and {dissected.DRAWS} rotations"

    def bars(measure: Callable[[LayerReading], Mapping[str, int]]) -> dict[str, dict[str, float]]:
        return {
            f"{label}, Q^{alpha:g}": counts
            for label, one in shown.items()
            for alpha, counts in mean_counts(one, measure).items()
        }

    concepts, units = bars(LayerReading.concepts_by_category), bars(LayerReading.units_by_category)
    figures = {
        f"Distinct concepts by category, {over}": category_figure(concepts, "distinct concepts"),
        f"Interpretable units by category, {over}": category_figure(units, "interpretable units"),
    }
    if only is not None:
        kinds = dict(zip(found[only][0].of()[0].names, found[only][0].of()[0].categories, strict=True))
        figures |= {
            f"Units of every concept, {basis}, {over}": concept_figure(counts, kinds)
            for basis, counts in bars(LayerReading.detected).items()
        }
    claims = []
    if only in (None, "open ResNet"):
        claims.append(_fewer_claim(found))
    claims += [_dominated_claim(label, one) for label, one in shown.items() if label != "open ResNet"]
    rows = [{"": basis, **{k: round(v, 2) for k, v in counts.items()}} for basis, counts in concepts.items()]
    return write_outcome(
        folder, name, "concepts by category", figures, setting=setting,
        tables={f"Distinct concepts, {over}": rows}, facts=facts, claims=claims,
        differs=QUICK if quick else PAPER,
    )  # fmt: skip


def _fewer_claim(found: Mapping[str, list[Dissection]]) -> Claim:
    """Seeds are paired by their number, which only fixes the order; draws count once a net."""
    what, test = "share of interpretable units in the own basis, ResNet minus open ResNet", "far fewer"
    sentence = "the models without residual activation functions also have far fewer concept covering units"
    if not {"ResNet", "open ResNet"} <= set(found):
        return holds(what, sentence, "-", test, None)
    closed, opened = (by_power(found[label], share)[0.0] for label in ("ResNet", "open ResNet"))
    return above(what, sentence, [mean_interval([a - b for a, b in zip(closed, opened, strict=True)])],
                 why="Both nets see the colours and parts of so easy a data set.")  # fmt: skip


def _dominated_claim(label: str, found: list[Dissection]) -> Claim:
    def large(reading: LayerReading) -> float:
        counts = reading.units_by_category()
        return (counts.get("object", 0) + counts.get("scene", 0)) / max(sum(counts.values()), 1)

    points = {alpha: values for alpha, values in by_power(found, large).items() if alpha in THREE}
    intervals = [mean_interval(values) for values in points.values()]
    return above(
        f"{label}: objects and scenes among its interpretable units", "the number of interpretable units "
        "tends to be dominated by the object and scene concept detectors", intervals, margin=0.5,
        names=[f"Q^{alpha:g}" for alpha in points],
        why="Colours and parts are a third each of these concepts, and small nets of few epochs see them "
            "first.",
    )  # fmt: skip


def best_units(name: str, only: str, folder: Path, setting: Setting, progress: Progress) -> Outcome:
    """Figs. 21, 23, 25: the two best units at three powers, with the images they like most."""
    from intertwine.files import write_bytes
    from intertwine.pages.dissect_page import example_cells, example_grid
    from intertwine.pages.page import Html, Page
    from intertwine.pages.pixels import png

    found, facts = dissect_nets(folder, setting.quick, (only,), progress)
    differs = QUICK if setting.quick else PAPER
    second = by_power(found[only], lambda r: float(np.sort(r.iou)[-2]))
    lowest = {alpha: min(values) for alpha, values in second.items() if alpha in THREE}
    claims = judge([
        holds("IoU of the second best unit, the lowest of all nets", "two labelled units at each of three "
              "rotation powers", ", ".join(f"Q^{a:g}: {v:.3f}" for a, v in lowest.items()),
              "above 0.04: two units of every basis detect a concept", min(lowest.values()) > 0.04),
        Claim("what the best units look at", "a picture", "drawn below", "left to the eye", Verdict.NOT_RUN),
    ], setting, differs)  # fmt: skip
    readings = [r for r in found[only][0].of() if r.examples and r.draw == 0]
    page = Page(f"{name}: the best units of {only}")
    add_verdict(page, claims, differs)
    for reading in readings:
        page.section(f"Basis: {reading.basis}")
        page.text(Html(example_cells(reading)))
    facts["best"] = [{"basis": r.basis, **b} for r in readings for b in r.to_dict()["best"][:2]]
    picture = folder / f"{name}.png"
    write_bytes(picture, png(example_grid(readings, enlarge=3 if setting.quick else 1)))
    return Outcome((page.write(folder / f"{name}.html"), picture), facts, claims, differs)


_MAKERS: tuple[tuple[str, str, Any], ...] = (
    ("3", "interpretable units under rotations", lambda name, *rest: rotations(name, 0, *rest)),
    ("18", "categories of interpretable units", lambda name, *rest: categories(name, None, *rest)),
    ("19", "interpretable units inside residual blocks", lambda name, *rest: rotations(name, 1, *rest)),
    ("20", "concepts of a ResNet", lambda name, *rest: categories(name, "ResNet", *rest)),
    ("21", "best units of a ResNet", lambda name, *rest: best_units(name, "ResNet", *rest)),
    ("22", "concepts of an open ResNet", lambda name, *rest: categories(name, "open ResNet", *rest)),
    ("23", "best units of an open ResNet", lambda name, *rest: best_units(name, "open ResNet", *rest)),
    ("24", "concepts of a ConvNeXt", lambda name, *rest: categories(name, "ConvNeXt", *rest)),
    ("25", "best units of a ConvNeXt", lambda name, *rest: best_units(name, "ConvNeXt", *rest)),
)
RECIPES = tuple(
    Reproduction(f"symmetry-fig{n}", title, f"source 002, figure {n}", partial(make, f"symmetry-fig{n}"))
    for n, title, make in _MAKERS
)
