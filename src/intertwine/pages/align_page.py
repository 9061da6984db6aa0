"""The pages of `intertwine align` (channels before and after) and `interpolate` (the line between models)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from intertwine.aligning import Alignment, Interpolation, InterpolationCurve, LayerConnectivity
from intertwine.aligning._interpolation import NAMES
from intertwine.pages.page import Page

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_FINDS = {
    "none": "as they are", "permutation": "after permutations", "full": "after the whole group",
    "aligned": "aligned", "reset": "with statistics reset", "repair": "rescaled",
    "least-squares": "with layers solved for",
}  # fmt: skip
_COLOURS = {
    "none": "#8a94a3", "permutation": "#2f6fde", "full": "#d1495b", "aligned": "#2f6fde", "reset": "#7b61c4",
    "repair": "#c08a1e", "least-squares": "#2a9d6f",
}  # fmt: skip
_ONE_ORBIT = 1e-6  # as near as float32 weights come back
_FRAME = {"template": "plotly_white", "margin": {"l": 60, "r": 20, "t": 30, "b": 50}, "height": 420}


def alignment_page(found: Alignment, facts: Mapping[str, object] | None = None) -> Page:
    """How near B came to A, axis by axis."""
    page = Page("B brought onto A")
    page.finding(alignment_finding(found))
    page.section(
        "Channel by channel",
        "The mean cosine between the weights of matched channels of A and B; 1 means that they agree up to a "
        "factor. Moving channels changes no function: the aligned B computes what B computes.",
    )
    page.figure(cosine_figure(found), "Mean cosine of matched channels of every axis, before and after.")
    page.section("Every axis", folded=True)
    page.table(found.tables()[0])
    page.section("What was tried", "Distance relative to A; the best is kept.", folded=True)
    page.table(["moved by", "distance"], [list(each) for each in found.candidates])
    page.facts({**(facts or {}), "compared by": found.by, "group": found.group, "seed": found.seed})
    for note in found.notes:
        page.text(note)
    return page


def alignment_finding(found: Alignment) -> str:
    """One sentence: the distance before and after, and what that means."""
    moved = sum(axis.moved for axis in found.axes)
    text = (
        f"B's distance from A goes from {found.distance_before:.3g} to {found.distance_after:.3g} times "
        f"the length of A; {moved:,} of {sum(axis.size for axis in found.axes):,} channels changed place."
    )
    return f"{text} They are one function." if found.distance_after < _ONE_ORBIT else text


def cosine_figure(found: Alignment) -> Figure:
    """Two bars an axis."""
    import plotly.graph_objects as go

    names = [axis.name for axis in found.axes]
    figure = go.Figure()
    for label, name, colour in (("before", "cosine_before", "#8a94a3"), ("after", "cosine_after", "#2f6fde")):
        values = [getattr(axis, name) for axis in found.axes]
        figure.add_bar(x=names, y=values, name=label, marker={"color": colour})
    figure.update_xaxes(type="category", automargin=True)
    legend = {"orientation": "h", "y": 1.02, "yanchor": "bottom"}
    return figure.update_layout(yaxis_title="cosine", barmode="group", legend=legend, **_FRAME)


def interpolation_page(found: Interpolation, facts: Mapping[str, object] | None = None) -> Page:
    """A page that says what was walked, what was done about statistics, and what came out."""
    curves, layers, tables = found.curves, found.layers, found.tables()
    page = Page("The line between models")
    page.finding(line_finding(curves))
    done = "; ".join(dict.fromkeys(curve.statistics for curve in curves))
    page.facts({**(facts or {}), "statistics": done})
    page.section(
        "Along the line",
        "The barrier is how far the loss rises above the straight line between the end points. Models after "
        "the first were moved onto it by the group that is named; this changes no function, only the line.",
    )
    same = f" {equal}" if (equal := equal_lines(curves)) else ""
    page.figure(line_figure(curves, "loss"), f"Loss; {done}.{same}")
    page.figure(line_figure(curves, "accuracy"), f"Accuracy; {done}.")
    page.table(*tables[0][1:3])
    page.section(
        "Layer by layer",
        "Layerwise linear feature connectivity: the cosine between the features of the mean of the first two "
        "models and the mean of their features, over inputs. 1 means that they agree up to a factor.",
    )
    page.figure(layer_figure(layers), "Dotted: the cosine between the features of the two models.")
    page.table(*tables[1][1:3])
    return page


def line_finding(curves: Sequence[InterpolationCurve]) -> str:
    """One sentence: the barrier as the models are, and after each way to align them."""
    parts = [
        f"{max(line.barrier for line in curve.lines):.3g} {_FINDS.get(curve.label, f'({curve.label})')}"
        for curve in curves
    ]
    return f"The loss rises above the line between its ends by at most {', '.join(parts)}."


def equal_lines(curves: Sequence[InterpolationCurve]) -> str:
    """Names the ways whose lines lie on each other, since the picture shows only the one drawn last."""
    first = {curve.label: [s.loss for line in curve.lines for s in line.scores] for curve in curves}
    labels = list(first)
    every = [loss for losses in first.values() for loss in losses]
    span = max(every) - min(every)
    pairs = [
        f"“{NAMES.get(a, a)}” and “{NAMES.get(b, b)}”"
        for k, a in enumerate(labels) for b in labels[k + 1 :]
        if all(abs(x - y) <= 0.005 * span for x, y in zip(first[a], first[b], strict=True))
    ]  # fmt: skip
    return f"The lines of {', '.join(pairs)} lie on each other (within 0.5 % of the range)." if pairs else ""


def line_figure(curves: Sequence[InterpolationCurve], what: str) -> Figure:
    """Loss or accuracy against t, one line for each pair of models and way of aligning."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for curve in curves:
        for line in curve.lines:
            name = NAMES.get(curve.label, curve.label)
            if len(curve.lines) > 1:
                name += f", to model {line.other + 1}"
            style = {"color": _COLOURS.get(curve.label), "dash": "solid" if line.other == 1 else "dot"}
            values = [getattr(score, what) for score in line.scores]
            figure.add_trace(go.Scatter(x=line.ts, y=values, name=name, mode="lines+markers", line=style))
    return figure.update_layout(
        xaxis_title="t, from the first model to the other", yaxis_title=what, **_FRAME
    )


def layer_figure(layers: Mapping[str, Sequence[LayerConnectivity]]) -> Figure:
    """Cosines against depth."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for way, found in layers.items():
        names, colour = [layer.layer for layer in found], _COLOURS.get(way)
        label = NAMES.get(way, way)
        figure.add_trace(
            go.Scatter(
                x=names, y=[f.cosine for f in found], name=label, mode="lines+markers", line={"color": colour}
            )
        )
        figure.add_trace(
            go.Scatter(
                x=names, y=[f.ends for f in found], name=f"{label}: the two models", mode="lines",
                line={"color": colour, "dash": "dot"},
            )
        )  # fmt: skip
    return figure.update_layout(
        xaxis_title="layer", yaxis_title="cosine", yaxis_range=[-0.05, 1.05], **_FRAME
    )
