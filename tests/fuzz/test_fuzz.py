"""Random programs: no claimed symmetry is wrong, nothing crashes; and the fuzzer would notice."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

import intertwine
from intertwine.errors import IntertwineError
from intertwine.graph.export import export

from . import check as checking
from .fast_export import in_one_go, install, remove
from .generate import SIZES, generate
from .program import Model, Program, program
from .shrink import judge, shrink

few = settings(deadline=None, derandomize=True, max_examples=55, suppress_health_check=list(HealthCheck))


@st.composite
def programs(draw: Any, kind: str) -> Program:
    """A program whose choices hypothesis draws, so that it can shrink them."""
    return generate(lambda options: draw(st.sampled_from(list(options))), (kind,))


@pytest.mark.parametrize("kind", sorted(SIZES))
@few
@given(data=st.data())
def test_no_random_program_gets_a_wrong_symmetry(kind: str, data: Any) -> None:
    drawn = data.draw(programs(kind))
    note(drawn.source(Model(drawn).constructors))
    with in_one_go():
        result = judge(drawn)
    assert not result.failed, f"{result.verdict} at {result.size}: {result.error:.1e} {result.detail}"


def test_a_wrong_action_is_seen_and_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: an action that moves one weight too much is wrong for every program that uses it."""
    honest = intertwine.act

    def dishonest(model: Any, element: Any) -> Any:
        moved = honest(model, element)
        moved.l0.weight.data.mul_(1.001)
        return moved

    plain = program(
        "h0 = F.relu(self.l0(x)); h1 = torch.tanh(h0); return self.o(h1)",
        l0="nn.Linear(5, 6)",
        o="nn.Linear(6, 3)",
    )
    assert judge(plain).verdict == "ok"
    monkeypatch.setattr(checking.intertwine, "act", dishonest)
    result = judge(plain)
    assert result.verdict == "wrong"
    small, again = shrink(plain, result)
    # Two linear layers are the least that has a hidden axis; all that stood between them is cut away.
    assert again.verdict == "wrong" and len(small.steps) == 2
    assert "relu" not in small.short() and "tanh" not in small.short()


def test_ties_are_not_taken_for_errors() -> None:
    """sum softmax = 1 up to rounding: its floor is 0 or 1 by chance, which proves nothing."""
    tied = program(
        "h0 = self.l(x).softmax(1); h1 = h0.sum(1, keepdim=True).floor(); return self.o(h0 * h1)",
        ((40, 5),),
        l="nn.Linear(5, 6)",
        o="nn.Linear(6, 3)",
    )
    assert judge(tied, elements=6).verdict in ("ok", "unstable")


@pytest.mark.parametrize("seed", range(12))
def test_the_fast_export_is_torchs_own(seed: int) -> None:
    drawn = generate(random.Random(seed).choice)
    model, x = Model(drawn), drawn.inputs(drawn.shapes[0])
    with in_one_go():
        fast = _graph(model, x)
    remove()
    try:
        slow = _graph(model, x)
    finally:
        install()
    assert fast == slow


def _graph(model: torch.nn.Module, x: torch.Tensor) -> Any:
    """Every op with its arguments, nodes by number. Assertions are left out: no rule reads them."""
    try:
        traced = export(model, (x,))
    except IntertwineError as error:
        return str(error)
    number: dict[torch.fx.Node, int] = {}
    rows = []
    for node in traced.graph.nodes:
        if node.op == "call_function" and not getattr(getattr(node.target, "_schema", None), "returns", True):
            continue
        number[node] = len(number)
        args = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: f"%{number[n]}")
        target = str(node.target) if node.op == "call_function" else ""
        rows.append((node.op, target, str(args), str(getattr(node.meta.get("val"), "shape", None))))
    return rows
