"""Where two networks are stitched: pairs of cuts, checked before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from intertwine.comparing.collecting import select
from intertwine.errors import InputError, Unsupported
from intertwine.ir.groups import Group
from intertwine.symmetry.surgery import Cut, Surgeon

Skip = Literal["a", "b"]


@dataclass(frozen=True)
class Junction:
    """f_(<=l) of A -> stitch -> g_(>l') of B. `skip`: whose value a residual connection carries past the cut.

    Eq. E.54 of source 002 keeps A's ("a"); with B's, Theorem 4.2 holds inside blocks too.
    """

    a: Cut
    b: Cut
    skip: Skip

    @property
    def name(self) -> str:
        return self.a.name if self.a.name == self.b.name else f"{self.a.name} -> {self.b.name}"

    @property
    def inside(self) -> bool:
        return self.b.inside

    @property
    def group(self) -> Group:
        """What acts on the channels that B reads: the smallest class that stitches B onto its orbit."""
        return self.b.value.group

    @property
    def widths(self) -> tuple[int, int]:
        return self.a.value.layout.width, self.b.value.layout.width


def find_junctions(
    a: Surgeon,
    b: Surgeon,
    at: str | Sequence[str] = "all",
    at_b: str | Sequence[str] | None = None,
    *,
    skip: Skip = "a",
) -> tuple[Junction, ...]:
    """The junctions that `at` names: "all" layers, those "outside" residual blocks, or names and patterns."""
    if skip not in ("a", "b"):
        raise InputError(f"the skip of network {skip!r}", do="use a (eq. E.54) or b")
    same = [(v.name, v.op) for v in a.values] == [(v.name, v.op) for v in b.values]
    names_a = _names(a, at)
    if at_b is None and not same and at in ("all", "outside"):
        raise InputError(
            f"the graphs of A and B differ: {_difference(a, b)}",
            so="their layers cannot be paired by name",
            do="name one layer of each: --at LAYER --at-b LAYER",
        )
    names_b = names_a if at_b is None else _names(b, at_b)
    if len(names_a) != len(names_b):
        raise InputError(f"{len(names_a)} layers of A, {len(names_b)} of B", do="name as many of each")
    found = tuple(_junction(a, b, p, q, same, skip) for p, q in zip(names_a, names_b, strict=True))
    return tuple(j for j in found if not j.inside) if at == "outside" else found


def _names(surgeon: Surgeon, at: str | Sequence[str]) -> list[str]:
    if at in ("all", "outside"):
        layers = [v for v in surgeon.values if v.is_layer and not v.summarizes]
        # The last layer is the output itself: there is nothing after it to stitch onto.
        return [v.name for v in layers if not surgeon.is_output(v.name)]
    chosen: dict[str, None] = {}
    for pattern in [at] if isinstance(at, str) else list(at):
        if any(c in pattern for c in "*?["):
            chosen |= dict.fromkeys(v.name for v in select(surgeon.values, pattern))
        else:
            chosen[surgeon.value(pattern).name] = None
    return list(chosen)


def _junction(a: Surgeon, b: Surgeon, p: str, q: str, same: bool, skip: Skip) -> Junction:
    cut_a, cut_b = a.cut(p), b.cut(q)
    size_a, size_b = cut_a.value.layout.pixels, cut_b.value.layout.pixels
    if len(size_a) != len(size_b):
        raise Unsupported(
            f"{p} of A has shape {list(cut_a.value.shape)}, {q} of B {list(cut_b.value.shape)}",
            so="a map with pixels and one without cannot be stitched",
            do="choose layers of the same kind",
        )
    if size_a != size_b and len(size_b) > 2:
        raise Unsupported(f"values of {len(size_b)} spatial dims are not resized", where=p)
    if cut_b.inside and not (same and cut_a.live == cut_b.live and p == q):
        raise Unsupported(
            f"{q} of B lies inside a residual block (it needs {', '.join(cut_b.labels)} too)",
            so="only two networks of one architecture can be stitched there",
            do="cut where a single value passes: --at outside lists no others",
        )
    if cut_b.inside and skip == "a" and a.shapes(cut_a.live) != b.shapes(cut_b.live):
        raise Unsupported(
            f"A's skip past {p} has shapes {a.shapes(cut_a.live)}, B's {b.shapes(cut_b.live)}",
            so="B cannot read it",
            do="cut outside of residual blocks",
        )
    return Junction(cut_a, cut_b, skip)


def _difference(a: Surgeon, b: Surgeon) -> str:
    for p, q in zip(a.values, b.values, strict=False):
        if (p.name, p.op) != (q.name, q.op):
            return f"A computes {p.name} ({p.op}) where B computes {q.name} ({q.op})"
    return f"A has {len(a.values)} values, B has {len(b.values)}"
