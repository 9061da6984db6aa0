"""docs/rules.md: its table is that of the registry, and its example works as printed."""

from __future__ import annotations

import importlib.util
import re
import textwrap
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from intertwine import trace, verify
from intertwine.rules import RULES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "make_rules_table", ROOT / "scripts" / "make_rules_table.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_is_up_to_date() -> None:
    assert script().render(PAGE) == PAGE, "run python scripts/make_rules_table.py"


def test_every_rule_states_its_law() -> None:
    assert not [op for op, rule in RULES.items() if len(rule.law) < 5]


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(3, 6), nn.Linear(3, 7)
        self.mix, self.last = nn.Bilinear(6, 7, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.mix(torch.relu(self.left(x)), torch.tanh(self.right(x))).relu())


def test_the_rule_of_the_page_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(RULES, "bilinear.default", raising=False)
    model, x = Mixed(), torch.randn(4, 3)
    before = trace(model, x)
    assert before.unknown_ops == {"aten.bilinear.default": "mix"}
    assert before.axis("left").frozen_because == "no rule for aten.bilinear.default at mix"
    code = re.search(r"```python\n(.*?@rule.*?)```", PAGE, re.DOTALL)
    assert code is not None
    namespace: dict[str, object] = {"__name__": "intertwine.rules.linear"}
    try:
        exec(compile(textwrap.dedent(" " * 3 + code.group(1).lstrip()), "docs/rules.md", "exec"), namespace)
        symmetry = trace(model, x)
        assert verify(model, x, symmetry=symmetry, samples=3).exact
    finally:
        RULES.pop("bilinear.default", None)
    assert not symmetry.unknown_ops
    found = {name: symmetry.axis(name).group.name for name in ("left", "right", "mix")}
    assert found == {"left": "positive monomial", "right": "signed permutation", "mix": "positive monomial"}
