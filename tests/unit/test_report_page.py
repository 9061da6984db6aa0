"""The page: offline, escaped, whole or not at all."""

from __future__ import annotations

import base64
import gzip
import re
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
import torch
from torch import nn

import intertwine
from intertwine import pages
from intertwine.comparing import compare
from intertwine.errors import InputError, WrongKind
from intertwine.pages.collection import report
from intertwine.pages.network_map import COLOURS, render_map
from intertwine.pages.page import FLAT, SOLID, Html, Page, made_by
from intertwine.pages.similarity_figures import curves, heat_map, scatter
from intertwine.pages.similarity_page import comparison_page
from intertwine.pages.symmetry_page import symmetry_page
from intertwine.results import Result
from intertwine.symmetry import Report

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
    assert text.count('id="plotly"') == 1
    assert 'src="http' not in text and "<link" not in text
    assert len(text) < 1_000_000
    bare = Page("t")
    bare.section("only text", "x")
    assert "<script" not in bare.render()


@pytest.mark.parametrize(("bundle", "kinds"), [("cartesian", FLAT), ("solid", SOLID)])
def test_the_part_of_plotly_is_of_plotlys_version_and_draws_what_it_says(bundle, kinds):
    from plotly.offline import get_plotlyjs_version

    page = Page("t")
    page.figure(go.Figure([{"type": kind} for kind in sorted(kinds)]))
    text = page.render()
    assert f"* plotly.js ({bundle} - minified) v{get_plotlyjs_version()}\n" in library_of(text)
    assert len(text) < 1_000_000


def test_a_kind_of_figure_that_no_part_draws_gets_the_whole_library():
    page = Page("t")
    page.figure(go.Figure([{"type": "sankey"}]))
    text = page.render()
    assert "sankey" in library_of(text) and len(text) < 2_000_000


def library_of(text):
    packed = re.search(r'id="plotly">([^<]*)<', text)[1]
    return gzip.decompress(base64.b64decode(packed)).decode()


