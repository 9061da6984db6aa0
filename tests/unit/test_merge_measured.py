"""What weights read is measured on any kind of input: images, tokens, keyword arguments, masks."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from intertwine import trace
from intertwine.merging import apply_merge, plan_merge
from intertwine.merging.eliminate import eliminate
from intertwine.merging.measured import measure
from intertwine.merging.places import Place
from intertwine.merging.readers import Reading
from intertwine.merging.sequential import KnownOutputs
from token_reader import Reader


def _data(kind: str) -> list[object]:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 11, (40, 5), generator=generator)
    weight, mask = torch.randn(40, 5, generator=generator), (torch.arange(5) < 3).expand(40, 5).long()
    kinds: dict[str, object] = {
        "tokens": ids,
        "labelled": (ids, torch.zeros(40)),
        "by name": {"ids": ids},
        "mixed": {"ids": ids, "weight": weight},
        "masked": {"ids": ids, "weight": weight, "attention_mask": mask},
    }
    return [kinds[kind], kinds[kind], kinds[kind]]


@pytest.mark.parametrize("kind", ["tokens", "labelled", "by name", "mixed", "masked"])
def test_repair_by_data_takes_every_kind_of_input(kind: str) -> None:
    torch.manual_seed(0)
    model = Reader(12)
    example = {"ids": torch.zeros(2, 5, dtype=torch.long), "weight": torch.randn(2, 5)}
    plan = plan_merge(model, trace(model, (), example), target_params=0.7, repair="data", data=_data(kind))
    small = apply_merge(model, plan)
    assert small.one.out_features < 12
    assert small(**example).shape == (2, 3)


def test_moments_are_those_of_the_rows_without_padding() -> None:
    torch.manual_seed(0)
    model = Reader(12).double()
    batch = _data("masked")[0]
    seen = measure(model, [batch])["one.weight"]
    rows = (model.embed(batch["ids"]) + batch["weight"].double()[..., None] @ model.extra)[:, :3]
    rows = rows.reshape(-1, 6).detach()
    assert seen.rows == len(rows) == 120 and seen.bias == "one.bias" and seen.uses == 1
    torch.testing.assert_close(seen.mean, rows.mean(0))
    torch.testing.assert_close(seen.cov, rows.T @ rows / 120 - torch.outer(rows.mean(0), rows.mean(0)))
    whole = measure(model, [{k: v for k, v in batch.items() if k != "attention_mask"}])["one.weight"]
    assert whole.rows == 200 and not torch.allclose(whole.cov, seen.cov)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_moments_of_half_precision_are_summed_in_more(dtype: torch.dtype) -> None:
    """Squares of thousands of rows are more than float16 holds, and more digits than bfloat16 has."""
    x = (3 + 8 * torch.randn(3000, 2, generator=torch.Generator().manual_seed(0))).to(dtype)
    seen, rows = measure(nn.Linear(2, 2).to(dtype), [x])["weight"], x.double()
    torch.testing.assert_close(seen.moment, rows.T @ rows / 3000, rtol=1e-5, atol=0)
    assert float(seen.second.max()) > torch.finfo(torch.float16).max


def test_outputs_of_half_precision_are_compared_in_more() -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(4, 50).half(), torch.randn(64, 4).half()
    with torch.no_grad():
        model.weight *= 30
    known, small = KnownOutputs(model, ((x,), {})), copy.deepcopy(model)
    with torch.no_grad():
        small.weight *= 0.5
        small.bias *= 0.5
    assert known.whole > torch.finfo(torch.float16).max
    assert known.error(small) == pytest.approx(0.25, rel=1e-3)


def test_the_weights_of_an_einsum_and_of_attention_are_seen() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads = nn.Parameter(torch.randn(2, 4, 6))
            self.attend = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            y = torch.einsum("hdi,bti->bthd", self.heads, x).flatten(2)
            return self.attend(y, y, y)[0]

    seen = measure(Net(), [torch.randn(3, 5, 6)])
    assert {name: s.dim for name, s in seen.items()} == {
        "heads": 2,
        "attend.in_proj_weight": 1,
        "attend.out_proj.weight": 1,
    }


def _naive(moments: list[np.ndarray], readers: list[np.ndarray]) -> tuple[list[int], list[float]]:
    """Every channel tried at every step, by least squares from the definition."""
    alive, order, errors = list(range(len(moments[0]))), [], []
    totals = [float(np.trace(v @ c @ v.T)) for c, v in zip(moments, readers, strict=True)]

    def error(kept: list[int]) -> float:
        out = 0.0
        for c, v, t in zip(moments, readers, totals, strict=True):
            new = v @ c[:, kept] @ np.linalg.inv(c[np.ix_(kept, kept)])
            out += float(np.trace(v @ c @ v.T - new @ c[kept] @ v.T)) / t
        return out

    while len(alive) > 1:
        tried = {j: error([k for k in alive if k != j]) for j in alive}
        best = min(tried, key=lambda j: tried[j])
        alive.remove(best)
        order.append(best)
        errors.append(tried[best])
    return order, errors


@pytest.mark.parametrize("one_by_one", [True, False])
def test_what_experts_read_is_seen_whichever_way_they_are_computed(one_by_one: bool) -> None:
    """All matrices in one tensor: picked out for every row, or an expert after the other on its rows."""

    class Experts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = nn.Parameter(torch.randn(4, 6, 3)), nn.Parameter(torch.randn(4, 6, 3))

        def forward(self, x: Tensor) -> Tensor:
            chosen = torch.arange(len(x)) % 4
            if not one_by_one:
                hidden = torch.bmm(self.up[chosen], x.unsqueeze(-1)).squeeze(-1).relu()
                return torch.bmm(hidden.unsqueeze(1), self.down[chosen]).squeeze(1)
            out = torch.zeros_like(x)
            for k in range(4):
                out[chosen == k] = nn.functional.linear(x[chosen == k], self.up[k]).relu() @ self.down[k]
            return out

    torch.manual_seed(0)
    model, x = Experts().requires_grad_(False), torch.randn(20, 3)
    hidden = torch.einsum("nhi,ni->nh", model.up[torch.arange(20) % 4], x).relu().double()
    seen = measure(model, [x])
    assert (seen["up"].dim, seen["down"].dim, seen["down"].rows) == (2, 1, 20)
    torch.testing.assert_close(seen["down"].moment, hidden.T @ hidden / 20, rtol=1e-5, atol=1e-6)


def test_elimination_in_blocks_is_elimination_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("intertwine.merging.eliminate.BLOCK", 5)
    monkeypatch.setattr("intertwine.merging.eliminate.RIDGE", 1e-12)
    rng = np.random.default_rng(0)
    moments = [(lambda x: x.T @ x / 60)(rng.standard_normal((60, 14))) for _ in range(2)]
    readers = [rng.standard_normal((7, 14)) for _ in range(2)]
    readings = [
        Reading(
            Place(f"w{k}", 1, "in", np.arange(14)[:, None]),
            torch.zeros(14),
            torch.from_numpy(c),
            None,
            "b",
            1.0,
        )
        for k, c in enumerate(moments)
    ]
    merges = eliminate(readings, {f"w{k}": torch.from_numpy(v) for k, v in enumerate(readers)})
    order, errors = _naive(moments, readers)
    assert [m.drop for m in merges] == order
    np.testing.assert_allclose([m.distance for m in merges], errors, rtol=1e-7)
