"""Another name of an op has the rule of the op."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from intertwine import Symmetry
from intertwine.graph.aliases import NAMES, known_name
from intertwine.graph.export import export
from intertwine.graph.run import run
from intertwine.rules import RULES

aten = torch.ops.aten


@pytest.mark.parametrize("name", NAMES)
def test_every_name_leads_to_a_rule(name: str) -> None:
    packet = getattr(aten, name)
    found = [known_name(getattr(packet, o)) for o in packet.overloads() if "out" not in o and "name" not in o]
    assert found and all(op._opname == NAMES[name] for op in found)
    assert {f"{op._opname}.{op._overloadname}" for op in found} <= RULES.keys()


def test_what_has_other_arguments_keeps_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NAMES, "special_round", "round")
    assert known_name.__wrapped__(aten.special_round.default) is aten.special_round.default
    assert known_name(aten.mul.Tensor) is aten.mul.Tensor and known_name("output") == "output"


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
