"""The page: offline, escaped, whole or not at all."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from intertwine.comparing import compare
from intertwine.errors import InputError
from intertwine.report.page import Html, Page
from intertwine.report.similarity_figures import curves, heat_map, scatter
from intertwine.report.similarity_page import comparison_page

EVIL = "<img src=x onerror=alert(1)></script><script>alert(2)</script>&\"'"


def test_everything_is_escaped():
    page = Page(EVIL)
    page.section(EVIL, EVIL + "\n\nsecond")
    page.table([EVIL], [[EVIL], [3]])
    page.table([{EVIL: EVIL}])
    page.figure(heat_map(np.eye(2), [EVIL, "b"], [EVIL, "d"], title=EVIL), EVIL)
    page.figure(curves({EVIL: [1.0, 2.0]}, [EVIL, "b"]), EVIL)
    page.figure(
        scatter({EVIL: [(0.0, 1.0, EVIL), (1.0, 2.0, "b")]}, x_title=EVIL, y_title="y", fit=EVIL), EVIL
    )
    text = page.render()
    assert "<img src=x" not in text
    assert "<script>alert" not in text
    assert "&lt;img src=x" in text


def test_markup_passes_when_marked():
    page = Page("t")
    page.section("s", Html("<b>bold</b>"))
    assert "<b>bold</b>" in page.render()


def test_offline_and_the_library_once():
    page = Page("t")
    page.section("s")
    for _ in range(3):
        page.figure(heat_map(np.eye(2), ["a", "b"], ["c", "d"]))
    text = page.render()
    assert text.count("plotly.js v") == 1
    assert 'src="http' not in text and "<link" not in text
    bare = Page("t")
    bare.section("only text", "x")
    assert "<script" not in bare.render()


def test_tables_align_numbers_and_show_what_is_missing():
    page = Page("t")
    page.table(["name", "value"], [["a", 0.123456], ["b", None], ["c", 12345]])
    text = page.render()
    assert '<td class="number">0.1235</td>' in text
    assert '<td class="number">-</td>' in text and "12,345" in text
    page = Page("t")
    page.table([{"x": 1, "y": True}, {"x": 2}])
    assert "<td>yes</td>" in page.render()
    with pytest.raises(InputError, match="dicts"):
        page.table([[1, 2]])


def test_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    path.write_text("before")
    page = Page("t")
    page.section("s", "text")
    monkeypatch.setattr(Page, "render", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        page.write(path)
    assert path.read_text() == "before" and list(tmp_path.iterdir()) == [path]
    monkeypatch.undo()
    page.write(path)
    assert path.read_text().startswith("<!doctype html>") and list(tmp_path.iterdir()) == [path]
    with pytest.raises(InputError, match="cannot write"):
        page.write(tmp_path / "missing" / "page.html")


def test_comparison_page_shows_every_measure_and_note():
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    dead = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    with torch.no_grad():
        dead[0].weight.zero_()
        dead[0].bias.fill_(-1)
    data = torch.randn(40, 3)
    text = comparison_page(compare(net, dead, data, ["cka", "rsa"]), "one", "two").render()
    for expected in (
        "linear CKA",
        "RSA, Spearman",
        "Jensen-Shannon",
        "are constant",
        "40 inputs; means over pixels",
    ):
        assert expected in text


def test_a_picture_carries_its_caption_escaped_and_leaves_the_figure_alone():
    import plotly.graph_objects as go

    from intertwine.report.png import titled

    figure = go.Figure(layout={"margin": {"t": 30}})
    copy = titled(figure, "a < b " * 30)
    assert "&lt;" in copy.layout.title.text and " < " not in copy.layout.title.text
    assert copy.layout.title.text.count("<br>") == 1 and copy.layout.margin.t > 30 + 2 * 18
    assert figure.layout.title.text is None and figure.layout.margin.t == 30
