"""Draw what `benchmarks/dimension_trends.py` measured, docs/images/dimension-trends.svg, and write what that
says of the published trends into docs/dimension.md.

python scripts/make_dimension_figure.py            # draw and write it anew
python scripts/make_dimension_figure.py --check    # exit 1 if it is out of date
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from marked import DOCS, mark, parser, put, rewrite

PICTURE, MEASURED = DOCS / "images" / "dimension-trends.svg", DOCS / "measured" / "dimension-trends.json"
PAGE, START = DOCS / "dimension.md", mark("make_dimension_figure")
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 330, 300, 46, 40, 46
COLOURS = ("#3d5a80", "#2a9d8f", "#e9a23b", "#c8553d")  # from cold to warm, as the legend goes
Line = tuple[str, Sequence[tuple[float, float]]]


class Panel:
    """One plot: lines of named points, with the ticks of both axes."""

    def __init__(self, title: str, below: str, ticks: Sequence[tuple[float, str]], top: float) -> None:
        self.title, self.below, self.ticks, self.top = title, below, ticks, top
        self.first, self.last = ticks[0][0], ticks[-1][0]

    def x(self, value: float) -> float:
        """Where a value lies from left to right."""
        return LEFT + (value - self.first) / (self.last - self.first) * (WIDTH - LEFT - 22)

    def y(self, value: float) -> float:
        """Where a value lies from top to bottom."""
        return HEIGHT - BOTTOM - value / self.top * (HEIGHT - BOTTOM - TOP)

    def draw(
        self, lines: Sequence[Line], legend: str, levels: Sequence[tuple[float, str]], high: bool = True
    ) -> str:
        """The panel as SVG; high: its legend stands at the top."""
        parts = [
            text(LEFT, 18, self.title, bold=True),
            text((LEFT + WIDTH) / 2, HEIGHT - 8, self.below, "middle"),
        ]
        for value, name in levels:
            y = self.y(value)
            parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - 14}" stroke="#8886" fill="none"/>')
            parts.append(text(LEFT - 6, y + 4, name, "end"))
        parts += [text(self.x(at), HEIGHT - BOTTOM + 18, name, "middle") for at, name in self.ticks]
        for k, (name, points) in enumerate(lines):
            path = "L".join(f"{self.x(x):.1f} {self.y(y):.1f}" for x, y in points)
            colour = COLOURS[k % len(COLOURS)]
            parts.append(f'<path d="M{path}" stroke="{colour}" stroke-width="2" fill="none"/>')
            parts += [
                f'<circle cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="3" fill="{colour}"/>'
                for x, y in points
            ]
            at = TOP + 26 + 15 * k if high else HEIGHT - BOTTOM - 10 - 15 * (len(lines) - 1 - k)
            parts.append(text(WIDTH - 18, at, f"{legend} {name}", "end", colour=colour, bold=True))
        return "\n".join(parts)


def text(
    x: float, y: float, words: str, anchor: str = "start", *, colour: str = "#808080", bold: bool = False
) -> str:
    """One line of words."""
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"{weight}>{words}</text>'


def trends(rows: Sequence[dict[str, Any]], by: str) -> list[Line]:
    """The share of nets that hide nothing by depth, a line for each value of `by`."""
    values = sorted({row[by] for row in rows})
    return [(str(v), [(r["depth"], share(r)) for r in rows if r[by] == v]) for v in values]


def over_training(steps: Sequence[dict[str, Any]]) -> str:
    """The rank at every step, on two kinds of inputs, below the largest that the orbit allows."""
    place = [(math.log10(1 + s["step"]), str(s["step"])) for s in steps]
    first = steps[0]["random"]
    most = first["parameters"] - first["orbit"]
    lines = [
        (kind, [(at, s[kind]["rank"]) for (at, _), s in zip(place, steps, strict=True)])
        for kind in ("random", "digits")
    ]
    levels = [(0.0, "0"), (most / 2, str(most // 2)), (most, str(most))]
    panel = Panel("Functional dimension over training", "steps", place, most * 1.08)
    return panel.draw(lines, "inputs:", levels, high=False)


def picture(measured: dict[str, Any]) -> str:
    """All panels side by side."""
    rows = sorted(measured["trends"].values(), key=lambda r: (r["depth"], r["width"], r["inputs"]))
    depths = [(float(d), str(d)) for d in sorted({r["depth"] for r in rows})]
    shares = [(0.0, "0"), (0.5, "50 %"), (1.0, "100 %")]
    panels = [
        Panel("Nets without a hidden symmetry, by width", "hidden layers (4 inputs)", depths, 1.0).draw(
            trends([r for r in rows if r["inputs"] == 4], "width"), "width", shares
        ),
        Panel("The same, by input dimension", "hidden layers (width 4)", depths, 1.0).draw(
            trends([r for r in rows if r["width"] == 4], "inputs"), "inputs", shares
        ),
    ]
    if "training" in measured:
        panels.append(over_training(measured["training"]))
    inner = "\n".join(f'<g transform="translate({k * WIDTH} 0)">{p}</g>' for k, p in enumerate(panels))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH * len(panels)} {HEIGHT}" '
        f'font-family="system-ui, sans-serif" font-size="12">\n{inner}\n</svg>\n'
    )


def share(row: dict[str, Any]) -> float:
    """Nets that hide nothing, of those whose rank settled."""
    return float(row["complete"] / max(1, row["nets"] - row["unsettled"]))


def verdict(rows: Sequence[dict[str, Any]], by: str, rises: bool, of: str) -> str:
    """Whether the mean over all nets moves as published from each value of `by` to the next, and how."""
    values = sorted({row[by] for row in rows})
    means = []
    for value in values:
        chosen = [r for r in rows if r[by] == value]
        found = [share(r) if of == "complete" else r["share of the largest rank"] for r in chosen]
        means.append(sum(found) / len(found))
    steps = [b - a if rises else a - b for a, b in pairwise(means)]
    said = "yes" if min(steps) > 0 else "no" if max(steps) <= 0 else "not at every step"
    return f"{said} ({', '.join(f'{v}: {100 * m:.0f} %' for v, m in zip(values, means, strict=True))})"


def table(measured: dict[str, Any]) -> str:
    """What was published, and what was measured."""
    rows = list(measured["trends"].values())
    wide, deep = [r for r in rows if r["inputs"] == 4], [r for r in rows if r["width"] == 4]
    both = [r for r in rows if r["inputs"] == r["width"] and r["depth"] in (2, 3)]
    lines = ["| with growing | published | nets without a hidden symmetry | mean share of the largest rank |"]
    lines += ["|---|---|---|---|"]
    for name, chosen, by, published in (
        ("depth", wide, "depth", "falls"),
        ("width and inputs together (depth 2 and 3)", both, "width", "rises"),
        ("width, 4 inputs", wide, "width", "rises"),
        ("inputs, width 4", deep, "inputs", "rises"),
    ):
        found = [verdict(chosen, by, published == "rises", of) for of in ("complete", "rank")]
        lines.append(f"| {name} | {published} | {found[0]} | {found[1]} |")
    return "\n".join([*lines, ""])


def main() -> int:
    """Draw and write it, or say whether it is out of date."""
    check = parser(__doc__).parse_args().check
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    fresh = picture(measured)
    old = not PICTURE.exists() or PICTURE.read_text(encoding="utf-8") != fresh
    if not check:
        PICTURE.write_text(fresh, encoding="utf-8")
    page = rewrite(PAGE, lambda page: put(page, START, table(measured)), check)
    return int(check and old) or page


if __name__ == "__main__":
    sys.exit(main())
