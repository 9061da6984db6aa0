"""Another name of an op has the rule of the op."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from intertwine import Symmetry
from intertwine.graph.export import RENAMED, export
from intertwine.graph.run import run
from intertwine.rules import RULES
from intertwine.rules.aliases import NAMES

aten = torch.ops.aten


@pytest.mark.parametrize("name", NAMES)
def test_every_name_leads_to_a_rule(name: str) -> None:
    packet = getattr(aten, name)
    called = [getattr(packet, o) for o in packet.overloads() if "out" not in o and "name" not in o]
    found = [RENAMED[op] for op in called]
    assert found and all(op._opname == NAMES[name] for op in found)
    assert {f"{op._opname}.{op._overloadname}" for op in found} <= RULES.keys()


def test_no_op_with_a_rule_loses_its_name() -> None:
    """The arguments of both are the same, by name, type and default."""
    assert aten.mul.Tensor not in RENAMED and "output" not in RENAMED
    for other, known in RENAMED.items():
        assert [a.name for a in other._schema.arguments] == [a.name for a in known._schema.arguments]
        assert f"{other._opname}.{other._overloadname}" not in RULES


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last, self.gain = nn.Linear(5, 4), nn.Linear(8, 2), nn.Parameter(torch.randn(4))
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        h = torch.clip(torch.multiply(self.first(x), self.gain), 0.0)
        return self.last(torch.concatenate([h, torch.negative(h)], -1))


def test_a_graph_of_other_names_is_the_same_function_with_its_group() -> None:
    net, x = Net(), torch.randn(3, 5, dtype=torch.float64)
    traced = export(net, (x,))
    assert {aten.mul.Tensor, aten.clamp.default, aten.neg.default} <= {n.target for n in traced.graph.nodes}
    assert Symmetry(traced).axis("first").group.name == "monomial"
    weights = {name: p.detach() for name, p in net.named_parameters()}
    assert torch.equal(run(traced, weights, (x,))[0], net(x))
