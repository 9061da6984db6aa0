"""The dozen primitives in which every ATen op is explained.

Each primitive takes symbolic values, writes to the ledger exactly what makes it commute with the symmetry,
and returns the symbolic result. The laws, for one axis with log-scale s and a permutation that moves it:

    einsum      sum_c x[k, c] w[c, o]    contracted: s_x + s_w = 0;  kept: s_out = sum over the operands
    add         a + b                    s_out = s_a = s_b, and 0 along an axis that one is broadcast over
    pointwise   sigma(x)                 by the intertwiner group of sigma
    reduce      sum, mean, max           blocks move as blocks; nothing that is summed over is rescaled
    normalize   layer norm, softmax      permutations only
    concat, pad                          labels side by side; zeros fit any label
    fix         the last resort: freeze and forbid rescaling, with the reason

A joint factor (a channel inside a head) is *projected* onto the axes that an op treats on their own: the
channel then moves inside its block and the block moves as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from intertwine.ir.ledger import ANY_NONLINEAR, NONLINEAR, UNMERGEABLE, Ids, Ledger
from intertwine.ir.placing import align, firmer, of_rank, over, project, separate, without
from intertwine.ir.value import Extent, Factor, Value, constant, fixed, reshape, single, take, zero_scale

THIN = "one channel, which meets several or an op that takes it for none"


class Algebra:
    """The primitives over one ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    # -- helpers -----------------------------------------------------------------------------------------

    def _match(self, values: Sequence[Value]) -> None:
        """Tie the labels of operands that lie on common axes; a fixed axis freezes what meets it."""
        for i, left in enumerate(values):
            covered_left = left.covered()
            axes_left = {a for d in left.dims for a in d if not a.wild}
            for right in values[i + 1 :]:
                covered_right = right.covered()
                axes_right = {a for d in right.dims for a in d if not a.wild}
                for f in left.factors:
                    for g in right.factors:
                        shared = [a for a in f.axes if a in g.axes]
                        if shared:
                            self.ledger.tie(project(self.ledger, f, shared), project(self.ledger, g, shared))
                self._freeze_where(left, axes_right - covered_right)
                self._freeze_where(right, axes_left - covered_left)

    def _freeze_where(self, value: Value, bare: set[Extent]) -> None:
        for factor in value.factors:
            shared = [a for a in factor.axes if a in bare]
            if shared:
                labels = project(self.ledger, factor, shared)
                self.ledger.freeze(labels, "meets positions that are fixed")

    def _total(self, value: Value, axes: Sequence[Extent]) -> Ids:
        """The sum of a value's scales over `axes`, as one array (a fresh one where several factors meet)."""
        inside = [f for f in value.factors if set(f.axes) <= set(axes)]
        shape = tuple(a.size for a in axes)
        if not inside:
            return zero_scale(shape)
        spread = [over(f, axes, f.scale) for f in inside]
        if len(spread) == 1:
            return np.broadcast_to(spread[0], shape)
        total = self.ledger.fresh_scales(shape)
        self.ledger.equation((total, *spread), (1.0, *[-1.0] * len(spread)), (1,) * (len(spread) + 1))
        return total

    def _maximal(self, factors: Iterable[Factor]) -> list[Factor]:
        """One factor for every set of axes that is not inside another one."""
        kept: list[Factor] = []
        for factor in sorted(factors, key=lambda f: -len(f.axes)):
            if not any(set(factor.axes) <= set(k.axes) for k in kept):
                kept.append(factor)
        return kept

    # -- the primitives ----------------------------------------------------------------------------------

    def fix(self, value: Value, reason: str, dims: Sequence[int] | None = None) -> Value:
        """Freeze the labels on these dimensions and forbid rescaling them; the result carries none there."""
        rank = len(value.dims)
        chosen = range(rank) if dims is None else sorted({d % rank for d in dims})
        axes = {a for d in chosen for a in value.dims[d]}
        kept: list[Factor] = []
        for factor in value.factors:
            inside = [a for a in factor.axes if a in axes]
            if not inside:
                kept.append(factor)
                continue
            self.ledger.freeze(project(self.ledger, factor, inside), reason)
            self.ledger.zero(factor.scale)
            rest = [a for a in factor.axes if a not in axes]
            if not set(rest) <= value.behind():
                ids = project(self.ledger, factor, rest)
                kept.append(Factor(tuple(rest), ids, zero_scale(ids.shape)))
        plain = {a: Extent(a.size) for a in axes}
        return replace(value.renamed(plain), factors=tuple(kept))

    def plain(self, value: Value, axes: set[Extent] | None = None) -> Value:
        """The same value without its axes of single channels (or without these), which are not rescaled."""
        thin = value.thin() if axes is None else axes
        if not thin:
            return value
        wide = [tuple(a for a in dim if a not in thin) for dim in value.dims]
        still = self.fix(value.with_dims((*wide, tuple(thin))), THIN, [len(wide)])
        return still.with_dims(still.dims[:-1])

    def _one_width(self, values: Sequence[Value], places: Sequence[tuple[int, int]]) -> list[Value]:
        """A single channel that meets several is the same to all of them: it is not rescaled."""
        out = list(values)
        if any(out[v].shape[d] > 1 for v, d in places):
            for v, d in places:
                out[v] = self.plain(out[v], out[v].thin().intersection(out[v].dims[d]))
        return out

    def einsum(self, spec: str, *operands: Value) -> Value:
        """`numpy.einsum` on symbolic values; letters may broadcast over size-1 dimensions."""
        left, out = spec.replace(" ", "").split("->")
        terms = left.split(",")
        values = separate(operands)
        if any(v.zero for v in values):
            return constant(self._out_shape(terms, values, out), zero=True)
        for letter in dict.fromkeys("".join(terms)):
            places = [(v, t.index(letter)) for v, t in enumerate(terms) if letter in t]
            values = self._one_width(values, places)
            values = align(self.ledger, values, places)
        self._match(values)
        dims: dict[str, tuple[Extent, ...]] = {}
        for value, term in zip(values, terms, strict=True):
            for letter, dim in zip(term, value.dims, strict=True):
                current = dims.get(letter, ())
                dims[letter] = firmer(current, dim)
        kept = {a for letter in out for a in dims[letter]}.union(*(v.behind() for v in values))
        self._contract(values, kept)
        factors = self._keep(values, kept)
        return Value(tuple(dims[letter] for letter in out), tuple(factors))

    def _out_shape(self, terms: list[str], values: list[Value], out: str) -> list[int]:
        sizes: dict[str, int] = {}
        for term, value in zip(terms, values, strict=True):
            for letter, size in zip(term, value.shape, strict=True):
                sizes[letter] = max(sizes.get(letter, 1), size)
        return [sizes[letter] for letter in out]

    def _contract(self, values: Sequence[Value], kept: set[Extent]) -> None:
        """Scales of what is summed over must cancel."""
        gone = [(v, f) for v, value in enumerate(values) for f in value.factors if not set(f.axes) <= kept]
        while gone:
            cluster = [gone.pop()]
            summed = {a for a in cluster[0][1].axes if a not in kept}
            grew = True
            while grew:
                more = [item for item in gone if summed.intersection(item[1].axes)]
                gone = [item for item in gone if item not in more]
                cluster += more
                summed |= {a for _, f in more for a in f.axes if a not in kept}
                grew = bool(more)
            axes = list(dict.fromkeys(a for _, f in cluster for a in f.axes))
            scales = tuple(over(f, axes, f.scale) for _, f in cluster)
            self.ledger.equation(scales, (1.0,) * len(scales), (1,) * len(scales))
            for axis in summed:
                holders = [(v, f) for v, f in cluster if axis in f.axes]
                operands = len({v for v, _ in holders})
                for _, f in holders:
                    if operands > 2:
                        self.ledger.mark(project(self.ledger, f, [axis]), ANY_NONLINEAR)
                    elif operands == 1:
                        # Summed against fixed or repeated entries: bad for what varies along this axis only.
                        self.ledger.mark(f.ids, ANY_NONLINEAR | UNMERGEABLE, blocks=False)
                        self.ledger.mark(project(self.ledger, f, [axis]), ANY_NONLINEAR | UNMERGEABLE)

    def _keep(self, values: Sequence[Value], kept: set[Extent]) -> list[Factor]:
        """Factors of the result: what is left of each, scales of several operands added up."""
        remaining: list[tuple[int, Factor]] = []
        for v, value in enumerate(values):
            for factor in value.factors:
                rest = [a for a in factor.axes if a in kept]
                if len(rest) == len(factor.axes):
                    remaining.append((v, factor))
                elif rest and not set(rest) <= value.behind():
                    ids = project(self.ledger, factor, rest)
                    remaining.append((v, Factor(tuple(rest), ids, zero_scale(ids.shape))))
        result: list[Factor] = []
        unused = list(remaining)
        for top in self._maximal(f for _, f in remaining):
            group = [item for item in unused if set(item[1].axes) <= set(top.axes)]
            unused = [item for item in unused if item not in group]
            self._mark_shared(group)
            scales = [over(f, top.axes, f.scale) for _, f in group if f.scale.any()]
            if len(scales) == 1 and scales[0].shape == top.ids.shape:
                scale = scales[0]
            elif not scales:
                scale = zero_scale(top.ids.shape)
            else:
                scale = self.ledger.fresh_scales(top.ids.shape)
                n = len(scales)
                self.ledger.equation((scale, *scales), (1.0, *[-1.0] * n), (1,) * (n + 1))
            result.append(Factor(top.axes, top.ids, scale))
        return result

    def _mark_shared(self, group: Sequence[tuple[int, Factor]]) -> None:
        """An axis that two operands keep is multiplied entry by entry: linear maps do not pass."""
        for i, (v, f) in enumerate(group):
            for w, g in group[i + 1 :]:
                shared = [a for a in f.axes if a in g.axes]
                if v != w and shared:
                    self.ledger.mark(project(self.ledger, f, shared), ANY_NONLINEAR)
                    self.ledger.mark(project(self.ledger, g, shared), ANY_NONLINEAR)

    def broadcast(self, values: Sequence[Value]) -> list[Value]:
        """Operands of a pointwise op with ranks made equal and dimensions aligned."""
        rank = max(len(v.dims) for v in values)
        full = separate([of_rank(v, rank) for v in values])
        for d in range(rank):
            places = [(i, d) for i in range(len(full))]
            full = align(self.ledger, self._one_width(full, places), places)
        return full

    def multiply(self, *operands: Value) -> Value:
        """a * b with broadcasting."""
        rank = max(len(v.dims) for v in operands)
        letters = "abcdefghijklmnopqrstuvwxyz"[:rank]
        spec = ",".join([letters] * len(operands)) + "->" + letters
        return self.einsum(spec, *(of_rank(v, rank) for v in operands))

    def add(self, *operands: Value) -> Value:
        """a + b with broadcasting; zeros fit anything."""
        shape = np.broadcast_shapes(*(v.shape for v in operands))
        present = [v for v in operands if not v.zero]
        if not present:
            return constant(shape, zero=True)
        values = self.broadcast(present)
        self._match(values)
        result = Value(self._dims(values), self._agree(values))
        return self.expand(result, shape)

    def _agree(self, values: Sequence[Value]) -> tuple[Factor, ...]:
        """Factors of a sum of aligned values: all operands are scaled alike along every axis."""
        tops = self._maximal(f for v in values for f in v.factors)
        if sum(len(f.axes) for f in tops) > len({a for f in tops for a in f.axes}):
            for value in values:
                self._forbid_scales(value)
            return tuple(Factor(f.axes, f.ids, zero_scale(f.ids.shape)) for f in tops)
        factors = []
        for top in tops:
            totals = [self._total(v, top.axes) for v in values]
            for value, total in zip(values, totals, strict=True):
                self.ledger.equal(totals[0], total)
                if not any(set(f.axes) == set(top.axes) for f in value.factors):
                    self.ledger.mark(top.ids, ANY_NONLINEAR)
            factors.append(Factor(top.axes, top.ids, totals[0]))
        return tuple(factors)

    def _dims(self, values: Sequence[Value]) -> tuple[tuple[Extent, ...], ...]:
        dims: list[tuple[Extent, ...]] = [()] * len(values[0].dims)
        for value in values:
            for d, dim in enumerate(value.dims):
                dims[d] = firmer(dims[d], dim)
        return tuple(dims)

    def settle(self, value: Value) -> Value:
        """The value for an op that may see several rows at once: what has an order of its own in each slice
        of a choice has one for all."""
        behind, factors = value.behind(), list[Factor]()
        for factor in value.factors:
            rest = [a for a in factor.axes if a not in behind]
            if not rest:
                continue
            if len(rest) < len(factor.axes):
                ids = project(self.ledger, factor, rest)
                self.ledger.zero(factor.scale)
                factor = Factor(tuple(rest), ids, zero_scale(ids.shape))
            factors.append(factor)
        return replace(value, factors=tuple(factors))

    def opaque(self, *operands: Value) -> Value:
        """Any elementwise function of several operands: they move together, none can be rescaled."""
        values = self.broadcast(operands)
        self._match(values)
        for value in values:
            self._forbid_scales(value)
        factors = self._maximal(f for v in values for f in v.factors)
        unscaled = tuple(Factor(f.axes, f.ids, zero_scale(f.ids.shape)) for f in factors)
        return Value(self._dims(values), unscaled)

    def _forbid_scales(self, value: Value, marks: int = ANY_NONLINEAR) -> None:
        for factor in value.factors:
            self.ledger.zero(factor.scale)
            self.ledger.mark(factor.ids, marks)

    def unscaled(self, value: Value) -> Value:
        """The same value with rescaling forbidden."""
        for factor in value.factors:
            self.ledger.zero(factor.scale)
        plain = tuple(Factor(f.axes, f.ids, zero_scale(f.ids.shape)) for f in value.factors)
        return replace(value, factors=plain)

    def pointwise(self, value: Value, kind: Any) -> Value:
        """sigma(x) for a scalar function whose intertwiner group is `kind` (`intertwine.activations`)."""
        if kind.linear:
            return value
        factors = []
        for factor in value.factors:
            self.ledger.mark(factor.ids, ANY_NONLINEAR)
            factors.append(Factor(factor.axes, factor.ids, self._through(factor.scale, kind)))
        return Value(value.dims, tuple(factors))

    def _through(self, scale: Ids, kind: Any) -> Ids:
        if not scale.any():
            return scale
        if kind.scalars in ("none", "sign"):
            self.ledger.zero(scale, sign=kind.scalars == "none")
            return scale if kind.sign == "odd" else zero_scale(scale.shape)
        if kind.scalars == "positive":
            self.ledger.zero(scale, real=False)
            if kind.degree == 1:
                return scale
        out = self.ledger.fresh_scales(scale.shape)
        # Where the sign of the operand is 0 already, "equal signs" says all there is to say.
        same_sign = kind.sign == "odd" or kind.scalars == "positive"
        self.ledger.equation((scale, out), (kind.degree, -1.0), (1, 1) if same_sign else None)
        if not same_sign:
            self.ledger.zero(out, real=False)
        return out

    def reduce(self, value: Value, dims: Sequence[int], keepdim: bool, how: str = "linear") -> Value:
        """Sum over dimensions; how = linear (sum, mean), max (max, min, norms), length (which O(n) keeps),
        opaque (std, logsumexp)."""
        rank = len(value.dims)
        gone = {d % rank for d in dims}
        axes = {a for d in gone for a in value.dims[d]}
        factors: list[Factor] = []
        for factor in value.factors:
            rest = [a for a in factor.axes if a not in axes]
            if len(rest) < len(factor.axes):
                self.ledger.zero(factor.scale)
                kept = NONLINEAR if how == "length" else ANY_NONLINEAR
                self.ledger.mark(factor.ids, kept | UNMERGEABLE)
                if rest:
                    ids = project(self.ledger, factor, rest)
                    self.ledger.mark(ids, ANY_NONLINEAR | UNMERGEABLE)
                    factors.append(Factor(tuple(rest), ids, zero_scale(ids.shape)))
                continue
            if how != "linear":
                self.ledger.zero(factor.scale, real=how == "opaque")
                self.ledger.mark(factor.ids, ANY_NONLINEAR)
            factors.append(factor)
        left = [() if d in gone else dim for d, dim in enumerate(value.dims) if keepdim or d not in gone]
        # Of zeros, std and logsumexp need not be 0, nor is an empty product.
        return Value(tuple(left), tuple(factors), value.zero and how != "opaque")

    def normalize(
        self, value: Value, dims: Sequence[int], rotation: bool = False, odd: bool = False
    ) -> Value:
        """Divide by statistics over `dims` (norms, softmax): blocks move as blocks, nothing is rescaled.

        `rotation` says that the statistic is the length of the vector, which O(n) keeps, `odd` that what is
        negated as a whole comes out negated.
        """
        axes = {a for d in dims for a in value.dims[d]}
        factors = []
        for factor in value.factors:
            rest = [a for a in factor.axes if a not in axes]
            if 0 < len(rest) < len(factor.axes):
                self.ledger.mark(project(self.ledger, factor, rest), ANY_NONLINEAR | UNMERGEABLE)
            inside = len(rest) < len(factor.axes)
            signed = odd and not inside
            self.ledger.zero(factor.scale, sign=not signed)
            self.ledger.mark(factor.ids, NONLINEAR if rotation and inside else ANY_NONLINEAR)
            self.ledger.mark(factor.ids, UNMERGEABLE if inside else 0)
            scale = factor.scale if signed else zero_scale(factor.ids.shape)
            factors.append(Factor(factor.axes, factor.ids, scale))
        return Value(value.dims, tuple(factors))

    def concat(self, values: Sequence[Value], dim: int) -> Value:
        """`cat`: labels side by side along `dim`; along the others the parts agree as in a sum."""
        rank = len(values[0].dims)
        dim %= rank
        parts = [single(self.ledger, v, dim) for v in separate([v for v in values if 0 not in v.shape])]
        if not parts:
            joined = list(values[0].shape)
            joined[dim] = sum(v.shape[dim] for v in values)
            return constant(tuple(joined), zero=True)
        for d in range(rank):
            if d != dim:
                parts = align(self.ledger, parts, [(i, d) for i in range(len(parts))])
        ends = [p.dims[dim][0] if p.dims[dim] else None for p in parts]
        sides = [next((f for f in p.factors if e in f.axes), None) for p, e in zip(parts, ends, strict=True)]
        flat = [p.with_dims(without(p.dims, dim)) for p in parts]
        self._match(flat)
        hosts = {frozenset(a for a in s.axes if a not in ends) for s in sides if s is not None}
        common = list(next(iter(hosts))) if len(hosts) == 1 and None not in sides else []
        rests = [
            replace(p, factors=self._beside(p, s, e, common))
            for p, s, e in zip(flat, sides, ends, strict=True)
            if not p.zero
        ]
        factors = list(self._agree(rests)) if rests else []
        sizes = [p.shape[dim] for p in parts]
        axis = Extent(sum(sizes))
        if any(s is not None for s in sides):
            factors.append(self._side_by_side(parts, sides, ends, common, axis))
        dims, whole = self._dims(flat), (axis,) if axis.size != 1 else ()
        return Value((*dims[:dim], whole, *dims[dim:]), tuple(factors), all(p.zero for p in parts))

    def _beside(
        self, part: Value, side: Factor | None, end: Extent | None, common: Sequence[Extent]
    ) -> tuple[Factor, ...]:
        """The factors of a part that do not run along the concatenated axis."""
        others = tuple(f for f in part.factors if f is not side)
        hosts = [a for a in side.axes if a is not end] if side is not None else []
        if side is None or len(hosts) == len(common):
            return others
        ids = project(self.ledger, side, hosts)
        return (*others, Factor(tuple(hosts), ids, zero_scale(ids.shape)))

    def _side_by_side(
        self,
        parts: Sequence[Value],
        sides: Sequence[Factor | None],
        ends: Sequence[Extent | None],
        common: Sequence[Extent],
        axis: Extent,
    ) -> Factor:
        """One factor along the joint axis; joint parts stay joint if all are joint in the same way.

        Zeros fit any label and any scale; equal entries fit any permutation; others are fixed.
        """
        shape = tuple(a.size for a in common)
        ids, scales = [], []
        for part, side, end in zip(parts, sides, ends, strict=True):
            if side is None or end is None:
                size = end.size if end is not None else 1
                labels = self.ledger.fresh_labels((*shape, size))
                if not part.zero:
                    self.ledger.mark(labels, ANY_NONLINEAR)
                    if end is None or not end.wild:
                        self.ledger.freeze(labels, "concatenated with positions that are fixed")
                ids.append(labels)
                scales.append(
                    self.ledger.fresh_scales(labels.shape) if part.zero else zero_scale(labels.shape)
                )
                continue
            ids.append(project(self.ledger, side, [*common, end]))
            whole = len(side.axes) == len(common) + 1
            if not whole:
                self.ledger.zero(side.scale)
            scales.append(side.on([*common, end]).scale if whole else zero_scale(ids[-1].shape))
        whole_ids = np.concatenate(ids, axis=-1)
        if len(np.unique(whole_ids)) < whole_ids.size:
            # The same channel twice: fresh labels, part by part, keep the copies apart.
            parts_ids = [self.ledger.fresh_labels(i.shape) for i in ids]
            for fresh, old in zip(parts_ids, ids, strict=True):
                self.ledger.tie(fresh, old)
            whole_ids = np.concatenate(parts_ids, axis=-1)
        return Factor((*common, axis), whole_ids, np.concatenate(scales, axis=-1))

    def pad(self, value: Value, dim: int, before: int, after: int, fill: float = 0.0) -> Value:
        """Constant padding; zeros beside channels are channels that fit any label."""
        if min(before, after) < 0:
            size = value.shape[dim]
            value = take(self.ledger, value, dim, np.arange(max(-before, 0), size - max(-after, 0)))
            before, after = max(before, 0), max(after, 0)
        if before == after == 0:
            return value
        covered = bool(value.factors_on(value.dims[dim]))
        if fill != 0.0:
            for factor in value.factors:
                self.ledger.zero(factor.scale)
                self.ledger.mark(factor.ids, ANY_NONLINEAR)
        if not covered:
            size = value.shape[dim] + before + after
            dims = (*value.dims[:dim], (Extent(size),), *value.dims[dim + 1 :])
            return Value(dims, value.factors, value.zero and fill == 0.0)
        shape = list(value.shape)
        shape[dim] = before + after
        blank = constant(shape, zero=fill == 0.0)
        wide = self.concat([value, blank], dim)
        size = value.shape[dim]
        order = np.concatenate(
            [np.arange(size, size + before), np.arange(size), np.arange(size + before, size + before + after)]
        )
        return take(self.ledger, wide, dim, order)

    def expand(self, value: Value, shape: Sequence[int]) -> Value:
        """Broadcast to a larger shape; what is repeated is wild."""
        missing = len(shape) - len(value.dims)
        dims = ((),) * missing + value.dims
        return value.with_dims(
            tuple(
                d if d or shape[i] in (1, -1) else (Extent(int(shape[i]), wild=True),)
                for i, d in enumerate(dims)
            )
        )

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        """`view`."""
        if value.zero:
            return constant(shape, zero=True)
        if not value.factors and not any(a.wild for d in value.dims for a in d):
            return fixed(shape)
        return reshape(self.ledger, value, shape)

    def take(self, value: Value, dim: int, index: Ids) -> Value:
        """Known slices of one dimension."""
        return take(self.ledger, value, dim, index)
