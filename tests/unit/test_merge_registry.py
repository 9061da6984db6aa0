"""A merge method from outside the package: registered, it is a choice, an option, a hint and help."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import nn

from intertwine import apply_merge, plan_merge, trace
from intertwine.cli.program import main
from intertwine.errors import InputError
from intertwine.merging import METHODS, AxisPlan, Merge, Parameter, Planner, merge_method
from intertwine.symmetry import Axis


@pytest.fixture
def last_first() -> Iterator[None]:
    """A method that drops channels from one end."""

    @merge_method("ends", "drop from one end", parameters=[Parameter("end", ("last", "first"), "which end")])
    def ends(planner: Planner, axis: Axis, progress: object) -> AxisPlan:
        order = range(axis.size - 1, 0, -1) if planner.options.get("end") == "last" else range(axis.size - 1)
        keep = 0 if planner.options.get("end") == "last" else axis.size - 1
        merges = tuple(Merge(keep, c, 0.0, 1.0) for c in order)
        return replace(planner.blank_axis(axis), merges=merges, costs=(0.0,) * len(merges), select=True)

    yield
    del METHODS["ends"]


def test_a_method_from_outside(last_first: None, capsys: pytest.CaptureFixture[str]) -> None:
    mlp = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    symmetry = trace(mlp, torch.zeros(1, 4))
    for end, kept in (("last", mlp[0].weight[:3]), ("first", mlp[0].weight[3:])):
        plan = plan_merge(mlp, symmetry, method="ends", target_params=0.6, parameters={"end": end})
        assert plan.method == "ends"
        torch.testing.assert_close(apply_merge(mlp, plan)[0].weight, kept)
    with pytest.raises(InputError, match=r"unknown end 'middle'[\s\S]*use one of last, first"):
        plan_merge(mlp, symmetry, method="ends", beta=0.1, parameters={"end": "middle"})
    assert main(["merge", "--help"]) == 0
    help_text = " ".join(capsys.readouterr().out.split())
    assert "ends drop from one end" in help_text and "--end {last,first}" in help_text


def test_names_and_hints_come_from_the_registry() -> None:
    mlp = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    symmetry = trace(mlp, torch.zeros(1, 4))
    with pytest.raises(InputError, match=f"use one of {', '.join(METHODS)}"):
        plan_merge(mlp, symmetry, method="nothing", beta=0.1)
    with pytest.raises(InputError, match="magnitude has no parameter 'end'"):
        plan_merge(mlp, symmetry, method="magnitude", beta=0.1, parameters={"end": "last"})
    assert next(iter(METHODS)) == "moments"


def test_a_plan_and_an_element_print_on_one_line() -> None:
    mlp = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 3))
    symmetry = trace(mlp, torch.zeros(1, 64))
    plan = plan_merge(mlp, symmetry, method="magnitude", target_params=0.5, check=False)
    assert repr(plan) == f"MergePlan(magnitude, 1 axes, 512 -> {plan.axes[0].width} channels)"
    assert repr(symmetry.identity()) == "Element(channels moved: 0, positions rescaled: 0, axes turned: 0)"
    assert "channels moved: 5" in repr(symmetry.sample(0)) and len(repr(symmetry.sample(0))) < 100
