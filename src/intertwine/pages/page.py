"""One offline HTML page: the finding in a sentence, then pictures, then details that fold; how it was made.

Every string is escaped; `Html` marks the rare piece that is already markup. The plotting library is embedded
once and packed: the part of it that draws in two dimensions, or in two and three. The file is written beside
its target and renamed, so it is there whole or not at all.
"""

from __future__ import annotations

import base64
import gzip
import html
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from intertwine.cells import format_cell
from intertwine.checks import checked
from intertwine.errors import InputError
from intertwine.files import replacing
from intertwine.results import Table

# What the bundles in vendor/ draw (scripts/plotly); a test holds their version against that of the package.
FLAT = frozenset("bar box contour heatmap histogram histogram2d image pie scatter violin".split())
SOLID = FLAT | frozenset("isosurface mesh3d scatter3d surface volume".split())
_FEWEST_LINKS = 3  # sections that deserve a table of contents
_command: ContextVar[tuple[str, int | None]] = ContextVar("command", default=("", None))


@contextmanager
def made_by(command: str, seed: int | None = None) -> Iterator[None]:
    """Pages that are rendered meanwhile name this command, and its seed, in their footer."""
    token = _command.set((command, seed))
    try:
        yield
    finally:
        _command.reset(token)


class Html(str):
    """A string that is markup already and is not escaped."""


@dataclass
class _Section:
    heading: str
    anchor: str
    folded: bool = False
    parts: list[str] = field(default_factory=list)

    def render(self) -> str:
        inside = "".join(self.parts)
        head = f"<h2>{html.escape(self.heading)}</h2>" if self.heading else ""
        if self.folded:
            inside = f"<details><summary>{head}</summary>{inside}</details>"
            head = ""
        return f'<section id="{self.anchor}">{head}{inside}</section>'


class Page:
    """A page that grows from top to bottom.

    >>> page = Page("Two nets")
    >>> page.finding("They are the same function.")
    >>> page.section("Result", "a < b")
    >>> "a &lt; b" in page.render() and '<section id="result">' in page.render()
    True
    """

    @checked
    def __init__(self, title: str) -> None:
        self.title = title
        self._finding = ""
        self._facts: dict[str, Any] = {}
        self._sections: list[_Section] = []
        self._figures = 0
        self._kinds: set[str] = set()

    @checked
    def finding(self, sentence: str) -> None:
        """What was found, in one sentence, with its uncertainty; it stands above everything else."""
        self._finding = sentence

    @checked
    def facts(self, facts: Mapping[str, Any]) -> None:
        """What was done with what: folded, at the end."""
        self._facts.update(facts)

    @checked
    def section(self, heading: str, body: str = "", *, folded: bool = False) -> None:
        """Open a section for what follows; folded: a click opens it. Blank lines part paragraphs."""
        taken = {each.anchor for each in self._sections}
        base = re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")[:60] or "section"
        names = (base if number == 1 else f"{base}-{number}" for number in range(1, len(taken) + 2))
        self._sections.append(_Section(heading, next(name for name in names if name not in taken), folded))
        if body:
            self.text(body)

    def lead(self) -> None:
        """Move the last section to the top."""
        self._sections.insert(0, self._sections.pop())

    @checked
    def text(self, body: str) -> None:
        """Paragraphs, or markup as it is when `body` is `Html`."""
        if isinstance(body, Html):
            self._add(body)
            return
        for paragraph in body.split("\n\n"):
            self._add(f"<p>{html.escape(paragraph.strip())}</p>")

    @checked
    def table(
        self, columns: Sequence[Any], rows: Iterable[Sequence[Any]] | None = None, *, caption: str = ""
    ) -> None:
        """Column names and rows; or a table of a result, or a list of dicts, alone."""
        if isinstance(columns, Table):
            self._add(_table(columns.columns, columns.rows, caption))
        else:
            self._add(_table(columns, rows, caption))

    @checked
    def figure(self, figure: Any, caption: str = "") -> None:
        """A plotly figure with a caption, which is also what a screen reader says."""
        self._figures += 1
        self._kinds |= {trace.type for trace in figure.data}
        drawn = figure.to_json(validate=False).replace("<", "\\u003c")  # nothing in it can end the script
        text = html.escape(caption)
        note = f"<figcaption>{text}</figcaption>" if caption else ""
        label = text or f"figure {self._figures}"
        self._add(
            f'<figure><div class="plot" role="img" aria-label="{label}">'
            f'<script type="application/json">{drawn}</script></div>{note}</figure>'
        )

    def render(self) -> str:
        """The whole document as text."""
        sections = list(self._sections)
        if self._facts:
            rows = _table(["", ""], [[key, value] for key, value in self._facts.items()])
            sections.append(_Section("How this was made", "how-this-was-made", True, [rows]))
        title = html.escape(self.title)
        finding = f'<p class="finding">{html.escape(self._finding)}</p>' if self._finding else ""
        behaviour = ""
        if self._figures:
            packed = f'<script type="text/plain" id="plotly">{_plotly(self._kinds)}</script>'
            behaviour = f"{packed}<script>{_beside('page.js')}</script>"
        return (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<style>{_beside('page.css')}</style></head><body><main><h1>{title}</h1>{finding}"
            f"{_contents(sections)}{''.join(each.render() for each in sections)}</main>"
            f"{_footer()}{behaviour}</body></html>\n"
        )

    @checked
    def write(self, path: str | Path) -> Path:
        """Write the page beside `path`, then rename it into place."""
        with replacing(path) as beside:
            # an argument may hold bytes that are no UTF-8, and the footer names the command
            beside.write_text(self.render(), encoding="utf-8", errors="backslashreplace")
        return Path(path)

    def _repr_html_(self) -> str:
        """The page in a frame, for notebooks."""
        document, title = (html.escape(text, quote=True) for text in (self.render(), self.title))
        style = "width: 100%; height: 640px; border: 0"
        return (
            f'<iframe title="{title}" sandbox="allow-scripts" style="{style}" srcdoc="{document}"></iframe>'
        )

    def _add(self, markup: str) -> None:
        if not self._sections:
            self.section("")
        self._sections[-1].parts.append(markup)


