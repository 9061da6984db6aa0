"""Example inputs of a model, and the same at other sizes.

A symmetry must hold for every input that a model takes, not only for the example's shape. Which dimensions of
the inputs may change is asked of the model itself: batch, length, height and width are made smaller and
larger, and what runs counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

LARGE = 20_000  # entries of the inputs above which larger sizes are not tried: smaller ones say as much


@dataclass(frozen=True)
class Example:
    """The arguments of one call of `forward`."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

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


def describe(args: Any) -> str:
    """Shapes and dtypes of nested example arguments, for messages."""
    if isinstance(args, Tensor):
        return f"{str(args.dtype).removeprefix('torch.')}[{', '.join(map(str, args.shape))}]"
    if isinstance(args, Mapping):
        return "{" + ", ".join(f"{k}: {describe(v)}" for k, v in args.items()) + "}"
    if isinstance(args, (tuple, list)):
        return "(" + ", ".join(describe(a) for a in args) + ")"
    return repr(args)


def other_sizes(runs: Callable[[Example], bool], example: Example, count: int = 2) -> list[Example]:
    """Up to `count` examples of other sizes on which the model runs, as different as it allows.

    runs: whether the model takes an example. Dimensions of equal size change together (height and width, the
    length of ids and of their mask); the first dimension of all tensors is the batch.
    """
    found: list[Example] = []
    batch = _batch(example)
    large = _large(example)
    for step in range(count):
        # One more than the example's, then two more; of large inputs rather a single one.
        rows = batch + 1 + step if not (large and step and batch > 1) else 1
        grown = {batch: rows} if batch else {}
        inner = _inner(runs, example, [e.shapes for e in found], larger=step % 2 == 1 and not large)
        for sizes in ((grown, inner), (grown, {}), ({}, inner)):
            new = _resized(example, *sizes)
            known = new.shapes in [e.shapes for e in (example, *found)]
            if not known and runs(new):
                found.append(new)
                break
    return found


def one_row(example: Example) -> list[Example]:
    """The example; a large one of several rows with its first row before it."""
    batch = _batch(example)
    return [_resized(example, {batch: 1}, {}), example] if batch > 1 and _large(example) else [example]


def _large(example: Example) -> bool:
    return sum(x.numel() for x in example.leaves if isinstance(x, Tensor)) > LARGE


def _inner(
    runs: Callable[[Example], bool],
    example: Example,
    found: Sequence[tuple[tuple[int, ...], ...]],
    larger: bool,
) -> dict[int, int]:
    """Old size -> new size of the dimensions besides the batch that may change."""
    changed: dict[int, int] = {}
    for size in sorted({s for shape in example.shapes for s in shape[1:]}, reverse=True):
        used = {s for shapes in found for shape in shapes for s in shape[1:]}
        for new in sorted(_candidates(size, larger), key=lambda n: n in used):
            if runs(_resized(example, {}, {**changed, size: new})):
                changed[size] = new
                break
    return changed


def _candidates(size: int, larger: bool) -> list[int]:
    """Other sizes to try: a neighbour shares no divisor, half and double keep divisors, 1 fits all."""
    choice: tuple[int, ...]
    if larger or size == 1:
        choice = (size + 1, size + size // 2, 2 * size, size + 2)
    elif size > 64:
        choice = (size // 4, size // 4 + 1, size // 2, size - 1, 1)
    else:
        choice = (size - 1, size // 2, 1)
    return list(dict.fromkeys(n for n in choice if n > 0 and n != size))


def _batch(example: Example) -> int:
    """The size of the first dimension, if all tensors have the same; else 0."""
    first = {shape[0] for shape in example.shapes if shape}
    return first.pop() if len(first) == 1 else 0


def _resized(example: Example, batch: Mapping[int, int], inner: Mapping[int, int]) -> Example:
    """The example with sizes replaced: entries are repeated or left out, and real ones stirred a little."""
    generator = torch.Generator().manual_seed(0)

    def resize(x: Tensor) -> Tensor:
        if not x.dim():
            return x
        wanted = [batch.get(x.shape[0], x.shape[0]), *(inner.get(s, s) for s in x.shape[1:])]
        for dim, size in enumerate(wanted):
            if size != x.shape[dim]:
                x = x.index_select(dim, (torch.arange(size) % x.shape[dim]).to(x.device))
        return stirred(x, generator)

    return example.map(resize)


def stirred(x: Tensor, generator: torch.Generator) -> Tensor:
    """Real entries made generic: zeros become random if all are 0, others keep their signs."""
    if not x.is_floating_point() or x.device.type == "meta":
        return x
    noise = torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x.device, x.dtype)
    return noise if not bool(x.any()) else x * (0.2 * noise).exp()
