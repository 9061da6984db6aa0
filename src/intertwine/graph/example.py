"""Example inputs of a model, and the same at other sizes.

A symmetry must hold for every input that a model takes, not only for the example's shape. Which dimensions of
the inputs may change is asked of the model itself: batch, length, height and width are made smaller and
larger, and what runs counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

LARGE = 20_000  # entries of the inputs above which larger sizes are not tried: smaller ones say as much
SMALL = 10  # sizes below are all tried for a dimension that cannot change otherwise
_FAR = 2**31  # the largest whole number that is drawn in place of a lone one: it may be a time
DEAR = 50 * LARGE  # entries above which no size is tried, however rare what it might show
TRIED = 20  # rare sizes of a kind that are tried
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97)
# Whole numbers of a tensor at other sizes: repeated as they are, those that occur, or if one, its neighbours.
Draws = Literal["none", "those that occur", "their neighbours"]


@dataclass(frozen=True)
class Example:
    """The arguments of one call of `forward`; draws: what its whole numbers are drawn from at other sizes."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    draws: Draws = "none"

    @classmethod
    def of(cls, inputs: Any, kwargs: Mapping[str, Any] | None = None) -> Example:
        """From a tensor, the tuple of positional arguments, or the mapping of keyword arguments.

        >>> Example.of(torch.zeros(2, 3))
        Example(float32[2, 3])
        >>> Example.of({"ids": torch.zeros(2, 3, dtype=torch.long)}).kwargs.keys()
        dict_keys(['ids'])
        """
        if isinstance(inputs, Example):
            return inputs
        if isinstance(inputs, Mapping):
            return cls((), {**inputs, **(kwargs or {})})
        args = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
        return cls(args, dict(kwargs or {}))

    def __repr__(self) -> str:
        given = [describe(a) for a in self.args]
        given += [f"{name}={describe(value)}" for name, value in self.kwargs.items()]
        return f"Example({', '.join(given)})"

    @property
    def leaves(self) -> list[Any]:
        """Tensors and everything else, flattened."""
        return tree_flatten((self.args, dict(self.kwargs)))[0]

    def map(self, function: Callable[[Tensor], Tensor]) -> Example:
        """The same arguments with a function applied to every tensor."""
        leaves, spec = tree_flatten((self.args, dict(self.kwargs)))
        args, kwargs = tree_unflatten([function(x) if isinstance(x, Tensor) else x for x in leaves], spec)
        return Example(args, kwargs)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the tensors, in order."""
        return tuple(tuple(x.shape) for x in self.leaves if isinstance(x, Tensor))

    def changed(self, others: Sequence[Example]) -> set[tuple[int, int]]:
        """The dimensions, by tensor and position, of which others have more or less."""
        pairs = [pair for e in others for pair in enumerate(zip(self.shapes, e.shapes, strict=True))]
        return {(k, d) for k, (a, b) in pairs for d in range(len(a)) if a[d] != b[d]}


def describe(args: Any) -> str:
    """Shapes and dtypes of nested example arguments, for messages."""
    if isinstance(args, Tensor):
        return f"{str(args.dtype).removeprefix('torch.')}[{', '.join(map(str, args.shape))}]"
    if isinstance(args, Mapping):
        return "{" + ", ".join(f"{k}: {describe(v)}" for k, v in args.items()) + "}"
    if isinstance(args, (tuple, list)):
        return "(" + ", ".join(describe(a) for a in args) + ")"
    return repr(args)


Shape = tuple[int, ...]


def other_sizes(
    runs: Callable[[Example], bool],
    example: Example,
    count: int = 2,
    sizes: Sequence[int] = (),
    cuts: bool = False,
) -> list[Example]:
    """Examples of other sizes on which the model runs, as different as it allows: `count`, and rare ones.

    runs: whether the model takes an example. Dimensions of equal size change together (height and width, the
    length of ids and of their mask), and then apart; the first dimension of all tensors is the batch.
    Dimensions that cannot change so may still change where something fits: to any small size, a size of 1 to
    one of `sizes`, those in the model, by which it is stretched; and two whose product stays the same. cuts:
    views cut channels, so sizes that share no divisor with any in the model are tried too. Last, all that may
    change at 1 and at twice its size and more: a forward may ask how long its input is, and do another thing.

    Whole numbers are drawn at random, if the model takes that: rows that are all alike hide what mixes rows.
    """
    whole = any(isinstance(x, Tensor) and _is_whole(x) for x in example.leaves)
    kinds: tuple[Draws, ...] = ("their neighbours", "those that occur", "none") if whole else ("none",)
    tries = (_other_sizes(runs, replace(example, draws=draws), count, sizes, cuts) for draws in kinds)
    return next(filter(None, tries), [])


def _other_sizes(
    runs: Callable[[Example], bool], example: Example, count: int, sizes: Sequence[int], cuts: bool
) -> list[Example]:
    found: list[Example] = []
    batch = _batch(example)
    large = _large(example)
    for step in range(count):
        # A single row, with which most can go wrong, and one more than the example's.
        rows = batch + 1 + step if batch <= 1 else batch + step if step else 1
        grown = {batch: rows} if batch else {}
        seen, larger = [e.shapes for e in (example, *found)], step % 2 == 1 and not large
        # To run a large example twice is dear: there the rows change at once with all else, if they do.
        inner, ran = _inner(runs, example, grown if large else {}, seen[1:], larger)
        if ran is None and large and grown:
            inner, _ = _inner(runs, example, {}, seen[1:], larger)
        elif large and ran is not None and ran.shapes not in seen:
            found.append(ran)
            continue
        for changes in ((grown, inner), (grown, {}), ({}, inner)):
            new = _resized(example, *changes)
            if new.shapes not in seen and runs(new):
                found.append(new)
                break
    rare = [_fitting(example, found, sizes), _exchanged(example, found), _apart(example, found)]
    rare += [_coprime(example, found, sizes)] if cuts else []
    for several in (*rare, _least(example, found), _twice(example, found)):
        unseen = (e for e in several if all(e.shapes != other.shapes for other in (example, *found)))
        found += list(islice((e for e in unseen if runs(e)), 1))
    return found


def _rigid(example: Example, found: Sequence[Example]) -> list[tuple[int, int]]:
    """The dimensions that no example changes, by tensor and position."""
    shapes = example.shapes
    places = [(k, dim) for k, shape in enumerate(shapes) for dim in range(len(shape))]
    return [(k, dim) for k, dim in places if all(e.shapes[k][dim] == shapes[k][dim] for e in found)]


def _apart(example: Example, found: Sequence[Example]) -> Iterator[Example]:
    """Equal dimensions that changed together, now one of them to another size than the others."""
    for k, shape in enumerate(example.shapes):
        seen = [e.shapes[k] for e in (example, *found)]
        for dim in range(len(shape) - 1, 1, -1):
            twin = next((d for d in range(1, dim) if shape[d] == shape[dim]), None)
            sizes = list(dict.fromkeys(s[dim] for s in seen[::-1]))
            if twin is not None and len(sizes) > 1:
                other = list(shape)
                other[twin], other[dim] = sizes[1], sizes[0]
                yield _reshaped(example, lambda s: tuple(other) if s == shape else s)  # noqa: B023
                return


def _fitting(example: Example, found: Sequence[Example], sizes: Sequence[int]) -> Iterator[Example]:
    """Dimensions that nothing changed, one size after another at any small one, and where they are 1, at
    those that occur in the model."""
    entries = sum(x.numel() for x in example.leaves if isinstance(x, Tensor))
    batch, large = _batch(example), _large(example)
    rigid = {(min(dim, 1), example.shapes[k][dim]) for k, dim in _rigid(example, found)}
    for inner, old in sorted(rigid):
        among = {*range(1, SMALL), *(s for s in sizes if old == 1)} if not large or old == 1 else set[int]()
        fits = sorted(s for s in among if s not in (0, old) and s * entries <= old * max(LARGE, 4 * entries))
        for new in fits[:TRIED]:
            if inner:
                yield _resized(example, {}, {old: new})
            elif old == batch:
                yield _resized(example, {old: new}, {})


def _exchanged(example: Example, found: Sequence[Example]) -> Iterator[Example]:
    """Two dimensions that nothing changed, with a factor moved from one to the other."""
    rigid = _rigid(example, found)
    tried = 0
    for shape in dict.fromkeys(example.shapes):
        free = {d for k, d in rigid if example.shapes[k] == shape}
        pairs = [(a, b) for a in free for b in free if a != b and shape[a] > 1]
        for a, b in sorted(pairs, key=lambda pair: (-min(pair), -max(pair))):  # the last dimensions first
            part = next(n for n in range(2, shape[a] + 1) if shape[a] % n == 0)
            other = list(shape)
            other[a], other[b] = shape[a] // part, shape[b] * part
            if tried < TRIED:
                tried += 1
                yield _reshaped(example, lambda s: tuple(other) if s == shape else s)  # noqa: B023


def _coprime(example: Example, found: Sequence[Example], sizes: Sequence[int]) -> Iterator[Example]:
    """All that may change at primes that divide no size in the model.

    A view that cuts n channels at every k-th place cuts between all of them in turn where k and n share no
    divisor; where they do, channels that are never told apart look alike.
    """
    changed = example.changed(found)
    inner = sorted({example.shapes[k][d] for k, d in changed if d})
    batch = _batch(example) if any(not d for _, d in changed) else 0
    primes = [p for p in PRIMES if all(size % p for size in sizes if size)]
    most = max(DEAR, 4 * _entries(example, {}, {}))
    for first in range(min(len(primes) - len(inner), SMALL)):
        new = dict(zip(inner, primes[first:], strict=False))
        rows = {batch: primes[first + len(inner)]} if batch else {}
        tries = [(rows, new)] if batch else []
        tries += [({}, new)] if inner else []
        yield from (_resized(example, *t) for t in tries if _entries(example, *t) <= most)


def _least(example: Example, found: Sequence[Example]) -> Iterator[Example]:
    """All that may change inside a row at 1."""
    inner = {example.shapes[k][d] for k, d in example.changed(found) if d}
    if inner:
        yield _resized(example, {}, dict.fromkeys(inner, 1))


def _twice(example: Example, found: Sequence[Example]) -> Iterator[Example]:
    """All that may change at twice its size and one more, unless that is dear."""
    changed = example.changed(found)
    inner = {s: 2 * s + 1 for s in {example.shapes[k][d] for k, d in changed if d}}
    batch = _batch(example) if any(not d for _, d in changed) else 0
    if not _large(example) and (inner or batch):
        yield _resized(example, {batch: 2 * batch + 1} if batch else {}, inner)
        yield _resized(example, {}, inner)


def one_row(example: Example) -> list[Example]:
    """The example; a large one of several rows with its first row before it."""
    batch = _batch(example)
    return [_resized(example, {batch: 1}, {}), example] if batch > 1 and _large(example) else [example]


def _large(example: Example) -> bool:
    return sum(x.numel() for x in example.leaves if isinstance(x, Tensor)) > LARGE


def _inner(
    runs: Callable[[Example], bool],
    example: Example,
    rows: Mapping[int, int],
    found: Sequence[tuple[tuple[int, ...], ...]],
    larger: bool,
) -> tuple[dict[int, int], Example | None]:
    """Old size -> new size of the dimensions besides the batch that may change, while the batch changes as
    `rows` says; and the example that ran with all of them."""
    changed: dict[int, int] = {}
    ran = None
    for size in sorted({s for shape in example.shapes for s in shape[1:]}, reverse=True):
        used = {s for shapes in found for shape in shapes for s in shape[1:]}
        for new in sorted(_candidates(size, larger), key=lambda n: n in used):
            tried = _resized(example, rows, {**changed, size: new})
            if runs(tried):
                changed[size], ran = new, tried
                break
    return changed, ran


def _candidates(size: int, larger: bool) -> list[int]:
    """Other sizes to try: a neighbour shares no divisor, half and double keep divisors, 1 fits all."""
    choice: tuple[int, ...]
    if larger or size == 1:
        choice = (size + 1, size + size // 2, 2 * size, size + 2)
    elif size > 64:
        # Small ones first: they say as much, and the example's own size is the dear one.
        choice = (size // 8 + 1, size // 16 + 1, size // 4, size // 4 + 1, size // 2, size - 1, 1)
    else:
        choice = (size - 1, size // 2, 1)
    return list(dict.fromkeys(n for n in choice if n > 0 and n != size))


def _batch(example: Example) -> int:
    """The size of the first dimension, if all tensors have the same; else 0."""
    first = {shape[0] for shape in example.shapes if shape}
    return first.pop() if len(first) == 1 else 0


def _resized(example: Example, batch: Mapping[int, int], inner: Mapping[int, int]) -> Example:
    """The example with sizes replaced, those of the first dimension and the others."""
    return _reshaped(example, lambda shape: _replaced(shape, batch, inner))


def _entries(example: Example, batch: Mapping[int, int], inner: Mapping[int, int]) -> int:
    """How many numbers the example would hold with sizes replaced."""
    return sum(prod(_replaced(shape, batch, inner)) for shape in example.shapes if shape)


def _replaced(shape: Shape, batch: Mapping[int, int], inner: Mapping[int, int]) -> Shape:
    return batch.get(shape[0], shape[0]), *(inner.get(size, size) for size in shape[1:])


def _reshaped(example: Example, wanted: Callable[[Shape], Shape]) -> Example:
    """The example with other shapes: entries are repeated or left out, and made generic."""
    generator = torch.Generator().manual_seed(0)

    def resize(x: Tensor) -> Tensor:
        if not x.dim():
            return x
        for dim, size in enumerate(wanted(tuple(x.shape))):
            if size != x.shape[dim] and x.shape[dim]:  # of nothing there is no other size
                x = x.index_select(dim, (torch.arange(size) % x.shape[dim]).to(x.device))
        return stirred(drawn(x, example.draws, generator), generator)

    return example.map(resize)


def drawn(x: Tensor, draws: Draws, generator: torch.Generator) -> Tensor:
    """Whole numbers at random: of a lone token those before it are tokens too, and 1 if it is 0.

    >>> some = torch.Generator().manual_seed(0)
    >>> drawn(torch.tensor([4, 7]), "those that occur", some).unique().tolist()
    [4, 7]
    >>> drawn(torch.zeros(9, dtype=torch.long), "their neighbours", some).unique().tolist()
    [0, 1]
    """
    if draws == "none" or not _is_whole(x):
        return x
    known = x.unique().long().cpu()  # of unsigned ones torch knows little else
    if len(known) == 1 and draws == "their neighbours" and known != 1:  # all ones are a mask
        new = torch.randint(min(max(1, int(known)), _FAR) + 1, x.shape, generator=generator)
    else:
        new = torch.take(known, torch.randint(len(known), x.shape, generator=generator))
    return new.to(x.device, x.dtype)


def _is_whole(x: Tensor) -> bool:
    real = x.is_floating_point() or x.is_complex()
    return not real and x.device.type != "meta" and x.numel() > 0


def stirred(x: Tensor, generator: torch.Generator) -> Tensor:
    """Real entries made generic: zeros become random if all are 0, others keep their signs."""
    if not x.is_floating_point() or x.device.type == "meta":
        return x
    noise = torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x.device, x.dtype)
    return noise if not bool(x.any()) else x * (0.2 * noise).exp()
