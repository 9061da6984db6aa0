"""The page of `intertwine explore`: which figures a landscape of one to four dimensions gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from intertwine.errors import MissingExtra
from intertwine.pages import explore_figures as figures

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from intertwine.exploring import Exploration, Landscape, Topology
    from intertwine.exploring.orbit import Orbit
    from intertwine.pages.page import Page

# UMAP needs seconds for thousands of points and minutes for more; a picture needs no more than this.
MAX_EMBEDDED = 4000


@dataclass(frozen=True)
class Drawing:
    """A figure with the name of its PNG file and its caption."""

    name: str
    figure: Figure
    caption: str


def draw_landscape(
    landscape: Landscape,
    epsilon: float,
    *,
    orbit: Orbit | None = None,
    method: str = "umap",
    seed: int = 0,
    embedded: int = MAX_EMBEDDED,
) -> list[Drawing]:
    """Every figure that the dimension of the landscape calls for; at most `embedded` points in an embedding.

    An embedding costs more than all else for a small network: `embedded=0` leaves it out.
    """
    caption = describe(landscape, epsilon)
    if landscape.grid.dim == 1:
        return [Drawing("line", figures.line_figure(landscape), caption)]
    if landscape.grid.dim == 2:
        return [
            Drawing(
                "surface", figures.surface_figure(landscape), "Linear scale, cut at the 90th percentile."
            ),
            Drawing("contour", figures.contour_figure(landscape, orbit, epsilon), f"Log scale. {caption}"),
        ]
    drawings = []
    if landscape.grid.dim == 3:
        drawings.append(Drawing("points", figures.points_figure(landscape, epsilon), caption))
        surface = figures.isosurface_figure(landscape, epsilon)
        drawings.append(Drawing("isosurface", surface, f"{landscape.name} = {epsilon:.3g}."))
    embedding = draw_embedding(landscape, epsilon, method=method, seed=seed, limit=embedded)
    return drawings + ([embedding] if embedding else [])


def draw_embedding(
    landscape: Landscape, epsilon: float, *, method: str = "umap", seed: int = 0, limit: int = MAX_EMBEDDED
) -> Drawing | None:
    """The epsilon-set embedded in two dimensions.

    The basis of a plane is orthonormal, so its coefficients and its parameter vectors have the same
    distances and the same embedding (figures 3 and 6 of GENNI).
    """
    from intertwine.exploring import embed

    rows, values = figures.epsilon_set(landscape, epsilon, limit)
    if len(rows) < 4:
        return None
    rows = np.concatenate([rows, landscape.marks])
    try:
        placed = embed(rows, method, seed=seed)
    except MissingExtra:
        method = "pca"
        placed = embed(rows, method)
    figure = figures.embedding_figure(placed, values, landscape.mark_names, method.upper(), landscape.name)
    note = "" if method == "umap" else " (UMAP is not installed: principal components instead)"
    return Drawing(
        "embedding",
        figure,
        f"{method.upper()} of the parameter vectors with {landscape.name} below {epsilon:.3g}{note}.",
    )


def describe(landscape: Landscape, epsilon: float) -> str:
    """One sentence on how the picture was made and how large epsilon is."""
    points = " x ".join(str(n) for n in landscape.grid.shape)
    text = f"{points} grid points, {landscape.evaluations:,} evaluated"
    if landscape.evaluations < landscape.grid.size:
        text += ", the others interpolated"
    spread = landscape.facts.get("spread")
    if spread:
        text += (
            f"; epsilon = {epsilon:.3g} is {epsilon / spread:.2g} times the variance of the model's outputs"
        )
    return text + "."


def fill_page(
    page: Page,
    drawings: Sequence[Drawing],
    landscape: Landscape,
    topologies: Sequence[Topology],
    facts: Mapping[str, Any],
) -> None:
    """Figures, marks and topology, in this order; the facts are folded."""
    page.facts(facts)
    page.section("The picture")
    for drawing in drawings:
        page.figure(drawing.figure, drawing.caption)
    page.section("The points")
    marks = zip(landscape.mark_names, landscape.marks, landscape.mark_values, strict=True)
    rows = [[name, *(f"{c:.4g}" for c in at), f"{value:.3g}"] for name, at, value in marks]
    page.table(["point", *(f"c{i + 1}" for i in range(landscape.grid.dim)), landscape.name], rows)
    if topologies:
        page.section("Topology", folded=True)
        page.table(topologies[0].COLUMNS, [t.row() for t in topologies])
        if len(topologies) > 1:
            caption = "Read from the grid; away from the refined levels from interpolated values."
            page.figure(figures.topology_figure(topologies), caption)


def exploration_page(found: Exploration, facts: Mapping[str, Any] | None = None) -> Page:
    """The page of an exploration."""
    from intertwine.pages.page import Page

    page = Page("The equivalence class of a parameter")
    if "finding" in found.facts:
        page.finding(str(found.facts["finding"]))
    fill_page(page, draw(found), found.landscape, found.topologies, {**(facts or {}), **found.facts})
    return page


def draw(found: Exploration) -> list[Drawing]:
    """Its figures."""
    orbit = None if found.known is None else found.known.orbit
    return draw_landscape(found.landscape, found.epsilon, orbit=orbit, seed=found.seed)
