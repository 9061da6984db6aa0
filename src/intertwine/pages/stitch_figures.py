"""Figures of a stitching: penalty over layers, one colour a kind, dashed before training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intertwine.stitching.stitching import StitchReport

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_COLOURS = ("#0b6e99", "#d1495b", "#3a7d44", "#8f5fbf", "#c77d0a", "#4a5568", "#009e8e", "#b5179e")


def penalty_curves(report: StitchReport) -> Figure:
    """Penalty at every layer: dotted the closed form, solid after training; a star marks a cut inside a
    block."""
    from plotly.graph_objects import Figure, Scatter

    figure = Figure()
    marked = {s.layer: s.layer + (" *" if s.inside else "") for s in report.stitchings}
    for i, kind in enumerate(report.kinds):
        found = [s for s in report.stitchings if s.kind == kind]
        layers = [marked[s.layer] for s in found]
        colour = _COLOURS[i % len(_COLOURS)]
        for name, style in (("start", "dot"), ("trained", "solid")):
            figure.add_trace(
                Scatter(
                    x=layers,
                    y=[getattr(s, name) for s in found],
                    name=f"{kind}, {'closed form' if name == 'start' else 'final'}",
                    mode="lines+markers",
                    line={"color": colour, "width": 2, "dash": style},
                    marker={"size": 5 if name == "start" else 8},
                )
            )
    figure.update_xaxes(title="cut after", tickangle=-60, type="category", automargin=True)
    figure.update_yaxes(title="penalty, points", automargin=True, rangemode="tozero")
    figure.update_layout(
        template="plotly_white",
        height=480,
        margin={"l": 80, "r": 30, "t": 40, "b": 80},
        font={"family": "system-ui, sans-serif", "size": 12},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 1, "xanchor": "right"},
    )
    return figure
