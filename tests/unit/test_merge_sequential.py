"""Every kind of axis under one budget: planted duplicates come back, folding is exact, refitting helps."""

from __future__ import annotations

import importlib.util
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from intertwine import act, load, trace, zoo
from intertwine.errors import InputError, Unsupported
from intertwine.merging import MergePlan, apply_merge, fold, merge, plan_merge
from intertwine.merging import folding as folding_module
from intertwine.merging.calibration import random_inputs
from intertwine.merging.folding import PlainNorm, find_folding
from intertwine.merging.torch_modules import as_rms_norm
from intertwine.symmetry import Symmetry


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, size: int) -> None:
        super().__init__()
        self.heads = heads
        self.qk, self.v = nn.Linear(width, 2 * heads * size), nn.Linear(width, heads * size)
        self.o = nn.Linear(heads * size, width)

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        q, k = self.qk(x).view(b, t, 2, self.heads, -1).permute(2, 0, 3, 1, 4)
        v = self.v(x).view(b, t, self.heads, -1).transpose(1, 2)
        scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(
            torch.ones(t, t, dtype=torch.bool).triu(1), -1e9
        )
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Net(nn.Module):
    """A language model of one pre-norm block, its head tied to its table."""

    def __init__(self, width: int = 12, heads: int = 2, size: int = 5, hidden: int = 16) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(13, width), nn.Parameter(torch.randn(7, width))
        self.ln_1, self.ln_2, self.ln_f = (nn.LayerNorm(width) for _ in range(3))
        self.attn = Attention(width, heads, size)
        self.one, self.two = nn.Linear(width, hidden), nn.Linear(hidden, width)
        for norm in (self.ln_1, self.ln_2, self.ln_f):
            nn.init.uniform_(norm.weight, 0.5, 1.5)
            nn.init.normal_(norm.bias)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids) + self.places[: ids.shape[1]]
        x = x + self.attn(self.ln_1(x))
        x = x + self.two(F.gelu(self.one(self.ln_2(x))))
        return F.linear(self.ln_f(x), self.table.weight)


@pytest.fixture(scope="module")
def net() -> Net:
    torch.manual_seed(0)
    return Net().double().eval().requires_grad_(False)


def _ids(rows: int = 64) -> Tensor:
    return torch.randint(0, 13, (rows, 7), generator=torch.Generator().manual_seed(1))


def _symmetry(model: nn.Module) -> Symmetry:
    return trace(model, _ids(2))


def _count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def test_folding_is_exact_and_gives_the_stream_every_rotation(net: Net) -> None:
    folded = fold(net, _ids(2))
    torch.testing.assert_close(folded(_ids()), net(_ids()), rtol=0, atol=1e-10)
    assert isinstance(folded.ln_1, PlainNorm) and folded.ln_1.shift is None
    assert isinstance(folded.ln_f, PlainNorm) and folded.ln_f.shift is not None  # the head has no bias
    before, after = trace(net, _ids(2)), trace(folded, _ids(2))
    assert not any(a.group.linear == "orthogonal" for a in before.axes)
    (stream,) = [a for a in after.axes if a.group.linear == "orthogonal"]
    assert stream.size == 12 and after.proof is not None and not after.proof.refuted


def test_a_folding_is_rebuilt_from_what_it_says(net: Net) -> None:
    folding, folded = find_folding(net, _ids(2))
    again = folding.rebuild(net)
    assert folding.untied == ("table",)
    again.load_state_dict(folded.state_dict())
    assert torch.equal(again(_ids(3)), folded(_ids(3)))


