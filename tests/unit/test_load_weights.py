"""Weights files: everything that should load does, everything bad is refused and changes nothing."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from intertwine import zoo
from intertwine.errors import InputError, WeightsError


def net(width: int = 4) -> nn.Module:
    return nn.Sequential(nn.Linear(3, width), nn.BatchNorm1d(width), nn.Linear(width, 2)).eval()


def clone(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {k: v.clone() for k, v in state.items()}


def assert_refused(model: nn.Module, path: Path, *says: str) -> None:
    """The error says all of it, and the model is as it was."""
    before = clone(model.state_dict())
    with pytest.raises(WeightsError) as info:
        zoo.load_weights(model, path)
    assert all(text in str(info.value) for text in says), str(info.value)
    assert all(before[k].equal(v) for k, v in model.state_dict().items())


def assert_loads(source: nn.Module, path: Path) -> None:
    target = net()
    assert not target[0].weight.equal(source[0].weight)  # type: ignore[index, operator, arg-type]
    assert zoo.load_weights(target, path) is target
    for name, value in source.state_dict().items():
        assert torch.allclose(target.state_dict()[name].double(), value.double(), atol=1e-3), name


def test_safetensors_round_trip(tmp_path: Path) -> None:
    model = net()
    path = zoo.save_weights(model, tmp_path / "w.safetensors")
    assert_loads(model, path)
    assert [p.name for p in tmp_path.iterdir()] == ["w.safetensors"]


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".th", ".bin"])
def test_pickled_state_dicts(tmp_path: Path, suffix: str) -> None:
    model = net()
    torch.save(model.state_dict(), tmp_path / f"w{suffix}")
    assert_loads(model, tmp_path / f"w{suffix}")


@pytest.mark.parametrize("wrapper", ["state_dict", "model", "model_state_dict", "net"])
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "module._orig_mod.", "model."])
def test_wrapped_state_dicts(tmp_path: Path, wrapper: str, prefix: str) -> None:
    model = net()
    inner = {prefix + k: v for k, v in model.state_dict().items()}
    torch.save({wrapper: inner, "epoch": 7, "optimizer": {"lr": 0.1}}, tmp_path / "w.pt")
    assert_loads(model, tmp_path / "w.pt")


def test_a_prefix_that_belongs_to_the_model_stays(tmp_path: Path) -> None:
    model = nn.ModuleDict({"module": nn.Linear(2, 2)})
    path = zoo.save_weights(model, tmp_path / "w.safetensors")
    zoo.load_weights(nn.ModuleDict({"module": nn.Linear(2, 2)}), path)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_load_into_float32(tmp_path: Path, dtype: torch.dtype) -> None:
    model = net()
    state = {k: v.to(dtype) if v.is_floating_point() else v for k, v in model.state_dict().items()}
    save_file(state, tmp_path / "w.safetensors")
    target = zoo.load_weights(net(), tmp_path / "w.safetensors")
    assert target[0].weight.dtype is torch.float32
    assert target[0].weight.equal(state["0.weight"].float())


def test_num_batches_tracked_may_be_absent(tmp_path: Path) -> None:
    model = net()
    state = {k: v for k, v in model.state_dict().items() if "num_batches" not in k}
    save_file(state, tmp_path / "w.safetensors")
    assert_loads(model, tmp_path / "w.safetensors")


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.out = nn.Linear(3, 5, bias=False)
        self.out.weight = self.embed.weight


def test_tied_tensors_save_under_each_name_and_load_from_one(tmp_path: Path) -> None:
    model = Tied()
    path = zoo.save_weights(model, tmp_path / "both.safetensors")
    assert set(zoo.read_weights(path)) == {"embed.weight", "out.weight"}
    save_file({"embed.weight": model.embed.weight.detach()}, tmp_path / "one.safetensors")
    for file in ("both", "one"):
        target = zoo.load_weights(Tied(), tmp_path / f"{file}.safetensors")
        assert target.out.weight is target.embed.weight
        assert target.out.weight.equal(model.out.weight)


def test_views_save(tmp_path: Path) -> None:
    base = torch.arange(12.0).view(3, 4)
    path = zoo.save_weights({"a": base.t(), "b": base[1:]}, tmp_path / "w.safetensors")
    assert zoo.read_weights(path)["a"].equal(base.t())
    assert zoo.read_weights(path)["b"].equal(base[1:])


def test_mismatch_lists_missing_unexpected_and_wrong_shapes(tmp_path: Path) -> None:
    state = clone(net(width=5).state_dict())
    del state["2.bias"]
    state["3.weight"] = torch.zeros(1)
    save_file(state, tmp_path / "w.safetensors")
    assert_refused(
        net(),
        tmp_path / "w.safetensors",
        "missing (1): 2.bias",
        "unexpected (1): 3.weight",
        "0.weight 5x3 in the file, 4x3 in the model",
        "nothing was loaded",
    )


def test_integer_weights_do_not_pass_for_floats(tmp_path: Path) -> None:
    state = clone(net().state_dict())
    state["2.bias"] = torch.zeros(2, dtype=torch.int64)
    save_file(state, tmp_path / "w.safetensors")
    assert_refused(net(), tmp_path / "w.safetensors", "2.bias torch.int64 in the file")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("name", ["0.weight", "1.running_var"])
def test_non_finite_weights_are_refused(tmp_path: Path, value: float, name: str) -> None:
    state = clone(net().state_dict())
    state[name].view(-1)[0] = value
    save_file(state, tmp_path / "w.safetensors")
    assert_refused(net(), tmp_path / "w.safetensors", "NaN or infinite", f"{name} (1 of ")


def test_overflow_in_the_models_dtype_is_refused(tmp_path: Path) -> None:
    state = clone(net().state_dict())
    state["0.weight"][0, 0] = 1e30
    save_file(state, tmp_path / "w.safetensors")
    assert_refused(net().half(), tmp_path / "w.safetensors", "infinite")


def test_infinities_of_the_models_own_mask_pass(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    model.register_buffer("mask", torch.tensor([0.0, float("-inf")]))
    zoo.load_weights(model, zoo.save_weights(model, tmp_path / "w.safetensors"))


class Payload:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("zipped", [True, False])
def test_pickles_with_code_are_refused_and_not_run(tmp_path: Path, zipped: bool) -> None:
    marker, path = tmp_path / "ran", tmp_path / "w.pt"
    if zipped:
        torch.save({"state_dict": Payload(marker)}, path)
    else:
        path.write_bytes(pickle.dumps({"state_dict": Payload(marker)}))
    assert_refused(net(), path, "nothing was loaded or run")
    assert not marker.exists()


def test_whole_pickled_modules_are_refused(tmp_path: Path) -> None:
    torch.save(net(), tmp_path / "w.pt")
    assert_refused(net(), tmp_path / "w.pt", "torch.nn.modules", "state_dict")


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
@pytest.mark.parametrize("content", [b"", b"garbage that is no file format at all", b"\xff" * 64])
def test_corrupt_files(tmp_path: Path, suffix: str, content: bytes) -> None:
    path = tmp_path / f"w{suffix}"
    path.write_bytes(content)
    assert_refused(net(), path, "cannot read", "nothing was loaded")


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_truncated_files(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"w{suffix}"
    if suffix == ".pt":
        torch.save(net().state_dict(), path)
    else:
        zoo.save_weights(net(), path)
    path.write_bytes(path.read_bytes()[:-40])
    assert_refused(net(), path, "cannot read")


@pytest.mark.parametrize("content", [[1, 2], {"epoch": 3}, {}, 7])
def test_files_without_weights(tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / "w.pt")
    assert_refused(net(), tmp_path / "w.pt", "holds no weights")


def test_missing_file_folder_and_unknown_kind(tmp_path: Path) -> None:
    assert_refused(net(), tmp_path / "nothing.safetensors", "no such file", "nothing.safetensors")
    assert_refused(net(), tmp_path, "folder")
    (tmp_path / "w.onnx").write_bytes(b"x")
    assert_refused(net(), tmp_path / "w.onnx", ".safetensors")


def test_saving_where_it_cannot_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot write"):
        zoo.save_weights(net(), tmp_path / "no" / "such" / "folder.safetensors")
    target = tmp_path / "folder.safetensors"
    target.mkdir()
    with pytest.raises(InputError, match="cannot write"):
        zoo.save_weights(net(), target)
    assert [p.name for p in tmp_path.iterdir()] == ["folder.safetensors"]
