"""Weights of a smaller model, fitted layer after layer to what the original computes.

The smaller model runs once, on all rows together. When it comes to the product of a weight with a value h,
all before it are fitted already; this one becomes

    W = argmin  sum over rows |W h + b + skip - T (t + skip_0)|^2 + lambda |W - W_0|^2,

t what the original's weight gives there, T how the plan maps its outputs, and skip the value that the result
is added to (the stream of a residual network), so that errors made before are made up for. The result
replaces W_0 and the run goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from intertwine.graph.export import eval_copy
from intertwine.merging.combine import turned
from intertwine.merging.contractions import Call, Contraction, Watch, aten, real_rows, storage
from intertwine.merging.measured import Collector, Grams, Seen
from intertwine.merging.plan import MergePlan
from intertwine.merging.positive import regular_factor
from intertwine.merging.shrink import find_dropped

RIDGE = 1e-3  # of the mean square of the inputs, for as many rows as inputs; less for more
ROUNDS = 3  # iterated ridge regression: what the data say clearly is fitted exactly, the rest is left


@dataclass(eq=False)
class OutputBefore:
    """What a weight of the original gives (rows, outputs), and what that is added to."""

    output: Tensor
    skip: Tensor | None


class Follow(Watch):
    """Watches contractions until their result is used: `settle` is told what it is added to, if it is."""

    def __init__(
        self,
        model: nn.Module,
        settle: Callable[[Contraction, Tensor | None], None],
        at_once: Callable[[Contraction], None] | None = None,
    ) -> None:
        super().__init__(model, self._remember)
        self.settle, self.at_once = settle, at_once
        self.pending: dict[int, Contraction] = {}
        self._biased: Contraction | None = None

    def _remember(self, found: Contraction) -> None:
        if self.at_once is not None:
            self.at_once(found)
        if found.output is not None:
            self.pending[storage(found.output)] = found

    def before(self, func: Any, args: tuple[Any, ...]) -> None:
        if not self.pending or _is_view(func):
            return
        flat = [x for a in args for x in (a if isinstance(a, (list, tuple)) else (a,))]
        for value in (x for x in flat if isinstance(x, Tensor)):
            found = self.pending.pop(storage(value), None)
            if found is None:
                continue
            assert found.output is not None
            others = [x for x in args[:2] if x is not value] if _adds(func) else []
            other = others[0] if len(others) == 1 and isinstance(others[0], Tensor) else None
            plain = found.output.is_contiguous() and value.is_contiguous()
            if other is not None and plain and self.name_of(other) and _is_row(other, found.output.shape[1]):
                found.bias, self._biased = self.name_of(other), found
            elif other is not None and plain and other.shape == value.shape:
                self.settle(found, other.reshape(found.output.shape))
            else:
                self.settle(found, None)

    def after(self, func: Any, args: tuple[Any, ...], result: Any) -> None:
        if self._biased is not None:
            found, self._biased = self._biased, None
            found.output = result.view(found.inputs.shape[0], -1)
            self.pending[storage(result)] = found

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for found in self.pending.values():
            self.settle(found, None)
        self.pending.clear()


def _is_row(value: Tensor, width: int) -> bool:
    """Whether it is one number for every channel (XLNet adds two tables of heads to one product)."""
    return value.dim() > 0 and value.shape[-1] == value.numel() == width


def _is_view(func: Any) -> bool:
    """Whether an op only looks at its operand in another way."""
    if func is aten._unsafe_view.default:  # its schema does not say that the memory is shared
        return True
    returns = func._schema.returns
    info = returns[0].alias_info if returns else None
    return info is not None and not info.is_write


def _adds(func: Any) -> bool:
    """Whether an op sums its operands, in place or not."""
    return func.overloadpacket in (aten.add, aten.add_)


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

    def keep(c: Contraction, skip: Tensor | None) -> None:
        assert c.output is not None
        if c.weight in found:
            often.add(c.weight)
        kept = real_rows(call, len(c.output))

        def own(x: Tensor) -> Tensor:
            return x.clone() if kept is None else x[kept]

        found[c.weight] = OutputBefore(own(c.output), None if skip is None else own(skip))

    collect.begin(call)
    with torch.no_grad(), Follow(copied, keep, collect):
        copied(*call[0], **call[1])
    return Observed(collect.found, {name: each for name, each in found.items() if name not in often})


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

    def settle(c: Contraction, skip: Tensor | None) -> None:
        target = targets.get(c.weight)
        if target is None or c.output is None or c.matrix is None or c.weight in fitted:
            return
        kept = real_rows(call, len(c.output))
        wanted, output = target.output, c.output if kept is None else c.output[kept]
        with_skip = skip is not None and target.skip is not None
        if with_skip:
            assert target.skip is not None
            wanted = wanted + target.skip
        mapped = _mapped(wanted, shapes[c.weight], c, plan)
        if mapped is None or mapped.shape != output.shape:
            return
        if with_skip:
            assert skip is not None
            mapped = mapped - (skip if kept is None else skip[kept])
        bias = state.get(c.bias) if c.bias else None
        change = solve(c.inputs, mapped - output, kept, bias is not None)
        c.matrix += change[: c.matrix.shape[0]]
        c.output.addmm_(c.inputs, change[: c.matrix.shape[0]])
        fitted.add(c.weight)
        if bias is not None:
            bias.add_(change[-1])
            c.output += change[-1]
            fitted.add(c.bias)

    with torch.no_grad(), Follow(copied, settle):
        copied(*call[0], **call[1])
    return {name: state[name].detach().to("cpu", torch.float64).numpy() for name in sorted(fitted)}


class _LeastSquares:
    """D = argmin |x D - missing|^2 + lambda |D|^2; its last row is the change of the bias, if there is one.

    What depends on x alone is computed once for all weights that read it.
    """

    def __init__(self, ridge: float) -> None:
        self.ridge, self._sums = ridge, Grams()
        self._known: tuple[Tensor, bool, float, Tensor] | None = None

    def __call__(self, inputs: Tensor, missing: Tensor, kept: Tensor | None, bias: bool) -> Tensor:
        first, second = self._sums(inputs, kept)
        if self._known is None or self._known[0] is not second or self._known[1] != bias:
            self._known = (second, bias, *self._factored(first, second, len(missing), bias))
        _, _, ridge, factor = self._known
        rows = inputs if kept is None else inputs[kept]
        cross = (rows.T @ missing).to("cpu", torch.float64)
        if bias:
            cross = torch.cat([cross, missing.sum(0).to("cpu", torch.float64)[None]])
        step = change = torch.cholesky_solve(cross, factor)
        for _ in range(ROUNDS - 1):  # what a round leaves of the right side is the ridge times its step
            step = torch.cholesky_solve(ridge * step, factor)
            change = change + step
        return change.to(inputs)

    def _factored(self, first: Tensor, second: Tensor, rows: int, bias: bool) -> tuple[float, Tensor]:
        gram = second
        if bias:
            column = first[:, None]
            corner = column.new_full((1, 1), rows)
            gram = torch.cat([torch.cat([second, column], 1), torch.cat([column.T, corner], 1)])
        weight = self.ridge * min(1.0, len(gram) / rows) * gram.diagonal().mean().clamp_min(1e-300)
        _, factor, ridge = regular_factor(gram, float(weight))
        return ridge, factor


def _mapped(wanted: Tensor, shape: tuple[int, ...], c: Contraction, plan: MergePlan) -> Tensor | None:
    """The original's outputs in the coordinates of the smaller model."""
    rest = [d for d in range(len(shape)) if d != c.dim]
    if int(np.prod([shape[d] for d in rest])) != wanted.shape[1]:
        return None
    out = wanted.reshape(-1, *(shape[d] for d in rest))
    for k, dim in enumerate(rest):
        out = map_outputs(out, k + 1, c.weight, dim, plan)
    return out.reshape(len(wanted), -1)


def map_outputs(value: Tensor, along: int, param: str, dim: int, plan: MergePlan) -> Tensor:
    """A value whose dimension `along` is made by dimension `dim` of a weight, as the plan's model has it."""
    from dataclasses import replace

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
