"""The page of a survey: how many models are exact, how much of each is covered, what froze the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from intertwine.checks import checked
from intertwine.pages.page import Page

if TYPE_CHECKING:
    from intertwine.surveying.covering import Coverage

_FRAME = {"template": "plotly_white", "margin": {"l": 60, "r": 20, "t": 30, "b": 50}, "height": 420}
_MOST = 12  # models that are listed without a click


@checked
def coverage_page(found: Coverage, facts: Mapping[str, Any] | None = None) -> Page:
    """How many models are exact, how much of each is covered, what froze the rest."""
    page = Page(f"Coverage of {found.library}")
    counts = found.counts
    exact = counts["exact"] + counts["same"]
    page.finding(
        f"{exact} of {len(found.rows)} models are exact, {counts['wrong']} wrong, "
        f"{counts['unproved']} unproved, {counts['failed']} failed."
    )
    page.facts(facts or {})
    shares = [row.parameter_coverage for row in found.rows if row.parameter_coverage is not None]
    if shares:
        import plotly.graph_objects as go

        # a share of 1 belongs to the last bin, not to one of its own beyond it
        figure = go.Figure(layout=_FRAME)
        bins = {"start": 0.0, "end": 1.0, "size": 0.05}
        figure.add_histogram(x=[min(s, 0.9999) for s in shares], xbins=bins, marker={"color": "#2f6fde"})
        figure.update_xaxes(title="share of parameters that a symmetry moves", range=[0, 1], tickformat=".0%")
        figure.update_yaxes(title="models")
        page.section("How much of each model a symmetry moves")
        page.figure(figure, f"{len(shares)} models with random weights.")
    reasons = Counter(why for row in found.rows for why in row.frozen.values() if why)
    if reasons:
        page.section("What froze the rest")
        page.table(["reason", "axes"], reasons.most_common(30))
    page.section("Every model", folded=len(found.rows) > _MOST)
    page.table(
        ["model", "status", "parameters", "coverage", "largest error", "axes", "error"],
        [
            [r.model, r.status, r.parameters, r.parameter_coverage, r.max_error, r.axes, r.error]
            for r in found.rows
        ],
    )
    return page
