"""Plans, budgets, the smaller model, storage, the definitions, and what must fail."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import intertwine.merging.storage as storage
from intertwine import Symmetry, act, automorphisms, find_isomorphism, trace, zoo
from intertwine.errors import InputError, NotFound, WeightsError
from intertwine.merging import (
    MergePlan,
    apply_merge,
    feature_complexity,
    flops_of,
    load_merged,
    plan_merge,
    reestimate_norms,
    save_merged,
    widen,
)
from intertwine.merging.cluster import mean_variances
from intertwine.merging.moments import propagate_moments
from intertwine.merging.rigid import find_rigid


@pytest.fixture(scope="module")
def digits() -> zoo.Source:
    source = zoo.resolve("zoo:digits-vgg")
    zoo.load_weights(source.model, zoo.checkpoint("digits-vgg", 0))
    return source


@pytest.fixture(scope="module")
def digits_symmetry(digits: zoo.Source) -> Symmetry:
    return trace(digits.model, digits.example)


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


class WrittenSize(nn.Module):
    """A forward with a size in it: 'stem' cannot shrink, 'free' can."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.free, self.head = nn.Linear(3, 6), nn.Linear(6, 5), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.stem(x)).reshape(-1, 6)
        return self.head(torch.relu(self.free(hidden)))


def test_a_written_size_is_left_alone_and_named() -> None:
    torch.manual_seed(0)
    net, x = WrittenSize().double(), torch.randn(4, 3).double()
    symmetry = trace(net, x)
    axes = [a for a in symmetry.axes if a.mergeable]
    assert {a.name for a in axes} == {"stem", "free"}
    reasons = find_rigid(net, symmetry, axes)
    assert set(reasons) == {"stem"} and "written into the forward" in reasons["stem"]


class KeptState(WrittenSize):
    """The same, where only the state that `generate` keeps has a size of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(use_cache=True)

    def forward(self, x: Tensor, use_cache: bool | None = None) -> Tensor:
        hidden = torch.relu(self.stem(x))
        if use_cache if use_cache is not None else self.config.use_cache:
            hidden = hidden + torch.zeros(6).to(hidden)
        return self.head(torch.relu(self.free(hidden)))


def test_what_only_generate_needs_is_left_alone_too() -> None:
    torch.manual_seed(0)
    net, x = KeptState().double(), torch.randn(4, 3).double()
    symmetry = trace(net, x)
    assert set(find_rigid(net, symmetry, [a for a in symmetry.axes if a.mergeable])) == {"stem"}
    plan = plan_merge(net, symmetry, target_params=0.8)
    assert set(plan.left_alone) == {"stem"}
    small = apply_merge(net, plan)
    assert small.stem.out_features == 6 and small.free.out_features < 5
    assert small(x).shape == (4, 2)


@pytest.mark.parametrize("method", ["moments", "ifm", "ward", "folding", "magnitude"])
def test_every_method_meets_the_target(method: str, digits: zoo.Source, digits_symmetry: Symmetry) -> None:
    plan = plan_merge(digits.model, digits_symmetry, method=method, target_params=0.6, check=False)
    small = apply_merge(digits.model, plan)
    share = parameters(small) / parameters(digits.model)
    assert 0.5 < share <= 0.6
    assert small(*digits.example).shape == digits.model(*digits.example).shape


def test_target_flops_counts_what_runs(digits: zoo.Source, digits_symmetry: Symmetry) -> None:
    plan = plan_merge(digits.model, digits_symmetry, target_flops=0.5, check=False)
    small = apply_merge(digits.model, plan)
    share = flops_of(small, digits.example) / flops_of(digits.model, digits.example)
    assert 0.4 < share <= 0.5 + 1e-6


def test_repair_moves_the_outputs_closer(digits: zoo.Source, digits_symmetry: Symmetry) -> None:
    from intertwine.data import load_data

    images = load_data("digits", limit=200).images
    errors = {}
    for repair in ("none", "weights", "data"):
        plan = plan_merge(
            digits.model,
            digits_symmetry,
            method="magnitude",
            repair=repair,
            target_params=0.8,
            data=[images[100:]] if repair == "data" else None,
            check=False,
        )
        with torch.no_grad():
            error = apply_merge(digits.model, plan)(images[:100]) - digits.model(images[:100])
        errors[repair] = float(error.square().mean())
    assert errors["data"] < errors["weights"] < errors["none"]


def test_data_measures_only_what_merging_changed(digits: zoo.Source, digits_symmetry: Symmetry) -> None:
    """Nothing merged: nothing changes. Something merged: every norm sees what the original's norm saw."""
    images = torch.randn(64, 1, 8, 8)
    plan = plan_merge(digits.model, digits_symmetry, target_params=0.6, check=False)
    nothing = replace(plan, axes=tuple(replace(a, merges=(), readers=()) for a in plan.axes))
    same = reestimate_norms(digits.model, [images], digits.model, nothing).state_dict()
    for name, tensor in digits.model.state_dict().items():
        if tensor.is_floating_point():
            torch.testing.assert_close(same[name], tensor)
    small = apply_merge(digits.model, plan)
    renewed = reestimate_norms(small, [images], digits.model, plan)
    assert not torch.allclose(renewed(images), small(images))
    with torch.no_grad():
        errors = [float((net(images) - digits.model(images)).square().mean()) for net in (small, renewed)]
    assert errors[1] < errors[0]


