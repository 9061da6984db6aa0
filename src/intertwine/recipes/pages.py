"""What every recipe's page has in common: figures, tables, the source's claims beside ours, what differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intertwine.recipes import Claim, Outcome

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def write_outcome(
    folder: Path,
    name: str,
    title: str,
    figures: Mapping[str, Figure],
    *,
    tables: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    facts: Mapping[str, Any] | None = None,
    claims: Sequence[Claim] = (),
    differs: str = "",
) -> Outcome:
    """NAME.html with everything, and a PNG of each figure (by caption) where that can be made."""
    from intertwine.errors import MissingExtra
    from intertwine.report.page import Page
    from intertwine.report.png import write_png

    page = Page(f"{name}: {title}")
    files: list[Path] = []
    found = dict(facts or {})
    page.section("Figure" if figures else "Table")
    for number, (caption, figure) in enumerate(figures.items()):
        page.figure(figure, caption)
        try:
            part = "" if len(figures) == 1 else f"-{number + 1}"
            files.append(write_png(figure, folder / f"{name}{part}.png", f"{name}, {title}. {caption}"))
        except MissingExtra as error:
            found["PNG"] = error.what
    for heading, rows in (tables or {}).items():
        page.section(heading)
        page.table(list(rows))
    if claims:
        page.section("Against the source")
        page.table(["", "source", "here"], [[c.what, c.source, c.here] for c in claims])
    if differs:
        page.section("What differs in the setting", differs)
    return Outcome((page.write(folder / f"{name}.html"), *files), found, tuple(claims), differs)
