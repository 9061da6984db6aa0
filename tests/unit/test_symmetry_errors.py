"""Bad input: a clear error that says what, where, so what, and what to do."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from intertwine import act, merge, trace, verify
from intertwine.errors import ExportFailed, InputError, ModelError, NotFound


def mlp(width: int = 8) -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, 2))


X = torch.zeros(4, 3)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_that_are_not_finite(bad: float) -> None:
    model = mlp()
    with torch.no_grad():
        model[2].bias[1] = bad
    with pytest.raises(ModelError, match=r"2\.bias holds NaN or infinite values") as caught:
        trace(model, X)
    assert "so   no symmetry of this model can be verified" in str(caught.value)
    assert caught.value.exit_code == 2


class Masked(nn.Module):
    """One head of attention with its causal mask of -inf as a buffer."""

    def __init__(self, future: float) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Linear(3, 6), nn.Linear(3, 6), nn.Linear(3, 5)
        self.out = nn.Linear(5, 2)
        self.register_buffer("mask", torch.full((4, 4), future).triu(1))

    def forward(self, x: Tensor) -> Tensor:
        scores = self.query(x) @ self.key(x).mT + self.mask
        out: Tensor = self.out(scores.softmax(-1) @ self.value(x))
        return out


def test_a_mask_of_infinities_is_no_broken_weight() -> None:
    report = verify(Masked(float("-inf")), torch.randn(2, 4, 3))
    assert report.exact and report.parameter_coverage > 0.9
    with pytest.raises(ModelError, match="mask holds NaN"):
        trace(Masked(float("nan")), torch.randn(2, 4, 3))


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors is a no-op")  # that is the point here
def test_a_layer_of_width_zero() -> None:
    """Weights without entries have nothing that moves; all else is inferred as if they were not there."""
    assert not [axis for axis in trace(mlp(0), X).axes if axis.group.name != "trivial"]
    with_empty, without = (verify(Tokens(n), torch.randn(2, 4, 5)) for n in (0, None))
    assert with_empty.exact and with_empty.parameter_coverage == without.parameter_coverage > 0.5
    assert with_empty.unused_parameters == ("more",)


class Tokens(nn.Module):
    """A token before the rows, and `count` others, which may be none."""

    def __init__(self, count: int | None) -> None:
        super().__init__()
        self.first, self.more = nn.Parameter(torch.randn(1, 1, 6)), None
        if count is not None:
            self.more = nn.Parameter(torch.randn(1, count, 6))
        self.a, self.b, self.norm = nn.Linear(5, 6), nn.Linear(6, 3), nn.LayerNorm(6)

    def forward(self, x: Tensor) -> Tensor:
        tokens = [t.expand(len(x), -1, -1) for t in (self.first, self.more) if t is not None]
        return self.b(self.norm(torch.cat([*tokens, self.a(x)], 1)).relu())


def test_a_module_that_contains_itself() -> None:
    model = mlp()
    model[2].parent = model
    with pytest.raises(ModelError, match="Sequential contains itself"):
        trace(model, X)


def test_something_that_is_not_a_model() -> None:
    with pytest.raises(ModelError, match=r"expected a torch\.nn\.Module, got function"):
        trace(lambda x: x, X)  # type: ignore[arg-type]


def test_an_input_of_the_wrong_shape() -> None:
    with pytest.raises(ModelError, match="the model does not run on the example") as caught:
        trace(mlp(), torch.zeros(4, 5))
    assert "Sequential, example (float32[4, 5])" in str(caught.value)
    assert "do   give an example that fits" in str(caught.value)


class DataDependent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = mlp()

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x) if bool(x.sum() > 0) else self.net(-x)


def test_a_model_that_cannot_be_exported() -> None:
    with pytest.raises(ExportFailed, match=r"torch\.export cannot trace the model") as caught:
        trace(DataDependent(), X)
    assert "do   remove data-dependent control flow from forward, or trace a submodule" in str(caught.value)
    assert caught.value.exit_code == 3


class Unknown(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(3, 6), nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        values = torch.linalg.eigvalsh(first.unsqueeze(1) * first[..., None])
        return self.last(torch.relu(self.second(values)))


def test_an_unknown_op_freezes_with_the_reason() -> None:
    model, x = Unknown(), torch.randn(4, 3)
    symmetry = trace(model, x)
    (op,) = symmetry.unknown_ops
    assert "eig" in op
    frozen = symmetry.axis("first")
    assert frozen.group.name == "trivial" and frozen.frozen_because.startswith(f"no rule for {op} at ")
    assert symmetry.axis("second").group.name == "positive monomial"
    report = verify(model, x, symmetry=symmetry)
    assert report.exact and op in report.unknown_ops and report.frozen["first"] == frozen.frozen_because
    assert f"frozen: no rule for {op}" in symmetry.explain("first")


def test_a_model_of_another_architecture() -> None:
    symmetry = trace(mlp(8), X)
    with pytest.raises(InputError, match=r"0\.weight has shape \(9, 3\), the traced model has \(8, 3\)"):
        symmetry.weights(mlp(9))
    with pytest.raises(InputError, match=r"the model has no weight '0\.weight'"):
        act(nn.Linear(3, 2), symmetry.sample(0))


def test_elements_of_two_models_do_not_mix() -> None:
    with pytest.raises(InputError, match="the two elements belong to different models"):
        trace(mlp(), X).sample(0) @ trace(mlp(), X).sample(0)


def test_names_and_parts_that_do_not_exist() -> None:
    symmetry = trace(mlp(), X)
    with pytest.raises(NotFound, match="no axis named 'conv9'"):
        symmetry.axis("conv9")
    with pytest.raises(NotFound, match=r"no axis matches 'layer\*'"):
        symmetry.matching("layer*")
    with pytest.raises(InputError, match="unknown part 'scales'"):
        symmetry.sample(0, parts=("scales",))


def test_a_file_that_is_no_element(tmp_path: Path) -> None:
    symmetry = trace(mlp(), X)
    with pytest.raises(InputError, match="no such file"):
        symmetry.load(tmp_path / "missing.safetensors")
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(b"not a safetensors file")
    with pytest.raises(InputError, match="is not a saved group element"):
        symmetry.load(bad)
    os.mkfifo(tmp_path / "pipe.safetensors")
    with pytest.raises(InputError, match="is a pipe"):
        symmetry.load(tmp_path / "pipe.safetensors")


def test_a_file_whose_numbers_are_no_element(tmp_path: Path) -> None:
    symmetry = trace(mlp(), X)
    g, path = symmetry.sample(0), tmp_path / "g.safetensors"
    other = np.roll(g.relabel, 1)  # a permutation, but not one that keeps layers apart
    for changed in (
        replace(g, relabel=other),
        replace(g, log_scale=g.log_scale + 400),
        replace(g, sign=2 * g.sign),
    ):
        changed.save(path)
        with pytest.raises(InputError, match="is not a group element"):
            symmetry.load(path)


def test_an_element_saved_for_another_model(tmp_path: Path) -> None:
    path = tmp_path / "g.safetensors"
    trace(mlp(8), X).sample(0).save(path)
    with pytest.raises(InputError, match="was saved for another model") as caught:
        trace(mlp(9), X).load(path)
    assert "do   load it with the Symmetry of the model it was sampled from" in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["g.safetensors"], "nothing half-written is left behind"


def test_an_element_is_loaded_by_the_same_architecture_traced_again(tmp_path: Path) -> None:
    path, model, x = tmp_path / "g.safetensors", mlp(), torch.randn(4, 3)
    g = trace(model, x).sample(0)
    g.save(path)
    again = trace(mlp(), x).load(path)
    assert torch.equal(act(model, again)[0].weight, act(model, g)[0].weight)


class Shared(nn.Module):
    """Two buffers over one memory, on two axes that move on their own."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(3, 6), nn.Linear(3, 6)
        self.out_left, self.out_right = nn.Linear(6, 2), nn.Linear(6, 2)
        both = torch.randn(9)
        self.register_buffer("p", both[:6])
        self.register_buffer("q", both[3:])

    def forward(self, x: Tensor) -> Tensor:
        left = self.out_left(nn.functional.gelu(self.left(x) + self.p))
        return left + self.out_right(nn.functional.gelu(self.right(x) + self.q))


def test_buffers_that_overlap_in_memory_are_not_written_twice() -> None:
    model, x = Shared().double(), torch.randn(4, 3, dtype=torch.float64)
    model.p, model.q = (both := torch.randn(9, dtype=torch.float64))[:6], both[3:]
    moved = act(model, trace(model, x).sample(0))
    assert torch.allclose(moved(x), model(x), atol=1e-10)


def test_data_without_all_that_forward_takes_say_what_to_do() -> None:
    """As text is for an encoder with a decoder, which also reads what it is to write."""

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.out = nn.Linear(3, 6), nn.Linear(3, 6), nn.Linear(6, 2)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            out: Tensor = self.out((self.one(x) + self.two(y)).relu())
            return out

    x = torch.zeros(2, 3)
    assert merge(Pair(), (x, x), target_params=0.8).model.out.in_features < 6
    with pytest.raises(ModelError, match="does not run on the data") as caught:
        merge(Pair(), (x, x), target_params=0.8, repair="data", train_data=[x])
    assert "leave the data out" in caught.value.do