@pytest.mark.parametrize("padding", [0, 1])
def test_a_norm_that_a_convolution_reads_is_folded_where_no_border_is_made_up(padding: int) -> None:
    class Images(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.norm = nn.Conv2d(3, 6, 1), nn.LayerNorm(6)
            self.down = nn.Conv2d(6, 5, 2, stride=2, padding=padding)
            nn.init.uniform_(self.norm.weight, 0.5, 1.5)
            nn.init.normal_(self.norm.bias)

        def forward(self, x: Tensor) -> Tensor:
            return self.down(self.norm(self.stem(x).movedim(1, -1)).movedim(-1, 1)).mean((2, 3))

    torch.manual_seed(0)
    images, x = Images(), torch.randn(4, 3, 8, 8)
    if padding:  # a shift that becomes a bias would stand beside the image too
        with pytest.raises(Unsupported, match="the folded model is off"):
            fold(images, x)
    else:
        folded = fold(images, x)
        assert isinstance(folded.norm, PlainNorm)
        torch.testing.assert_close(folded(x), images(x), rtol=0, atol=1e-5)


def test_a_stream_that_is_read_without_a_norm_keeps_its_mean() -> None:
    class Bare(Net):
        def forward(self, ids: Tensor) -> Tensor:
            x = self.table(ids)
            return self.two(F.gelu(self.one(self.ln_2(x)))) + self.attn(x)

    with pytest.raises(Unsupported, match="without a norm"):
        fold(Bare(), _ids(2))
    with pytest.raises(Unsupported, match="no norm"):
        fold(nn.Linear(3, 2), torch.zeros(1, 3))


def _planted(kind: str, net: Net) -> tuple[nn.Module, int]:
    """The folded net with one redundant coordinate of a kind, and how many parameters it has."""
    model = fold(net, _ids(2))
    with torch.no_grad():
        if kind == "channel":
            model.one.weight[3], model.one.bias[3] = model.one.weight[7].clone(), model.one.bias[7].clone()
            return model, 2 * 12 + 1
        if kind == "query-key":
            for k in (4, 9):  # the last row of each head's queries is a copy of its first
                model.attn.qk.weight[k] = model.attn.qk.weight[k - 4].clone()
                model.attn.qk.bias[k] = model.attn.qk.bias[k - 4].clone()
            return model, 4 * 13
        if kind == "value-output":
            for k in (4, 9):
                model.attn.v.weight[k] = model.attn.v.weight[k - 4].clone()
                model.attn.v.bias[k] = model.attn.v.bias[k - 4].clone()
            return model, 2 * (13 + 12)
        direction = torch.randn(12, dtype=torch.float64)
        direction = F.normalize(direction - direction.mean(), dim=0)
        flat = torch.eye(12, dtype=torch.float64) - torch.outer(direction, direction)
        shift = flat @ model.ln_f.shift
        model.ln_f.shift.copy_(shift - shift.mean())
        for writer in (model.attn.o, model.two):
            writer.weight.copy_(flat @ writer.weight)
            writer.bias.copy_(flat @ writer.bias)
        model.table.table.copy_(model.table.table @ flat)
        model.places.copy_(model.places @ flat)
        # Table, head, positions, shift of the last norm, q, k, v, o with bias, one, two with bias; twice,
        # since the mean that the norms do not see is a direction that folding leaves empty.
        return model, 2 * (13 + 13 + 7 + 1 + 20 + 10 + 11 + 16 + 17)


@pytest.mark.parametrize("kind", ["channel", "query-key", "value-output", "stream"])
def test_a_planted_duplicate_of_every_kind_is_given_back_exactly(kind: str, net: Net) -> None:
    model, saved = _planted(kind, net)
    share = (_count(model) - saved) / _count(model)
    plan = plan_merge(model, _symmetry(model), method="sequential", target_params=share, data=[_ids(200)])
    cut = {a.name: a.size - a.width for a in plan.axes if a.merges}
    small = apply_merge(model, plan)
    assert len(cut) == 1 and _count(small) == _count(model) - saved, cut
    torch.testing.assert_close(small(_ids()), model(_ids()), rtol=0, atol=1e-8)


def test_all_kinds_under_one_budget_beat_each_alone_and_replay_from_json(net: Net) -> None:
    model = fold(net, _ids(2))
    symmetry = _symmetry(model)
    ids, whole = _ids(), model(_ids())
    errors = {}
    for kinds in ("all", "channels", "rank", "stream"):  # heads alone do not reach it
        plan = plan_merge(
            model,
            symmetry,
            method="sequential",
            target_params=0.8,
            parameters={"kinds": kinds},
            data=[_ids(400)],
        )
        errors[kinds] = float((apply_merge(model, plan)(ids) - whole).square().mean())
        if kinds == "all":
            again = MergePlan.from_json(plan.to_json())
            torch.testing.assert_close(apply_merge(model, again)(ids), apply_merge(model, plan)(ids))
    assert errors["all"] == min(errors.values()), errors


@pytest.mark.parametrize("data", [True, False])
def test_another_network_of_the_orbit_is_merged_as_well(data: bool, net: Net) -> None:
    """Channels in another order, other scales, heads in another basis, the stream turned: as good a merge."""
    model, ids = fold(net, _ids(2)), _ids()
    symmetry, whole, errors = _symmetry(model), model(_ids()), []
    for each in (model, act(model, symmetry.sample(3))):
        given = [_ids(400)] if data else None
        plan = plan_merge(each, symmetry, method="sequential", target_params=0.8, data=given)
        errors.append(float((apply_merge(each, plan)(ids) - whole).square().mean()))
    assert errors[1] == pytest.approx(errors[0], rel=0.1)


def test_refitting_layer_after_layer_is_better_than_the_cut_alone(net: Net) -> None:
    from dataclasses import replace

    symmetry = _symmetry(net)
    plan = plan_merge(net, symmetry, method="sequential", target_params=0.8, data=[_ids(400)])
    whole = net(_ids())
    plans = (plan, replace(plan, weights={}))
    fitted, plain = (float((apply_merge(net, p)(_ids()) - whole).square().mean()) for p in plans)
    assert plan.weights and fitted < 0.9 * plain


def test_without_data_a_causal_model_writes_its_own(net: Net) -> None:
    (ids,), named = random_inputs(net, _symmetry(net), rows=50)
    assert ids.shape == (50, 7) and not named and int(ids.max()) < 13
    even = torch.randint(0, 13, (50, 7), generator=torch.Generator().manual_seed(0))

    def surprise(tokens: Tensor) -> float:
        return float(F.cross_entropy(net(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()))

    assert surprise(ids) < surprise(even) - 0.1
    plan = plan_merge(net, _symmetry(net), method="sequential", target_params=0.9)
    assert plan.weights
    with pytest.raises(InputError, match="no threshold"):
        plan_merge(net, _symmetry(net), method="sequential", beta=0.1)


def test_the_caller_s_model_is_not_touched(net: Net) -> None:
    before = {name: t.clone() for name, t in net.state_dict().items()}
    plan_merge(net, _symmetry(net), method="sequential", target_params=0.9, data=[_ids()])
    assert all(torch.equal(t, before[name]) for name, t in net.state_dict().items())


def test_merge_folds_saves_and_loads(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = zoo.build("nanogpt64").requires_grad_(False)
    ids = torch.randint(0, 65, (8, 64))
    result = merge(
        model,
        ids[:2],
        method="sequential",
        fold=True,
        target_params=0.9,
        train_data=[ids],
    )
    assert result.parameters_after <= 0.9 * result.parameters_before == 0.9 * 208320
    assert {a.kind for a in result.plan.axes} == {"channels", "heads", "rank", "stream"}
    result.save(tmp_path / "small", "zoo:nanogpt64")
    torch.testing.assert_close(load(tmp_path / "small")(ids), result.model.eval()(ids))


def test_the_tables_of_the_docs_are_those_that_were_measured() -> None:
    root = Path(__file__).resolve().parents[2]
    spec = importlib.util.spec_from_file_location("made", root / "scripts" / "make_transformers_table.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    page = (root / "docs" / "merge.md").read_text(encoding="utf-8")
    assert script.render(page) == page, "run python scripts/make_transformers_table.py"


# Weights of products transposed and a head tied to the table (GPT-2); norms written op by op (Llama), gains
# 1 + w and norms behind the attention, which stay (Gemma); norms of queries and keys, which stay (Qwen).
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma2", "gemma3_text", "qwen3"])
def test_norms_and_products_of_other_forms_fold(family: str, dtype: torch.dtype) -> None:
    pytest.importorskip("transformers")
    source = zoo.resolve(f"hf:{family}?layers=1")
    model = source.model.eval().requires_grad_(False)
    draw = torch.Generator().manual_seed(0)
    for p in model.parameters():  # norms begin with ones
        p.add_(0.2 * torch.randn(p.shape, generator=draw))
    folding, folded = find_folding(model.to(dtype), source.example, source.kwargs)
    assert folding.norms and all(isinstance(folded.get_submodule(path), PlainNorm) for path in folding.norms)
    whole, again = (m(*source.example, **source.kwargs)["logits"].double() for m in (model, folded))
    assert float((again - whole).abs().max() / whole.abs().max()) < 16 * torch.finfo(dtype).eps


class OwnNorm(nn.Module):
    """Norms as people write them."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.weight = kind, nn.Parameter(torch.rand(6) - 0.3)

    def forward(self, x: Tensor) -> Tensor:
        square = x.square().mean(-1, keepdim=True)
        size = {
            "eps inside": (square + 1e-5).sqrt(),
            "no eps": square.sqrt(),
            "eps outside": square.sqrt() + 1e-5,
            "at least eps": square.sqrt().clamp_min(1e-3),
            "l1": x.abs().mean(-1, keepdim=True) + 1e-5,
        }[self.kind]
        return self.weight * x / size


@pytest.mark.parametrize(
    ("kind", "eps"),
    [("eps inside", 1e-5), ("no eps", 0.0), ("eps outside", None), ("at least eps", None), ("l1", None)],
)
def test_the_eps_of_a_norm_is_read_off_what_it_computes(kind: str, eps: float | None) -> None:
    torch.manual_seed(0)
    found = as_rms_norm(OwnNorm(kind))
    assert (None if found is None else found[0].eps) == eps


@pytest.mark.parametrize(("off", "refused"), [(0.0, False), (1e-8, True)])
def test_a_folding_that_is_slightly_wrong_is_refused(
    off: float, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Far below what the norms of Llama round to, and below the rounding of its weights."""
    pytest.importorskip("transformers")
    source = zoo.resolve("hf:llama?layers=1")
    right = folding_module._folded_state

    def wrong(*args: Any) -> dict[str, Tensor]:
        state = right(*args)
        return state | {"lm_head.weight": (1 + off) * state["lm_head.weight"]}

    monkeypatch.setattr(folding_module, "_folded_state", wrong)
    with pytest.raises(Unsupported, match=r"is off by 1\.0e-08") if refused else nullcontext():
        fold(source.model, source.example, source.kwargs)


def test_a_stream_that_is_normed_after_its_sums_is_left_with_a_reason() -> None:
    pytest.importorskip("transformers")
    source = zoo.resolve("hf:bert?layers=2&hidden=48")
    with pytest.raises(Unsupported, match="reads the stream without a norm before it"):
        fold(source.model, source.example, source.kwargs)


def test_a_folded_encoder_layer_of_torch_does_without_the_fused_kernel() -> None:
    """The kernel reads the weights of the layer's norms and takes out a mean, which a rotated stream has."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True)
    net = nn.Sequential(nn.Linear(4, 8), layer, nn.LayerNorm(8), nn.Linear(8, 3)).double().eval()
    x = torch.randn(3, 5, 4, dtype=torch.float64)
    folded = fold(net, x)
    symmetry = trace(folded, x)
    assert any(axis.group.linear == "orthogonal" for axis in symmetry.axes)
    with torch.no_grad():
        torch.testing.assert_close(folded(x), net(x), atol=1e-10, rtol=0)
        torch.testing.assert_close(act(folded, symmetry.sample(0))(x), net(x), atol=1e-10, rtol=0)
