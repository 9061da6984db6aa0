"""report: any number of pages in one file, with a table of contents and what each of them found.

A page may come from somebody else. It is shown in a frame of its own that may draw and do nothing else: no
origin, no network, no way to the page around it but a number, its height.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from intertwine.checks import checked
from intertwine.errors import InputError
from intertwine.pages.page import Html, Page
from intertwine.reading import parsing, read_text
from intertwine.results import Result, Table

_POLICY = (
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'\">"
)
# The page inside says how tall it is; the one around it believes nothing but a number.
_INSIDE = """<script>(() => {
const tell = () => parent.postMessage({ intertwine: document.body.scrollHeight }, "*");
addEventListener("load", tell); new ResizeObserver(tell).observe(document.body); })();</script>"""
_AROUND = """<script>addEventListener("message", event => {
  const height = Number(event.data && event.data.intertwine);
  if (!(height > 0 && height < 1e5)) return;
  for (const frame of document.querySelectorAll("iframe"))
    if (frame.contentWindow === event.source) frame.style.height = `${Math.ceil(height) + 4}px`;
});</script>"""


@dataclass(frozen=True)
class CollectedPage:
    """The title of a page, its finding, where it came from, and the whole document."""

    title: str
    finding: str
    source: str
    document: str


@dataclass(frozen=True, repr=False)
class Collection(Result):
    """Pages that are to be one file."""

    title: str
    pages: tuple[CollectedPage, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `intertwine report --json` prints it."""
        rows = [{"title": p.title, "finding": p.finding, "source": p.source} for p in self.pages]
        return {"title": self.title, "pages": rows}

    def tables(self) -> Sequence[Table]:
        """A row a page."""
        rows = [[p.title, p.finding, p.source] for p in self.pages]
        return [Table(self.title, ["page", "finding", "from"], rows)]

    def page(self, facts: Mapping[str, Any] | None = None, **_: Any) -> Page:
        """One page with all of them."""
        whole = Page(self.title)
        whole.finding(f"{len(self.pages)} page{'s' * (len(self.pages) != 1)}, each with what it found.")
        whole.facts(facts or {})
        whole.section("What was found")
        whole.table(["page", "finding"], [[p.title, p.finding] for p in self.pages])
        for page in self.pages:
            whole.section(page.title)
            framed = html.escape(_confined(page.document), quote=True)
            title = html.escape(page.title, quote=True)
            frame = (
                f'<iframe title="{title}" sandbox="allow-scripts" loading="lazy" srcdoc="{framed}"></iframe>'
            )
            whole.text(Html(frame))
        whole.text(Html(_AROUND))
        return whole


@checked
def report(pages: Sequence[Any], *, title: str = "Report") -> Collection:
    """Pages (files, results of verbs, or `Page` objects) as one: a table of contents, then each as it is.

    >>> one, other = Page("Two nets"), Page("A third")
    >>> one.finding("They are the same function.")
    >>> found = report([one, other], title="All three")
    >>> [page.title for page in found.pages], found.pages[0].finding
    (['Two nets', 'A third'], 'They are the same function.')
    """
    if not pages:
        raise InputError("there is no page to collect", do="give pages that verbs wrote")
    return Collection(title, tuple(_collected(page) for page in pages))


def _collected(page: Any) -> CollectedPage:
    source = ""
    if isinstance(page, Result):
        page = page.page()
    if isinstance(page, Page):
        document = page.render()
    elif isinstance(page, (str, Path)):
        source = str(page)
        document = read_text(page, "page")
    else:
        raise InputError(f"{type(page).__name__} is no page", do="give a file, or what a verb returned")
    parser = _Words()
    with parsing(source or "the page"):
        parser.feed(document)
    if not parser.found["footer"].strip().startswith("intertwine "):
        raise InputError(
            f"{source} is no page of intertwine", do="give pages that verbs wrote with -o or --page"
        )
    words = {name: " ".join(text.split()) for name, text in parser.found.items()}
    return CollectedPage(words["h1"] or "A page", words["finding"], source, document)


class _Words(HTMLParser):
    """The words of the first heading, of the finding and of the footer."""

    def __init__(self) -> None:
        super().__init__()
        self.found = {"h1": "", "finding": "", "footer": ""}
        self._inside = ""
        self._seen = set[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        name = "finding" if tag == "p" and ("class", "finding") in attrs else tag
        if name in self.found and name not in self._seen:
            self._inside = name
            self._seen.add(name)

    def handle_endtag(self, tag: str) -> None:
        if tag == self._inside or (tag == "p" and self._inside == "finding"):
            self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.found[self._inside] += data


def _confined(document: str) -> str:
    """The document with the policy before everything that could load something, and its height told."""
    return re.sub(r"(?i)^\s*(<!doctype html>)?", lambda m: m[0] + _POLICY, document, count=1) + _INSIDE
