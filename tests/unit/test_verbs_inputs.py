"""Every verb that reads data takes every kind of input: tokens, arguments by name, mixed ones, masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import intertwine
from token_reader import Reader


def reader(seed: int) -> Reader:
    torch.manual_seed(seed)
    return Reader().eval().requires_grad_(False)


def inputs(kind: str, rows: int = 48) -> Any:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 11, (rows, 5), generator=generator)
    weight, mask = torch.randn(rows, 5, generator=generator), (torch.arange(5) < 3).long().expand(rows, 5)
    return {
        "tokens": ids,
        "by name": {"ids": ids},
        "mixed": {"ids": ids, "weight": weight},
        "masked": {"ids": ids, "weight": weight, "attention_mask": mask.contiguous()},
    }[kind]


def few(data: Any) -> Any:
    return {k: v[:2] for k, v in data.items()} if isinstance(data, dict) else data[:2]


def labelled(data: Any) -> list[Any]:
    """Two batches with labels."""
    with torch.no_grad():
        found = reader(0)(**data) if isinstance(data, dict) else reader(0)(data)
    return [(data, found.argmax(-1))] * 2


def aligned(data: Any) -> float:
    symmetry = intertwine.trace(reader(0), few(data), prove=False)
    twin = intertwine.act(reader(0), symmetry.sample(1))
    found = intertwine.align(reader(0), twin, symmetry, by="activations", data=data, restarts=0)
    return 0.0 if found.distance_after < 0.5 * found.distance_before else 1.0


def merged(data: Any, **options: Any) -> float:
    found = intertwine.merge(
        reader(0), few(data), target_params=0.7, data=labelled(data), train_data=[data], **options
    )
    return 0.0 if found.accuracy_before == 1.0 and found.parameters_after < found.parameters_before else 1.0


VERBS: dict[str, Callable[[Any], float]] = {
    "align": aligned,
    "combine": lambda data: (
        1 - intertwine.combine([reader(0), reader(0)], labelled(data), train_limit=40).after.accuracy
    ),
    "compare": lambda data: abs(
        1 - intertwine.compare(reader(0), reader(0), data, "cka").matched("cka")[0][2]
    ),
    "interpolate": lambda data: (
        intertwine.interpolate([reader(0), reader(0)], labelled(data), points=3).barrier
    ),
    "merge": lambda data: merged(data, repair="data"),
    "merge sequential": lambda data: merged(data, method="sequential"),
    "stitch": lambda data: (
        intertwine.stitch(reader(0), reader(0), labelled(data), labelled(data), at="act", kinds=["group"])
        .stitchings[0]
        .start
    ),
}


@pytest.mark.parametrize("kind", ["tokens", "by name", "mixed", "masked"])
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_takes_this_kind_of_input(verb: str, kind: str) -> None:
    """A network with itself, or with a twin: what the verb measures is zero."""
    assert VERBS[verb](inputs(kind)) == pytest.approx(0.0, abs=1e-5)
