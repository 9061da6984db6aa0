"""Experts that are modules of a list: copies go for nothing, the others move up, and folders say how many."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.mixtral import EXPERTS, HIDDEN, WIDTH, small_mixtral, without_the_copy
from torch import Tensor, nn
from torch.nn import functional as F

from intertwine import load, trace
from intertwine.errors import WeightsError
from intertwine.merging import Merged, MergePlan, apply_merge, merge
from intertwine.merging.config_fields import narrowed_configs
from intertwine.merging.experts import Mixture, find_mixtures


class Expert(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return out


class Experts(nn.Module):
    """Mixtral's, in a list: every one on all tokens, or on those that are sent to it."""

    def __init__(self, width: int, hidden: int, count: int, sent: bool) -> None:
        super().__init__()
        self.num_experts, self.sent = count, sent
        self.each = nn.ModuleList([Expert(width, hidden) for _ in range(count)])

    def forward(self, x: Tensor, chosen: Tensor, share: Tensor) -> Tensor:
        out = torch.zeros_like(x)
        for k in range(self.num_experts):
            if self.sent:
                token, place = torch.where(chosen == k)
                out = out.index_add(0, token, self.each[k](x[token]) * share[token, place, None])
            else:
                out = out + self.each[k](x) * (share * (chosen == k)).sum(-1, keepdim=True)
        return out


class Net(nn.Module):
    def __init__(self, sent: bool) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(3, 6), nn.Linear(6, 4)
        self.router, self.experts = nn.Linear(6, 4, bias=False), Experts(6, 5, 4, sent)

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(x).tanh()
        share, chosen = self.router(x).softmax(-1).topk(1, -1)
        out: Tensor = self.head(x + self.experts(x, chosen, share / share.sum(-1, keepdim=True)))
        return out


ONE = 6 + 3 * 30  # weights of an expert with its row of the router
X = torch.randn(200, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def make(sent: bool = False) -> tuple[Net, Tensor]:
    """Expert 1 a copy of expert 3; read by name from a saved folder."""
    torch.manual_seed(0)
    net = Net(sent).double().eval().requires_grad_(False)
    net.router.weight.mul_(9)[1] = net.router.weight[3]
    net.inner.bias.zero_()  # so that every expert is chosen
    net.experts.each[1].load_state_dict(net.experts.each[3].state_dict())
    return net, X[:2]


def _smaller(net: nn.Module, experts: int = 1) -> Merged:
    size = sum(p.numel() for p in net.parameters())
    share = (size - experts * ONE) / size
    return merge(net, X[:2], method="sequential", target_params=share, train_data=[X], kinds="experts")


@pytest.mark.parametrize("sent", [False, True])
def test_a_copy_in_a_list_is_given_back_exactly(sent: bool) -> None:
    net, _ = make(sent)
    assert find_mixtures(trace(net, X[:2], prove=False), net) == [
        Mixture("router.weight", 4, ("router.weight",), ("experts.each",))
    ]
    result = _smaller(net)
    assert {a.name: a.width for a in result.plan.axes if a.merges} == {"router/experts": 3}
    assert result.parameters_after == result.parameters_before - ONE
    small: Any = apply_merge(net, MergePlan.from_json(result.plan.to_json()))
    assert len(small.experts.each) == small.experts.num_experts == len(small.router.weight) == 3
    torch.testing.assert_close(small(X), net(X), rtol=0, atol=1e-8)
    assert len(net.experts.each) == 4  # the caller's has all of them


def test_what_is_no_copy_costs_something() -> None:
    net, _ = make()
    assert float((_smaller(net, 2).model(X) - net(X)).abs().max()) > 1e-6


def test_channels_of_experts_that_stay_go_too_and_the_folder_is_loaded(tmp_path: Path) -> None:
    net, _ = make()
    result = merge(net, X[:2], method="sequential", target_params=0.4, train_data=[X])
    widths = result.plan.complexity
    assert widths["router/experts"] < 4 and any(w < 5 for n, w in widths.items() if n.startswith("experts"))
    assert result.parameters_after <= 0.4 * result.parameters_before
    result.save(tmp_path / "small", f"{__file__}:make")
    torch.testing.assert_close(load(tmp_path / "small", run_code=True)(X), result.model.eval()(X))
    recipe = tmp_path / "small" / "recipe.json"
    said = json.loads(recipe.read_text())
    recipe.write_text(json.dumps(said | {"entries": {"experts.each": 9}}))
    with pytest.raises(WeightsError, match="has 4 entries, not 9"):
        load(tmp_path / "small", run_code=True)


def test_mixtral_with_its_experts_in_a_list_loses_the_copy() -> None:
    model = small_mixtral()
    block = model.model.layers[0].mlp
    block.experts = Experts(WIDTH, HIDDEN, EXPERTS, sent=False)
    model = model.double().eval().requires_grad_(False)
    block.gate.weight.mul_(10)[4] = block.gate.weight[1]
    block.experts.each[4].load_state_dict(block.experts.each[1].state_dict())
    small = without_the_copy(model)
    assert len(small.model.layers[0].mlp.experts.each) == 4 == len(small.model.layers[0].mlp.gate.weight)


def test_a_config_says_that_entries_of_a_list_are_gone() -> None:
    transformers = pytest.importorskip("transformers")

    class Listed(transformers.PreTrainedModel):  # type: ignore[misc, name-defined]
        config_class = transformers.PretrainedConfig

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.router, self.experts = nn.Linear(6, config.count), Experts(6, 5, config.count, sent=False)

    config = transformers.PretrainedConfig(count=4)
    shapes = {n: tuple(p.shape) for n, p in Listed(transformers.PretrainedConfig(count=3)).named_parameters()}
    assert next(narrowed_configs(Listed(config), shapes)).count == 3
