"""Write the table of docs/reproduce.md from recipes/sources.py and the numbers in docs/measured.

python scripts/make_reproduce_table.py                       # rewrite the table
python scripts/make_reproduce_table.py --add DIR/NAME.json   # take what `intertwine reproduce` wrote first
python scripts/make_reproduce_table.py --check               # exit 1 if it is out of date

A row shown by recipes has the worst verdict of their claims, in the largest setting that was committed; one
without committed numbers says not run. A row shown by tests alone agrees: the tests hold it on every run.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from marked import DOCS, mark, parser, put, rewrite

from intertwine.recipes.claims import Verdict
from intertwine.recipes.sources import SOURCES, SourceRow, rows

PAGE, MEASURED = DOCS / "reproduce.md", DOCS / "measured" / "recipes"
START = mark("make_reproduce_table")
KEPT = ("recipe", "source", "verdict", "claims", "preset", "seconds", "differs")
LONGEST = 160


def read(name: str) -> dict[str, Any] | None:
    """What a recipe wrote in the largest setting that was committed."""
    for preset in ("paper", "cifar", "quick"):
        path = MEASURED / f"{name}.{preset}.json"
        if path.is_file():
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return found
    return None


def add(path: Path) -> None:
    """Keep the verdict, the claims and the setting of a run; figures and bulk stay where they are."""
    found = json.loads(path.read_text(encoding="utf-8"))
    kept = {key: found[key] for key in KEPT}
    MEASURED.mkdir(parents=True, exist_ok=True)
    target = MEASURED / f"{kept['recipe']}.{kept['preset']}.json"
    target.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def cell(text: str) -> str:
    """One line of a table, not too long."""
    short = text if len(text) <= LONGEST else text[: LONGEST - 4].rsplit(" ", 1)[0] + " ..."
    return short.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def claim_rows(found: dict[str, Any]) -> list[str]:
    """A claim a line: what the source says, what came out."""
    return [
        f"| {c['verdict']} | {found['recipe']} | {found['preset']} | {cell(c['what'])} | {cell(c['source'])} "
        f"| {cell(c['here'])} | {cell(c['test'])}{'; ' + cell(c['why']) if c['why'] else ''} |"
        for c in found["claims"]
    ]


def line(row: SourceRow) -> tuple[str, str]:
    """The verdict of a row, and its line."""
    found = [read(name) for name in row.recipes]
    known = [f for f in found if f is not None]
    how = ", ".join(f"{f['recipe']} ({f['preset']})" for f in known)
    how = how or ", ".join(row.recipes)
    if known:
        order = [Verdict.NOT_REPRODUCED, Verdict.IN_KIND, Verdict.AGREES, Verdict.NOT_RUN]
        verdict = str(min((Verdict(f["verdict"]) for f in known), key=order.index))
    elif row.tests and not row.recipes:
        verdict, how = str(Verdict.AGREES), f"tests: {len(row.tests)}"
    else:
        nothing = row.note.startswith("nothing to run")
        verdict = "nothing to run" if nothing else str(Verdict.NOT_RUN)
    return verdict, f"| {row.item} | {cell(row.what)} | {verdict} | {how} | {cell(row.note)} |"


def table() -> str:
    """Counts, a table a source, and every claim that was run."""
    parts: list[str] = []
    counts: Counter[str] = Counter()
    for source, title in SOURCES.items():
        parts += ["", f"### Source {source}: {title}", ""]
        parts += ["| item | what | verdict | by | |", "|---|---|---|---|---|"]
        for row in rows():
            if row.source == source:
                verdict, text = line(row)
                counts[verdict] += 1
                parts.append(text)
    summary = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    claims = [
        text
        for name in sorted({name for row in rows() for name in row.recipes})
        if (found := read(name)) is not None
        for text in claim_rows(found)
    ]
    head = "| verdict | recipe | preset | quantity | the source | here | test |"
    return "\n".join([
        f"{counts.total()} rows: {summary}.", *parts, "", "### Every claim that was tested", "", head,
        "|---|---|---|---|---|---|---|", *claims, "",
    ])  # fmt: skip


def render(page: str) -> str:
    """The page with a fresh table."""
    return put(page, START, table())


def main() -> int:
    """Rewrite the page, or check it."""
    arguments = parser(__doc__)
    arguments.add_argument("--add", type=Path, nargs="*", default=[], help="files that `reproduce` wrote")
    args = arguments.parse_args()
    for path in args.add:
        add(path)
    return rewrite(PAGE, render, args.check)


if __name__ == "__main__":
    sys.exit(main())
