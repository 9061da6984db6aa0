"""The page of `intertwine compare`: function first, then curves, then one heat map a measure."""

from __future__ import annotations

from collections.abc import Mapping

from intertwine.comparing.comparison import Comparison
from intertwine.comparing.function import FunctionalSimilarity
from intertwine.comparing.measures import MEASURES
from intertwine.report.page import Page
from intertwine.report.similarity_figures import comparison_heat_map, matched_curves, title_of

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
    name_a, name_b = str((facts or {}).get("a", name_a)), str((facts or {}).get("b", name_b))
    page = Page(f"Compare {name_a} with {name_b}")
    page.section("What was compared")
    rows = {"A": name_a, "B": name_b, **(facts or {})}
    page.table(["", ""], [[key, value] for key, value in rows.items()])
    if comparison.function is not None:
        page.section("As functions", "Outputs on the same inputs, with 95 % bootstrap intervals over inputs.")
        page.table(FunctionalSimilarity.COLUMNS, comparison.function.rows())
    page.section("Layer by layer")
    same = comparison.layers_a == comparison.layers_b
    how = "Layers of the same name." if same else "Each layer of A with its most similar layer of B."
    bars = " Bars are 95 % intervals over inputs." if any(comparison.intervals.values()) else ""
    page.figure(matched_curves(comparison), how + bars)
    for measure in comparison.measures:
        page.section(title_of(measure))
        page.figure(
            comparison_heat_map(comparison, measure, f"A: {name_a}", f"B: {name_b}"),
            _caption(comparison, measure),
        )
    if comparison.notes:
        page.section("Notes")
        page.table(["note"], [[note] for note in comparison.notes])
    return page


def _caption(comparison: Comparison, measure: str) -> str:
    parts = [f"{comparison.inputs[measure]:,} inputs; {_PIXELS[comparison.pixels[measure]]}."]
    if measure in MEASURES:
        chosen = MEASURES[measure]
        low, high = chosen.range
        parts.append(f"Invariant to {chosen.invariance}. Range {low:g} to {high:g}. {chosen.source}.")
    return " ".join(parts)
