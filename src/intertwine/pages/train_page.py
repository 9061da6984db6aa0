"""The page of a training run: loss and accuracy by epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from intertwine.pages.page import Page

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from intertwine.training import Run

_FRAME = {"template": "plotly_white", "margin": {"l": 60, "r": 20, "t": 30, "b": 50}, "height": 420}


def train_page(run: Run, facts: Mapping[str, Any] | None = None) -> Page:
    """Loss and accuracy by epoch."""
    page = Page("A training run")
    measured = [row["test_accuracy"] for row in run.history if row.get("test_accuracy") is not None]
    best = max(measured, default=run.accuracy)
    page.finding(
        f"Test accuracy {run.accuracy:.2%} with the weights of epoch {run.epoch}; the best epoch had "
        f"{best:.2%}. One run says nothing about the spread over seeds: intertwine sweep does."
    )
    page.facts({**(facts or {}), "weights": str(run.weights), "resumed": run.resumed})
    for what in ("loss", "accuracy"):
        page.section(what.capitalize())
        page.figure(_lines(run.history, what), f"{what.capitalize()} by epoch.")
    for table in run.tables():
        page.section("Every epoch" if table.title == "epochs" else table.title, folded=True)
        page.table(table)
    return page


def _lines(history: list[dict[str, Any]], what: str) -> Figure:
    import plotly.graph_objects as go

    figure = go.Figure(layout=_FRAME)
    for name, label in ((what, "training"), (f"test_{what}", "test")):
        points = [(row["epoch"], row[name]) for row in history if row.get(name) is not None]
        epochs, values = zip(*points, strict=True) if points else ((), ())
        figure.add_scatter(x=epochs, y=values, name=label, mode="lines+markers")
    figure.update_layout(xaxis_title="epoch", yaxis_title=what, showlegend=True)
    return figure
