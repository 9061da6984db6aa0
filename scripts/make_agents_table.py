"""Write what came out of comparing agents into docs/agents.md, from docs/measured/agents.json.

python scripts/make_agents_table.py                                  # rewrite the tables
python scripts/make_agents_table.py --from DIR/functional-table3.1.json   # take new numbers first
python scripts/make_agents_table.py --check                          # exit 1 if they are out of date

The verdicts on these numbers go to docs/measured/recipes too, of the table and of the four figures that show
the same agents, decided by the claims of the recipes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from marked import DOCS, mark, parser, put, rewrite

from intertwine.recipes import Setting, agents, recipes
from intertwine.recipes.claims import verdict_of
from intertwine.recipes.pages import judge

PAGE, MEASURED = DOCS / "agents.md", DOCS / "measured" / "agents.json"
START = mark("make_agents_table")


def interval(found: dict[str, Any] | None) -> str:
    """A value with its bounds, where there are any."""
    if found is None:
        return "-"
    low, high = found["low"], found["high"]
    return f"{found['value']:.2f}" + ("" if low is None or low != low else f" [{low:.2f}, {high:.2f}]")


def tables(measured: dict[str, Any]) -> str:
    """Every claim of the source with what came out, then every panel."""
    lines = ["| claim | source | here |", "|---|---|---|"]
    lines += [f"| {claim['what']} | {claim['source']} | {claim['here']} |" for claim in measured["claims"]]
    columns = ["network", "trained on", "tested on", "seeds", "optimal, mediocre, poor", "pairs"]
    columns += ["rho, JSD", "rho, Spearman"]
    lines += ["", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for label in ("agents", "agents with bottleneck"):
        for panel in measured[label]["panels"]:
            network = "64 features" if panel["bottleneck"] is None else f"bottleneck of {panel['bottleneck']}"
            grades = ", ".join(map(str, panel["grades"].values()))
            rhos = [interval(panel[key] and panel[key]["rho"]) for key in ("jsd", "spearman")]
            cells = [
                network,
                panel["trained"],
                panel["tested"],
                panel["seeds"],
                grades,
                panel["pairs"],
                *rhos,
            ]
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join([*lines, ""])


def render(page: str) -> str:
    """The page with fresh tables."""
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    return put(page, START, tables(measured))


def judged(measured: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """File name -> the claims of a recipe on these numbers, as `make_reproduce_table.py --add` keeps them."""
    found = {"functional-table3.1": agents.table_claims(measured, {"jsd": None, "spearman": None})}
    for name, _, against, bottleneck in agents.PANELS:
        label = next(k for k, value in agents.EXPERIMENTS.items() if value == bottleneck)
        found[name] = agents.relation_claims(measured[label], against, bottleneck, None)
    out = {}
    for name, claims in found.items():
        kept = judge(claims, Setting(measured["preset"]), agents.DIFFERS)
        out[f"{name}.{measured['preset']}.json"] = {
            "recipe": name, "source": recipes()[name].source, "verdict": str(verdict_of(kept)),
            "claims": [claim.to_dict() for claim in kept], "preset": measured["preset"], "seconds": None,
            "differs": agents.DIFFERS + agents.QUICK,
        }  # fmt: skip
    return out


def main() -> int:
    """Rewrite the page, or check it."""
    arguments = parser(__doc__)
    arguments.add_argument("--from", dest="source", type=Path, help="the .json that `reproduce` wrote")
    args = arguments.parse_args()
    if args.source is not None:
        found = json.loads(args.source.read_text(encoding="utf-8"))
        found.pop("seconds")  # of this run alone; agents that were trained before cost it nothing
        MEASURED.parent.mkdir(exist_ok=True)
        MEASURED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if not args.check:
        for name, found in judged(json.loads(MEASURED.read_text(encoding="utf-8"))).items():
            path = DOCS / "measured" / "recipes" / name
            path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return rewrite(PAGE, render, args.check)


if __name__ == "__main__":
    sys.exit(main())
