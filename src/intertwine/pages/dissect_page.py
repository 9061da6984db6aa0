"""The page of `intertwine dissect`: detectors against rotation, bars by category, the best units."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from intertwine.inside import Dissection, LayerReading
from intertwine.pages.page import Html, Page
from intertwine.pages.pixels import image_tag, spotlight

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

COLOURS = {
    "colour": "#e0a030",
    "texture": "#4e9f6d",
    "part": "#b05fa8",
    "object": "#3f7fc1",
    "scene": "#d2604f",
}
_WIDTH = 96


def share_points(readings: Sequence[LayerReading]) -> list[tuple[float, float, float]]:
    """(alpha, mean share of interpretable units, deviation over draws); alpha 0 is the layer's own basis."""
    alphas = sorted({r.alpha for r in readings})
    found = []
    for alpha in alphas:
        shares = [r.share for r in readings if r.alpha == alpha]
        found.append((alpha, float(np.mean(shares)), float(np.std(shares))))
    return found


def share_figure(curves: Mapping[str, Sequence[tuple[float, float, float]]]) -> Figure:
    """Fig. 3 of source 002: share of interpretable units against the power of the rotation."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for name, points in curves.items():
        figure.add_scatter(
            x=[p[0] for p in points], y=[p[1] for p in points], name=name, mode="lines+markers",
            error_y={"type": "data", "array": [p[2] for p in points], "visible": True},
        )  # fmt: skip
    figure.update_layout(
        template="plotly_white", height=380, margin={"l": 10, "r": 10, "t": 30, "b": 40},
        xaxis_title="power of the rotation", yaxis_title="share of interpretable units",
    )  # fmt: skip
    figure.update_yaxes(rangemode="tozero")
    return figure


def category_figure(counts: Mapping[str, Mapping[str, float]], what: str) -> Figure:
    """Figs. 18, 20, 22, 24: distinct concepts (or units) by category, a stacked bar for each basis."""
    import plotly.graph_objects as go

    figure = go.Figure()
    kinds = list(dict.fromkeys(kind for found in counts.values() for kind in found))
    for kind in sorted(kinds, key=_rank):
        heights = [found.get(kind, 0) for found in counts.values()]
        figure.add_bar(x=list(counts), y=heights, name=kind, marker_color=COLOURS.get(kind, "#8896a5"))
    return figure.update_layout(
        template="plotly_white", height=380, barmode="stack", margin={"l": 10, "r": 10, "t": 30, "b": 40},
        xaxis_title="basis", yaxis_title=what,
    )  # fmt: skip


def _rank(kind: str) -> int:
    """The place of a category in every legend."""
    return list(COLOURS).index(kind) if kind in COLOURS else len(COLOURS)


def concept_figure(detected: Mapping[str, float], kinds: Mapping[str, str]) -> Figure:
    """The concepts of one basis, a bar each, coloured by category (concept -> category in `kinds`)."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for kind in sorted({kinds[name] for name in detected}, key=_rank):
        chosen = [name for name in detected if kinds[name] == kind]
        colour = COLOURS.get(kind, "#8896a5")
        figure.add_bar(x=chosen, y=[detected[n] for n in chosen], name=kind, marker_color=colour)
    return figure.update_layout(
        template="plotly_white", height=300, margin={"l": 10, "r": 10, "t": 30, "b": 40}, yaxis_title="units",
        xaxis={"title": "concept", "categoryorder": "array", "categoryarray": list(detected)},
    )  # fmt: skip


def example_grid(readings: Sequence[LayerReading], *, enlarge: int = 1) -> np.ndarray:
    """Figs. 21, 23, 25 as one picture: a row a unit with its images, a gap between bases."""
    rows = []
    for reading in readings:
        for found in reading.examples:
            cells = [spotlight(_shown(i), m) for i, m in zip(found.images, found.masks, strict=True)]
            padded = [np.pad(cell, ((1, 1), (1, 1), (0, 0)), constant_values=255) for cell in cells]
            rows.append(np.concatenate(padded, 1))
        rows.append(np.full((6, rows[-1].shape[1], 3), 255, np.uint8))
    return np.concatenate(rows[:-1], 0).repeat(enlarge, 0).repeat(enlarge, 1)


def example_cells(reading: LayerReading) -> str:
    """Figs. 21, 23, 25: the best units, each with the images it likes most, dark outside of its mask."""
    parts = []
    for found in reading.examples:
        pictures = "".join(
            image_tag(spotlight(_shown(image), mask), width=_WIDTH, title=found.concept) + " "
            for image, mask in zip(found.images, found.masks, strict=True)
        )
        title = f"unit {found.unit}: {found.concept} ({found.category}), IoU {found.iou:.3f}"
        parts.append(f"<div>{html.escape(title)}</div><div>{pictures}</div>")
    return "".join(parts)


def _shown(image: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(image.transpose(1, 2, 0))


def dissect_finding(result: Dissection) -> str:
    """How many units detect a concept in the own basis and in the last other one, layer by layer."""
    parts = []
    for layer in result.groups:
        readings = result.of(layer)
        own, last = readings[0], max(r.alpha for r in readings)
        text = f"{len(own.detectors)} of {own.units} units of {layer} ({own.share:.0%}) detect a concept"
        if own.by != "none":
            text += f" in the basis {own.basis}"
        others = [r for r in readings if r.by != "none" and r.alpha == last and r is not own]
        if others:
            shares = [r.share for r in others]
            within = f" ± {np.std(shares):.0%}" if len(others) > 1 else ""
            how = "an element of its own group" if others[0].by == "group" else "a random rotation"
            text += f", {np.mean(shares):.0%}{within} after {how}"
        parts.append(text)
    return f"{'; '.join(parts)}."


def dissect_page(result: Dissection, *, facts: Mapping[str, Any] | None = None) -> Page:
    """One section a layer, then what was done."""
    page = Page("Which units detect a concept")
    page.finding(dissect_finding(result))
    page.facts({**(facts or {}), "concepts": result.data, "images": result.images})
    page.facts({f"group of {layer}": name for layer, name in result.groups.items()})
    page.section(
        "Interpretable units",
        f"A unit is active where it exceeds its {result.quantile:g} quantile over all images and positions. "
        "It detects the concept with which its mask, resized to the image, has the largest intersection over "
        f"union, if that exceeds {result.threshold:g} (source 002, F.1).",
    )
    layers = list(result.groups)
    if len({r.alpha for r in result.readings}) > 2:
        curves = {layer: share_points(result.of(layer)) for layer in layers}
        bars = " Bars are deviations over random rotations." if any(r.draw for r in result.readings) else ""
        page.figure(share_figure(curves), f"Share of interpretable units against the rotation.{bars}")
    page.table(result.tables()[0])
    for layer in layers:
        first = {r.basis: r for r in result.of(layer) if r.draw == 0}
        page.section(f"{layer}: concepts by category")
        counts = {name: reading.concepts_by_category() for name, reading in first.items()}
        if any(counts.values()):
            shown = category_figure(counts, "distinct concepts")
            page.figure(shown, "Distinct concepts that some unit detects.")
        else:
            page.text("No unit detects a concept in any basis.")
        for name, reading in first.items():
            if reading.examples:
                page.text(f"Best units, basis: {name}")
                page.text(Html(example_cells(reading)))
    return page
