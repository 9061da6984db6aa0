"""The pages of `merge`: what was lost for how much smaller, what is left of each axis, what stays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from intertwine.data import Evaluation
from intertwine.merging.merged import MergeCurve, Merged
from intertwine.merging.plan import CHANNELS, EXPERTS, HEADS, RANK, STREAM, AxisPlan
from intertwine.pages.page import Page

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_KEPT, _GONE, _BEFORE = "#2f6fde", "#c8d0da", "#d1495b"
_KINDS = (
    "Channels of an MLP, whole heads, experts, ranks (of query-key, value-output and factored tables) and "
    "the stream of all layers are cut under one budget: what costs least for each parameter goes first."
)
_COLOURS = {CHANNELS: "#2f6fde", HEADS: "#d1495b", RANK: "#3a9d6e", STREAM: "#e0a030", EXPERTS: "#7a5fb5"}
_FRAME = {"template": "plotly_white", "margin": {"l": 60, "r": 20, "t": 40, "b": 50}}


def merged_page(result: Merged, facts: Mapping[str, Any] | None = None) -> Page:
    """One smaller model."""
    page = Page("A smaller model, by merging channels")
    page.finding(merged_finding(result))
    if len({axis.kind for axis in result.plan.axes}) > 1 and any(result.taken.values()):
        page.section("What was taken from which kind of axis, in which layer", _KINDS)
        page.figure(taken_figure(result), "Parameters that went, by layer and by kind of axis.")
    page.section("What is left of every axis", "Channels before and after; the order is that of the model.")
    page.figure(widths_figure(result), "Kept channels (dark) and merged ones (light) of every axis.")
    if result.plan.left_alone:
        page.section("Left alone", "Axes that were not narrowed, and why.")
        page.table(["axis", "why"], list(result.plan.left_alone.items()))
    page.section("Every axis", folded=True)
    for table in result.tables():
        page.table(table)
    page.facts({**(facts or {}), "method": result.plan.method, "repair": result.plan.repair,
                "seconds": result.seconds})  # fmt: skip
    return page


def merged_finding(result: Merged) -> str:
    """One sentence: how much smaller, and what it costs."""
    share = result.parameters_after / max(result.parameters_before, 1)
    text = f"{result.parameters_after:,} of {result.parameters_before:,} parameters are left ({share:.0%})"
    before, after = result.evaluation_before, result.evaluation_after
    if before is None or after is None:
        return f"{text}; what that costs was not measured (give data)."
    what = _measured(after)
    old, new, error = (
        getattr(e, name) for e, name in ((before, what), (after, what), (after, f"{what}_error"))
    )
    within = f" ± {_number(error, what)}" if math.isfinite(error) else ""
    if what == "cosine":
        return f"{text}; embeddings have a cosine of {new:.4f}{within} with those of the model as it was."
    if what == "loss":
        numbers = f"{old:.4f} before, {new:.4f}{within} after, over {after.inputs:,} windows"
        goes = f"from {before.perplexity:.3g} to {after.perplexity:.3g}"
        return f"{text}; the perplexity goes {goes} (loss {numbers})."
    lost = 100 * (old - new)
    said = "loses no" if lost == 0 else f"{'loses' if lost > 0 else 'gains'} {abs(lost):.2f} points of"
    numbers = f"{old:.2%} before, {new:.2%}{within} after, on {after.inputs:,} inputs"
    return f"{text}; this {said} accuracy ({numbers})."


def _measured(found: Evaluation) -> str:
    """What is worth looking at: the loss of a language model, the cosine of embeddings, else the accuracy."""
    if not math.isnan(found.cosine):
        return "cosine"
    return "loss" if found.tokens else "accuracy"


def _number(value: float, what: str) -> str:
    return f"{100 * value:.2f} points" if what == "accuracy" else f"{value:.4f}"


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
    bars = (
        "Every point is one threshold, with its 95 % interval over inputs; the cross is the model as it was."
    )
    page.figure(trade_off(curve), bars)
    page.section("Every threshold", folded=True)
    for table in curve.tables():
        page.table(table)
    page.facts(facts or {})
    return page


def trade_off(curve: MergeCurve) -> Figure:
    """Accuracy (or FLOPs, without data) against the parameters kept, with the unmerged point."""
    import plotly.graph_objects as go

    rows = sorted(zip(curve.betas, curve.merged, strict=True), key=lambda row: row[1].parameters_after)
    kept = [100 * m.parameters_after / max(m.parameters_before, 1) for _, m in rows]
    first, found = rows[0][1].evaluation_before, [m.evaluation_after for _, m in rows]
    measured = [e for e in found if e is not None]
    errors: dict[str, Any] = {}
    if first is not None and len(measured) == len(rows):
        title = _measured(first)
        values = [getattr(e, title) for e in (*measured, first)]
        half = [getattr(e, f"{title}_error") for e in (*measured, first)]
        bars = [{"type": "data", "array": part, "thickness": 1} for part in (half[:-1], half[-1:])]
        errors = dict(zip(("merged", "before"), bars, strict=True)) if all(map(math.isfinite, half)) else {}
    else:
        values = [*(100 * m.flops_after / max(m.flops_before, 1) for _, m in rows), 100.0]
        title = "FLOPs kept, %"
    figure = go.Figure(
        go.Scatter(x=kept, y=values[:-1], text=[f"beta {beta:g}" for beta, _ in rows], name="merged",
                   mode="lines+markers", line={"color": _KEPT}, error_y=errors.get("merged"))
    )  # fmt: skip
    figure.add_trace(
        go.Scatter(x=[100], y=values[-1:], name="as it was", mode="markers", error_y=errors.get("before"),
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


def taken_figure(result: Merged) -> Figure:
    """A bar a layer: the parameters that went, in a colour for each kind of axis."""
    import plotly.graph_objects as go

    layers = list(dict.fromkeys(layer_of(axis) for axis in result.plan.axes))
    figure = go.Figure()
    for kind, colour in _COLOURS.items():
        went = dict.fromkeys(layers, 0)
        for axis in result.plan.axes:
            if axis.kind == kind:
                went[layer_of(axis)] += result.taken.get(axis.name, 0)
        if any(went.values()):
            figure.add_bar(y=layers, x=[*went.values()], name=kind, orientation="h", marker_color=colour)
    figure.update_yaxes(autorange="reversed", automargin=True)
    height = 140 + 24 * len(layers)
    title = {"barmode": "stack", "xaxis_title": "parameters taken", "showlegend": True}
    return figure.update_layout(height=height, **title, **_FRAME)


def layer_of(axis: AxisPlan) -> str:
    """What an axis is drawn with: its path up to the first number, or its first part; a stream is everywhere.

    >>> from types import SimpleNamespace
    >>> [layer_of(SimpleNamespace(name=n, kind="rank")) for n in ("h.3.mlp.c_fc", "embeddings.word.table")]
    ['h.3', 'embeddings']
    """
    if axis.kind == STREAM:
        return "all layers"
    parts = axis.name.split(".")
    at = next((k for k, part in enumerate(parts) if part.isdigit()), 0)
    return ".".join(parts[: at + 1])
