"""A table in a page of the docs, between two marks: put there by a script, or held against what it makes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
END = "<!-- end of table -->"


def mark(script: str, what: str = "table") -> str:
    """What stands above the table that a script makes; what: its name, if the script makes several."""
    return f"<!-- {what}: made by scripts/{script}.py -->"


def put(page: str, start: str, table: str) -> str:
    """The page with this table below its mark."""
    before, _, rest = page.partition(start)
    _, _, after = rest.partition(END)
    return f"{before}{start}\n{table}{END}{after}"


def parser(doc: str | None) -> argparse.ArgumentParser:
    """The command line of such a script; `doc` is its docstring."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--check", action="store_true", help="change nothing, exit 1 if out of date")
    return made


def rewrite(path: Path, render: Callable[[str], str], check: bool) -> int:
    """Write the page anew, beside it and renamed; or say whether it is out of date."""
    page = path.read_text(encoding="utf-8")
    fresh = render(page)
    if check:
        if fresh != page:
            print(f"{path.name} is out of date: run this script without --check", file=sys.stderr)
        return int(fresh != page)
    beside = path.with_name(path.name + ".part")
    beside.write_text(fresh, encoding="utf-8")
    beside.replace(path)
    return 0