def test_folding_tells_norms_how_much_a_mean_varies(digits: zoo.Source, digits_symmetry: Symmetry) -> None:
    equal, opposite = np.array([[1.0, 2.0], [2.0, 4.0]]), np.array([[1.0, 0.0], [-1.0, 0.0]])
    assert mean_variances(equal, [[0, 1]]) == pytest.approx([1.0])
    assert mean_variances(opposite, [[0, 1]]) == pytest.approx([0.5])
    plan = plan_merge(digits.model, digits_symmetry, method="folding", target_params=0.6, check=False)
    assert MergePlan.from_json(plan.to_json()) == plan
    plain = replace(plan, axes=tuple(replace(a, variances=()) for a in plan.axes))
    name = next(p.param for p in plan.axes[0].places if p.role == "var")
    told, untold = (apply_merge(digits.model, p).state_dict()[name] for p in (plan, plain))
    torch.testing.assert_close(told, (untold + 1e-5) * torch.tensor(plan.axes[0].variances) - 1e-5)


def test_the_callers_model_is_untouched(digits: zoo.Source, digits_symmetry: Symmetry) -> None:
    model = copy.deepcopy(digits.model).train()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    small = apply_merge(model, plan_merge(model, digits_symmetry, target_params=0.5))
    reestimate_norms(small, [digits.example[0]])
    assert model.training and small.training
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    shared = {p.data_ptr() for p in model.parameters()} & {p.data_ptr() for p in small.parameters()}
    assert not shared


def test_the_smaller_model_trains_exports_and_pickles(digits: zoo.Source, digits_symmetry: Symmetry) -> None:
    small = apply_merge(
        digits.model, plan_merge(digits.model, digits_symmetry, target_params=0.5, check=False)
    )
    assert type(small) is type(digits.model)
    small(*digits.example).sum().backward()
    assert all(p.grad is not None and p.grad.shape == p.shape for p in small.parameters())
    torch.export.export(small.eval(), digits.example)
    state = pickle.loads(pickle.dumps(small.state_dict()))
    assert {k: v.shape for k, v in state.items()} == {k: v.shape for k, v in small.state_dict().items()}
    for conv in (m for m in small.modules() if isinstance(m, nn.Conv2d)):
        assert (conv.out_channels, conv.in_channels) == tuple(conv.weight.shape[:2])
    assert all(
        m.num_features == len(m.running_mean) for m in small.modules() if isinstance(m, nn.BatchNorm2d)
    )
    assert trace(small, digits.example).axes[0].size == small.features[0].out_channels


