"""A graph says nothing of how its values lie in memory: it runs on weights of any layout."""

from __future__ import annotations

import torch
from torch import nn

from intertwine import trace
from intertwine.graph.export import named_tensors
from intertwine.graph.record import Recorder
from intertwine.graph.run import run


def test_a_graph_runs_on_weights_of_another_layout_than_it_was_made_with() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(32, 2)).double().eval()
    x = torch.randn(2, 8, 4, 4, dtype=torch.float64)
    traced = trace(net, x).traced
    assert any("view" in str(node.target) for node in traced.graph.nodes)
    with torch.no_grad():
        expected = net(x)
    last = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x = x.to(memory_format=torch.channels_last)
    assert torch.allclose(run(traced, named_tensors(last), (x,))[0], expected, atol=1e-12)
    assert torch.allclose(Recorder(traced, last)((x,), None, ())[1], expected, atol=1e-12)
