"""The page of `intertwine interpolate`: loss and accuracy along the line, and features layer by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from intertwine.aligning import Interpolation, InterpolationCurve, LayerConnectivity
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
_FRAME = {"template": "plotly_white", "margin": {"l": 60, "r": 20, "t": 30, "b": 50}, "height": 420}


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
