"""The pages in a real browser: no error, every figure drawn, anchors, hostile names inert, no request."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import torch
from torch import nn

import intertwine
from browser import look, needs_chromium
from intertwine.pages.page import FLAT, SOLID, Page
from intertwine.pages.panel_figures import Cell, panel_figure
from intertwine.pages.similarity_figures import curves, heat_map
from intertwine.pages.symmetry_page import symmetry_page

pytestmark = needs_chromium
EVIL = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"


def net() -> nn.Module:
    layers = nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(128, 3)
    return nn.Sequential(*layers).eval()


def test_the_map_answers_a_click_and_is_readable_when_dark_and_narrow(tmp_path: Path) -> None:
    model, example = net(), torch.zeros(2, 1, 6, 6)
    symmetry = intertwine.trace(model, example)
    page = symmetry_page("net", symmetry, intertwine.verify(model, example, symmetry=symmetry))
    path = page.write(tmp_path / "inspect.html")
    click = 'document.querySelector("rect").dispatchEvent(new MouseEvent("click", {bubbles: true}));'
    read = 'seen.step = document.getElementById("map-panel").textContent;'
    seen = look(path, tmp_path, dark=True, width=390, step=click + read)
    seen.assert_sound()
    assert "You may reorder these 8 channels and rescale each by a number other than zero" in str(seen.step)
    assert len(seen.figures) == 1 and seen.wide <= 0
    light, dark = (sum(map(int, re.findall(r"\d+", colour))) for colour in (seen.ink, seen.ground))
    assert light > 600 > 150 > dark  # light text on a dark ground


def test_hostile_names_are_inert_and_every_kind_of_figure_is_drawn(tmp_path: Path) -> None:
    page = Page(EVIL)
    page.finding(EVIL)
    page.facts({EVIL: EVIL})
    page.section(EVIL, EVIL)
    page.table([EVIL], [[EVIL]], caption=EVIL)
    page.figure(heat_map(np.eye(2), [EVIL, "b"], [EVIL, "d"], title=EVIL), EVIL)
    page.section("folded", folded=True)
    page.figure(curves({EVIL: [1.0, 2.0]}, [EVIL, "b"]), EVIL)
    add_every_kind(page, FLAT)
    seen = look(page.write(tmp_path / "evil.html"), tmp_path)
    seen.assert_sound()
    assert len(seen.figures) == 2 + len(FLAT)


def test_one_page_draws_in_two_and_in_three_dimensions(tmp_path: Path) -> None:
    page = Page("t")
    kinds = frozenset({"bar", "contour", "heatmap", "isosurface", "scatter3d", "surface"})
    assert kinds <= SOLID and not kinds <= FLAT
    add_every_kind(page, kinds)
    seen = look(page.write(tmp_path / "solid.html"), tmp_path)
    # a browser without a graphics card may say that its WebGL is slow
    assert not [said for said in seen.errors if "WebGL" not in said] and not seen.refused and not seen.asked
    assert len(seen.figures) == len(kinds) and all(seen.figures)


def test_figures_make_room_for_what_stands_in_their_margins(tmp_path: Path) -> None:
    """Dark, on a telephone: legend and titles apart and inside, dark dots lighter, the title as text."""
    page, groups = Page("t"), ("both optimal", "optimal and poor", "optimal and mediocre", "others")
    points = {name: [(0.2, 0.3, "a"), (0.5, 0.4, "b")] for name in groups}
    cell = {("tested on Empty-5x5", "trained on Empty-5x5"): Cell(points, None)}
    long = "Jensen-Shannon divergence of actions"
    page.figure(panel_figure(cell, dict.fromkeys(groups, "#101828"), x_title="linear CKA", y_title=long), "a")
    page.figure(curves({"a": [1.0, 2.0]}, ["x", "y"], title="On top"), "b")
    measure = """
      const box = each => each.getBoundingClientRect(), plot = plots[0];
      const all = query => [...plot.querySelectorAll(query)];
      const lowest = Math.max(...all(".annotation").map(each => box(each).bottom));
      seen.step = {over: lowest - box(all(".legend")[0]).top,
        cut: box(plot).left - Math.min(...all(".annotation").map(each => box(each).left)),
        title: document.querySelector(".plot-title").textContent,
        inside: plots[1].querySelectorAll(".gtitle").length,
        dots: plot._fullData[0].marker.color, given: plot.given[0][1]};"""
    seen = look(page.write(tmp_path / "room.html"), tmp_path, dark=True, width=390, step=measure)
    seen.assert_sound()
    found = seen.step
    assert isinstance(found, dict) and seen.wide <= 0
    assert found["over"] < 0 and found["cut"] <= 0, found
    assert found["title"] == "On top" and not found["inside"]
    assert found["given"] == "#101828" and min(map(int, re.findall(r"\d+", found["dots"]))) > 80


def add_every_kind(page: Page, kinds: frozenset[str]) -> None:
    cube = {axis: [float(i >> n & 1) for i in range(8)] for n, axis in enumerate("xyz")}
    grid = {"z": [[1.0, 2.0], [3.0, 5.0]]}
    data = {
        "heatmap": grid, "contour": grid, "surface": grid, "image": {"z": [[[255, 0, 0], [0, 255, 0]]]},
        "pie": {"values": [1, 2]}, "scatter3d": cube, "mesh3d": cube,
        "isosurface": {**cube, "value": list(range(8))}, "volume": {**cube, "value": list(range(8))},
    }  # fmt: skip
    for kind in sorted(kinds):
        page.figure(go.Figure([{"type": kind, **data.get(kind, {"x": [1, 2, 2], "y": [3, 4, 4]})}]), kind)


def test_the_watch_sees_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "bad.html"
    path.write_text(
        '<!doctype html><html><head></head><body><img src="http://example.org/x.png"><a href="#nowhere">x</a>'
        "<script>alert(1); console.error('loud'); undefinedName();</script></body></html>"
    )
    seen = look(path, tmp_path)
    assert seen.alerts == 1 and seen.dangling == ["nowhere"] and seen.unlabelled == 1
    assert any("example.org" in where for where in seen.refused)
    assert any("loud" in said for said in seen.errors)
    assert any("undefinedName" in said for said in seen.errors)
