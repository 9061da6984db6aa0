"""What every recipe's page has in common: the verdict first, then figures, tables and what differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intertwine.errors import InputError
from intertwine.recipes import Claim, Outcome, Setting
from intertwine.recipes.claims import Verdict, verdict_of

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from intertwine.pages.page import Page


def write_outcome(
    folder: Path,
    name: str,
    title: str,
    figures: Mapping[str, Figure],
    *,
    setting: Setting,
    claims: Sequence[Claim],
    differs: str,
    tables: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Outcome:
    """NAME.html with everything, and a PNG of each figure (by caption) where that can be made."""
    from intertwine.errors import MissingExtra
    from intertwine.pages.page import Page
    from intertwine.pages.png import write_png

    judged = judge(claims, setting, differs)
    page = Page(f"{name}: {title}")
    add_verdict(page, judged, differs)
    files: list[Path] = []
    found = dict(facts or {})
    if figures:
        page.section("Figure")
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
    return Outcome((page.write(folder / f"{name}.html"), *files), found, judged, differs)


def judge(claims: Sequence[Claim], setting: Setting, differs: str) -> tuple[Claim, ...]:
    """The claims as far as this setting can support them; a recipe without claims is a mistake."""
    if not claims or not differs:
        raise InputError("a recipe says what its source claims, and what differs in the setting")
    return tuple(claim.in_setting(setting.own) for claim in claims)


def summary(claims: Sequence[Claim]) -> str:
    """The verdict in a line.

    >>> from intertwine.recipes.claims import holds
    >>> summary([holds("", "", "", "", True), holds("", "", "", "", False)])
    'not reproduced (1 of 2 claims agrees)'
    """
    run = [c for c in claims if c.verdict != Verdict.NOT_RUN]
    good = sum(c.verdict != Verdict.NOT_REPRODUCED for c in run)
    left = f", {len(claims) - len(run)} not run" if len(run) < len(claims) else ""
    return f"{verdict_of(claims)} ({good} of {len(run)} claims {'agrees' if good == 1 else 'agree'}{left})"


def add_verdict(page: Page, claims: Sequence[Claim], differs: str) -> None:
    """The sentence above everything, and the section of the claims."""
    page.finding(f"Verdict: {summary(claims)}")
    page.section("Against the source")
    columns = ["verdict", "quantity", "the source", "here", "test"]
    rows = [[str(c.verdict), c.what, c.source, c.here, c.test] for c in claims]
    page.table(columns, rows)
    for claim in claims:
        if claim.why:
            page.text(f"{claim.what}: {claim.why}")
    page.text(f"What differs in the setting: {differs}")
