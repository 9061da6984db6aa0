"""The pages of `merge`: what was lost for how much smaller, what is left of each axis, what stays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from intertwine.merging.smaller import MergeCurve, Merged
from intertwine.pages.page import Page

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_KEPT, _GONE, _BEFORE = "#2f6fde", "#c8d0da", "#d1495b"
_FRAME = {"template": "plotly_white", "margin": {"l": 60, "r": 20, "t": 40, "b": 50}}


def merged_page(result: Merged, facts: Mapping[str, Any] | None = None) -> Page:
    """One smaller model."""
    page = Page("A smaller model, by merging channels")
    page.finding(merged_finding(result))
    page.section("What is left of every axis", "Channels before and after; the order is that of the model.")
    page.figure(widths_figure(result), "Kept channels (dark) and merged ones (light) of every axis.")
    if result.plan.left_alone:
        page.section("Left alone", "Axes that were not narrowed, and why.")
        page.table(["axis", "why"], list(result.plan.left_alone.items()))
    page.section("Every axis", folded=True)
    for table in result.tables():
        page.table(table.columns, table.rows)
    page.facts({**(facts or {}), "method": result.plan.method, "repair": result.plan.repair,
                "seconds": result.seconds})  # fmt: skip
    return page


def merged_finding(result: Merged) -> str:
    """One sentence: how much smaller, and what it costs."""
    share = result.parameters_after / max(result.parameters_before, 1)
    text = f"{result.parameters_after:,} of {result.parameters_before:,} parameters are left ({share:.0%})"
    if result.accuracy_before is None or result.accuracy_after is None:
        return f"{text}; what that costs was not measured (give data)."
    lost = 100 * (result.accuracy_before - result.accuracy_after)
    said = "loses no" if lost == 0 else f"{'loses' if lost > 0 else 'gains'} {abs(lost):.2f} points of"
    numbers = f"{result.accuracy_before:.2%} before, {result.accuracy_after:.2%} after"
    return f"{text}; this {said} accuracy ({numbers})."


def curve_page(curve: MergeCurve, facts: Mapping[str, Any] | None = None) -> Page:
    """Many thresholds: the trade-off."""
    page = Page("Size against accuracy")
    best = [m for m in curve.merged if m.accuracy_after is not None and m.accuracy_before is not None]
    if best:
        before = best[0].accuracy_before or 0.0
        free = [m for m in best if (m.accuracy_after or 0.0) >= before - 0.01]
        least = min((m.parameters_after / max(m.parameters_before, 1) for m in free), default=1.0)
        page.finding(f"{least:.0%} of the parameters keep the accuracy of {before:.2%} within one point.")
    page.section("The trade-off")
    page.figure(trade_off(curve), "Every point is one threshold; the cross is the model as it was.")
    page.section("Every threshold", folded=True)
    for table in curve.tables():
        page.table(table.columns, table.rows)
    page.facts(facts or {})
    return page


def trade_off(curve: MergeCurve) -> Figure:
    """Accuracy (or FLOPs, without data) against the parameters kept, with the unmerged point."""
    import plotly.graph_objects as go

    measured = all(m.accuracy_after is not None for m in curve.merged)
    rows = sorted(zip(curve.betas, curve.merged, strict=True), key=lambda row: row[1].parameters_after)
    kept = [100 * m.parameters_after / max(m.parameters_before, 1) for _, m in rows]
    if measured:
        values, before, title = [m.accuracy_after for _, m in rows], rows[0][1].accuracy_before, "accuracy"
    else:
        values = [100 * m.flops_after / max(m.flops_before, 1) for _, m in rows]
        before, title = 100.0, "FLOPs kept, %"
    figure = go.Figure(
        go.Scatter(x=kept, y=values, text=[f"beta {beta:g}" for beta, _ in rows], name="merged",
                   mode="lines+markers", line={"color": _KEPT})
    )  # fmt: skip
    figure.add_trace(
        go.Scatter(x=[100], y=[before], name="as it was", mode="markers",
                   marker={"symbol": "x", "size": 11, "color": _BEFORE})
    )  # fmt: skip
    return figure.update_layout(xaxis_title="parameters kept, %", yaxis_title=title, height=440, **_FRAME)


def widths_figure(result: Merged) -> Figure:
    """A bar an axis: what is kept, and what is merged away."""
    import plotly.graph_objects as go

    axes = result.plan.axes
    names = [axis.name for axis in axes]
    figure = go.Figure()
    figure.add_bar(y=names, x=[a.width for a in axes], name="kept", orientation="h", marker_color=_KEPT)
    figure.add_bar(
        y=names, x=[a.size - a.width for a in axes], name="merged", orientation="h", marker_color=_GONE
    )
    figure.update_yaxes(autorange="reversed", automargin=True)
    height = 140 + 22 * len(axes)
    return figure.update_layout(barmode="stack", xaxis_title="channels", height=height, **_FRAME)
