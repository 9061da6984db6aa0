"""Write what `benchmarks/race.py` measured into docs/others.md.

python scripts/make_race_table.py            # rewrite the table
python scripts/make_race_table.py --check    # exit 1 if it is out of date
"""

from __future__ import annotations

import json
import sys
from typing import Any

from marked import DOCS, END, mark, parser, put, rewrite

PAGE, MEASURED = DOCS / "others.md", DOCS / "measured" / "race.json"
START = mark("make_race_table")


INTRO = """
## The field, side by side

`benchmarks/race.py` gives the same models to Torch-Pruning, to rebasin and to intertwine, each in a process
of its own, in float64. A try is a hidden axis of the tool's own list (up to three, spread over it): a
duplicate channel is planted in all weights that the tool says carry the axis, merged into its twin by
adding up what reads it, and removed. It is exact if the model still runs and its outputs change by less
than 1e-8. Axes under a norm over channels are asked of nobody, since such a norm sees how many there are.
rebasin does not narrow: it aligns the model to another one, which must move some weight and change no
output.

The list has 143 models of torchvision, timm, transformers and our zoo; it is run in turn. A dash is a model
that a tool has not met yet. A tool has 30 to 120 seconds of CPU time for a model. Axes that a tool itself
says cannot be narrowed (sizes written into the forward) are not asked of it, unless it says so of all.

What this does not say: Torch-Pruning prunes what it is told to and can be told more (heads, layers to leave
alone) than this race tells it.

"""


def cell(result: dict[str, Any] | None) -> str:
    """How a tool did on a model: tries that were exact, or why it stopped."""
    if result is None:
        return "-"
    tries = result["tries"]
    if not tries:
        return shortened(result.get("why", ""))
    exact = sum(t["exact"] for t in tries)
    reasons = list(dict.fromkeys(t["why"] for t in tries if t["why"]))
    return f"{exact} of {len(tries)}" + (f": {shortened(reasons[0])}" if reasons else "")


def shortened(text: str) -> str:
    """A reason that fits a cell."""
    text = " ".join(text.replace("|", "/").split())
    return text if len(text) <= 70 else text[:67] + "..."


def table(measured: dict[str, Any]) -> str:
    """How many models each tool got right of those that it has met, and then every model."""
    tools = [tool for tool in ("intertwine", "torch-pruning", "rebasin") if tool in measured]
    models = list(dict.fromkeys(m for tool in tools for m in measured[tool]))
    lines = ["| | models | every try exact | some try exact |", "|---|---|---|---|"]
    for tool in tools:
        tries = [found["tries"] for found in measured[tool].values()]
        whole = sum(bool(t) and all(one["exact"] for one in t) for t in tries)
        some = sum(any(one["exact"] for one in t) for t in tries)
        lines.append(f"| {tool} | {len(tries)} | {whole} | {some} |")
    lines += ["", "| model | " + " | ".join(tools) + " |", "|---" * (len(tools) + 1) + "|"]
    for model in models:
        lines.append(f"| {model} | " + " | ".join(cell(measured[tool].get(model)) for tool in tools) + " |")
    return "\n".join([*lines, ""])


def render(page: str) -> str:
    """The page with a fresh table; the first one brings its section along."""
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    return put(page if START in page else f"{page}{INTRO}{START}\n{END}\n", START, table(measured))


if __name__ == "__main__":
    sys.exit(rewrite(PAGE, render, parser(__doc__).parse_args().check))
