"""An ONNX file as a model: every operator against onnxruntime, merged, loaded elsewhere; refusals."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import intertwine
from intertwine.cli.program import main
from intertwine.errors import InputError, ModelError, Unsupported
from intertwine.merging.deploy import exporting
from intertwine.zoo import resolve, save_model
from intertwine.zoo.onnx_file import OnnxModule, load_onnx
from intertwine.zoo.onnx_ops import OPERATORS

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

REAL = np.random.default_rng(0)


def real(*shape: int) -> Any:
    return REAL.standard_normal(shape).astype(np.float32)


def whole(*values: int) -> Any:
    return np.array(values, np.int64)


def write(
    path: Path, nodes: list[tuple[str, list[str], list[str], dict[str, Any]]], stored: dict[str, Any],
    rank: int = 2, opset: int = 18,
) -> Path:  # fmt: skip
    """A graph of x."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node(op, inputs, made, **attributes) for op, inputs, made, attributes in nodes],
        "net",
        [helper.make_tensor_value_info("x", kind, ["batch", 4, 6, 6])],
        [helper.make_tensor_value_info("y", kind, [f"d{n}" for n in range(rank)])],
        [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in stored.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 10
    onnx.save(model, str(path))
    return path


def small_net(path: Path, opset: int = 18) -> Path:
    """conv, relu, a mean over positions, a reshape that writes the width down, linear."""
    axes = {"axes": [2, 3]} if opset < 18 else {}
    nodes = [
        ("Conv", ["x", "body.0.weight", "body.0.bias"], ["c"], {"pads": [1, 1, 1, 1]}),
        ("Relu", ["c"], ["r"], {}),
        ("ReduceMean", ["r"] if opset < 18 else ["r", "over"], ["m"], {"keepdims": 1, **axes}),
        ("Reshape", ["m", "shape"], ["f"], {}),
        ("Gemm", ["f", "head.weight", "head.bias"], ["y"], {"transB": 1}),
    ]
    stored = {"body.0.weight": real(6, 4, 3, 3), "body.0.bias": real(6), "shape": whole(-1, 6)}
    stored |= {"head.weight": real(3, 6), "head.bias": real(3)}
    return write(path, nodes, stored | ({} if opset < 18 else {"over": whole(2, 3)}), opset=opset)


@pytest.mark.parametrize("opset", [18, 13])
def test_a_graph_is_a_model(tmp_path: Path, opset: int) -> None:
    source = resolve(str(small_net(tmp_path / "net.onnx", opset)))
    assert [tuple(x.shape) for x in source.example] == [(2, 4, 6, 6)]
    names = {"body.0.weight", "body.0.bias", "head.weight", "head.bias"}
    assert {name for name, _ in source.model.named_parameters()} == names
    symmetry = intertwine.trace(source.model, source.example)
    assert symmetry.proof is not None and symmetry.proof.max_error < 1e-10
    assert [str(a.group) for a in symmetry.axes if not a.frozen_because] == ["positive monomial"]


def test_merged_and_loaded_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The width that the Reshape writes down does not stop it; the recipe knows where the file is."""
    monkeypatch.chdir(tmp_path)
    small_net(tmp_path / "net.onnx")
    source = resolve("net.onnx")
    small = intertwine.merge(source.model, source.example, target_params=0.7).model
    assert small(torch.zeros(5, 4, 6, 6)).shape == (5, 3)
    save_model(small, source, "small")
    (tmp_path / "elsewhere").mkdir()
    os.chdir(tmp_path / "elsewhere")
    again = intertwine.load(tmp_path / "small")
    assert torch.equal(again(source.example[0]), small(source.example[0]))
    small_net(tmp_path / "net.onnx")  # other weights: not the file that was merged
    with pytest.warns(UserWarning, match="has changed since"):
        intertwine.load(tmp_path / "small")
    (tmp_path / "net.onnx").unlink()
    with pytest.raises(ModelError, match=r"is not at.*net\.onnx"):
        intertwine.load(tmp_path / "small")
    with exporting(small, source.example, {}, tmp_path / "small", "torch") as found:
        pass
    assert found.batches == (2, 1, 3)


X = ["x"]
A = {"a": real(4, 1, 1)}
SHAPES: dict[str, tuple[list[str], dict[str, Any], dict[str, Any]]] = {
    "Conv": (["x", "w", "b"], {"w": real(6, 2, 3, 3), "b": real(6)}, {"group": 2, "auto_pad": "SAME_LOWER"}),
    "ConvTranspose": (["x", "w", "b"], {"w": real(4, 3, 3, 3), "b": real(3)}, {"strides": [2, 2]}),
    "MatMul": (["x", "w"], {"w": real(6, 5)}, {}),
    "MaxPool": (X, {}, {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    "AveragePool": (X, {}, {"kernel_shape": [2, 2], "pads": [1, 1, 1, 1]}),
    "BatchNormalization": (
        ["x", "g", "h", "m", "v"],
        {"g": real(4), "h": real(4), "m": real(4), "v": np.abs(real(4)) + 1},
        {"epsilon": 1e-3},
    ),
    "LayerNormalization": (["x", "g", "h"], {"g": real(6, 6), "h": real(6, 6)}, {"axis": 2}),
    "GroupNormalization": (["x", "g", "h"], {"g": real(4), "h": real(4)}, {"num_groups": 2}),
    "InstanceNormalization": (["x", "g", "h"], {"g": real(4), "h": real(4)}, {}),
    "Pow": (["x", "n"], {"n": np.float32(2)}, {}),
    "Sub": (["n", "x"], {"n": np.float32(0.5)}, {}),
    "PRelu": (["x", "a"], A, {}),
    "Clip": (["x", "low"], {"low": np.float32(-0.3)}, {}),
    "HardSigmoid": (X, {}, {"alpha": 0.3}),
    "LeakyRelu": (X, {}, {"alpha": 0.2}),
    "Softmax": (X, {}, {"axis": 1}),
    "Reshape": (["x", "s"], {"s": whole(0, 2, 2, -1)}, {}),
    "Flatten": (X, {}, {"axis": 2}),
    "Unsqueeze": (["x", "s"], {"s": whole(0, -1)}, {}),
    "Transpose": (X, {}, {"perm": [0, 2, 3, 1]}),
    "Split": (["x", "s"], {"s": whole(1, 3)}, {"axis": 1}),
    "Slice": (["x", "s", "e", "d", "t"], {"s": whole(1), "e": whole(99), "d": whole(-1), "t": whole(2)}, {}),
    "Gather": (["x", "s"], {"s": whole(2, 0)}, {"axis": 1}),
    "Pad": (["x", "s", "v"], {"s": whole(0, 0, 1, 2, 0, 0, 0, 1), "v": np.float32(0.5)}, {}),
    "Expand": (["x", "s"], {"s": whole(2, 4, 6, 6)}, {}),
    "Resize": (["x", "", "s"], {"s": np.float32([1, 1, 2, 2])}, {"mode": "linear"}),
    "Tile": (["x", "s"], {"s": whole(1, 2, 1, 1)}, {}),
    "Trilu": (["x", "s"], {"s": np.int64(1)}, {"upper": 0}),
    "Concat": (["x", "x"], {}, {"axis": 1}),
    "Einsum": (["x", "w"], {"w": real(4, 5)}, {"equation": "bchw,cd->bdhw"}),
    "Cast": (X, {}, {"to": 11}),
    "DepthToSpace": (X, {}, {"blocksize": 2, "mode": "CRD"}),
    "Gemm": (["f", "w", "c"], {"w": real(144, 5), "c": real(1, 5)}, {"alpha": 0.5, "beta": 2.0}),
    "Squeeze": (["u", "s"], {"s": whole(1)}, {}),
    "SpaceToDepth": (X, {}, {"blocksize": 2}),
    "GridSample": (["x", "g"], {"g": 0.8 * real(2, 3, 5, 2)}, {"padding_mode": "border"}),
    "LpNormalization": (X, {}, {"axis": 1, "p": 2}),
    "GatherND": (["x", "i"], {"i": np.array([[0, 1], [1, -1]])}, {}),
    "GatherElements": (["x", "i"], {"i": np.array([[[[0, -1, 2]]], [[[1, 1, 3]]]])}, {"axis": 3}),
    "ScatterND": (["x", "i", "u"], {"i": np.array([[0, 1], [1, -1]]), "u": real(2, 6, 6)}, {}),
    "ScatterElements": (["x", "i", "u"], {"i": np.array([[[[0, -1]]]]), "u": real(1, 1, 1, 2)}, {"axis": 3}),
    "CumSum": (["x", "n"], {"n": np.int64(1)}, {"exclusive": 1, "reverse": 1}),
    "TopK": (["x", "k"], {"k": whole(2)}, {"axis": 1}),
    "ArgMax": (X, {}, {"axis": 1}),
    "ArgMin": (X, {}, {"axis": -1, "keepdims": 0}),
    "Mod": (["x", "n"], {"n": np.float32(0.7)}, {"fmod": 1}),
}
OTHERS: dict[str, tuple[list[str], dict[str, Any], dict[str, Any]]] = {  # the same, said otherwise
    "DepthToSpace": (X, {}, {"blocksize": 2}),
    "Slice": (["x", "s", "e", "d", "t"], {"s": whole(-1), "e": whole(-9), "d": whole(2), "t": whole(-2)}, {}),
    "ScatterND": (
        ["x", "i", "u"],
        {"i": np.array([[0, 1], [0, 1]]), "u": real(2, 6, 6)},
        {"reduction": "add"},
    ),
    "CumSum": (["x", "n"], {"n": np.int64(-1)}, {}),
}
LOGICAL = {"Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"}
BOOLEAN = {"And", "Or", "Not", "Xor"}
ABOVE = {"Gelu": 20, "GroupNormalization": 21}


@pytest.mark.parametrize(
    ("name", "said"),
    [*((name, SHAPES.get(name, (X, {}, {}))) for name in sorted(OPERATORS)), *OTHERS.items()],
)
def test_an_operator_computes_what_onnxruntime_does(tmp_path: Path, name: str, said: Any) -> None:
    """`load_onnx` compares the two itself, and the module takes a batch of another size."""
    inputs, stored, attributes = said
    nodes: list[Any] = [(name, inputs, ["z"], attributes)]
    if name == "Gemm":
        nodes.insert(0, ("Flatten", X, ["f"], {}))
    elif name == "Squeeze":
        nodes.insert(0, ("Unsqueeze", ["x", "s"], ["u"], {}))
    elif name in {"Split", "TopK"}:
        nodes = [(name, inputs, ["q", "z"], attributes)]
    elif name in {"Add", "Mul", "Div", "Sum", "Min", "Max"}:
        nodes, stored = [(name, ["x", "a"], ["z"], {})], A
    elif name in {"Asin", "Acos", "Atanh"}:
        nodes = [("Tanh", X, ["u"], {}), (name, ["u"], ["z"], {})]
    elif name == "Acosh":
        nodes = [("Cosh", X, ["u"], {}), (name, ["u"], ["z"], {})]
    elif name == "IsNaN":
        nodes = [("Log", X, ["u"], {}), (name, ["u"], ["z"], {})]
    elif name in {"Sqrt", "Log"}:
        nodes = [("Abs", X, ["u"], {}), (name, ["u"], ["z"], {})]
    elif name in LOGICAL:
        nodes, stored = [(name, ["x", "a"], ["k"], {}), ("Cast", ["k"], ["z"], {"to": 1})], A
    elif name in BOOLEAN:
        both = ["k"] if name == "Not" else ["k", "l"]
        nodes = [("Greater", ["x", "a"], ["k"], {}), ("Less", ["x", "zero"], ["l"], {})]
        nodes += [(name, both, ["m"], {}), ("Cast", ["m"], ["z"], {"to": 1})]
        stored = A | {"zero": np.float32(0)}
    elif name == "Where":
        nodes = [("Greater", ["x", "a"], ["k"], {}), (name, ["k", "x", "a"], ["z"], {})]
        stored = A
    nodes += [("Cast", ["z"], ["r"], {"to": 1}), ("Flatten", ["r"], ["y"], {"axis": 0})]
    path = write(tmp_path / "net.onnx", nodes, dict(stored), opset=ABOVE.get(name, 18))
    module, (x,) = load_onnx(str(path))
    assert isinstance(module, OnnxModule) and any(step.operator == name for step in module.steps)
    if name not in {"Expand", "GridSample"}:  # to a batch that is written down
        rows = 1 if name.startswith(("Reduce", "Gather")) else 3
        assert module(torch.cat([x, x[:1]])).numel() % rows == 0


def test_sizes_are_computed_from_those_of_the_input(tmp_path: Path) -> None:
    """Shape, Gather, Concat, Reshape: what exporters write for view(len(x), -1)."""
    nodes: list[Any] = [
        ("Shape", X, ["s"], {}),
        ("Gather", ["s", "zero"], ["rows"], {"axis": 0}),
        ("Concat", ["rows", "rest"], ["shape"], {"axis": 0}),
        ("Reshape", ["x", "shape"], ["y"], {}),
    ]
    stored = {"zero": whole(0), "rest": whole(2, -1)}
    module, _ = load_onnx(str(write(tmp_path / "net.onnx", nodes, stored, 3)))
    assert module(torch.zeros(7, 4, 6, 6)).shape == (7, 2, 72)


def test_a_small_weight_that_is_reshaped_stays_a_weight(tmp_path: Path) -> None:
    """A bias of four numbers is no size, however few they are."""
    nodes: list[Any] = [("Unsqueeze", ["b", "over"], ["u"], {}), ("Add", ["x", "u"], ["y"], {})]
    module, (x,) = load_onnx(str(write(tmp_path / "net.onnx", nodes, {"b": real(4), "over": whole(1, 2)}, 4)))
    with torch.no_grad():
        before = module(x)
        module.b.add_(1)  # type: ignore[operator, union-attr]
        assert torch.allclose(module(x), before + 1, atol=1e-5)


def test_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="missing"):
        resolve(str(tmp_path / "missing.onnx"))
    (tmp_path / "bad.onnx").write_bytes(b"no protobuf at all")
    with pytest.raises(ModelError, match="no valid ONNX file"):
        resolve(str(tmp_path / "bad.onnx"))
    with pytest.raises(Unsupported, match="operators that are not known here: Det"):
        resolve(str(write(tmp_path / "odd.onnx", [("Det", X, ["y"], {})], {})))
    grown: list[Any] = [("ConstantOfShape", ["s"], ["c"], {}), ("Add", ["x", "c"], ["y"], {})]
    with pytest.raises((InputError, ModelError), match="ConstantOfShape"):
        resolve(str(write(tmp_path / "huge.onnx", grown, {"s": whole(10**9, 10**6)})))


def test_weights_beside_the_file_are_read_and_never_written(tmp_path: Path) -> None:
    """An output over them is refused; those outside of the folder are not opened."""
    path, stored = small_net(tmp_path / "net.onnx"), tmp_path / "w.bin"
    read = onnx.load(str(path))
    onnx.save_model(read, str(path), save_as_external_data=True, location=stored.name, size_threshold=0)
    before = stored.read_bytes()
    assert main(["inspect", str(path), "-o", str(stored)]) == 2 and stored.read_bytes() == before
    assert load_onnx(str(path))[0](torch.zeros(1, 4, 6, 6)).shape == (1, 3)
    (tmp_path / "inner").mkdir()
    for tensor in read.graph.initializer:
        for entry in tensor.external_data:
            entry.value = f"../{stored.name}" if entry.key == "location" else entry.value
    (tmp_path / "inner" / "net.onnx").write_bytes(read.SerializeToString())
    with pytest.raises(ModelError, match="no valid ONNX file"):
        load_onnx(str(tmp_path / "inner" / "net.onnx"))


GROWN = {
    "Resize": (["x", "", "", "s"], whole(2, 4, 40000, 40000), {"mode": "linear"}),
    "Tile": (["x", "s"], whole(1, 1, 20000, 20000), {}),
    "Expand": (["x", "s"], whole(10**7, 2, 4, 6, 6), {}),
    "Pad": (["x", "s"], whole(0, 0, 40000, 40000, 0, 0, 0, 0), {}),
}


@pytest.mark.parametrize("name", GROWN)
def test_what_no_memory_holds_is_refused_by_its_shape(tmp_path: Path, name: str) -> None:
    inputs, sizes, attributes = GROWN[name]
    nodes: list[Any] = [(name, inputs, ["z"], attributes), ("Relu", ["z"], ["y"], {})]
    path = write(tmp_path / "net.onnx", nodes, {"s": sizes}, 4)
    with pytest.raises(ModelError, match="what it computes would take"):
        load_onnx(str(path))