def test_plan_survives_json(digits: zoo.Source, digits_symmetry: Symmetry) -> None:
    for options in ({"method": "moments"}, {"method": "ward"}, {"method": "ifm"}):
        plan = plan_merge(digits.model, digits_symmetry, target_params=0.6, check=False, **options)
        again = MergePlan.from_json(plan.to_json())
        left, right = (apply_merge(digits.model, p).state_dict() for p in (plan, again))
        assert all(torch.equal(left[k], right[k]) for k in left)
    with pytest.raises(InputError, match="not a merge plan"):
        MergePlan.from_json('{"format": "other"}')


def test_save_and_load(
    tmp_path: Path, digits: zoo.Source, digits_symmetry: Symmetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = apply_merge(
        digits.model, plan_merge(digits.model, digits_symmetry, target_params=0.5, check=False)
    )
    out = save_merged(small, tmp_path / "out", "zoo:digits-vgg")
    again = load_merged(out, lambda recipe: zoo.resolve(recipe.source).model)
    with torch.no_grad():
        assert torch.equal(again(*digits.example), small(*digits.example))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]

    def killed(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(storage, "write_tensors", killed)
    with pytest.raises(KeyboardInterrupt):
        save_merged(small, tmp_path / "other", "zoo:digits-vgg")
    with pytest.raises(KeyboardInterrupt):
        save_merged(small, tmp_path / "out", "zoo:digits-vgg")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]
    kept = load_merged(out, lambda recipe: zoo.resolve(recipe.source).model)
    assert torch.equal(kept(*digits.example), again(*digits.example))
    (tmp_path / "mine").mkdir()
    with pytest.raises(InputError, match="not a merged model"):
        save_merged(small, tmp_path / "mine", "zoo:digits-vgg")
    with pytest.raises(WeightsError, match="not a merged model"):
        load_merged(tmp_path / "mine", lambda recipe: zoo.resolve(recipe.source).model)


def test_bad_input_says_so(digits: zoo.Source, digits_symmetry: Symmetry) -> None:
    model, symmetry = digits.model, digits_symmetry
    with pytest.raises(InputError, match="a number from 0 to 1"):
        plan_merge(model, symmetry, beta=1.5)
    with pytest.raises(NotFound, match="no axis matches"):
        plan_merge(model, symmetry, beta=0.1, axes=["nothing*"])
    with pytest.raises(NotFound, match="can be merged"):
        plan_merge(model, symmetry, beta=0.1, axes=[next(a.name for a in symmetry.axes if not a.mergeable)])
    with pytest.raises(InputError, match="cannot be reached"):
        plan_merge(model, symmetry, target_params=0.001, check=False)
    with pytest.raises(InputError, match="give one of"):
        plan_merge(model, symmetry)
    with pytest.raises(InputError, match="needs data"):
        plan_merge(model, symmetry, beta=0.1, repair="data")
    with pytest.raises(InputError, match="another model"):
        apply_merge(nn.Linear(2, 2), plan_merge(model, symmetry, beta=0.1, check=False))


def test_chosen_axes_only(digits: zoo.Source, digits_symmetry: Symmetry) -> None:
    plan = plan_merge(digits.model, digits_symmetry, beta=0.2, axes=["features.1?"], check=False)
    assert set(plan.complexity) == {"features.10", "features.14"}
    assert plan.merges > 0


def test_sweep_is_one_sequence_cut(digits: zoo.Source, digits_symmetry: Symmetry) -> None:
    betas = (0.2, 0.5, 0.9)
    swept = feature_complexity(digits.model, digits_symmetry, betas)
    for beta in betas:
        alone = plan_merge(
            digits.model, digits_symmetry, method="ifm", order="independent", beta=beta, check=False
        )
        assert swept[beta] == alone.complexity
    assert list(swept[0.2].values()) != list(swept[0.9].values())


