"""Duplicates planted in small transformers are found on every kind of axis, and nothing else is one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from intertwine import load, trace, zoo
from intertwine.errors import InputError, Unsupported
from intertwine.graph.eager import run_module
from intertwine.graph.example import Example
from intertwine.merging import MergePlan, apply_merge, factor, fold, merge
from intertwine.merging.decide import Options, Planner
from intertwine.merging.places import find_places
from intertwine.merging.sequential import fitted
from intertwine.symmetry import Symmetry

pytest.importorskip("transformers")

# Which kinds a family's forward can narrow; rotary queries and keys, and values that share their head size
# with them, cannot be.
FAMILIES = {
    "gpt2": {"channels", "heads", "rank"},
    "bert": {"channels", "heads", "rank"},
    "vit": {"channels", "heads", "rank"},
    "t5": {"channels", "heads", "rank"},
    "llama": {"channels", "heads"},
    "mixtral": {"channels", "heads"},
    "falcon": {"heads"},  # all queries share one key and value
}
# The same in families whose blocks are much like those above.
ALIKE = {
    "opt": {"channels", "heads", "rank"},
    "bloom": {"channels"},  # every head has a slope of its own
    "phi3": {"channels"},  # where its queries end is written into the forward
    "gemma2": {"channels", "heads"},
    "gpt_neox": {"channels", "heads"},
    "qwen2": {"channels", "heads"},
    "roberta": {"channels", "heads", "rank"},
    "distilbert": {"channels", "heads", "rank"},
    "falcon": {"channels"},
    "phi": {"channels", "heads"},
    "gemma": {"channels", "heads"},
    "gemma3_text": {"channels", "heads"},
    "qwen3": {"channels", "heads"},
    "starcoder2": {"channels", "heads"},
    "olmoe": {"channels"},  # a norm goes over all heads
    "dinov2": {"channels", "heads", "rank"},
    "modernbert": {"channels", "heads"},
}


def outputs(model: nn.Module, source: zoo.Source) -> Tensor:
    """In float64, also inside norms that round to float32."""
    return run_module(model, Example.of(source.example, source.kwargs)).outputs[0]


def plant(model: nn.Module, symmetry: Symmetry, kind: str) -> None:
    """The second channel or head of every axis of a kind a copy of the first; a coordinate of every rank."""
    state = dict(model.named_parameters(remove_duplicate=False))
    if kind == "rank":
        for linear in symmetry.structure.linear.values():
            for (param, dim), (where, _, exponent) in linear.places.items():
                if symmetry.structure.inference.roles.get((param, dim)) != "in":
                    for rows in where[exponent == exponent.max()]:
                        copy(state[param], dim, rows[:1], rows[-1:])
        return
    for axis in symmetry.axes:
        places = find_places(symmetry, axis)
        heads = axis.group.permutation and not axis.group.linear
        heads = heads and any(p.consumes and p.where.shape[1] > 1 for p in places)
        if heads if kind == "heads" else axis.mergeable:
            for place in places:
                if not place.consumes:  # of heads in groups one in each
                    for own in np.split(place.where, len(axis.classes)):
                        copy(state[place.param], place.dim, own[0], own[1])


@torch.no_grad()
def copy(tensor: Tensor, dim: int, source: np.ndarray, target: np.ndarray) -> None:
    values = tensor.index_select(dim, torch.from_numpy(source)).clone()
    tensor.index_copy_(dim, torch.from_numpy(target), values)


@pytest.fixture(scope="module")
def families() -> dict[str, tuple[zoo.Source, Symmetry, dict[str, Tensor]]]:
    return {}


def prepared(family: str, known: dict[str, Any]) -> tuple[zoo.Source, Symmetry]:
    """A small model in float64 with its own weights again, and its symmetry."""
    if family not in known:
        source = zoo.resolve(f"hf:{family}?layers=1")
        example = tuple(x.double() if x.is_floating_point() else x for x in source.example)
        source = replace(source, example=example)
        model = source.model.double().eval().requires_grad_(False)
        generator = torch.Generator().manual_seed(0)
        for p in model.parameters():  # many small models begin with zeros and ones
            p.add_(0.3 * torch.randn(p.shape, generator=generator, dtype=p.dtype))
        symmetry = trace(model, source.example, source.kwargs)
        known[family] = source, symmetry, {n: p.clone() for n, p in model.named_parameters()}
    source, symmetry, state = known[family]
    for name, p in source.model.named_parameters():
        p.copy_(state[name])
    return source, symmetry


def cut(source: zoo.Source, symmetry: Symmetry, kind: str, by: int = 1) -> tuple[Planner, MergePlan]:
    """Every axis of a kind cut by so many, its weights fitted."""
    options = Options("sequential", repair="weights", parameters={"kinds": kind})
    data = None
    if not source.kwargs and not source.example[0].is_floating_point():
        # What an untrained model writes itself is always the same.
        data = [torch.randint(0, 90, (128, 12), generator=torch.Generator().manual_seed(1))]
    planner = Planner(source.model, symmetry, options, None, data, True, (source.example, source.kwargs))
    whole = planner.weighed
    return planner, fitted(planner, whole.to_widths({a.name: a.size - by for a in whole.axes}))


@pytest.mark.parametrize(
    ("family", "kind"),
    [(f, k) for f, kinds in FAMILIES.items() for k in sorted(kinds)]
    + [pytest.param(f, k, marks=pytest.mark.nightly) for f, kinds in ALIKE.items() for k in sorted(kinds)],
)
def test_planted_duplicates_are_given_back(family: str, kind: str, families: dict[str, Any]) -> None:
    source, symmetry = prepared(family, families)
    plant(source.model, symmetry.alike, kind)
    planner, plan = cut(source, symmetry, kind)
    assert plan.merges, planner.rigid
    whole, small = outputs(source.model, source), apply_merge(source.model, plan)
    assert sum(p.numel() for p in small.parameters()) < sum(p.numel() for p in source.model.parameters())
    error = float((outputs(small, source) - whole).abs().max() / whole.abs().max())
    assert error < 1e-8, (error, plan.complexity)
    assert {a.kind for a in plan.axes} == {kind} and all(a.size - a.width == 1 for a in plan.axes)


# BERT's norms come after the sums. Experts, which only Mixtral has, are planted in test_merge_experts and, in
# lists, in test_merge_lists. T5 looks its table up twice, and scales what its last norm gives.
# What a layer norm takes out is an empty direction already, unless a shift behind the last one fills it.
# Gemma's gains are 1 + w, and it multiplies the rows that it looks up by a number.
STREAMS = {"llama": 1, "gpt2": 1, "vit": 2, "t5": 1, "mixtral": 1, "gemma": 1}


@pytest.mark.parametrize(("family", "empty"), STREAMS.items())
def test_an_empty_direction_of_the_stream_is_given_back(
    family: str, empty: int, families: dict[str, Any]
) -> None:
    source, _ = prepared(family, families)
    model = fold(source.model, source.example, source.kwargs)
    symmetry = trace(model, source.example, source.kwargs)
    roles, state = symmetry.structure.inference.roles, dict(model.named_parameters())
    (stream,) = [linear for linear in symmetry.structure.linear.values() if linear.orthogonal]
    gone = torch.randn(stream.fibres.shape[1], dtype=torch.float64)
    gone = nn.functional.normalize(gone - gone.mean(), dim=0)
    for (param, dim), (where, _, _) in stream.places.items():
        if roles.get((param, dim)) != "in":  # what writes to the stream writes nothing in this direction
            rows = state[param].data.index_select(dim, torch.from_numpy(where[0])).movedim(dim, -1)
            rows = (rows - (rows @ gone)[..., None] * gone).movedim(-1, dim)
            state[param].data.index_copy_(dim, torch.from_numpy(where[0]), rows)
    _, plan = cut(replace(source, model=model), symmetry, "stream", empty)
    whole, small = outputs(model, source), apply_merge(model, plan)
    assert [a.size - a.width for a in plan.axes] == [empty]
    assert float((outputs(small, source) - whole).abs().max() / whole.abs().max()) < 1e-8
    _, further = cut(replace(source, model=model), symmetry, "stream", empty + 1)
    off = outputs(apply_merge(model, further), source) - whole
    assert float(off.abs().max() / whole.abs().max()) > 1e-6


def test_heads_of_every_group_are_those_that_cost_least_there(families: dict[str, Any]) -> None:
    """Of two queries that share a key each group may lose another one; and whole groups go as well."""
    source, symmetry = prepared("llama", families)
    axis = next(a for a in symmetry.axes if a.name.endswith("q_proj/blocks"))
    assert axis.classes.shape == (2, 2)
    state = dict(source.model.named_parameters())
    for place in find_places(symmetry.alike, axis):
        if place.consumes:  # nobody reads the first head of one group, and the second of the other
            for head in (0, 3):
                state[place.param].index_fill_(place.dim, torch.from_numpy(place.where[head]), 0.0)
    planner, _ = cut(source, symmetry, "heads")
    part = next(a for a in planner.weighed.axes if a.name == axis.name)
    assert part.groups == 2 and part.size == 2 and part.costs[0] < 1e-8
    plan = MergePlan.from_json(MergePlan((part.first(1),)).to_json())
    small: Any = apply_merge(source.model, plan)
    error = float((outputs(small, source) - outputs(source.model, source)).abs().max())
    assert error < 1e-8 and small.model.layers[0].self_attn.num_key_value_groups == 1
    kept = find_places(symmetry.alike, axis)[0].where[[1, 2]].reshape(-1)
    query = source.model.get_parameter("model.layers.0.self_attn.q_proj.weight")
    torch.testing.assert_close(small.model.layers[0].self_attn.q_proj.weight, query[np.sort(kept)])


def test_why_a_size_stays_is_said(families: dict[str, Any]) -> None:
    """OLMo 2 has a norm over all its heads; of BERT no norm can be folded, so that its stream stays."""
    source, symmetry = prepared("olmo2", families)
    planner, _ = cut(source, symmetry, "heads")
    assert planner.rigid and all("something else (a norm" in why for why in planner.rigid.values())
    source, symmetry = prepared("bert", families)
    with pytest.raises(Unsupported) as refused:
        fold(source.model, source.example, source.kwargs)
    plan = merge(source.model, source.example, kwargs=source.kwargs, target_params=0.95).plan
    assert plan.left_alone["the residual stream"] == str(refused.value).splitlines()[0]


@pytest.mark.parametrize("kind", ["channels", "heads", "rank"])
def test_without_a_duplicate_something_is_lost(kind: str, families: dict[str, Any]) -> None:
    source, symmetry = prepared("gpt2", families)
    _, plan = cut(source, symmetry, kind)
    whole, small = outputs(source.model, source), apply_merge(source.model, plan)
    assert float((outputs(small, source) - whole).abs().max() / whole.abs().max()) > 1e-6


def test_rotary_queries_and_keys_are_left_alone_with_the_reason(families: dict[str, Any]) -> None:
    for family, rotary in (("llama", True), ("gpt2", False)):
        source, symmetry = prepared(family, families)
        planner, plan = cut(source, symmetry, "rank")
        said = [why for name, why in plan.left_alone.items() if "rotary" in name]
        assert len(said) == rotary and all("commute with the rotation" in why for why in said)
        assert bool(plan.merges) is not rotary and planner.rigid == plan.left_alone


def test_a_plan_with_numbers_replays_and_belongs_to_its_model(families: dict[str, Any]) -> None:
    """The head size that BERT keeps in an attribute is part of the plan."""
    source, symmetry = prepared("bert", families)
    _, plan = cut(source, symmetry, "rank")
    names = {name for a in plan.axes for _, name in a.attributes}
    assert "attention_head_size" in names
    small = apply_merge(source.model, MergePlan.from_json(plan.to_json()))
    torch.testing.assert_close(outputs(small, source), outputs(apply_merge(source.model, plan), source))
    attention: Any = small.get_submodule(plan.axes[0].attributes[0][0])
    assert attention.attention_head_size == 7 and attention.query.out_features == 4 * 7


class Tokens(nn.Module):
    """A table of low rank, attention with its sizes in numbers, a norm after the sum."""

    def __init__(self) -> None:
        super().__init__()
        self.heads, self.size = 2, 4
        self.table = nn.Embedding(60, 8)
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 5)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids)
        shape = (*ids.shape, 3, self.heads, self.size)
        q, k, v = self.qkv(x).view(shape).permute(2, 0, 3, 1, 4)
        mixed = (q @ k.transpose(-1, -2)).softmax(-1) @ v
        x = self.norm(x + self.out(mixed.transpose(1, 2).flatten(2)))
        out: Tensor = self.head(x)
        return out


def make() -> tuple[Tokens, Tensor]:
    """Read by name from a saved folder."""
    torch.manual_seed(0)
    return Tokens(), torch.arange(20).view(2, 10)


def test_factoring_is_exact_and_finds_the_rank_of_a_table() -> None:
    model, ids = make()[0].double().eval().requires_grad_(False), torch.arange(60).view(6, 10)
    basis = torch.randn(3, 8, dtype=torch.float64)
    model.table.weight.copy_(torch.randn(60, 3, dtype=torch.float64) @ basis)
    whole = model(ids)
    torch.testing.assert_close(factor(model, ids[:2])(ids), whole, rtol=0, atol=1e-12)
    size = sum(p.numel() for p in model.parameters())
    result = merge(
        model, ids[:2], method="sequential", factor=True, kinds="rank", axes=["*table*"], train_data=[ids],
        target_params=(size - 5 * 60 + 8 * 3 + 8) / size,
    )  # fmt: skip
    table: Any = result.model.table
    assert tuple(table.table.shape) == (60, 3) and tuple(table.turn.weight.shape) == (8, 3)
    torch.testing.assert_close(result.model(ids), whole, rtol=0, atol=1e-8)
    with pytest.raises(Unsupported, match="nothing to factor"):
        factor(nn.Linear(3, 2), torch.zeros(1, 3))


def test_a_target_out_of_reach_says_what_one_width_for_all_layers_costs() -> None:
    model, ids = make()
    with pytest.raises(InputError, match="cannot be reached") as caught:
        merge(model.eval(), ids, target_params=0.01, uniform=True)
    assert "leave out --uniform" in caught.value.do


def test_a_tied_table_is_not_factored() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(60, 4)

        def forward(self, ids: Tensor) -> Tensor:
            return nn.functional.linear(self.table(ids).relu(), self.table.weight)

    with pytest.raises(Unsupported, match="only looked up"):
        factor(Tied(), torch.zeros(1, 3, dtype=torch.long))


def test_numbers_of_modules_are_saved_and_set_again(tmp_path: Path) -> None:
    """A model of one's own whose forward keeps heads and their size in attributes."""
    model, ids = make()[0].eval().requires_grad_(False), torch.arange(60).view(6, 10)
    result = merge(
        model, ids[:2], method="sequential", factor=True, target_params=0.6, train_data=[ids],
    )  # fmt: skip
    assert result.details()["numbers"]
    result.save(tmp_path / "small", f"{__file__}:make")
    again = load(tmp_path / "small", run_code=True)
    torch.testing.assert_close(again(ids), result.model.eval()(ids))
