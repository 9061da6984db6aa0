"""Write the rule table into docs/rules.md, between its two markers, from the registry.

python scripts/make_rules_table.py           # rewrite the table
python scripts/make_rules_table.py --check   # exit 1 if it is out of date
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from intertwine.rules import RULES

PAGE = Path(__file__).resolve().parents[1] / "docs" / "rules.md"
START, END = "<!-- table: made by scripts/make_rules_table.py -->", "<!-- end of table -->"


def table() -> str:
    """One section a file of rules, one row a rule: its ops and its law."""
    families: dict[str, dict[str, tuple[str, list[str]]]] = {}
    for op, rule in RULES.items():
        rows = families.setdefault(rule.family, {})
        rows.setdefault(rule.apply.__name__, (rule.law, []))[1].append(op)
    lines = [f"{len(RULES)} ops, {sum(map(len, families.values()))} rules.", ""]
    for family in sorted(families):
        lines += [f"### rules/{family}.py", "", "| law | ops |", "|---|---|"]
        for _, (law, ops) in sorted(families[family].items()):
            names = ", ".join(f"`{op.removesuffix('.default')}`" for op in sorted(ops))
            lines.append(f"| {law.replace('|', chr(92) + '|')} | {names} |")
        lines.append("")
    return "\n".join(lines)


def render(page: str) -> str:
    """The page with a fresh table."""
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{table()}{END}{after}"


def main() -> int:
    """Rewrite the page, or check it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="change nothing, exit 1 if out of date")
    check = parser.parse_args().check
    page = PAGE.read_text(encoding="utf-8")
    fresh = render(page)
    if check:
        if fresh != page:
            print("docs/rules.md is out of date: python scripts/make_rules_table.py", file=sys.stderr)
        return int(fresh != page)
    beside = PAGE.with_name(PAGE.name + ".part")
    beside.write_text(fresh, encoding="utf-8")
    beside.replace(PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