def test_planted_isomorphism_and_its_absence(digits: zoo.Source, digits_symmetry: Symmetry) -> None:
    model = copy.deepcopy(digits.model).double()
    element = digits_symmetry.sample(5, parts=("permutation", "scale", "sign"), spread=0.3)
    moved = act(model, element)
    found = find_isomorphism(model, moved, digits_symmetry)
    assert found and found.error < 1e-10
    assert found.element is not None
    again = act(model, found.element)
    assert all(
        torch.allclose(a, b, atol=1e-9) for a, b in zip(again.parameters(), moved.parameters(), strict=True)
    )
    with torch.no_grad():
        moved.features[7].weight[3, 2] *= 1.5
    wrong = find_isomorphism(model, moved, digits_symmetry)
    assert not wrong and wrong.axis == "features.7" and wrong.error > 1e-3
    other = zoo.load_weights(zoo.build("digits-vgg"), zoo.checkpoint("digits-vgg", 1))
    assert not find_isomorphism(digits.model, other, digits_symmetry)


def test_automorphisms_are_the_planted_ones(digits: zoo.Source, digits_symmetry: Symmetry) -> None:
    model = copy.deepcopy(digits.model).double()
    assert automorphisms(model, digits_symmetry) == {}
    wide = widen(model, digits_symmetry, {"features.3": [*range(16), 4, 9, 4]})
    found = automorphisms(wide, trace(wide, digits.example[0].double()))
    assert found == {"features.3": [[4, 16, 18], [9, 17]]}


def test_moments_of_a_gaussian_layer_are_right() -> None:
    """Propagated moments against a million samples, on a net where the assumptions hold."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)).double()
    symmetry = trace(net, torch.zeros(1, 4).double())
    moments = propagate_moments(symmetry, symmetry.weights(net))
    relu = next(m for name, m in moments.items() if "relu" in name)
    with torch.no_grad():
        samples = torch.relu(net[0](torch.randn(400_000, 4).double()))
    torch.testing.assert_close(relu.mean, samples.mean(0), atol=5e-3, rtol=0)
    torch.testing.assert_close(relu.cov, torch.cov(samples.T), atol=5e-3, rtol=0)


def test_magnitude_is_worse_than_the_default(digits: zoo.Source, digits_symmetry: Symmetry) -> None:
    """A control on the measure of quality: the default is not merely any choice of channels."""
    from intertwine.data import evaluate, load_data

    data = load_data("digits")
    scores = {}
    for method in ("moments", "magnitude"):
        plan = plan_merge(digits.model, digits_symmetry, method=method, target_params=0.5, check=False)
        scores[method] = evaluate(apply_merge(digits.model, plan), data).accuracy
    assert scores["moments"] > 0.95 > scores["magnitude"]
    assert np.isfinite(list(scores.values())).all()


def test_keyword_inputs() -> None:
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.l, self.o = nn.Linear(5, 6), nn.Linear(6, 2)

        def forward(self, *, gate: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return self.o(torch.relu(self.l(x)) * gate[:, None])

    model, inputs = Gated(), {"x": torch.randn(3, 5), "gate": torch.rand(3)}
    plan = plan_merge(model, trace(model, inputs), target_params=0.6)
    small = apply_merge(model, plan)
    assert small.l.out_features < 6 and small(**inputs).shape == (3, 2)


@pytest.mark.filterwarnings("ignore:Initializing zero-element")
def test_a_layer_of_width_zero_is_read_and_left_alone() -> None:
    class Beside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.l, self.nothing, self.o = nn.Linear(5, 6), nn.Linear(5, 0), nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.o(torch.cat([torch.relu(self.l(x)), self.nothing(x)], -1))

    model, x = Beside(), torch.randn(3, 5)
    plan = plan_merge(model, trace(model, x), target_params=0.6)
    small = apply_merge(model, plan)
    assert small.l.out_features < 6 and small.nothing.out_features == 0 and small(x).shape == (3, 2)
