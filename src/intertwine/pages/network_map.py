"""The network as a map: weights in order, axes as coloured bands from the first weight that carries them to
the last; a click on one says in words what may be done to it.

A model of many weights is drawn by block: `layer1.0`, not `layer1.0.conv1.weight`.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from intertwine.ir.groups import Group
from intertwine.pages.page import Html, Page
from intertwine.symmetry import Axis, Symmetry

# From the smallest group to the largest; frozen is grey. Dark text stands on all of them.
COLOURS = {
    "trivial": "#b8c0ca",
    "sign diagonal": "#cfbfe8",
    "positive diagonal": "#b9a3dc",
    "nonzero diagonal": "#a68fd0",
    "permutation": "#9cc7ee",
    "signed permutation": "#74b1ea",
    "positive monomial": "#4f9de0",
    "monomial": "#3d8fd4",
    "orthogonal": "#eeb04f",
    "general linear": "#e58350",
}
MOST_ROWS = 120  # weights; above that the map has a row for each block
_ROW, _LANE = 26, 13  # pixels
_MOST_LANES = 60


def in_words(group: Group, size: int) -> str:
    """What may be done to the channels of an axis without changing the function.

    >>> in_words(Group(permutation=True, positive=1), 64)
    'You may reorder these 64 channels and rescale each by a positive number.'
    >>> in_words(Group(linear="general linear", blocks=4), 64)
    'You may apply any invertible 16 x 16 matrix in each of 4 blocks.'
    """
    each = size // group.blocks
    where = f" in each of {group.blocks} blocks" if group.blocks > 1 else ""
    if group.linear:
        kind = "any rotation or reflection" if group.linear == "orthogonal" else "any invertible"
        matrix = f"matrix of {each} channels" if group.linear == "orthogonal" else f"{each} x {each} matrix"
        return f"You may apply {kind} {matrix}{where}."
    count = f"these {size} channels" if group.blocks == 1 else f"the {each} channels{where}"
    acts = [f"reorder {count}"] if group.permutation else []
    every = "each" if acts else f"each of {count}"
    if group.positive:
        number = "number other than zero" if group.sign else "positive number"
        times = f" ({group.positive} times on its way)" if group.positive > 1 else ""
        acts.append(f"rescale {every} by a {number}{times}")
    elif group.sign:
        acts.append(f"flip the sign of {every}")
    if not acts:
        return f"Nothing can be done to {count}: they are frozen."
    return f"You may {' and '.join(acts)}."


@dataclass(frozen=True)
class _Row:
    name: str
    block: str
    axes: tuple[int, ...]
    label: str


def add_map(page: Page, symmetry: Symmetry) -> None:
    """The map, its key and its search, into the section that is open."""
    page.text(Html(render_map(symmetry)))


def render_map(symmetry: Symmetry) -> str:
    """The markup of the map, with its style and its script."""
    axes = symmetry.axes
    rows = _rows(axes, symmetry.shapes)
    here = Path(__file__).parent
    data = [
        {"name": axis.name, "words": in_words(axis.group, axis.size), "why": _why(axis), "members": [
            f"{m.param} dim {m.dim} ({m.role})" for m in axis.members]}
        for axis in axes
    ]  # fmt: skip
    chips = "".join(_row_markup(row, axes, last) for row, last in zip(rows, _firsts(rows), strict=True))
    blocks = len({row.block for row in rows})
    what = "block" if rows and rows[0].name == rows[0].block else "weight"
    label = html.escape(f"{len(axes)} axes through {len(rows)} {what}s in {blocks} blocks")
    return (
        f"<style>{(here / 'map.css').read_text(encoding='utf-8')}</style>{_key(axes)}"
        f'<div class="map" id="map"><div class="map-scroll" role="group" aria-label="{label}" tabindex="0">'
        f'<div class="map-rows">{_lanes(rows, axes)}<div>{chips}</div></div></div>'
        '<div class="map-panel" id="map-panel" aria-live="polite"></div></div>'
        f'<script type="application/json" id="map-data">{_json(data)}</script>'
        f"<script>{(here / 'map.js').read_text(encoding='utf-8')}</script>"
    )


def _rows(axes: Sequence[Axis], shapes: Mapping[str, tuple[int, ...]]) -> list[_Row]:
    carried: dict[str, list[tuple[int, int]]] = {}
    for number, axis in enumerate(axes):
        for member in axis.members:
            carried.setdefault(member.param, []).append((member.dim, number))
    # buffers come after all parameters in a state dict; here they stand beside those of their module
    place = {module: at for at, module in enumerate(dict.fromkeys(map(_module, shapes)))}
    rows = [
        _Row(
            name, _block(name), tuple(dict.fromkeys(number for _, number in sorted(carried[name]))),
            " x ".join(map(str, shape)),
        )
        for name, shape in sorted(shapes.items(), key=lambda item: place[_module(item[0])]) if name in carried
    ]  # fmt: skip
    if len(rows) <= MOST_ROWS:
        return rows
    found = []
    for block, inside in groupby(rows, key=lambda row: row.block):
        members = list(inside)
        used = tuple(dict.fromkeys(axis for row in members for axis in row.axes))
        found.append(_Row(block, block, used, f"{len(members)} weights"))
    return found


def _module(name: str) -> str:
    return name.rpartition(".")[0]


def _block(name: str) -> str:
    """
    >>> _block("layer1.0.conv1.weight"), _block("encoder.layer.11.self.query.bias"), _block("fc.bias")
    ('layer1.0', 'encoder.layer.11', 'fc')
    """
    deep = re.match(r"(.*?\.\d+)\.", name)
    return deep[1] if deep else _module(name) or name


def _firsts(rows: Sequence[_Row]) -> Iterator[bool]:
    before = None
    for row in rows:
        yield row.block != before
        before = row.block


def _row_markup(row: _Row, axes: Sequence[Axis], first: bool) -> str:
    chips = "".join(
        f'<button type="button" class="chip" data-axis="{number}" '
        f'style="background:{COLOURS[axis.group.name]}" title="{html.escape(axis.name)}" '
        f'aria-label="{axis.size} channels of {html.escape(axis.name)}">{axis.size}</button>'
        for number, axis in ((number, axes[number]) for number in row.axes)
    )
    return (
        f'<div class="map-row{" first" if first else ""}" data-name="{html.escape(row.name)}" '
        f'data-axes="{" ".join(map(str, row.axes))}">'
        f'<span class="map-name">{html.escape(row.name)}</span>{chips}'
        f'<span class="map-key">{html.escape(row.label)}</span></div>'
    )


def _lanes(rows: Sequence[_Row], axes: Sequence[Axis]) -> str:
    """Bands beside the rows: each axis of more than one row has a lane that no other uses there."""
    span: dict[int, tuple[int, int]] = {}
    for at, row in enumerate(rows):
        for axis in row.axes:
            span[axis] = (span.get(axis, (at, at))[0], at)
    busy: list[int] = []  # per lane, the last row that is taken
    bands = []
    for axis, (start, end) in sorted(span.items(), key=lambda item: item[1]):
        if start == end or axes[axis].group.is_trivial:
            continue
        lane = next((n for n, last in enumerate(busy) if last < start), len(busy))
        if lane >= _MOST_LANES:
            continue
        busy[lane : lane + 1] = [end]
        bands.append(
            f'<rect data-axis="{axis}" data-axes="{axis}" x="{4 + lane * _LANE}" y="{start * _ROW + 4}" '
            f'width="9" height="{(end - start) * _ROW + _ROW - 8}" rx="4" '
            f'fill="{COLOURS[axes[axis].group.name]}">'
            f"<title>{html.escape(axes[axis].name)}</title></rect>"
        )
    width = 10 + len(busy) * _LANE
    return (
        f'<svg class="map-lanes" width="{width}" height="{len(rows) * _ROW}" aria-hidden="true">'
        f"{''.join(bands)}</svg>"
    )


def _key(axes: Sequence[Axis]) -> str:
    used = {axis.group.name for axis in axes}
    parts = (
        f'<i style="background:{colour}"></i>{"frozen" if name == "trivial" else name}'
        for name, colour in COLOURS.items() if name in used
    )  # fmt: skip
    return (
        '<div class="map-tools"><label>Search <input id="map-search" type="search" placeholder="a name">'
        "</label>"
        f'<span class="map-key">{"".join(parts)}</span></div>'
    )


def _why(axis: Axis) -> str:
    if axis.frozen_because:
        return f"Frozen: {axis.frozen_because}."
    merge = "Channels that are nearly equal can be merged." if axis.mergeable else ""
    carriers = len(axis.members)
    return f"{axis.group}; tied because {carriers} dimensions of weights carry it. {merge}".strip()


def _json(data: object) -> str:
    """JSON that cannot end the script it stands in."""
    return json.dumps(data).replace("<", "\\u003c")