def test_a_page_says_what_was_found_first_and_how_it_was_made_last(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    page = Page("t")
    page.finding(EVIL)
    page.facts({EVIL: EVIL})
    for heading in ("Result", "Result", "ä"):
        page.section(heading, "x", folded=True)
    with made_by(f"intertwine compare {EVIL}"):
        text = page.render()
    assert "<img src=x" not in text
    assert text.index('class="finding"') < text.index("<nav") < text.index("<section")
    assert text.index("How this was made") < text.index("<footer>") and "1970-01-02" in text
    assert "intertwine compare &lt;img" in text and intertwine.__version__ in text
    anchors = re.findall(r'<section id="([^"]+)"', text)
    assert anchors == ["result", "result-2", "section", "how-this-was-made"]
    assert re.findall(r'href="#([^"]+)"', text) == anchors
    assert "Made by" not in page.render()


def test_text_is_readable_on_its_ground_in_both_colour_schemes():
    """WCAG: a contrast of 4.5 : 1 at least."""

    def light(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(a, b):
        low, high = sorted((light(a), light(b)))
        return (high + 0.05) / (low + 0.05)

    style = (Path(pages.__file__).parent / "page.css").read_text()
    blocks = re.findall(r":root \{([^}]*)\}", style)
    schemes = [dict(re.findall(r"--(\w+): (#\w+)", block)) for block in blocks]
    assert len(schemes) == 3  # light, dark, print
    for scheme in schemes:
        for ground in ("paper", "tint", "mark"):
            for text in ("ink", "soft", "link"):
                assert contrast(scheme[text], scheme[ground]) >= 4.5, (scheme[text], scheme[ground])
    for colour in COLOURS.values():
        assert contrast("#10151c", colour) >= 4.5  # the numbers on the map


def test_the_map_is_inert_and_says_it_in_words():
    name = "<img src=x onerror=alert(1)></script>"

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.add_module(name, nn.Linear(3, 8))  # torch.export takes no quotes
            self.last = nn.Linear(8, 2)

        def forward(self, x):
            return self.last(torch.relu(getattr(self, name)(x)))

    net = Net()
    symmetry = intertwine.trace(net, torch.zeros(1, 3))
    found = intertwine.verify(net, torch.zeros(1, 3), symmetry=symmetry)
    text = symmetry_page(EVIL, symmetry, found).render()
    assert "<img src=x" not in text and "<script>alert" not in text
    assert "You may reorder these 8 channels and rescale each by a positive number." in text
    assert text.count("<rect data-axis") == 1


def test_a_large_network_is_drawn_by_block():
    net = nn.Sequential(*(layer for _ in range(70) for layer in (nn.Linear(4, 4), nn.ReLU())))
    symmetry = intertwine.trace(net, torch.zeros(1, 4), prove=False)
    text = render_map(symmetry)
    assert 'data-name="0"' in text and 'data-name="0.weight"' not in text
    assert text.count("data-name=") == 70


def test_the_page_of_merge_says_what_was_lost():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    x = torch.randn(60, 4)
    data = x, net(x).argmax(1)
    small = intertwine.merge(net, x[:1], target_params=0.5, data=data)
    text = small.page(facts={"model": EVIL}).render()
    assert f"{small.parameters_after:,} of {small.parameters_before:,} parameters are left" in text
    assert "100.00% before" in text and "<img src=x" not in text
    without = intertwine.merge(net, x[:1], target_params=0.5).page().render()
    assert "was not measured" in without
    curve = intertwine.merge_betas(net, x[:1], [0.05, 0.5], data=data)
    text = curve.page().render()
    assert "keep the accuracy of 100.00% within one point" in text and "as it was" in text


def test_explore_says_when_it_found_nothing_new():
    from intertwine.exploring import EquivalenceSample, function_distance
    from intertwine.exploring.near import describe_sample

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    objective = function_distance(net, torch.randn(64, 2))
    symmetry = intertwine.trace(net, torch.zeros(2, 2))
    twin = objective.layout.flatten(dict(intertwine.act(net, symmetry.sample(1)).named_parameters()))
    near = objective.theta + 1e-4

    def said(*points):
        rows = torch.stack(points).detach()
        losses = (0.0,) * len(points)
        sample = EquivalenceSample(objective.layout, objective.theta, rows, losses, 1e-3, objective.spread)
        return describe_sample(sample, objective)

    assert "No equivalent apart from theta" in said(near, near)
    assert said(twin).startswith("1 of 1 points are equivalents") and "noise" not in said(twin)
    assert said(twin, near).endswith("theta with noise.")


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

    from intertwine.pages.png import titled

    figure = go.Figure(layout={"margin": {"t": 30}})
    copy = titled(figure, "a < b " * 30)
    assert "&lt;" in copy.layout.title.text and " < " not in copy.layout.title.text
    assert copy.layout.title.text.count("<br>") == 1 and copy.layout.margin.t > 30 + 2 * 18
    assert figure.layout.title.text is None and figure.layout.margin.t == 30


def test_pages_of_verify_align_and_rotate_say_what_was_found():
    from intertwine.stitching import Rotation

    torch.manual_seed(0)
    mlp = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    symmetry = intertwine.trace(mlp, torch.zeros(2, 3))
    proved = intertwine.verify(mlp, torch.zeros(2, 3), symmetry=symmetry).page(facts={"model": EVIL}).render()
    assert 'class="finding">Exact: ' in proved and "<img src=x" not in proved
    twin = intertwine.act(mlp, symmetry.sample(0))
    aligned = intertwine.align(mlp, twin, symmetry).page().render()
    assert "They are one function." in aligned and "cosine" in aligned
    turned = Rotation("1", "orthogonal", "g", 0.9, 0.1, 0.8, 100).page().render()
    assert "costs 10.0 ± 9.8 points" in turned and "a random rotation" in turned


def test_a_page_is_shown_in_a_notebook_inside_a_frame_of_its_own():
    page = Page(EVIL)
    page.finding(EVIL)
    text = page._repr_html_()
    assert text.startswith("<iframe ") and 'sandbox="allow-scripts"' in text
    assert text.count("<") == 2 and "&lt;main&gt;" in text  # the frame; the page is its attribute


def test_the_footer_names_the_seed():
    with made_by("intertwine explore", 7):
        assert ", seed 7<br>Made by" in Page("t").render()
    with made_by("intertwine doctor"):
        assert "seed" not in Page("t").render()


def test_facts_of_another_kind_are_refused():
    """By pages that results make themselves, by those of `intertwine.pages`, and by plain ones."""

    class Plain(Result):
        def to_dict(self):
            return {"a": 1}

    for result in (Plain(), report([Page("One")]), Report.__new__(Report)):
        with pytest.raises(WrongKind, match=r"facts of .*page is a int, not a mapping"):
            result.page(facts=5)
    assert "known" in Plain().page(facts={"known": 1}).render()
