"""The composite ops are collected once in a process, and again when a library registers more of them."""

from __future__ import annotations

import subprocess
import sys

# In a process of its own: here, conftest.py exchanges the tables that are looked at.
PROGRAM = """
import torch
from torch import fx, nn
from intertwine.graph.export import export
from intertwine.graph.functional import _composite_ops

net, x = nn.Linear(3, 3), torch.ones(2, 3)
export(net, (x,))  # the first one loads modules of torch that register ops
export(net, (x,))
collected = _composite_ops.cache_info().misses
export(net, (x,))
assert _composite_ops.cache_info().misses == collected, _composite_ops.cache_info()
assert fx.config.do_not_emit_stack_traces is False

library = torch.library.Library("registered_later", "DEF")
library.define("twice(Tensor x) -> Tensor")
library.impl("twice", lambda x: x + x, "CompositeImplicitAutograd")

class Later(nn.Module):
    def forward(self, x):
        return torch.ops.registered_later.twice(x)

ops = {str(n.target) for n in export(Later(), (x,)).graph.nodes if n.op == "call_function"}
assert ops == {"registered_later.twice.default"}, ops
"""


def test_ops_that_are_registered_later_stay_whole_too() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
