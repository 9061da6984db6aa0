"""Recurrent layers: one step is written in the primitives, and the next must find what the first found.

If h_1 = step(x, h_0) and h_2 = step(x, h_1) carry the same labels and scales, so does every h_t: facts depend
on what a value carries, and that no longer changes. Steps are in order, so time is fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from intertwine.activations import intertwiner
from intertwine.ir.ledger import UNMERGEABLE
from intertwine.ir.value import Extent, Value, fixed
from intertwine.rules.linear import linear
from intertwine.rules.registry import Context, rule
from intertwine.rules.shape import select, stack

State = tuple[Value, ...]
Step = Callable[[Context, Value, State, Sequence[Value]], State]
ORDER = "steps are taken in order"


def _gates(ctx: Context, x: Value, h: Value, weights: Sequence[Value], count: int) -> tuple[list[Value], ...]:
    """W x + b and U h + b', each cut into gates."""
    w_in, w_state, *biases = weights
    b_in, b_state = (*biases, None, None)[:2]
    size = w_in.shape[0] // count

    def cut(value: Value) -> list[Value]:
        return [ctx.take(value, len(value.dims) - 1, size * k + np.arange(size)) for k in range(count)]

    return cut(linear(ctx, x, w_in, b_in)), cut(linear(ctx, h, w_state, b_state))


def _sum(ctx: Context, a: Value, b: Value, sigma: str) -> Value:
    return ctx.pointwise(ctx.add(a, b), intertwiner(sigma))


def lstm_step(ctx: Context, x: Value, state: State, weights: Sequence[Value]) -> State:
    """c' = f c + i g, h' = o tanh(c'), and a projection of h' where there is one."""
    h, c = state
    project = weights[-1] if len(weights) in (3, 5) else None
    left, right = _gates(ctx, x, h, weights[:-1] if project is not None else weights, 4)
    i, f, o = (_sum(ctx, left[k], right[k], "sigmoid") for k in (0, 1, 3))
    g = _sum(ctx, left[2], right[2], "tanh")
    c = ctx.add(ctx.multiply(f, c), ctx.multiply(i, g))
    h = ctx.multiply(o, ctx.pointwise(c, intertwiner("tanh")))
    return (h if project is None else linear(ctx, h, project)), c


def gru_step(ctx: Context, x: Value, state: State, weights: Sequence[Value]) -> State:
    """n = tanh(W x + r (U h)), h' = (1 - z) n + z h."""
    (h,) = state
    left, right = _gates(ctx, x, h, weights, 3)
    r, z = (_sum(ctx, left[k], right[k], "sigmoid") for k in (0, 1))
    n = _sum(ctx, left[2], ctx.multiply(r, right[2]), "tanh")
    return (ctx.add(ctx.multiply(z, n), ctx.multiply(z, h)),)


def plain_step(sigma: str) -> Step:
    """h' = sigma(W x + U h)."""

    def step(ctx: Context, x: Value, state: State, weights: Sequence[Value]) -> State:
        (left,), (right,) = _gates(ctx, x, state[0], weights, 1)
        return (_sum(ctx, left, right, sigma),)

    return step


STEPS: dict[str, Step] = {
    "lstm": lstm_step, "gru": gru_step, "rnn_tanh": plain_step("tanh"), "rnn_relu": plain_step("relu"),
}  # fmt: skip


def _settled(ctx: Context, step: Step, x: Value, start: State, weights: Sequence[Value]) -> State:
    """The state after any number of steps."""
    first = step(ctx, x, start, weights)
    second = step(ctx, x, first, weights)
    for a, b in zip(first, second, strict=True):
        ctx.add(a, b)
        for factor in a.factors:
            ctx.ledger.mark(factor.ids, UNMERGEABLE)  # the module itself knows how wide its state is
    return second


def _run(
    ctx: Context, step: Step, x: Value, states: Sequence[Value], weights: Sequence[Value], layers: int,
    both: bool, batch_first: bool,
) -> tuple[Value, ...]:  # fmt: skip
    rank, ways = len(x.dims), 2 if both else 1
    time = 1 if batch_first and rank == 3 else 0
    steps = x.shape[time]
    x = select(ctx, ctx.fix(x, ORDER, [time]), time, 0)
    each, ends = len(weights) // (layers * ways), list[State]()
    for layer in range(layers):
        outs = []
        for way in range(ways):
            k = layer * ways + way
            start = tuple(select(ctx, s, 0, k) for s in states)
            ends.append(_settled(ctx, step, x, start, weights[k * each : (k + 1) * each]))
            outs.append(ends[-1][0])
        x = ctx.concat(outs, len(outs[0].dims) - 1) if both else outs[0]
    place = (Extent(steps),) if steps > 1 else ()
    out = x.with_dims((*x.dims[:time], place, *x.dims[time:]))
    return (out, *(stack(ctx, [end[k] for end in ends], 0) for k in range(len(states))))


@rule("lstm.input")
def lstm(
    ctx: Context, x: Value, states: Sequence[Value], weights: Sequence[Value], biases: bool, layers: int,
    dropout: float, train: bool, both: bool, batch_first: bool,
) -> tuple[Value, ...]:  # fmt: skip
    """c' = f c + i g, h' = o tanh(c'): units of the state move together in every gate, with their signs."""
    if train and dropout:
        return _drawn(ctx, [x, *states, *weights])
    return _run(ctx, lstm_step, x, states, weights, layers, both, batch_first)


@rule("gru.input", "rnn_tanh.input", "rnn_relu.input")
def recurrent(
    ctx: Context, x: Value, state: Value, weights: Sequence[Value], biases: bool, layers: int,
    dropout: float, train: bool, both: bool, batch_first: bool,
) -> tuple[Value, ...]:  # fmt: skip
    """h' = sigma(W x + U h), or gated: units of the state move together, with what sigma lets pass."""
    if train and dropout:
        return _drawn(ctx, [x, state, *weights])
    return _run(ctx, STEPS[ctx.op.split(".")[0]], x, [state], weights, layers, both, batch_first)


def _drawn(ctx: Context, values: Sequence[Value]) -> tuple[Value, ...]:
    for value in values:
        ctx.fix(value, "a mask is drawn between the layers")
    return tuple(fixed(shape) for shape in ctx.shapes)


@rule("lstm_cell.default")
def lstm_cell(ctx: Context, x: Value, states: Sequence[Value], *weights: Value | None) -> State:
    """One step of an LSTM."""
    return lstm_step(ctx, x, tuple(states), [w for w in weights if w is not None])


@rule("gru_cell.default", "rnn_tanh_cell.default", "rnn_relu_cell.default")
def cell(ctx: Context, x: Value, state: Value, *weights: Value | None) -> Value:
    """One step of a recurrent net."""
    step = STEPS[ctx.op.split(".")[0].removesuffix("_cell")]
    return step(ctx, x, (state,), [w for w in weights if w is not None])[0]
