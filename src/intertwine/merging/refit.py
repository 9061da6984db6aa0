"""Weights of a smaller model, fitted layer after layer to what the original computes.

The smaller model runs once, on all rows together. When it comes to the product of a weight with a value h,
all before it are fitted already; this one becomes

    W = argmin  sum over rows |W h + b + skip - T (t + skip_0)|^2 + lambda |W - W_0|^2,

t what the original's weight gives there, T how the plan maps its outputs, and skip the value that the result
is added to (the stream of a residual network), so that errors made before are made up for. The result
replaces W_0 and the run goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from intertwine.graph.export import eval_copy
from intertwine.merging.combine import turned
from intertwine.merging.contractions import Call, Contraction, identity, real_rows, storage
from intertwine.merging.following import Follow, written
from intertwine.merging.measured import Collector, Grams, Seen, cross_sums
from intertwine.merging.plan import MergePlan
from intertwine.merging.positive import regular_factor
from intertwine.merging.shrink import find_dropped

RIDGE = 1e-3  # of the mean square of the inputs, for as many rows as inputs; less for more
ROUNDS = 3  # iterated ridge regression: what the data say clearly is fitted exactly, the rest is left


@dataclass(eq=False)
class OutputBefore:
    """What a weight of the original gives, (rows, outputs), and what that is added to.

    Kept are its outputs, or what it reads (and made: the weight and the bias) where that is not wider:
    several weights read one value, and sums over rows of the outputs follow from those of what is read.
    """

    kept: Tensor
    skip: Tensor | None
    made: tuple[Tensor, Tensor | None] | None = None

    def rows(self, count: int | None = None) -> Tensor:
        """The first outputs, or all."""
        if self.made is None:
            return self.kept[:count]
        matrix, bias = self.made
        return self.kept[:count] @ matrix + (0 if bias is None else bias)

    def sums(self, first: Tensor, total: Tensor, cross: Tensor) -> Tensor:
        """Of x y^T, and of y in the last row, y the outputs; from those of x, z and x z^T, z what is kept."""
        both = torch.cat([cross, total[None]])
        if self.made is None:
            return both
        matrix, bias = (None if t is None else t.to(both) for t in self.made)
        assert matrix is not None
        both = both @ matrix
        if bias is not None:
            both += torch.outer(torch.cat([first, first.new_full((1,), len(self.kept))]), bias.reshape(-1))
        return both


@dataclass(eq=False)
class Observed:
    """What a model reads and gives on a call: moments by weight, and outputs that others are fitted to."""

    seen: dict[str, Seen]
    outputs: dict[str, OutputBefore]


def observe(model: nn.Module, call: Call) -> Observed:
    """One run: what every weight reads, and what those give that a forward multiplies by once.

    Of the outputs, rows that are padding are not kept.
    """
    copied, collect = eval_copy(model, share=True), Collector()
    found, often = dict[str, OutputBefore](), set[str]()

    parameters, last = dict(copied.named_parameters()), dict[tuple[Any, ...], Tensor]()

    def keep(c: Contraction, skip: Tensor | None) -> None:
        assert c.output is not None
        if c.weight in found:
            often.add(c.weight)
        real = real_rows(call, len(c.output))
        made, given = None, c.output
        if c.exact and c.matrix is not None and skip is None and c.inputs.shape[1] <= c.output.shape[1]:
            made, given = (c.matrix, parameters.get(c.bias)), c.inputs
        key = identity(given)
        if key not in last:  # one for all weights that read one value
            last.clear()
            last[key] = given if real is None else given[real]
        beside = skip if skip is None or real is None else skip[real]
        found[c.weight] = OutputBefore(last[key], beside, made)

    collect.begin(call)
    with torch.no_grad(), _Keeping(copied, keep, collect, found=found):
        copied(*call[0], **call[1])
    return Observed(collect.found, {name: each for name, each in found.items() if name not in often})


class _Keeping(Follow):
    """Copies what was found before an op changes it in place; most of it never is."""

    def __init__(self, *args: Any, found: Mapping[str, OutputBefore]) -> None:
        super().__init__(*args)
        self.found = found

    def before(self, func: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        super().before(func, args, named)
        changing = {storage(x) for x in written(func, args, named)}
        for each in self.found.values() if changing else ():
            if storage(each.kept) in changing:
                each.kept = each.kept.clone()
            if each.skip is not None and storage(each.skip) in changing:
                each.skip = each.skip.clone()


def refit(
    small: nn.Module,
    plan: MergePlan,
    call: Call,
    targets: Mapping[str, OutputBefore],
    shapes: Mapping[str, tuple[int, ...]],
    ridge: float = RIDGE,
) -> dict[str, np.ndarray]:
    """The weights and biases of the smaller model that change, by name.

    call: all data at once; targets: what the original's weights give on it (`observe`); shapes: theirs.
    """
    copied = eval_copy(small)
    state, fitted, solve = dict(copied.named_parameters()), set[str](), _LeastSquares(ridge)
    crosses = _Crosses()

    def fit(c: Contraction, matrix: Tensor, skip: Tensor | None) -> None:
        target, bias = targets[c.weight], state.get(c.bias)
        kept = real_rows(call, len(c.inputs))
        rows = c.inputs if kept is None else c.inputs[kept]

        def mapped(x: Tensor) -> Tensor:
            return _mapped(x, shapes[c.weight], c, plan)

        if len(target.kept) != len(rows) or mapped(target.rows(1)).shape[1] != matrix.shape[1]:
            return
        if skip is not None and target.skip is not None:
            wanted = mapped(target.rows() + target.skip) - (skip if kept is None else skip[kept])
            total, cross = cross_sums(rows, wanted)
            sums = torch.cat([cross, total[None]])
        else:  # the same as to map every row before
            sums = mapped(target.sums(solve.grams(c.inputs, kept)[0], *crosses(c.inputs, rows, target.kept)))
        change = solve(c.inputs, kept, sums, matrix, bias).to(matrix)
        matrix += change[: len(matrix)]
        fitted.add(c.weight)
        if bias is not None:
            bias.add_(change[-1])
            fitted.add(c.bias)

    def settle(c: Contraction, skip: Tensor | None) -> None:
        if c.weight not in targets or c.output is None or c.matrix is None:
            return
        if c.weight not in fitted:
            fit(c, c.matrix, skip)
        if c.bias in state:
            torch.addmm(state[c.bias], c.inputs, c.matrix, out=c.output)
        else:
            torch.mm(c.inputs, c.matrix, out=c.output)

    with torch.no_grad(), Follow(copied, settle, later=targets):
        copied(*call[0], **call[1])
    return {name: state[name].detach().to("cpu", torch.float64).numpy() for name in sorted(fitted)}


class _Crosses:
    """`cross_sums`, once for all weights that read one value and were to read one value (q, k and v)."""

    def __init__(self) -> None:
        self._known: tuple[Any, ...] = ()
        self._read: tuple[Tensor, ...] = ()  # held, so that their memory is not another value's
        self._sums: tuple[Tensor, Tensor] | None = None

    def __call__(self, inputs: Tensor, rows: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
        """rows: of the inputs, those that count."""
        known = identity(inputs), identity(kept)
        if self._sums is None or self._known != known:
            self._sums, self._known, self._read = cross_sums(rows, kept), known, (inputs, kept)
        return self._sums


class _LeastSquares:
    """D = argmin |x (W + D) - y|^2 + lambda |D|^2, from the sums over rows of x x^T and x y^T alone.

    The last row of D is the change of the bias, if there is one. What depends on x alone is computed once for
    all weights that read it.
    """

    def __init__(self, ridge: float) -> None:
        self.ridge, self.grams = ridge, Grams()
        self._known: tuple[Tensor, Tensor, float, Tensor] | None = None

    def __call__(
        self, inputs: Tensor, kept: Tensor | None, sums: Tensor, matrix: Tensor, bias: Tensor | None
    ) -> Tensor:
        """sums: of x y^T, and of y in the last row."""
        first, second = self.grams(inputs, kept)
        size = len(second) + (bias is not None)
        if self._known is None or self._known[0] is not second or len(self._known[1]) != size:
            rows = len(inputs) if kept is None else int(kept.sum())
            self._known = (second, *self._factored(first, second, rows, bias is not None))
        _, gram, ridge, factor = self._known
        old = matrix if bias is None else torch.cat([matrix, bias.reshape(1, -1)])
        step = change = torch.cholesky_solve(sums[:size] - gram @ old.to(gram), factor)
        for _ in range(ROUNDS - 1):  # what a round leaves of the right side is the ridge times its step
            step = torch.cholesky_solve(ridge * step, factor)
            change = change + step
        return change

    def _factored(self, first: Tensor, second: Tensor, rows: int, bias: bool) -> tuple[Tensor, float, Tensor]:
        gram = second
        if bias:
            column = first[:, None]
            corner = column.new_full((1, 1), rows)
            gram = torch.cat([torch.cat([second, column], 1), torch.cat([column.T, corner], 1)])
        weight = self.ridge * min(1.0, len(gram) / rows) * gram.diagonal().mean().clamp_min(1e-300)
        _, factor, ridge = regular_factor(gram, float(weight))
        return gram, ridge, factor


def _mapped(wanted: Tensor, shape: tuple[int, ...], c: Contraction, plan: MergePlan) -> Tensor:
    """The original's outputs in the coordinates of the smaller model; nothing where they are a part of it."""
    rest = [d for d in range(len(shape)) if d != c.dim]
    if int(np.prod([shape[d] for d in rest])) != wanted.shape[1]:
        return wanted[:, :0]
    out = wanted.reshape(-1, *(shape[d] for d in rest))
    for k, dim in enumerate(rest):
        out = map_outputs(out, k + 1, c.weight, dim, plan)
    return out.reshape(len(wanted), -1)


