"""Write what `benchmarks/similarity.py` measured into docs/compare.md.

python scripts/make_similarity_table.py            # rewrite the table
python scripts/make_similarity_table.py --check    # exit 1 if it is out of date
"""

from __future__ import annotations

import json
import sys
from typing import Any

from marked import DOCS, mark, parser, put, rewrite

PAGE, MEASURED = DOCS / "compare.md", DOCS / "measured" / "similarity.json"
START = mark("make_similarity_table")


def table(found: dict[str, Any]) -> str:
    """Seconds here and elsewhere, and how well both agree."""
    cka, kernel, theirs = found["linear_cka"], found["grelu_kernel"], found["linear_cka"]["ckatorch"]
    size = f"N = {kernel['n']:,}, C = {kernel['channels']}, {kernel['size']} x {kernel['size']}"
    layers, few = f"all {cka['layers']} x {cka['layers']}", cka["torch_cka_inputs"]
    rows = [
        _row("what", "ours", "the other", "ratio"),
        _row("---", "---", "---", "---"),
        _row(
            f"linear CKA, {layers} layers of two ResNet20, {cka['inputs']:,} images",
            f"{cka['seconds']:.1f} s",
            f"{cka['floor_seconds']:.1f} s: the two bare forward passes (the floor)",
            f"{cka['ratio_to_floor']:.2f} times the floor",
        ),
        _row(
            "the same with intervals",
            f"{cka['seconds_with_intervals']:.1f} s",
            "the floor",
            f"{cka['ratio_with_intervals']:.2f} times the floor",
        ),
        _row(
            "the first above the floor",
            f"{cka['ours_above_floor']:.1f} s",
            f"{cka['torch_cka_above_floor_scaled']:.1f} s: torch-cka ({few} images, scaled up)",
            f"{cka['ratio_above_floor']:.0f} times faster",
        ),
        _row(
            f"the max kernel of G_ReLU-CKA, {size}",
            f"{kernel['seconds']:.2f} s",
            f"{kernel['per_row_seconds']:.1f} s: appendix D.7.2 row by row",
            f"{kernel['ratio']:.0f} times faster",
        ),
        _row(
            "",
            "",
            f"{kernel['per_row_einsum_seconds']:.1f} s: one einsum a row",
            f"{kernel['ratio_einsum']:.0f} times faster",
        ),
    ]
    agree = f"ckatorch agrees to {theirs['difference']:.0e}; torch-cka, in float32, differs by "
    agree += f"{cka['difference_on_one_batch']:.0e} on one batch."
    return "\n".join([*rows, "", agree, ""])


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def render(page: str) -> str:
    """The page with a fresh table."""
    return put(page, START, table(json.loads(MEASURED.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    sys.exit(rewrite(PAGE, render, parser(__doc__).parse_args().check))
