"""Write the rule table into docs/rules.md, between its two markers, from the registry.

python scripts/make_rules_table.py           # rewrite the table
python scripts/make_rules_table.py --check   # exit 1 if it is out of date
"""

from __future__ import annotations

import sys

from marked import DOCS, mark, parser, put, rewrite

from intertwine.rules import RULES

PAGE = DOCS / "rules.md"
START = mark("make_rules_table")


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
    return put(page, START, table())


if __name__ == "__main__":
    sys.exit(rewrite(PAGE, render, parser(__doc__).parse_args().check))