def map_outputs(value: Tensor, along: int, param: str, dim: int, plan: MergePlan) -> Tensor:
    """A value whose dimension `along` is made by dimension `dim` of a weight, as the plan's model has it."""
    for axis in plan.axes:
        for turn in axis.turns if axis.merges else ():
            if (turn.param, turn.dim) == (param, dim):
                value = turned(value, replace(turn, dim=along), axis.width / axis.size)
    dropped = find_dropped(plan).get((param, dim))
    if dropped is None:
        return value
    kept = np.setdiff1d(np.arange(value.shape[along]), dropped)
    return value.index_select(along, torch.from_numpy(kept).to(value.device))


def joined(batches: list[Call]) -> Call:
    """Many calls as one; other lengths are filled up with zeros where there is a mask, or left out."""
    (args, kwargs), masked = batches[0], "attention_mask" in batches[0][1]

    def stack(parts: list[Any]) -> Any:
        if not isinstance(parts[0], Tensor):
            return parts[0]
        if masked and parts[0].dim() > 1:
            longest = max(p.shape[1] for p in parts)
            parts = [_filled(p, longest) for p in parts]
        return torch.cat([p for p in parts if p.shape[1:] == parts[0].shape[1:]])

    columns: list[Any] = [stack([b[0][k] for b in batches]) for k in range(len(args))]
    named: Mapping[str, Any] = {k: stack([b[1][k] for b in batches]) for k in kwargs}
    return tuple(columns), dict(named)


def _filled(x: Tensor, length: int) -> Tensor:
    return torch.cat([x, x.new_zeros(x.shape[0], length - x.shape[1], *x.shape[2:])], 1)
