"""An ONNX file as a model: converted, checked, merged; what cannot be read is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import intertwine
from intertwine.errors import ModelError, Unsupported
from intertwine.zoo import resolve

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnx2torch")


def write(path: Path, last: str = "Gemm", **attributes: Any) -> Path:
    """conv, relu, global pool, linear; the batch is free."""
    helper, real = onnx.helper, onnx.TensorProto.FLOAT
    draw = np.random.default_rng(0)
    shapes = {"k": (6, 3, 3, 3), "kb": (6,), "w": (4, 6), "b": (4,)}
    stored = [
        onnx.numpy_helper.from_array(draw.standard_normal(shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "k", "kb"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node(last, ["f", "w", "b"] if last == "Gemm" else ["f"], ["y"], **attributes),
    ]
    inputs = [helper.make_tensor_value_info("x", real, ["batch", 3, 8, 8])]
    outputs = [helper.make_tensor_value_info("y", real, ["batch", "answers"])]
    graph = helper.make_graph(nodes, "net", inputs, outputs, stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 10
    onnx.save(model, str(path))
    return path


def test_a_graph_is_a_model(tmp_path: Path) -> None:
    source = resolve(str(write(tmp_path / "net.onnx", transB=1)))
    assert [tuple(x.shape) for x in source.example] == [(2, 3, 8, 8)]
    symmetry = intertwine.trace(source.model, source.example)
    assert symmetry.proof is not None and symmetry.proof.max_error < 1e-10
    assert [(a.size, str(a.group)) for a in symmetry.axes if not a.frozen_because] == [
        (6, "positive monomial")
    ]
    small = intertwine.merge(source.model, source.example, symmetry=symmetry, target_params=0.8).model
    assert small(torch.zeros(5, 3, 8, 8)).shape == (5, 4)


def test_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="missing"):
        resolve(str(tmp_path / "missing.onnx"))
    (tmp_path / "bad.onnx").write_bytes(b"no protobuf at all")
    with pytest.raises(ModelError, match="no valid ONNX file"):
        resolve(str(tmp_path / "bad.onnx"))
    with pytest.raises(Unsupported, match="onnx2torch cannot convert"):
        resolve(str(write(tmp_path / "odd.onnx", last="Det")))
