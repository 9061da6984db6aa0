"""Mixtures of experts are proved: by batched products, large ones by their own kernel, group after group."""

import pytest
import torch

from intertwine import verify
from intertwine.graph.kernels import KERNELS
from intertwine.zoo import huggingface, resolve

pytest.importorskip("transformers")


def test_a_mixture_is_exact_with_its_experts_covered() -> None:
    source = resolve("hf:mixtral?layers=1")
    report = verify(source.model, source.example, kwargs=source.kwargs)
    assert report.verdict == "exact" and report.max_error < 1e-12 < 1e-3 < report.control_error
    assert report.parameter_coverage > 0.95


def test_a_mixture_that_keeps_its_kernel_is_exact_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface, "_IN_BATCHES", 0)
    source = resolve("hf:mixtral?layers=1")
    report = verify(source.model, source.example, kwargs=source.kwargs)
    assert report.verdict == "exact" and report.max_error < 1e-12 < 1e-3 < report.control_error
    assert report.parameter_coverage > 0.95


def test_the_groups_of_rows_are_those_of_the_kernel() -> None:
    a, b = torch.randn(7, 8), torch.randn(3, 8, 16)
    offsets = torch.tensor([2, 2, 7], dtype=torch.int32)
    grouped = torch.ops.aten._grouped_mm.default
    mine = KERNELS[grouped](a, b, offsets)
    assert torch.allclose(mine, grouped(a.bfloat16(), b.bfloat16(), offsets).float(), atol=0.2)
    assert torch.allclose(mine[2:], a[2:] @ b[2])


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
