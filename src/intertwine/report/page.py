"""One offline HTML page: text, tables and plotly figures, with the plotting library embedded once.

Every string is escaped; `Html` marks the rare piece that is already markup. The file is written beside its
target and renamed, so it is there whole or not at all.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from intertwine.cells import format_cell
from intertwine.errors import InputError
from intertwine.files import replacing

_STYLE = """
html { color-scheme: light; }
:root { --ink: #1c2430; --soft: #5b6675; --line: #dfe4ea; --paper: #ffffff; --tint: #f6f8fa; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--tint); color: var(--ink); font: 15px/1.55 system-ui, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 28px 24px 80px; }
h1 { font-size: 26px; margin: 0 0 18px; } h2 { font-size: 18px; margin: 0 0 10px; }
section { background: var(--paper); border: 1px solid var(--line); border-radius: 10px; padding: 18px 20px;
  margin: 0 0 18px; }
p { margin: 0 0 10px; } figure { margin: 6px 0 14px; } figcaption { color: var(--soft); font-size: 13.5px; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 4px 14px 4px 0; vertical-align: top;
  border-bottom: 1px solid var(--line); }
th { font-weight: 600; } td.number, th.number { text-align: right; } .plot { width: 100%; }
"""


class Html(str):
    """A string that is markup already and is not escaped."""


class Page:
    """A page that grows from top to bottom.

    >>> page = Page("Two nets")
    >>> page.section("Result", "a < b")
    >>> "a &lt; b" in page.render()
    True
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self._sections: list[list[str]] = []
        self._figures = 0

    def section(self, heading: str, body: str = "") -> None:
        """Open a section for what follows. Blank lines in `body` part paragraphs."""
        self._sections.append([f"<h2>{html.escape(heading)}</h2>"] if heading else [])
        if body:
            self.text(body)

    def text(self, body: str) -> None:
        """Paragraphs, or markup as it is when `body` is `Html`."""
        if isinstance(body, Html):
            self._add(body)
            return
        for paragraph in body.split("\n\n"):
            self._add(f"<p>{html.escape(paragraph.strip())}</p>")

    def table(self, columns: Sequence[Any], rows: Iterable[Sequence[Any]] | None = None) -> None:
        """A table: column names and rows, or a list of dicts alone."""
        if rows is None:
            columns, rows = _from_dicts(columns)
        body = [list(row) for row in rows]
        number = [
            bool(body) and all(_is_number(row[i]) for row in body if i < len(row))
            for i in range(len(columns))
        ]
        head = "".join(_cell("th", name, right) for name, right in zip(columns, number, strict=True))
        lines = ("".join(_cell("td", c, r) for c, r in zip(row, number, strict=False)) for row in body)
        rendered = "".join(f"<tr>{line}</tr>" for line in lines)
        self._add(
            f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rendered}</tbody></table></div>'
        )

    def figure(self, figure: Any, caption: str = "") -> None:
        """A plotly figure with a caption."""
        from plotly.io import to_html

        self._figures += 1
        name = f"figure-{self._figures}"
        config = {"displaylogo": False, "responsive": True}
        plot = to_html(
            figure, full_html=False, include_plotlyjs=False, div_id=name, config=config, validate=False
        )
        note = f"<figcaption>{html.escape(caption)}</figcaption>" if caption else ""
        self._add(f'<figure><div class="plot">{plot}</div>{note}</figure>')

    def render(self) -> str:
        """The whole document as text."""
        script = f"<script>{_plotly()}</script>" if self._figures else ""
        body = "".join(f"<section>{''.join(parts)}</section>" for parts in self._sections)
        title = html.escape(self.title)
        return (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<style>{_STYLE}</style>{script}"
            f"</head><body><main><h1>{title}</h1>{body}</main></body></html>\n"
        )

    def write(self, path: str | Path) -> Path:
        """Write the page beside `path`, then rename it into place."""
        with replacing(path) as beside:
            beside.write_text(self.render(), encoding="utf-8")
        return Path(path)

    def _add(self, markup: str) -> None:
        if not self._sections:
            self._sections.append([])
        self._sections[-1].append(markup)


def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def _from_dicts(rows: Sequence[Any]) -> tuple[list[str], list[list[Any]]]:
    if not all(isinstance(row, Mapping) for row in rows):
        raise InputError("a table without column names needs dicts as rows")
    columns = list(dict.fromkeys(key for row in rows for key in row))
    return columns, [[row.get(column) for column in columns] for row in rows]


def _is_number(cell: Any) -> bool:
    return cell is None or (isinstance(cell, (int, float)) and not isinstance(cell, bool))


def _cell(tag: str, cell: Any, right: bool) -> str:
    kind = ' class="number"' if right else ""
    text = cell if isinstance(cell, Html) else html.escape(format_cell(cell))
    return f"<{tag}{kind}>{text}</{tag}>"
