"""The figures hold the data they are made from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from intertwine.errors import InputError, MissingExtra
from intertwine.exploring import Grid, Landscape, find_topology
from intertwine.pages import explore_figures as figures
from intertwine.pages.explore_page import describe, draw_embedding, draw_landscape


def bowl(dim: int, points: int = 9, epsilon: float = 0.5) -> Landscape:
    grid = Grid.cube(dim, 1.0, points)
    values = sum(np.square(axis) for axis in np.meshgrid(*grid.axes, indexing="ij"))
    values = values + 0.1 * np.meshgrid(*grid.axes, indexing="ij")[0] + 0.2
    marks = np.zeros((2, dim))
    marks[1, 0] = 0.5
    return Landscape(
        grid, values, np.ones_like(values, dtype=bool), (epsilon,), marks, (0.2, 0.5), ("theta_0", "theta_1"),
        facts={"spread": 2.0},
    )  # fmt: skip


def test_contour_has_levels_marks_and_the_right_orientation():
    landscape = bowl(2)
    figure = figures.contour_figure(landscape)
    contour = figure.data[0]
    # z[j][i] belongs to (x_i, y_j): c1 is drawn to the right.
    assert contour.z[0][8] == pytest.approx(np.log10(landscape.values[8, 0]), rel=1e-6)
    names = [trace.name for trace in figure.data]
    assert "epsilon = 0.5" in names and names[-2:] == ["theta_0", "theta_1"]
    assert figure.data[-1].x[0] == 0.5


def test_epsilon_is_drawn_where_no_level_was_refined():
    """A cheap network's plane is evaluated everywhere, so that the landscape itself has no levels."""
    drawn = draw_landscape(replace(bowl(2), levels=()), 0.7)[1]
    assert [trace.name for trace in drawn.figure.data].count("epsilon = 0.7") == 1
    again = figures.contour_figure(bowl(2), epsilon=0.5)
    assert [trace.name for trace in again.data].count("epsilon = 0.5") == 1


def test_points_are_the_epsilon_set():
    landscape = bowl(3)
    figure = figures.points_figure(landscape, 0.5)
    inside = landscape.inside(0.5)
    assert len(figure.data[0].x) == inside.sum() > 0
    assert max(figure.data[0].marker.color) < 0.5
    rows, values = figures.epsilon_set(landscape, 0.5, limit=5)
    assert len(rows) == len(values) == 5


def test_every_dimension_gets_its_figures(monkeypatch):
    monkeypatch.setattr("intertwine.exploring.embed", lambda rows, method, seed=0: rows[:, :2])
    names = {dim: [d.name for d in draw_landscape(bowl(dim, 6), 0.9)] for dim in (1, 2, 3, 4)}
    assert names == {
        1: ["line"],
        2: ["surface", "contour"],
        3: ["points", "isosurface", "embedding"],
        4: ["embedding"],
    }


def test_without_umap_the_caption_says_so(monkeypatch):
    def absent(rows: np.ndarray, method: str, seed: int = 0) -> np.ndarray:
        if method == "umap":
            raise MissingExtra("UMAP is not installed")
        return rows[:, :2]

    monkeypatch.setattr("intertwine.exploring.embed", absent)
    drawing = draw_embedding(bowl(3), 0.5)
    assert drawing is not None and "principal components instead" in drawing.caption
    assert draw_embedding(bowl(3), 1e-9) is None


def test_captions_compare_epsilon_with_the_variance():
    assert "epsilon = 0.5 is 0.25 times the variance" in describe(bowl(2), 0.5)


def test_wrong_dimensions_are_refused():
    for make in (figures.surface_figure, figures.contour_figure, figures.line_figure):
        with pytest.raises(InputError, match="needs a"):
            make(bowl(3))


def test_topology_figure_has_both_curves():
    figure = figures.topology_figure(find_topology(bowl(2, 33), [0.3, 0.5, 1.0]))
    assert [trace.name for trace in figure.data] == ["components", "box-counting dimension"]
    assert list(figure.data[0].y) == [1, 1, 1]
