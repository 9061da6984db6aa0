"""Moments of all layers of one network with all layers of another, one matrix product a batch and spatial
size.

Layers that meet at the same size are stacked along channels, so that a batch costs two large products
instead of one small product for each of the L x L' pairs; the stack is cut into pairs only when somebody
asks.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from intertwine.comparing.features import Pixels, check_finite, common_size, pool, resize
from intertwine.comparing.moments import Cross, PairMoments
from intertwine.errors import DataError, InputError, NotFound

Size = tuple[int, ...]
Layer = tuple[int, str]  # (which network, layer name)
_PIECE = 16384  # rows whose products are summed in the working precision before float64 takes over


@dataclass(frozen=True)
class _Stack:
    """Some layers of one network at one size: their channels side by side, about their origins, for one
    batch."""

    layers: tuple[Layer, ...]
    parts: tuple[slice, ...]
    data: Tensor  # (all channels) x rows
    sums: Tensor  # over rows, float64
    squares: (
        Tensor  # layers x rows, the squared norm of each row; no layers unless the debiased CKA is wanted
    )

    def only(self, i: int) -> _Stack:
        part = self.parts[i]
        return _Stack(
            (self.layers[i],), (slice(None),), self.data[part], self.sums[part], self.squares[i : i + 1]
        )


@dataclass
class _Block:
    """Running sums for two stacks; the entries of `Cross`, for all pairs of their layers at once."""

    rows: tuple[Layer, ...]
    columns: tuple[Layer, ...]
    n: int
    sums: list[
        Tensor
    ]  # sum x, sum y, sum x y', and with the debiased CKA sum x |y|^2, sum y |x|^2, sum |x|^2 |y|^2

    def entries(self, p: Layer, q: Layer, widths: Mapping[Layer, int]) -> list[Tensor | None]:
        """The running sums of one pair of layers."""
        i, j = self.rows.index(p), self.columns.index(q)
        a, b = _parts(self.rows, widths)[i], _parts(self.columns, widths)[j]
        sum_x, sum_y, xy, *rest = self.sums
        return [
            sum_x[a],
            sum_y[b],
            xy[a, b],
            *([rest[0][a, j], rest[1][b, i], rest[2][i, j]] if rest else [None] * 3),
        ]


class StreamedMoments:
    """Moments of every layer of A with every layer of B: `update` for each batch, `a + b` for shards, `pair`
    to read.

    `pixels="samples"` pairs pixels at the smaller of the two sizes; `"pool"` pairs means over pixels. With
    `precise=False` the products of a batch of float32 are taken in float32 (sums stay float64): enough for
    CKA, and for Procrustes but near 1, not for CCA, which divides by small variances. `matched=True` keeps
    only pairs of layers of the same name.

    >>> x = torch.randn(12, 3, 4, 4)
    >>> whole, left, right = StreamedMoments(), StreamedMoments(), StreamedMoments()
    >>> whole.update({"conv": x}, {"conv": x})
    >>> left.update({"conv": x[:5]}, {"conv": x[:5]})
    >>> right.update({"conv": x[5:]}, {"conv": x[5:]})
    >>> a, b = whole.pair("conv", "conv"), (left + right).pair("conv", "conv")
    >>> torch.allclose(a.xy.centred().xy, b.xy.centred().xy)
    True
    """

    def __init__(
        self,
        *,
        pixels: Pixels = "samples",
        precise: bool = True,
        debiased: bool = True,
        matched: bool = False,
    ) -> None:
        if pixels == "flatten":
            raise InputError(
                "moments of flattened maps would need a matrix of (C*H*W) x (C*H*W)",
                do="use pixels='samples' or 'pool', or a measure that works on N x N kernels",
            )
        self.pixels, self.precise, self.debiased, self.matched = pixels, precise, debiased, matched
        self.images = 0
        self._shapes: dict[Layer, Size] = {}
        self._origins: dict[Layer, Tensor] = {}
        self._blocks: dict[tuple[Size, tuple[Layer, ...], tuple[Layer, ...]], _Block] = {}
        self._merged: dict[tuple[Size, Layer, Layer], Cross] = {}

    def update(self, a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> None:
        """Add one batch: for each network, layer name -> N x C x (pixels)."""
        values = {(side, name): v for side, layers in enumerate((a, b)) for name, v in layers.items()}
        batch = next(iter(values.values())).shape[0]
        for layer, value in values.items():
            self._register(layer, value, batch)
        stacks: dict[tuple[tuple[Layer, ...], Size], _Stack] = {}
        for size, rows, columns in self._plan([(0, p) for p in a], [(1, q) for q in b]):
            for names in (rows, columns):
                if (names, size) not in stacks:
                    stacks[names, size] = self._stack(values, names, size)
            x, y = stacks[rows, size], stacks[columns, size]
            self._add(size, x, y)
        seen = set()
        for (_, size), stack in stacks.items():
            for i, layer in enumerate(stack.layers):
                if (layer, size) not in seen:
                    seen.add((layer, size))
                    self._add(size, stack.only(i), stack.only(i))
        self.images += batch

    def pair(self, p: str, q: str) -> PairMoments:
        """The moments of layer `p` of A and layer `q` of B, at the size where they meet."""
        a, b = self._known(0, p), self._known(1, q)
        size = self._meet(a, b)
        return PairMoments(self._read(size, a, b), self._read(size, a, a), self._read(size, b, b))

    def __add__(self, other: StreamedMoments) -> StreamedMoments:
        if (self.pixels, self.debiased) != (other.pixels, other.debiased) or self._shapes != other._shapes:
            raise InputError(
                "these moments do not belong together",
                so="the layers, their shapes or the treatment of pixels differ",
                do="accumulate every shard with the same settings and the same two models",
            )
        total = StreamedMoments(
            pixels=self.pixels,
            precise=self.precise and other.precise,
            debiased=self.debiased,
            matched=self.matched,
        )
        total.images = self.images + other.images
        total._shapes = dict(self._shapes)
        for key in self._keys():
            total._merged[key] = self._read(*key) + other._read(*key)
        total._origins = {layer: self._origins[layer] for layer in self._shapes}
        return total

    def _known(self, side: int, name: str) -> Layer:
        if (side, name) not in self._shapes:
            have = [known for which, known in self._shapes if which == side]
            raise NotFound(
                f"no layer named {name!r} in these moments", do=f"choose one of {', '.join(have) or '(none)'}"
            )
        return side, name

    def _register(self, layer: Layer, value: Tensor, batch: int) -> None:
        if value.ndim < 2 or value.shape[0] != batch:
            raise DataError(f"shape {tuple(value.shape)} in a batch of {batch} inputs", where=layer[1])
        shape = tuple(value.shape[1:])
        if self._shapes.setdefault(layer, shape) != shape:
            raise DataError(
                f"shape changed from {self._shapes[layer]} to {shape} between batches", where=layer[1]
            )
        if layer not in self._origins:
            mean = pool(value).double().mean(0)
            self._origins[layer] = torch.nan_to_num(
                mean, 0.0, 0.0, 0.0
            )  # what is not finite is reported by _stack

    def _meet(self, p: Layer, q: Layer) -> Size:
        return () if self.pixels == "pool" else common_size(self._shapes[p][1:], self._shapes[q][1:])

    def _plan(
        self, a: list[Layer], b: list[Layer]
    ) -> list[tuple[Size, tuple[Layer, ...], tuple[Layer, ...]]]:
        """Pairs grouped so that a group is a full rectangle of layers meeting at one size."""
        partners: dict[tuple[Size, Layer], list[Layer]] = {}
        for p, q in itertools.product(a, b):
            if self.matched and p[1] != q[1]:
                continue
            partners.setdefault((self._meet(p, q), p), []).append(q)
        rectangles: dict[tuple[Size, tuple[Layer, ...]], list[Layer]] = {}
        for (size, p), columns in partners.items():
            rectangles.setdefault((size, tuple(columns)), []).append(p)
        return [(size, tuple(rows), columns) for (size, columns), rows in rectangles.items()]

    def _widths(self) -> dict[Layer, int]:
        return {layer: shape[0] for layer, shape in self._shapes.items()}

    def _stack(self, values: Mapping[Layer, Tensor], layers: tuple[Layer, ...], size: Size) -> _Stack:
        parts = _parts(layers, self._widths())
        views = [resize(values[layer], size) for layer in layers]
        batch, _, pixels = views[0].shape
        double = self.precise or any(view.dtype == torch.float64 for view in views)
        dtype = torch.float64 if double else torch.float32
        data = views[0].new_empty((parts[-1].stop, batch, pixels), dtype=dtype)
        squares = data.new_empty((len(layers) if self.debiased else 0, batch, pixels))
        for i, (layer, part, view) in enumerate(zip(layers, parts, views, strict=True)):
            origin = self._origins[layer].to(dtype)[:, None, None]
            torch.sub(view.transpose(0, 1).to(dtype), origin, out=data[part])
            if self.debiased:
                torch.sum(data[part].square(), 0, out=squares[i])
        sums = data.sum(2).sum(1, dtype=torch.float64)
        for layer, part in zip(layers, parts, strict=True):
            if not torch.isfinite(sums[part]).all():
                check_finite(values[layer], layer[1])
        return _Stack(layers, parts, data.flatten(1), sums, squares.flatten(1))

    def _add(self, size: Size, x: _Stack, y: _Stack) -> None:
        sums = [x.sums.clone(), y.sums.clone(), _product(x.data, y.data)]
        if self.debiased:
            sums += [_product(x.data, y.squares), _product(y.data, x.squares), _product(x.squares, y.squares)]
        n = x.data.shape[1]
        key = (size, x.layers, y.layers)
        if key not in self._blocks:
            self._blocks[key] = _Block(x.layers, y.layers, n, sums)
            return
        block = self._blocks[key]
        block.n += n
        for total, term in zip(block.sums, sums, strict=True):
            total += term

    def _keys(self) -> set[tuple[Size, Layer, Layer]]:
        new = {
            (size, p, q)
            for (size, rows, columns) in self._blocks
            for p, q in itertools.product(rows, columns)
        }
        return new | set(self._merged)

    def _read(self, size: Size, p: Layer, q: Layer) -> Cross:
        found = self._merged.get((size, p, q))
        block = self._block(size, p, q)
        if block is not None:
            widths = self._widths()
            sum_x, sum_y, xy, *third = block.entries(p, q, widths)
            norms = [self._norm(size, layer, widths) for layer in (p, q)]
            new = Cross(block.n, self._origins[p], self._origins[q], sum_x, sum_y, xy, *norms, *third)  # type: ignore[arg-type]
            return new if found is None else found + new
        if found is None:
            raise NotFound(f"no moments of {p[1]} with {q[1]}", do="update with both layers in one batch")
        return found

    def _block(self, size: Size, p: Layer, q: Layer) -> _Block | None:
        for (where, rows, columns), block in self._blocks.items():
            if where == size and p in rows and q in columns:
                return block
        return None

    def _norm(self, size: Size, layer: Layer, widths: Mapping[Layer, int]) -> Tensor:
        """sum |x|^2 is the trace of the layer's own second moments."""
        block = self._block(size, layer, layer)
        assert block is not None  # update adds it with the first pair
        own = block.entries(layer, layer, widths)[2]
        assert own is not None
        return own.trace()


def _parts(layers: tuple[Layer, ...], widths: Mapping[Layer, int]) -> tuple[slice, ...]:
    ends = list(itertools.accumulate(widths[layer] for layer in layers))
    return tuple(slice(end - widths[layer], end) for layer, end in zip(layers, ends, strict=True))


def _product(x: Tensor, y: Tensor) -> Tensor:
    """x y', in pieces whose sums are added in float64."""
    total = torch.zeros(x.shape[0], y.shape[0], dtype=torch.float64, device=x.device)
    for a, b in zip(x.split(_PIECE, 1), y.split(_PIECE, 1), strict=True):
        total += a @ b.T
    return total
