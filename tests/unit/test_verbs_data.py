"""Every public function that reads data takes every form of it, and exports each model once."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import intertwine
from intertwine.data import Dataset
from intertwine.graph import functional


def net(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).eval()


def pair() -> tuple[Tensor, Tensor]:
    x = torch.randn(40, 4, generator=torch.Generator().manual_seed(1))
    return x, net()(x).argmax(1)


x, y = pair()
FORMS: dict[str, Callable[[], Any]] = {
    "pair": lambda: (x, y),
    "dataset": lambda: TensorDataset(x, y),
    "loader": lambda: DataLoader(TensorDataset(x, y), batch_size=16),
    "batches": lambda: [(x[:25], y[:25]), (x[25:], y[25:])],
    "batches of dicts": lambda: [({"input": x[:25]}, y[:25]), ({"input": x[25:]}, y[25:])],
    "ours": lambda: Dataset("mine", x, y, ("a", "b", "c")),
}
EXAMPLE = x[:2]


@cache
def symmetry() -> intertwine.Symmetry:
    """Of the first net, known before it is asked for."""
    return intertwine.trace(net(), EXAMPLE)


# name -> (how it is called with `data`, the models that it is given)
READERS: dict[str, tuple[Callable[[Any], Any], int]] = {
    "align": (
        lambda data: intertwine.align(net(), net(1), symmetry(), by="activations", data=data, restarts=0),
        2,
    ),
    "attribute": (lambda data: intertwine.attribute(net(), data, axis="0", beta=0.9, inputs=2), 1),
    "collect": (lambda data: intertwine.collect(net(), data), 1),
    "combine": (lambda data: intertwine.combine([net(), net(1)], data, train_limit=40), 2),
    "compare": (lambda data: intertwine.compare(net(), net(1), data, ["cka", "auto"]), 2),
    "dimension": (lambda data: intertwine.dimension(net(), EXAMPLE, data=data), 1),
    "explore": (
        lambda data: intertwine.explore(
            net(), EXAMPLE, data=data, plane="random", loss="cross_entropy", points=3, dim=1
        ),
        1,
    ),
    "functional_similarity": (lambda data: intertwine.functional_similarity(net(), net(1), data), 2),
    "interpolate": (
        lambda data: intertwine.interpolate([net(), net(1)], data, points=3, align=True, stages=True),
        2,
    ),
    "merge": (lambda data: intertwine.merge(net(), EXAMPLE, target_params=0.7, data=data, repair="data"), 1),
    "merge_betas": (lambda data: intertwine.merge_betas(net(), EXAMPLE, [0.1, 0.5], data=data), 1),
    "plan_merge": (
        lambda data: intertwine.plan_merge(net(), symmetry(), target_params=0.7, repair="data", data=data),
        1,
    ),
    "rotate": (lambda data: intertwine.rotate(net(), data, data, at="0", by="identity", epochs=0), 1),
    "stitch": (lambda data: intertwine.stitch(net(), net(1), data, data, at="1", kinds=["group"]), 2),
}
BY_NAME_ALONE = {"reproduce", "train"}  # their data have a name: the run says how it is made again


def test_no_reader_of_data_is_left_out() -> None:
    """And a symmetry is of one type wherever it is asked for."""
    functions = {
        n: inspect.signature(f)
        for n in intertwine.__all__
        if isinstance(f := getattr(intertwine, n), FunctionType)
    }
    assert {n for n, s in functions.items() if "data" in s.parameters} - BY_NAME_ALONE == set(READERS)
    kinds = {
        str(s.parameters["symmetry"].annotation) for s in functions.values() if "symmetry" in s.parameters
    }
    assert kinds <= {"Symmetry", "Symmetry | None"}


@pytest.fixture
def exports(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[float, ...]]:
    """How often each model is exported from here on; a model is known by its weights."""
    seen: Counter[tuple[float, ...]] = Counter()
    real = functional.in_one_go

    def counted(model: nn.Module, *args: Any) -> Any:
        seen[tuple(float(p.sum()) for p in model.parameters())] += 1
        return real(model, *args)

    monkeypatch.setattr(functional, "in_one_go", counted)
    return seen


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", READERS)
def test_every_form_of_data_with_one_export_for_each_model(
    name: str, form: str, exports: Counter[tuple[float, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    symmetry()
    exports.clear()
    monkeypatch.chdir(tmp_path)
    run, models = READERS[name]
    run(FORMS[form]())
    assert len(exports) <= models and max(exports.values(), default=0) <= 1, exports


def test_combine_learns_and_zips_on_the_graphs_that_it_has(exports: Counter[tuple[float, ...]]) -> None:
    """What lies side by side, and what is left of it, are models too: each is exported once."""
    intertwine.combine([net(), net(1)], train_data=x, epochs=1, hidden=1.0, calibrate=True)
    assert max(exports.values()) == 1, exports
    exports.clear()
    intertwine.combine([net(), net(1)], train_data=x, how="zip", epochs=1, hidden=1.0)
    assert max(exports.values()) == 1, exports
