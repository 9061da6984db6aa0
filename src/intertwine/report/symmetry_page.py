"""The inferred symmetry of a model on a page: how many channels which group moves, and the proof."""

from __future__ import annotations

from typing import Any

from intertwine.report.page import Page
from intertwine.symmetry import Report, Symmetry

# From the smallest group to the largest; frozen is grey.
COLOURS = {
    "trivial": "#b8c0ca",
    "sign diagonal": "#c9b6e4",
    "positive diagonal": "#b59ad6",
    "nonzero diagonal": "#9a7cc4",
    "permutation": "#7fb3e6",
    "signed permutation": "#5c9bd6",
    "positive monomial": "#3f86c9",
    "monomial": "#2667a8",
    "orthogonal": "#e8a13d",
    "general linear": "#d5652c",
}
_MOST_BARS = 60


def add_symmetry(page: Page, symmetry: Symmetry, report: Report) -> None:
    """Two sections: the proof, and the axes."""
    page.section(
        "Proved by acting",
        f"A random element of the whole group moved {report.parameter_coverage:.1%} of the parameters and "
        f"changed the output by at most {report.max_error:.1e} (relative, {report.dtype}) at the sizes "
        f"{', '.join(report.sizes)}. The same element with one weight left behind changed it by "
        f"{report.control_error:.1e}.",
    )
    page.section(
        "Hidden axes",
        "Every bar is one axis: channels that are carried by the same dimensions of the same weights. "
        "The colour is the group that acts on it.",
    )
    page.figure(axes_figure(symmetry), f"The axes of the model ({len(symmetry.axes)} in all).")
    page.table(
        ["axis", "channels", "group", "weights", "mergeable", "frozen because"],
        [
            [a.name, a.size, str(a.group), len(a.members), a.mergeable, a.frozen_because or ""]
            for a in symmetry.axes
        ],
    )


def axes_figure(symmetry: Symmetry) -> Any:
    """One bar an axis, coloured by its group; the largest ones where there are too many to read."""
    import plotly.graph_objects as go

    shown = symmetry.axes
    if len(shown) > _MOST_BARS:
        largest = set(sorted(shown, key=lambda a: -a.size)[:_MOST_BARS])
        shown = tuple(a for a in shown if a in largest)
    figure = go.Figure()
    for name, colour in COLOURS.items():
        chosen = [a for a in shown if a.group.name == name]
        if chosen:
            figure.add_bar(
                y=[a.name for a in chosen],
                x=[a.size for a in chosen],
                name="frozen" if name == "trivial" else name,
                orientation="h",
                marker_color=colour,
                customdata=[[str(a.group), len(a.members)] for a in chosen],
                hovertemplate="%{y}: %{x} <br>%{customdata[0]}<extra>%{customdata[1]} weights</extra>",
            )
    figure.update_layout(
        template="plotly_white",
        height=140 + 22 * len(shown),
        margin={"l": 10, "r": 10, "t": 30, "b": 40},
        xaxis_title="channels",
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        barmode="stack",
    )
    figure.update_yaxes(
        autorange="reversed", categoryorder="array", categoryarray=[a.name for a in shown], automargin=True
    )
    return figure
