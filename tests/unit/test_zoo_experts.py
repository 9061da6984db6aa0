"""Mixtures of experts: their default kernel takes no float64; batched products are the same function."""

import pytest
import torch

from intertwine import verify
from intertwine.zoo import huggingface, resolve

pytest.importorskip("transformers")


def test_a_mixture_is_exact_with_its_experts_covered() -> None:
    source = resolve("hf:mixtral?layers=1")
    report = verify(source.model, source.example, kwargs=source.kwargs)
    assert report.verdict == "exact" and report.max_error < 1e-12 < 1e-3 < report.control_error
    assert report.parameter_coverage > 0.95


def test_it_is_the_same_function_and_large_ones_keep_their_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    batched = resolve("hf:mixtral?layers=1")
    monkeypatch.setattr(huggingface, "_IN_BATCHES", 0)
    plain = resolve("hf:mixtral?layers=1")
    ways = [s.model.config._experts_implementation for s in (batched, plain)]
    assert ways == ["batched_mm", "grouped_mm"]
    with torch.no_grad():
        a, b = (s.model(*batched.example, **batched.kwargs)["logits"] for s in (batched, plain))
    assert torch.allclose(a, b, atol=1e-5)
    assert "batched_mm" not in batched.model.config.to_json_string()
