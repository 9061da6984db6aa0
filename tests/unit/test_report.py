"""report: pages as one file; what a page of somebody else can do there; pages of what runs long."""

from __future__ import annotations

from pathlib import Path

import pytest

from browser import look, needs_chromium
from intertwine import report
from intertwine.cli import main
from intertwine.errors import InputError
from intertwine.pages.page import Page
from intertwine.surveying.covering import Coverage
from intertwine.surveying.surveys import Row
from intertwine.training import Run

EVIL = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"
HOSTILE = """<script>
try { parent.document.title = "taken"; } catch (_) {}
try { top.location = "https://example.org/"; } catch (_) {}
fetch("https://example.org/").catch(() => {});
parent.postMessage({ intertwine: "9e9" }, "*"); parent.postMessage("x", "*");
</script>"""


def a_page(title: str, finding: str = "") -> Page:
    page = Page(title)
    page.finding(finding)
    page.section("One", "words")
    return page


def test_titles_and_findings_are_collected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(a_page(name, f"{name} < 1.").write(tmp_path / f"{name}.html")) for name in ("a", "b")]
    out = tmp_path / "all.html"
    assert main(["report", *paths, "--title", EVIL, "-o", str(out), "--json"]) == 0
    assert '"a < 1."' in capsys.readouterr().out
    text = out.read_text()
    assert text.count("<iframe") == 2 and EVIL not in text and text.count("Content-Security-Policy") == 2
    assert main(["report", paths[0], "-o", paths[0]]) == 2  # the page itself stays
    assert "<iframe" not in Path(paths[0]).read_text()


@pytest.mark.parametrize("text", ["", "<h1>no page of ours</h1>", "\0\0", "<footer>another 1</footer>"])
def test_what_is_no_page_of_ours_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.html"
    path.write_text(text)
    with pytest.raises(InputError, match="no page of intertwine"):
        report([path])
    with pytest.raises(InputError):
        report([])
    with pytest.raises(InputError):
        report([3])


@needs_chromium
def test_a_hostile_page_stays_in_its_frame(tmp_path: Path) -> None:
    path = a_page(EVIL, EVIL).write(tmp_path / "evil.html")
    path.write_text(path.read_text().replace("<main>", HOSTILE + "<main>"))
    whole = report([path, a_page("a")], title="Both").page().write(tmp_path / "both.html")
    seen = look(
        whole, tmp_path, step="seen.step = [document.title, document.querySelectorAll('iframe').length];"
    )
    seen.assert_sound()
    assert seen.step == ["Both", 2]


def test_pages_of_what_runs_long(tmp_path: Path) -> None:
    rows = [
        {"epoch": k, "loss": 1 / k, "accuracy": 0.5, "test_accuracy": 0.4, "test_loss": 1.0} for k in (1, 2)
    ]
    run = Run(tmp_path, 0.4, 1.0, 2, False, [*rows, {**rows[0], "epoch": 3, "test_accuracy": None}])
    text = run.page(facts={"model": EVIL}).render()
    assert "Test accuracy 40.00%" in text and "Loss by epoch" in text and EVIL not in text
    found = Coverage("zoo", (Row("a", "exact", 10, 0.0, 1.0, 1.0), Row("b", "failed", error=EVIL)))
    text = found.page().render()
    assert "1 of 2 models are exact, 0 wrong, 0 unproved, 1 failed." in text and EVIL not in text


def test_a_sweep_has_a_page(tmp_path: Path) -> None:
    from intertwine.results import Table
    from intertwine.sweeping.run import SweepReport
    from intertwine.sweeping.store import COLUMNS

    class Filled(SweepReport):
        def tables(self) -> list[Table]:
            row = dict.fromkeys(COLUMNS) | {"kind": "train", "quantity": "accuracy"}
            values = [list((row | {"seed": k, "value": 0.5 + k / 10}).values()) for k in range(3)]
            return [Table("sweep", list(COLUMNS), values)]

    found = Filled(3, 3, {"net 2": EVIL}, 1, tmp_path / "table.parquet")
    text = found.page().render()
    assert "3 tasks, 1 failed: train accuracy 0.6" in text and "train accuracy" in text and EVIL not in text
