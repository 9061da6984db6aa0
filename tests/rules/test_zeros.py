"""Where a rule says that a result is all zeros, because an operand is, the real op must give zeros.

What is zero moves nothing and ties nothing, so a rule that is wrong about it claims too much: a mask that is
false everywhere once made zeros of what it leaves alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from oracle import Together
from torch import Tensor, fx, nn
from torch.nn import functional as F

from intertwine import verify
from intertwine.graph.export import export
from intertwine.ir.value import Value, constant
from intertwine.rules.examples import EXAMPLES
from intertwine.symmetry import infer as inference
from intertwine.symmetry.unknown import depends_on_data

OPS = sorted(EXAMPLES)
PARTS = 7  # of some sixty ops each


class _Audit:
    """Stands in for `infer._applied`: every op again, with each of its operands zero in turn."""

    def __init__(self, apply: Callable[..., Any]) -> None:
        self.apply, self.tried, self.kept, self.wrong = apply, 0, 0, list[str]()

    def __call__(self, ctx: Any, node: fx.Node, given: Any) -> Any:
        made = self.apply(ctx, node, given)
        if any(depends_on_data(source) for source in node.all_input_nodes):
            return made  # no tensor can be made of a size that is not known
        for source in node.all_input_nodes:
            if not isinstance(given.get(source), Value):
                continue
            zero = constant(given[source].shape, zero=True)
            again = self.apply(ctx, node, {**given, source: zero})
            self.tried += 1
            said = [isinstance(v, Value) and v.zero for v in _results(again)]
            if any(said):
                self.kept += 1
                zeros = {n for n in node.all_input_nodes if getattr(given.get(n), "zero", False)}
                self._check(node, {source, *zeros}, said)
        return made

    def _check(self, node: fx.Node, zeros: set[fx.Node], said: list[bool]) -> None:
        def tensor(n: fx.Node) -> Any:
            return torch.zeros_like(_like(n)) if n in zeros else _generic(_like(n))

        with torch.random.fork_rng():
            torch.manual_seed(0)
            args, kwargs = (fx.node.map_arg(x, tensor) for x in (node.args, node.kwargs))
            found = node.target(*args, **kwargs)  # type: ignore[operator]
        for claimed, result in zip(said, _results(found), strict=True):
            if claimed and bool((result.abs() > 0).any()):  # 0 / 0 is no number and no entry either
                self.wrong.append(f"{node.target} of zeros in place of {zeros}")


def _results(made: Any) -> list[Any]:
    return list(made) if isinstance(made, (list, tuple)) else [made]


def _like(node: fx.Node) -> Any:
    value = node.meta["val"]
    return torch.empty(value.shape, dtype=value.dtype)  # itself it is fake: it has no entries


def _generic(like: Tensor) -> Tensor:
    """Random numbers; of whole ones zeros, which are places that every dimension has."""
    if like.dtype == torch.bool:
        return torch.rand(like.shape) > 0.5
    return torch.randn_like(like) if like.is_floating_point() or like.is_complex() else torch.zeros_like(like)


@pytest.mark.parametrize("first", range(PARTS))
def test_what_rules_say_of_zeros_holds_on_the_real_op(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    audit = _Audit(inference._applied)
    monkeypatch.setattr(inference, "_applied", audit)
    for graph in _graphs(OPS[first::PARTS]):
        inference.infer([graph])
    assert not audit.wrong
    assert audit.kept > 10, "the audit looked at nothing"


def _graphs(ops: list[str]) -> Iterator[Any]:
    """One graph of all examples, or several where one of them does not go with the others."""
    try:
        yield export(Together(ops).eval(), ([EXAMPLES[op].inputs() for op in ops],), {})
    except Exception:
        if len(ops) > 1:
            yield from _graphs(ops[: len(ops) // 2])
            yield from _graphs(ops[len(ops) // 2 :])


class _NoPadding(nn.Module):
    """Values that a mask of padding leaves alone, since there is none; attention over three points."""

    def __init__(self) -> None:
        super().__init__()
        self.value, self.weights, self.out = nn.Linear(5, 8), nn.Linear(5, 3), nn.Linear(8, 7)

    def forward(self, x: Tensor) -> Tensor:
        padding = torch.zeros(x.shape[:2], dtype=torch.bool)
        value = self.value(x).masked_fill(padding[..., None], 0.0)
        near = torch.stack([value, value.roll(1, 1), value.roll(2, 1)], -1)
        out = self.out((near * F.softmax(self.weights(x), -1)[:, :, None]).sum(-1))
        return F.relu(out)


def test_a_mask_that_is_false_everywhere_leaves_what_it_is_given() -> None:
    torch.manual_seed(0)
    report = verify(_NoPadding(), torch.randn(2, 6, 5))
    assert report.exact and report.max_error < 1e-10
    assert report.parameter_coverage > 0.5  # the values, and what reads them
