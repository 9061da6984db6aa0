"""A large model is merged a layer at a time: the same widths and weights as with all of it in float64."""

from __future__ import annotations

import pytest
import torch

import intertwine
from intertwine.errors import InputError
from intertwine.merging import MergePlan, Options, Planner, apply_merge
from intertwine.merging.combine import fold_parts
from intertwine.merging.moments import propagate_moments
from intertwine.orbit import raised
from intertwine.zoo import resolve

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def llama() -> tuple:  # type: ignore[type-arg]
    source = resolve("hf:llama?layers=2&hidden=24&vocabulary=16")
    source.model.bfloat16()
    return source, intertwine.trace(source.model, source.example)


def test_a_layer_at_a_time(llama: tuple, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[type-arg]
    source, symmetry = llama
    found = []
    for large in (raised.LARGE, 0):
        monkeypatch.setattr(raised, "LARGE", large)
        made = intertwine.merge(
            source.model, source.example, symmetry=symmetry, method="magnitude", target_params=0.9
        )
        assert made.parameters_after <= 0.9 * made.parameters_before
        found.append(made)
    assert found[0].plan.complexity == found[1].plan.complexity
    assert all(torch.equal(a, b) for a, b in zip(*(made.model.parameters() for made in found), strict=True))
    # without a method: one that holds no copies; the one that does refuses
    usual = intertwine.merge(source.model, source.example, symmetry=symmetry, target_params=0.95)
    assert usual.plan.method == "magnitude"
    with pytest.raises(InputError, match="whole model in float64"):
        intertwine.merge(
            source.model, source.example, symmetry=symmetry, method="sequential", target_params=0.95
        )


def test_axes_that_share_no_weight_are_parts(llama: tuple) -> None:  # type: ignore[type-arg]
    source, symmetry = llama
    planner = Planner(source.model, symmetry, Options("magnitude"), check=False)
    layers = tuple(a for a in planner.whole().axes if "mlp" in a.name)
    parts = list(fold_parts(MergePlan(layers), dict(source.model.named_parameters())))
    assert [sorted(n.partition("mlp.")[2] for n in part) for part in parts] == [
        ["down_proj.weight", "gate_proj.weight", "up_proj.weight"]
    ] * 2
    small = apply_merge(source.model, MergePlan(layers))
    tied = source.model.get_input_embeddings().weight
    assert small.get_input_embeddings().weight is not tied  # type: ignore[operator]


def test_what_no_weight_reads_has_no_moments(llama: tuple) -> None:  # type: ignore[type-arg]
    """Those of all tokens of a vocabulary, above all."""
    source, symmetry = llama
    weights = {name: p.double() for name, p in source.model.named_parameters()}
    widths = {len(m.mean) for m in propagate_moments(symmetry, weights).values()}
    assert 24 in widths
    assert 16 not in widths
