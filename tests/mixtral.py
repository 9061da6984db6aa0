"""A small Mixtral of five experts, and the merge that takes one of them away."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from intertwine.merging import merge
from intertwine.merging.rigid import floating

WIDTH, HIDDEN, EXPERTS = 16, 24, 5
IDS = torch.randint(0, 50, (32, 8), generator=torch.Generator().manual_seed(1))


def small_mixtral() -> Any:
    """One layer, one expert a token, random weights."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.MixtralConfig(
        vocab_size=50, hidden_size=WIDTH, intermediate_size=HIDDEN, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, num_local_experts=EXPERTS, num_experts_per_tok=1,
        max_position_embeddings=32,
    )  # fmt: skip
    config._experts_implementation = "batched_mm"  # which takes float64
    return transformers.MixtralForCausalLM(config)


def without_the_copy(model: nn.Module) -> Any:
    """The model merged to the size of one expert less, which computes the same."""
    size, expert = sum(p.numel() for p in model.parameters()), WIDTH + 3 * WIDTH * HIDDEN
    # its norms round to float32 inside, so that folding them shows at 1e-8
    result = merge(model, IDS[:2], target_params=(size - expert) / size, train_data=[IDS], fold=False)
    assert result.parameters_after == size - expert
    whole, again = (floating(m(IDS))[0] for m in (model, result.model))
    torch.testing.assert_close(again, whole, rtol=0, atol=1e-8 * float(whole.abs().max()))
    return result.model
