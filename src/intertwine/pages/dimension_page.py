"""The page of `intertwine dimension`: three numbers that add up, the singular values, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from intertwine.pages.page import Page
from intertwine.tangent import KINDS, Dimension, Looked

VERDICTS = {
    "complete": "No continuous symmetry was missed at these weights: orbit and rank add up to all of theta.",
    "explained": "Every direction that changes nothing is in the group or has a name below.",
    "open": "Some directions change nothing, are not in the group, and have no explanation.",
    "unsure": "The singular values have no clear gap, or more inputs would raise the rank: no verdict.",
}
COLUMNS = ["directions", "kind", "where", "because"]
PART_COLUMNS = [
    "axis",
    "channels",
    "pairs",
    "missed below",
    "numbers",
    "orbit",
    "rank",
    "gap",
    "deficit",
    "verdict",
]


def verdict_text(result: Dimension) -> str:
    """The verdict in words; of a part of theta it says no more than that."""
    if result.scope and result.verdict == "complete":
        return "Within what was looked at, all other weights held, no continuous symmetry was missed."
    return VERDICTS[result.verdict]


def direction_rows(result: Dimension) -> list[list[Any]]:
    """A row a place, for the page and the terminal."""
    return [
        [
            d.count,
            d.kind,
            d.axis or ", ".join(d.weights[:4]) + (" ..." if len(d.weights) > 4 else ""),
            KINDS[d.kind],
        ]
        for d in result.directions
    ]


def part_rows(result: Dimension) -> list[list[Any]]:
    """A row an axis (or a set of its channels): how much of it was looked at, and what was found."""
    return [
        [
            part.scope, *_looked(part.looked), part.parameters, part.orbit, part.rank, f"{part.gap:.0e}",
            part.deficit, part.verdict,
        ]
        for part in result.parts
    ]  # fmt: skip


def _looked(looked: Looked | None) -> list[str]:
    if looked is None:
        return ["", "", ""]
    return [f"{looked.channels} of {looked.of}", f"{looked.pairs:.1%}", f"{looked.below:.1%}"]


def number_rows(result: Dimension) -> list[list[Any]]:
    """What was counted, for the page and the terminal."""
    rows: list[list[Any]] = [
        ["numbers in theta", result.parameters],
        ["of them running statistics", result.statistics],
        ["dimension of the orbit", result.orbit],
        ["rank of the Jacobian", result.rank],
        ["gap of its singular values", f"{result.gap:.1e}"],
        ["deficit", result.deficit],
        ["not explained", result.unexplained],
        ["calls of the model", result.inputs],
        ["orbit's tangents outside the null space", f"{result.error:.1e}"],
    ]
    if result.looked is not None:
        rows += [["looked at", str(result.looked)]]
    return [row for row in rows if result.statistics or not row[0].startswith("of them")]


def dimension_page(result: Dimension, *, facts: Mapping[str, Any] | None = None) -> Page:
    """facts: what was measured."""
    page = Page(f"Functional dimension{f' of {result.scope}' if result.scope else ''}: {result.verdict}")
    page.finding(dimension_finding(result))
    page.facts(facts or {})
    if len(result.singular_values):
        page.section("Singular values")
        page.figure(
            values_figure(result),
            "Singular values of the Jacobian in float64, rows and columns of length 1. The fall is the rank; "
            "what lies right of it and is not the orbit is the deficit. Large ones: the small end.",
        )
    page.section("The numbers")
    page.table(["what", "value"], number_rows(result))
    if result.parts:
        page.section("Axis by axis", "Channels of one axis in all the weights that carry it, all else held.")
        page.table(PART_COLUMNS, part_rows(result))
    if result.directions:
        page.section("Directions that change nothing and are not in the group")
        page.table(COLUMNS, direction_rows(result))
    return page


def dimension_finding(result: Dimension) -> str:
    """The verdict and the numbers that it rests on."""
    numbers = f"{result.rank:,} + {result.orbit:,} of {result.parameters:,}"
    rest = f", {result.deficit:,} are left" if result.deficit else ""
    seen = f" {str(result.looked).capitalize()}." if result.looked is not None else ""
    return f"{verdict_text(result)} Rank and orbit: {numbers} numbers{rest}.{seen}"


def values_figure(result: Dimension) -> Any:
    """The singular values on a logarithmic scale, with the rank and the bound that the orbit gives."""
    import plotly.graph_objects as go

    values = np.maximum(result.singular_values, 1e-20)
    keep = np.unique(np.linspace(0, len(values) - 1, min(len(values), 4000)).astype(int))
    figure = go.Figure()
    figure.add_scatter(x=keep + 1, y=values[keep], mode="lines", name="singular values", line_color="#2667a8")
    figure.add_vline(
        x=result.rank + 0.5, line_color="#d5652c", annotation_text="rank", annotation_position="top left"
    )
    bound = result.parameters - result.orbit
    if bound != result.rank:
        figure.add_vline(x=bound + 0.5, line_dash="dot", line_color="#8a94a3")
        note = {
            "text": "parameters - orbit",
            "showarrow": False,
            "yref": "paper",
            "y": 0.9,
            "xanchor": "right",
            "bgcolor": "white",
        }
        figure.add_annotation(x=bound, **note)
    figure.update_layout(
        template="plotly_white", height=380, xaxis_title="number", yaxis_title="singular value",
        margin={"l": 10, "r": 10, "t": 30, "b": 40},
    )  # fmt: skip
    figure.update_yaxes(type="log", exponentformat="power")
    return figure