def _contents(sections: Sequence[_Section]) -> str:
    named = [each for each in sections if each.heading]
    if len(named) < _FEWEST_LINKS:
        return ""
    links = "".join(f'<li><a href="#{each.anchor}">{html.escape(each.heading)}</a></li>' for each in named)
    return f'<nav aria-label="contents"><ul>{links}</ul></nav>'


def _footer() -> str:
    """The command that makes the page again, version, day (SOURCE_DATE_EPOCH, where it is set) and seed."""
    import intertwine

    seconds = float(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    day = time.strftime("%Y-%m-%d", time.gmtime(seconds))
    command, seed = _command.get()
    again = f"<br>Made by <code>{html.escape(command)}</code>" if command else ""
    drawn = "" if seed is None else f", seed {seed}"
    return f"<footer>intertwine {html.escape(intertwine.__version__)}, {day}{drawn}{again}</footer>"


def _plotly(kinds: set[str]) -> str:
    """The least part of the library that draws these kinds, as gzip in base64: half of its length."""
    for bundle, known in (("cartesian", FLAT), ("solid", SOLID)):
        if kinds <= known:
            return _packed(bundle)
    from plotly.offline import get_plotlyjs

    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode()


@cache
def _packed(bundle: str) -> str:
    path = Path(__file__).parent / f"vendor/plotly-{bundle}.min.js.gz"
    return base64.b64encode(path.read_bytes()).decode()


@cache
def _beside(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def _table(columns: Sequence[Any], rows: Iterable[Sequence[Any]] | None, caption: str = "") -> str:
    if rows is None:
        columns, rows = _from_dicts(columns)
    body = [list(row) for row in rows]
    number = [
        bool(body) and all(_is_number(row[i]) for row in body if i < len(row)) for i in range(len(columns))
    ]
    head = "".join(_cell("th", name, right) for name, right in zip(columns, number, strict=True))
    head = f"<thead><tr>{head}</tr></thead>" if any(str(name) for name in columns) else ""
    lines = ("".join(_cell("td", c, r) for c, r in zip(row, number, strict=False)) for row in body)
    rendered = "".join(f"<tr>{line}</tr>" for line in lines)
    above = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return f'<div class="wide"><table>{above}{head}<tbody>{rendered}</tbody></table></div>'


def _from_dicts(rows: Sequence[Any]) -> tuple[list[str], list[list[Any]]]:
    if not all(isinstance(row, Mapping) for row in rows):
        raise InputError("a table without column names needs dicts as rows")
    columns = list(dict.fromkeys(key for row in rows for key in row))
    return columns, [[row.get(column) for column in columns] for row in rows]


def _is_number(cell: Any) -> bool:
    return cell is None or (isinstance(cell, (int, float)) and not isinstance(cell, bool))


def _cell(tag: str, cell: Any, right: bool) -> str:
    kind = (' scope="col"' if tag == "th" else "") + (' class="number"' if right else "")
    text = cell if isinstance(cell, Html) else html.escape(format_cell(cell))
    return f"<{tag}{kind}>{text}</{tag}>"
