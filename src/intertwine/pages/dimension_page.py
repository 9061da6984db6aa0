"""The page of `intertwine dimension`: three numbers that add up, the singular values, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from intertwine.pages.page import Page
from intertwine.tangent import Dimension


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
    numbers, *rest = result.tables()
    page.section("The numbers")
    page.table(numbers)
    for table in rest:
        page.section(table.title[:1].upper() + table.title[1:])
        page.table(table)
    return page


def dimension_finding(result: Dimension) -> str:
    """The verdict and the numbers that it rests on."""
    numbers = f"{result.rank:,} + {result.orbit:,} of {result.parameters:,}"
    rest = f", {result.deficit:,} are left" if result.deficit else ""
    seen = f" {str(result.looked).capitalize()}." if result.looked is not None else ""
    return f"{result.remarks()[0]} Rank and orbit: {numbers} numbers{rest}.{seen}"


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
