"""The inferred symmetry of a model on a page: how many channels which group moves, and the proof."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from intertwine.pages.network_map import COLOURS, add_map
from intertwine.pages.page import Page
from intertwine.symmetry import Inspection, Report, Symmetry, verify

_MOST_BARS = 60


def symmetry_page(name: str, symmetry: Symmetry, report: Report) -> Page:
    """The page of `intertwine inspect`."""
    page = Page(f"The symmetries of {name}")
    page.finding(symmetry_finding(symmetry, report))
    add_symmetry(page, symmetry, report)
    page.facts({"model": name, "sizes": ", ".join(report.sizes), "proof": report.dtype})
    return page


def symmetry_finding(symmetry: Symmetry, report: Report) -> str:
    """One sentence: how much may be changed, and how well that is proved."""
    free = [axis for axis in symmetry.axes if not axis.group.is_trivial]
    if report.verdict == "wrong":
        return f"Refuted: a claimed symmetry changed the output by {report.max_error:.1e}."
    how = "proved" if report.exact else "not disproved"
    return (
        f"{report.parameter_coverage:.1%} of the parameters can be changed without changing the function: "
        f"{len(free)} hidden {'axis' if len(free) == 1 else 'axes'} with {sum(axis.size for axis in free):,} "
        f"channels {'has' if len(free) == 1 else 'have'} a symmetry group "
        f"({how}: the output moved by at most {report.max_error:.0e})."
    )


def add_symmetry(page: Page, symmetry: Symmetry, report: Report) -> None:
    """Three sections: the map, the proof, and the table of axes."""
    page.section(
        "The network as a map",
        "Every row is a weight, in the order of the model; every coloured band is a hidden axis, from the "
        "first weight that carries it to the last. A number is how many channels a dimension has; "
        "click it, or a band, to see what may be done to them.",
    )
    add_map(page, symmetry)
    page.section(
        "Proved by acting",
        f"A random element of the whole group moved {report.parameter_coverage:.1%} of the parameters and "
        f"changed the output by at most {report.max_error:.1e} (relative, {report.dtype}) at the sizes "
        f"{', '.join(report.sizes)}. The same element with one weight left behind changed it by "
        f"{report.control_error:.1e}.",
    )
    page.section("All axes", "Channels that the same dimensions of the same weights carry.", folded=True)
    page.figure(axes_figure(symmetry), f"The axes of the model ({len(symmetry.axes)} in all).")
    page.table(
        ["axis", "channels", "group", "weights", "mergeable", "frozen because"],
        [
            [a.name, a.size, str(a.group), len(a.members), a.mergeable, a.frozen_because or ""]
            for a in symmetry.axes
        ],
    )


def inspection_page(found: Inspection, facts: Mapping[str, Any] | None = None) -> Page:
    """The page of `intertwine inspect`, with a proof by `verify`."""
    proof = verify(found.model, found.inputs, kwargs=found.kwargs, symmetry=found.symmetry)
    return symmetry_page(str((facts or {}).get("model", "a model")), found.symmetry, proof)


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
