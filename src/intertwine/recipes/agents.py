"""Figures 3.6 to 3.8, A1, A2 and Table 3.1 of source 003: policies in representation and in function.

paper: grids of 5, 6, 8 and 16, tested on 5, 6 and 8, ten seeds with nine stages each. quick: grids of 5 and
6, eight seeds with seven stages. Both keep their agents, in DIR/agents-paper and DIR/agents-quick, and go on
where they were stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intertwine.recipes import Claim, Outcome, Progress, Reproduction, Setting
from intertwine.recipes.claims import holds, number
from intertwine.recipes.functional import QUICK as QUICK_CLASSIFIERS
from intertwine.recipes.functional import find_relation, trends
from intertwine.recipes.pages import write_outcome

if TYPE_CHECKING:
    from intertwine.agents import AgentComparison
    from intertwine.agents.comparing import Against
    from intertwine.comparing.statistics import Interval

BOTTLENECK = 8
EXPERIMENTS: dict[str, int | None] = {"agents": None, "agents with bottleneck": BOTTLENECK}
# Table 3.1 of the source: Spearman correlation of CKA with JSD, and with the Spearman correlation of outputs.
SOURCE: dict[str, dict[Against, float]] = {
    "classifiers": {"jsd": -0.75, "spearman": 0.703},
    "agents": {"jsd": -0.721, "spearman": 0.58},
    "agents with bottleneck": {"jsd": -0.781, "spearman": 0.602},
}


@dataclass(frozen=True)
class Scale:
    """How much is trained: steps by size of the grid, snapshots, seeds, and the grids of the rollouts."""

    steps: dict[int, int]
    stages: int
    seeds: int
    tests: tuple[int, ...]


SCALES = {
    "quick": Scale({5: 24_576, 6: 36_864}, 6, 8, (5, 6)),
    "paper": Scale({5: 40_960, 6: 61_440, 8: 122_880, 16: 409_600}, 8, 10, (5, 6, 8)),
}
DIFFERS = (
    "The source does not say how many agents it has, at which stages of training, how long rollouts are, nor "
    "what the bottleneck's nonlinearity is. Here agents are snapshots at even distances, the untrained one "
    "among them, all pairs count, each policy gives 500 states of 20 rollouts, and the bottleneck is linear. "
    "The source leaves out agents with detours on its larger grids; here all are kept."
)
QUICK = " Grids of 5 and 6 only."


def grid(size: int) -> str:
    """The empty grid of a size, as MiniGrid calls it."""
    return f"MiniGrid-Empty-{size}x{size}-v0"


def compare_agents(folder: Path, quick: bool, bottleneck: int | None, progress: Progress) -> AgentComparison:
    """Train the agents of one network that are not trained yet, and compare them."""
    from intertwine.agents import PPOSettings, compare, train
    from intertwine.errors import Unsupported

    preset = "quick" if quick else "paper"
    scale, zoo = SCALES[preset], folder / f"agents-{preset}"

    for size, steps in scale.steps.items():
        settings = PPOSettings(steps=steps, stages=scale.stages)
        done = train(
            grid(size), range(scale.seeds), zoo, bottleneck=bottleneck, settings=settings, progress=progress
        )
        for label, error in done.failed.items():
            raise Unsupported(f"training failed: {label}", so=error, do="run the recipe again to go on")
    trained, tests = [grid(size) for size in scale.steps], [grid(size) for size in scale.tests]
    return compare(zoo, tests, bottleneck=bottleneck, trained=trained, progress=progress)


def average(
    found: Mapping[str, Any], bottleneck: int | None, against: Against, between: bool = False
) -> Interval | None:
    """The mean of rho over panels, from the plain data of a comparison."""
    from intertwine.comparing.statistics import Interval

    key = (bottleneck, against, between)
    rho = next((a["rho"] for a in found["averages"]
                if (a["bottleneck"], a["against"], a["different seeds only"]) == key), None)  # fmt: skip
    return Interval(**rho) if isinstance(rho, dict) else rho


def slope_spread(found: Mapping[str, Any], bottleneck: int | None, against: Against) -> float | None:
    """Standard deviation of the slopes of all panels, in units of their mean: 0 if they are all the same."""
    import numpy as np

    panels = [panel for panel in found["panels"] if panel["bottleneck"] == bottleneck]
    slopes = [panel[against]["slope"]["value"] for panel in panels if panel[against] is not None]
    return float(np.std(slopes) / abs(np.mean(slopes))) if len(slopes) > 1 else None


def cka_range(comparison: AgentComparison, against: Against) -> float | None:
    """How far apart the CKA of pairs of almost the same JSD are: the median, over tenths of the pairs of a
    panel in the order of JSD, of the range that holds 90 % of their CKA."""
    import numpy as np

    ranges = []
    for panel in comparison.panels:
        points = sorted((p[1], p[0]) for found in panel.points(against).values() for p in found)
        parts = np.array_split(np.array([p[1] for p in points]), 10)
        ranges += [float(np.ptp(np.quantile(part, [0.05, 0.95]))) for part in parts if len(part) > 1]
    return float(np.median(ranges)) if ranges else None


def relation_of_agents(
    against: Against, bottleneck: int | None, name: str, folder: Path, setting: Setting, progress: Progress
) -> Outcome:
    """Figures 3.6 (JSD) and A1 (Spearman), with the bottleneck 3.8 and A2."""
    from intertwine.agents.figures import AXES, panel_rows, relation_panels

    found = compare_agents(folder, setting.quick, bottleneck, progress)
    facts, title = found.to_dict(), AXES[against][0]
    claims = relation_claims(facts, against, bottleneck, cka_range(found, against))
    caption = f"CKA of features against {title}; {claims[0].here} (source {claims[0].source})."
    return write_outcome(
        folder, name, f"CKA of features against {title}", {caption: relation_panels(found.panels, against)},
        setting=setting, tables={"Panels": panel_rows(found)}, facts=facts, claims=claims,
        differs=DIFFERS + (QUICK if setting.quick else ""),
    )  # fmt: skip


def relation_claims(
    facts: Mapping[str, Any], against: Against, bottleneck: int | None, width: float | None
) -> list[Claim]:
    """What the source says of one figure, on the plain data of a comparison; width: see `cka_range`."""
    source = SOURCE["agents" if bottleneck is None else "agents with bottleneck"][against]
    spread = slope_spread(facts, bottleneck, against)
    return [
        number(f"rho of CKA and {against}, mean of the panels", source,
               average(facts, bottleneck, against)),
        number("the same, without pairs of stages of one seed (ours)", source,
               average(facts, bottleneck, against, between=True)),
        holds("deviation of the slopes of the panels, of their mean", "the slope of the best fit line is "
              "not constant across the plots" if bottleneck is None else "more consistent slopes across "
              "plots (see table 3.1)", "-" if spread is None else f"{spread:.0%}",
              "more than 10 %" if bottleneck is None else "tested in table 3.1, which has both",
              None if spread is None or bottleneck else spread > 0.1),
        holds(f"how far apart the CKA of pairs of almost the same {against} are, 90 % of them",
              "many points with the same JSD and different CKA, and vice versa",
              "-" if width is None else f"{width:.2f}", "more than 0.1",
              None if width is None else width > 0.1),
    ]  # fmt: skip


def architectures(name: str, folder: Path, setting: Setting, progress: Progress) -> Outcome:
    """Figure 3.7: the network without and with the bottleneck."""
    from intertwine.agents.figures import architecture_figure
    from intertwine.zoo.agent import ActorCritic

    plain, narrow = (
        sum(p.numel() for p in ActorCritic(bottleneck=width).actor.parameters())
        for width in (None, BOTTLENECK)
    )
    claim = holds(
        "weights from features to actions", "Bottleneck was introduced to reduce the capacity of the network",
        f"{plain:,} and {narrow:,}", "fewer with the bottleneck", narrow < plain, anywhere=True,
    )  # fmt: skip
    return write_outcome(
        folder, name, "the network without and with a bottleneck",
        {"Both networks, drawn from their modules; the value on which CKA is measured is marked.":
         architecture_figure(BOTTLENECK)},
        setting=setting, facts={"weights of the actor": plain, "with bottleneck": narrow}, claims=(claim,),
        differs="The source draws its networks; their convolutions are those of its implementation of PPO.",
    )  # fmt: skip


def table(name: str, folder: Path, setting: Setting, progress: Progress) -> Outcome:
    """Table 3.1: all three experiments, and what the bottleneck changes."""
    from intertwine.agents.comparing import AGAINST
    from intertwine.agents.figures import panel_rows
    from intertwine.pages.panel_figures import interval_text

    quick = setting.quick
    classifiers = trends(find_relation(folder, setting, progress))
    facts: dict[str, Any] = {}
    panels = []
    for label, bottleneck in EXPERIMENTS.items():
        found = compare_agents(folder, quick, bottleneck, progress)
        facts[label] = found.to_dict()
        panels += panel_rows(found)
    means = mean_rhos(facts, classifiers)
    rows = [
        {
            "experiment": label,
            **{f"CKA and {against}, source": SOURCE[label][against] for against in AGAINST},
            **{f"CKA and {against}, here": interval_text(found[against]) for against in AGAINST},
        }
        for label, found in means.items()
    ]
    claims = table_claims(facts, classifiers)
    facts["rows"] = rows
    return write_outcome(
        folder, name, "representation and function: three experiments", {},
        setting=setting, tables={"Correlations, mean over panels": rows, "Panels of agents": panels},
        facts=facts,
        claims=claims, differs=f"{QUICK_CLASSIFIERS} {DIFFERS}{QUICK}" if quick else DIFFERS,
    )  # fmt: skip


Means = dict[str, dict["Against", "Interval | None"]]


def mean_rhos(facts: Mapping[str, Any], classifiers: dict[Against, Interval | None]) -> Means:
    """Experiment -> measure -> the mean of rho."""
    of_agents: Means = {
        label: {against: average(facts[label], bottleneck, against) for against in SOURCE[label]}
        for label, bottleneck in EXPERIMENTS.items()
    }
    return {"classifiers": classifiers, **of_agents}


def table_claims(facts: Mapping[str, Any], classifiers: dict[Against, Interval | None]) -> list[Claim]:
    """What the source says of Table 3.1, on the plain data of both comparisons."""
    means = mean_rhos(facts, classifiers)
    plain, narrow = (slope_spread(facts[label], b, "jsd") for label, b in EXPERIMENTS.items())
    return [
        *(number(f"{label}: rho of CKA and {against}", SOURCE[label][against], found[against])
          for label, found in means.items() for against in found),
        *(_stronger(means, against) for against in means["agents"]),
        holds("deviation of the slopes (JSD), of their mean: with the bottleneck, without", "The best fit "
              "lines have more consistent slopes", "-" if plain is None or narrow is None
              else f"{narrow:.0%}, {plain:.0%}", "smaller with it",
              None if plain is None or narrow is None else narrow < plain),
    ]  # fmt: skip


def _stronger(means: Means, against: Against) -> Claim:
    """Whether the bottleneck strengthens the relation: undecided where the intervals overlap."""
    without, narrow = means["agents"][against], means["agents with bottleneck"][against]
    what, sentence = f"the bottleneck strengthens the relation with {against}", "the bottleneck improves"
    test = "larger in size with it, and the intervals are apart"
    if without is None or narrow is None or without.low != without.low or narrow.low != narrow.low:
        return holds(what, f"{sentence} the correlation", "-", test, None)
    apart = narrow.low > without.high or narrow.high < without.low
    here = f"{narrow.value:.2f} with, {without.value:.2f} without{'' if apart else '; the intervals overlap'}"
    return holds(
        what, f"{sentence} the correlation", here, test, apart and abs(narrow.value) > abs(without.value)
    )


PANELS: tuple[tuple[str, str, Against, int | None], ...] = (
    ("functional-fig3.6", "figure 3.6", "jsd", None),
    ("functional-fig3.8", "figure 3.8", "jsd", BOTTLENECK),
    ("functional-figA1", "appendix, figure 1", "spearman", None),
    ("functional-figA2", "appendix, figure 2", "spearman", BOTTLENECK),
)
RECIPES = (
    *(
        Reproduction(
            name,
            f"policies{' with a bottleneck' if bottleneck else ''}: CKA of features, {against} of actions",
            f"source 003, {where}",
            partial(relation_of_agents, against, bottleneck, name),
        )
        for name, where, against, bottleneck in PANELS
    ),
    *(
        Reproduction(name, title, f"source 003, {where}", partial(make, name))
        for name, title, where, make in (
            ("functional-fig3.7", "the network of the policies", "figure 3.7", architectures),
            ("functional-table3.1", "three experiments on representation and function", "table 3.1", table),
        )
    ),
)
