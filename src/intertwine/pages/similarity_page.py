"""The page of `intertwine compare`: function first, then curves, then one heat map a measure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import PurePath

from intertwine.comparing.comparison import Comparison
from intertwine.comparing.function import FunctionalSimilarity
from intertwine.comparing.measures import MEASURES
from intertwine.pages.page import Page
from intertwine.pages.similarity_figures import comparison_heat_map, matched_curves, title_of

_PIXELS = {
    "pool": "means over pixels",
    "samples": "every pixel a sample; unequal maps meet at the smaller size",
    "flatten": "dot products sum over pixels",
    "by layer": "as the measure of the layer's group asks",
}


def comparison_page(
    comparison: Comparison, name_a: str = "A", name_b: str = "B", facts: Mapping[str, object] | None = None
) -> Page:
    """A page that explains itself: what was compared, on how many inputs, with which measure."""
    name_a, name_b = (_label(facts or {}, side, name) for side, name in (("a", name_a), ("b", name_b)))
    page = Page(f"Compare {name_a} with {name_b}")
    page.finding(comparison_finding(comparison))
    page.facts({"A": name_a, "B": name_b, **(facts or {})})
    page.section("Layer by layer")
    same = comparison.layers_a == comparison.layers_b
    how = "Layers of the same name." if same else "Each layer of A with its most similar layer of B."
    bars = " Bars are 95 % intervals over inputs." if any(comparison.intervals.values()) else ""
    page.figure(matched_curves(comparison), how + bars)
    if comparison.function is not None:
        page.section("As functions", "Outputs on the same inputs, with 95 % bootstrap intervals over inputs.")
        page.table(FunctionalSimilarity.COLUMNS, comparison.function.rows())
    for number, measure in enumerate(comparison.measures):
        page.section(f"All pairs of layers: {title_of(measure)}", folded=number > 0)
        page.figure(
            comparison_heat_map(comparison, measure, f"A: {name_a}", f"B: {name_b}"),
            _caption(comparison, measure),
        )
    if comparison.notes:
        page.section("Notes", folded=True)
        page.table(["note"], [[note] for note in comparison.notes])
    return page


def comparison_finding(comparison: Comparison) -> str:
    """One sentence: how often the two differ, with its interval, and how alike their layers are."""
    parts = []
    if comparison.function is not None:
        differ = comparison.function.disagreement
        interval = f" (95 % interval {differ.low:.1%} to {differ.high:.1%})"
        parts.append(f"A and B choose another class on {differ.value:.1%} of the inputs{interval}")
    measure = comparison.measures[0]
    values = [v for _, _, v in comparison.matched(measure) if not math.isnan(v)]
    if values:
        parts.append(f"their layers are {min(values):.2f} to {max(values):.2f} alike by {title_of(measure)}")
    return f"{'; '.join(parts) or 'Nothing could be compared'}."


def _label(facts: Mapping[str, object], side: str, name: str) -> str:
    """A model by the file of its weights, which tells two runs of one architecture apart.

    >>> _label({"a": "zoo:resnet20", "weights of A": "runs/seed1.safetensors"}, "a", "A")
    'seed1.safetensors'
    """
    weights = facts.get(f"weights of {side.upper()}")
    return PurePath(str(weights)).name if weights else str(facts.get(side, name))


def _caption(comparison: Comparison, measure: str) -> str:
    parts = [f"{comparison.inputs[measure]:,} inputs; {_PIXELS[comparison.pixels[measure]]}."]
    if measure in MEASURES:
        chosen = MEASURES[measure]
        low, high = chosen.range
        parts.append(f"Invariant to {chosen.invariance}. Range {low:g} to {high:g}. {chosen.source}.")
    return " ".join(parts)
