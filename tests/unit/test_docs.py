"""Every Python example in the README and the docs runs as it stands, in the order of its page."""

from __future__ import annotations

import doctest
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
NOTEBOOKS = sorted((ROOT / "docs").rglob("*.ipynb"))
BLOCK = re.compile(r"^```python\n(.*?)^```", re.S | re.M)


@pytest.mark.parametrize("page", [p for p in PAGES if BLOCK.search(p.read_text())], ids=lambda p: p.name)
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in BLOCK.findall(page.read_text()):
        if ">>>" in block:
            test = doctest.DocTestParser().get_doctest(block, names, page.name, str(page), 0)
            runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
            runner.run(test, clear_globs=False)
            assert runner.summarize(verbose=False).failed == 0
            names |= test.globs
        else:
            exec(compile(block, str(page), "exec"), names)


def test_readme_names_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert "make demo" in text and "make test" in text


@pytest.mark.parametrize("page", [*PAGES, *NOTEBOOKS], ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        path, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = page.parent / path if path else page
        assert target.exists(), f"{page.name} links to {link}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(), re.M)
            slugs = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
            assert anchor in slugs, f"{page.name} links to {link}"


def prose(page: Path) -> str:
    """The text of a page, or of the cells of a notebook that are no code."""
    if page.suffix != ".ipynb":
        return page.read_text()
    cells = json.loads(page.read_text())["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def test_notebooks_are_pages_of_the_site() -> None:
    import notebook_pages

    assert doctest.testmod(notebook_pages).failed == 0
    page = notebook_pages.on_page_markdown("[a](tutorials/shrink.ipynb), [b](same.ipynb#top), [c](x.md)")
    assert page == "[a](tutorials/shrink.md), [b](same.md#top), [c](x.md)"
    for path in NOTEBOOKS:
        text = notebook_pages.to_markdown(json.loads(path.read_text()))
        assert "data:image/png" in text and text.startswith("# ")


def test_every_page_is_in_the_navigation_and_the_other_way_round() -> None:
    import yaml

    def leaves(node: object) -> list[str]:
        if isinstance(node, str):
            return [node]
        return [leaf for each in (node.values() if isinstance(node, dict) else node) for leaf in leaves(each)]

    listed = leaves(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    pages = [*(ROOT / "docs").rglob("*.md"), *(path.with_suffix(".md") for path in NOTEBOOKS)]
    assert sorted(listed) == sorted(str(path.relative_to(ROOT / "docs")) for path in pages)


def test_every_picture_is_shown_somewhere() -> None:
    shown = {
        (page.parent / link).resolve()
        for page in PAGES
        for link in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page.read_text())
    }
    assert set((ROOT / "docs/images").iterdir()) <= shown


def test_no_source_is_left_unexplained() -> None:
    known = set(re.findall(r"source (\d{3})", (ROOT / "docs/bibliography.md").read_text()))
    asked = {number for page in PAGES for number in re.findall(r"[Ss]ource (\d{3})", page.read_text())}
    assert asked <= known
