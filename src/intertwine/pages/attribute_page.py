"""The page of `intertwine attribute`: a row a class, a column an input, and heat where the class looks."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

import numpy as np

from intertwine.inside import Attribution, ClassView
from intertwine.pages.page import Html, Page
from intertwine.pages.pixels import colours, image_tag, overlay, scaled, to_pixels

Statistics = tuple[tuple[float, ...], tuple[float, ...]]
_WIDTH = 112
STYLE = (
    "<style>.cells{display:flex;flex-wrap:wrap;gap:14px;margin:8px 0 12px}.cell{font-size:12.5px;"
    "color:var(--soft)}.cell img{display:block;margin-bottom:3px}.word{padding:2px 1px;border-radius:3px;"
    "color:#1c2430;white-space:pre-wrap;font-family:ui-monospace,monospace}summary{cursor:pointer}</style>"
)
RULE = (
    "Guided backpropagation passes a rectifier (ReLU and what bends like it: leaky, ELU, GELU, ...) only "
    "where the gradient from above and the activation are positive, with the activation's own slope; every "
    "other op passes its plain gradient. For guided and gradient the length over colours is drawn; for the "
    "others the signed sum: red speaks for the class, blue against it."
)


def attribute_page(
    result: Attribution, *, statistics: Statistics | None = None, facts: Mapping[str, Any] | None = None
) -> Page:
    """statistics: mean and deviation by which images were normalised, to show them in their colours."""
    page = Page(f"What features of {result.axis} see")
    page.finding(attribute_finding(result))
    page.facts({
        **(facts or {}),
        "axis": f"{result.axis} ({result.group})",
        "read at": result.at,
        "classes": f"{result.found}, by {result.by}"
        + (f" at beta {result.beta:g}" if result.beta is not None else ""),
        "inputs looked at": result.looked_at,
        "channels never active": result.dead,
    })  # fmt: skip
    for k, view in enumerate(result.classes):
        page.section(f"Class {k}: {len(view.members)} feature{'s' if len(view.members) > 1 else ''}")
        page.text(Html(STYLE + class_cells(result, view, statistics)))
        if view.incomplete is not None:
            page.text(
                f"Integrated gradients miss F(x) - F(0) by at most {view.incomplete:.2%} of their sizes."
            )
    page.section(
        "Do the members of a class see the same?",
        "The mean correlation over pairs of members: of their activations over all inputs and positions, and "
        "of their attributions on the inputs below. Beside it the same for random features of the axis.",
    )
    page.table(result.tables()[0])
    page.section("How attributions are computed", RULE, folded=True)
    return page


def attribute_finding(result: Attribution) -> str:
    """Whether members of a class see the same, in one sentence."""
    known = [view.heat for view in result.classes if np.isfinite(view.heat.members + view.heat.random)]
    if not known:
        return f"The inputs that excite features of {result.axis} most, and what in them does."
    members, random, spread = (
        float(np.mean([getattr(heat, name) for heat in known])) for name in ("members", "random", "spread")
    )
    count = f"the {len(known)} classes shown" if len(known) > 1 else "the class shown"
    apart = members > random + 2 * spread
    says = "they see the same more than chance would" if apart else "no more alike than chance"
    return (
        f"Attributions of the members of {count} correlate by {members:.2f}, those of random features of "
        f"{result.axis} by {random:.2f} ± {spread:.2f}: {says}."
    )


def class_cells(result: Attribution, view: ClassView, statistics: Statistics | None) -> str:
    """Inputs with the heat of the whole class, and behind a click that of its members."""
    parts = [_row(result, view, method, heat, statistics, True) for method, heat in view.heats.items()]
    listed = ", ".join(map(str, view.members[:60])) + (" ..." if len(view.members) > 60 else "")
    members = "".join(
        f"<div>feature {c}</div>" + _row(result, view, "", view.each[i], statistics, False)
        for i, c in enumerate(view.shown)
    )
    if members:
        parts.append(f"<details><summary>members: {listed}</summary>{members}</details>")
    return "".join(parts)


def class_grid(
    result: Attribution, *, statistics: Statistics | None = None, enlarge: int = 3, gap: int = 6
) -> np.ndarray:
    """All classes in one picture, for files: a row of inputs above a row of heat for each class."""
    rows = []
    for view in result.classes:
        heat = view.heats[result.methods[0]]
        seen = [to_pixels(result.rows[n], statistics) for n in view.inputs]
        rows += [seen, [overlay(p, scaled(h)) for p, h in zip(seen, heat, strict=True)]]
    height, width, _ = rows[0][0].shape
    down, right = enlarge * height + gap, enlarge * width + gap
    out = np.full((len(rows) * down - gap, max(map(len, rows)) * right - gap, 3), 255, np.uint8)
    for i, row in enumerate(rows):
        for j, picture in enumerate(row):
            large = picture.repeat(enlarge, 0).repeat(enlarge, 1)
            out[i * down : i * down + large.shape[0], j * right : j * right + large.shape[1]] = large
    return out


def _row(
    result: Attribution, view: ClassView, method: str, heat: np.ndarray, statistics: Statistics | None,
    with_input: bool,
) -> str:  # fmt: skip
    cells = []
    for i, (number, score) in enumerate(zip(view.inputs, view.scores, strict=True)):
        label = html.escape(result.labels.get(number, ""))
        note = f"{label} · input {number} · F {score:.3g}" if with_input else ""
        drawn = _draw(result, number, heat[i], statistics, with_input)
        cells.append(f'<div class="cell">{drawn}{note}</div>')
    title = f"<div>{html.escape(method)}</div>" if method else ""
    return f'{title}<div class="cells">{"".join(cells)}</div>'


def _draw(
    result: Attribution, number: int, heat: np.ndarray, statistics: Statistics | None, with_input: bool
) -> str:
    strength = scaled(heat)
    if heat.ndim == 2:
        pixels = to_pixels(result.rows[number], statistics)
        seen = image_tag(overlay(pixels, strength), width=_WIDTH, title=f"input {number}")
        return (image_tag(pixels, width=_WIDTH, title=f"input {number}") if with_input else "") + seen
    row = result.rows[number].reshape(-1)
    words = result.tokens.get(number) or tuple(
        str(w) if np.issubdtype(row.dtype, np.integer) else f"{w:.3g}" for w in row
    )
    return '<div class="strip">' + "".join(
        f'<span class="word" style="background:{_css(s)}" title="{s:.3f}">{html.escape(word)}</span> '
        for word, s in zip(words, strength, strict=False)
    ) + "</div>"  # fmt: skip


def _css(strength: float) -> str:
    red, green, blue = colours(np.array(strength * 0.75)).round().astype(int).tolist()
    return f"rgb({red},{green},{blue})"
