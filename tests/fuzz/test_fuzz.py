"""Random programs: no claimed symmetry is wrong, nothing crashes; and the fuzzer would notice."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

import intertwine
from export_once import fingerprint
from intertwine import zoo
from intertwine.errors import IntertwineError
from intertwine.graph.example import Example
from intertwine.graph.export import export, where
from repeats import examples

from . import check as checking
from .fast_export import in_one_go, in_one_pass, torchs_own
from .generate import SIZES, generate
from .program import Model, Program, program
from .shrink import judge, shrink

few = settings(derandomize=True, max_examples=examples(14, 55), suppress_health_check=list(HealthCheck))


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
    with in_one_pass():
        result = judge(drawn)
    assert not result.failed, f"{result.verdict} at {result.size}: {result.error:.1e} {result.detail}"


def test_a_wrong_action_is_seen_and_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: an action that moves one weight too much is wrong for every program that uses it."""
    honest = intertwine.act

    def dishonest(model: Any, element: Any) -> Any:
        moved = honest(model, element)
        if not torch.equal(moved.l0.weight, model.l0.weight):
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
        fast = _graph(model, (x,), {})
    with in_one_pass():
        faster = _graph(model, (x,), {})
    with torchs_own():
        slow = _graph(model, (x,), {})
    assert fast == slow
    if isinstance(slow, str):
        assert faster == slow
    else:  # but for the layer of each node
        assert [row[:-1] for row in faster[0]] == [row[:-1] for row in slow[0]] and faster[1:3] == slow[1:3]


@pytest.mark.parametrize("spec", ["hf:t5", "hf:swin", "hf:mamba"])
def test_the_fast_export_of_architectures_is_torchs_own(spec: str) -> None:
    """With weights that are tied, masks, a scan written out, and buffers that are constants."""
    pytest.importorskip("transformers")
    source = zoo.resolve(spec)
    given = Example.of(source.example, source.kwargs)
    fast, again = (_graph(source.model, given.args, given.kwargs) for _ in range(2))
    with torchs_own():
        slow = _graph(source.model, given.args, given.kwargs)
    assert fast == again == slow


def _graph(model: torch.nn.Module, args: Any, kwargs: Any) -> Any:
    """Every op with its arguments and its layer, nodes by number, weights by name. Assertions are left out:
    no rule reads them."""
    try:
        traced = export(model, args, kwargs)
    except IntertwineError as error:
        return str(error)
    number: dict[torch.fx.Node, str] = {}
    rows = []
    for node in traced.graph.nodes:
        if node.op == "call_function" and not getattr(getattr(node.target, "_schema", None), "returns", True):
            continue
        number[node] = traced.weights.get(node.name, f"%{len(number)}")  # a tied one has several nodes
        used = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: number[n])
        target = str(node.target) if node.op == "call_function" else ""
        shape = getattr(node.meta.get("val"), "shape", None)
        rows.append((node.op, target, str(used), str(shape), where(node)))
    return rows, traced.alias, traced.shapes, list(traced.constants)


def test_only_equal_models_are_one_export() -> None:
    """Weights do not matter; sizes, attributes, constants, code and the inputs' shapes do."""
    x = torch.zeros(2, 3)

    def net(**changes: Any) -> torch.nn.Module:
        made = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LeakyReLU(), torch.nn.Linear(4, 2))
        vars(made[1]).update(changes)
        return made

    graphs = [export(net(), (x,)).graph for _ in range(2)]  # as in every test of this process
    assert graphs[0] is graphs[1]
    first = fingerprint(net(), (x,), {})
    assert first is not None and first == fingerprint(net(), (x + 1,), None)
    wide = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.LeakyReLU(), torch.nn.Linear(5, 2))
    tied = net()
    tied[0].bias = torch.nn.Parameter(torch.zeros(4))
    tied.extra = tied[0].bias
    others = [
        (wide, (x,), {}), (tied, (x,), {}), (net(negative_slope=0.2), (x,), {}), (net(), (x[:1],), {}),
        (net(table=torch.zeros(3)), (x,), {}), (net(table=torch.ones(3)), (x,), {}),
        (net().double(), (x.double(),), {}), (net(), (), {"input": x}), (net().train(False), (x,), {}),
    ]  # fmt: skip
    assert len({first, *(fingerprint(*other) for other in others)}) == len(others) + 1

    class Local(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    assert fingerprint(Local(), (x,), {}) is None  # its code may depend on what stands around it
    assert fingerprint(net(run=lambda x: x), (x,), {}) is None
    assert fingerprint(net(forward=torch.nn.ReLU().forward), (x,), {}) is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.LeakyReLU, "forward", lambda self, x: x)
        assert fingerprint(net(), (x,), {}) not in (None, first)
    assert fingerprint(net(), (x,), {}) == first
