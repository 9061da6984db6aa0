"""The page of `intertwine verify`: how far acting moves the output, beside a wrong action."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from intertwine.pages.page import Page
from intertwine.symmetry import Report

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_LEAST = 1e-18  # zero has no place on a log scale


def verify_page(report: Report, facts: Mapping[str, Any] | None = None) -> Page:
    """The verdict, the errors as bars, then every number."""
    page = Page(f"The proof of the symmetries of {(facts or {}).get('model', 'a model')}")
    page.finding(verify_finding(report))
    page.section(
        "Acting on the weights",
        "A random element of the whole group acts on the weights, and the outputs are compared. The "
        "control leaves one weight behind: an error that does not grow then would prove nothing.",
    )
    page.figure(error_figure(report), "Largest change of the output, relative, on a log scale.")
    page.section("Every number", folded=True)
    page.table(report.tables()[0])
    page.facts(facts or {})
    return page


def verify_finding(report: Report) -> str:
    """The verdict in one sentence."""
    moved = f"{report.parameter_coverage:.1%} of the parameters moved and the output changed by at most"
    control = f"with one weight left behind it changes by {report.control_error:.2g}"
    said = {"exact": "Exact", "wrong": "Refuted", "unproved": "Not proved"}[report.verdict]
    return f"{said}: {moved} {report.max_error:.1g} ({report.dtype}, relative); {control}."


def error_figure(report: Report) -> Figure:
    """Two bars and the tolerance."""
    import plotly.graph_objects as go

    errors = {"the claimed symmetry": report.max_error, "one weight left behind": report.control_error}
    figure = go.Figure(
        go.Bar(
            x=[max(value, _LEAST) for value in errors.values()], y=list(errors), orientation="h",
            marker={"color": ["#2f6fde", "#d1495b"]}, text=[f"{value:.2g}" for value in errors.values()],
            textangle=0,
        )
    )  # fmt: skip
    figure.add_vline(x=report.tolerance, line={"dash": "dot", "color": "#8a94a3"})
    note = {"text": f"tolerance {report.tolerance:.0e}", "showarrow": False, "yref": "paper", "y": 1.12}
    figure.add_annotation(x=_log10(report.tolerance), **note)
    figure.update_xaxes(type="log", exponentformat="power", title="change of the output")
    figure.update_yaxes(automargin=True)
    return figure.update_layout(
        template="plotly_white", height=240, margin={"l": 10, "r": 20, "t": 40, "b": 50}
    )


def _log10(value: float) -> float:
    from math import log10

    return log10(value)
