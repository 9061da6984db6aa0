"""ONNX files that something is wrong with: sizes, graphs, tensors, and files that they point to."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Node = tuple[str, list[str], list[str], dict[str, Any]]
_ANY = ["a", "b", "c", "d"]


def _whole(*values: int) -> Any:
    return np.array(values, np.int64)


def model(nodes: Sequence[Any], stored: dict[str, Any], shape: Sequence[Any] = ("batch", 4, 6, 6)) -> Any:
    """A model of x that returns y."""
    import onnx

    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    made = [helper.make_node(n[0], n[1], n[2], **n[3]) if isinstance(n, tuple) else n for n in nodes]
    tensors = [
        each if isinstance(each, onnx.TensorProto) else onnx.numpy_helper.from_array(np.asarray(each), name)
        for name, each in stored.items()
    ]
    inputs = [helper.make_tensor_value_info("x", kind, shape)]
    graph = helper.make_graph(made, "net", inputs, [helper.make_tensor_value_info("y", kind, _ANY)], tensors)
    sets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    found = helper.make_model(graph, opset_imports=sets)
    found.ir_version = 10
    return found


def good() -> bytes:
    """A small network with sizes that it computes: what is mutated."""
    real = np.random.default_rng(0).standard_normal
    nodes: list[Node] = [
        ("Conv", ["x", "body.weight", "body.bias"], ["c"], {"pads": [1, 1, 1, 1]}),
        ("Relu", ["c"], ["r"], {}),
        ("Resize", ["r", "", "twice"], ["u"], {"mode": "linear"}),
        ("Shape", ["u"], ["s"], {}),
        ("Gather", ["s", "first"], ["rows"], {"axis": 0}),
        ("Concat", ["rows", "rest"], ["shape"], {"axis": 0}),
        ("Reshape", ["u", "shape"], ["f"], {}),
        ("MatMul", ["f", "head.weight"], ["y"], {}),
    ]
    stored = {"body.weight": real((3, 4, 3, 3)), "body.bias": real(3), "head.weight": real((144, 2))}
    return bytes(
        model(
            nodes,
            {name: each.astype(np.float32) for name, each in stored.items()}
            | {"twice": np.float32([1, 1, 2, 2]), "first": _whole(0), "rest": _whole(1, 3, -1)},
        ).SerializeToString()
    )


_RELU: Node = ("Relu", ["x"], ["y"], {})
_GROWN: dict[str, tuple[list[Node], dict[str, Any]]] = {
    "resize": (
        [("Resize", ["x", "", "", "s"], ["y"], {"mode": "linear"})],
        {"s": _whole(2, 4, 40000, 40000)},
    ),
    "expand": (
        [("Expand", ["x", "s"], ["e"], {}), ("Relu", ["e"], ["y"], {})],
        {"s": _whole(10**8, 2, 4, 6, 6)},
    ),
    "tile": ([("Tile", ["x", "s"], ["y"], {})], {"s": _whole(1, 1, 20000, 20000)}),
    "pad": ([("Conv", ["x", "w"], ["y"], {"pads": [40000] * 4})], {"w": np.ones((2, 4, 3, 3), np.float32)}),
    "doubled": (
        [("Concat", ["x", "x"], ["c0"], {"axis": 0})]
        + [("Concat", [f"c{n}"] * 2, [f"c{n + 1}"], {"axis": 0}) for n in range(40)]
        + [("Relu", ["c40"], ["y"], {})],
        {},
    ),
    "outer": (
        [("Mul", ["p", "q"], ["s"], {}), ("Reshape", ["x", "s"], ["y"], {})],
        {"p": np.ones((200000, 1), np.int64), "q": np.ones((1, 200000), np.int64)},
    ),
    "range": (
        [("Range", ["p", "q", "o"], ["s"], {}), ("Reshape", ["x", "s"], ["y"], {})],
        {"p": np.int64(0), "q": np.int64(10**13), "o": np.int64(1)},
    ),
    "random": ([("RandomNormal", [], ["r"], {"shape": [99999, 99999]}), ("Add", ["x", "r"], ["y"], {})], {}),
    "product": ([("MatMul", ["p", "p"], ["q"], {}), _RELU], {"p": np.ones((2, 2), np.int64)}),
}
_BROKEN: dict[str, tuple[list[Node], dict[str, Any]]] = {
    "cycle": ([("Add", ["x", "q"], ["p"], {}), ("Relu", ["p"], ["q"], {}), ("Relu", ["q"], ["y"], {})], {}),
    "missing": ([("MatMul", ["x", "nobody"], ["y"], {})], {}),
    "no-output": ([("Relu", ["x"], ["z"], {})], {}),
    "strings": ([_RELU], {"k": np.array(["a", "\x1b[2J"], object)}),
    "nan": ([("Mul", ["x", "k"], ["y"], {})], {"k": np.full((4, 6, 6), np.nan, np.float32)}),
    "empty": ([("Add", ["x", "k"], ["y"], {})], {"k": np.zeros((0, 6), np.float32)}),
    "kind": ([("Add", ["x", "k"], ["y"], {})], {"k": np.ones((6, 6), np.complex64)}),
    "stride": ([("Conv", ["x", "w"], ["y"], {"strides": [0, 0]})], {"w": np.ones((2, 4, 3, 3), np.float32)}),
    "scale": ([("Resize", ["x", "", "s"], ["y"], {"mode": "linear"})], {"s": np.float32([1, 1, np.nan, -1])}),
    "cast": ([("Cast", ["x"], ["y"], {"to": 99})], {}),
    "operator": ([("\x1b[31mEvil", ["x"], ["y"], {})], {}),
}
_SHAPES: dict[str, list[int]] = {"huge": [2, 10**6, 10**6], "negative": [-1, -5], "most": [2**62, 2**62]}
_PLACES = (
    "/etc/passwd",
    "../../../../../../etc/passwd",
    "link",
    "pipe",
    ".",
    "",
    "gone",
    "w.bin\x1b",
    "/dev/zero",
)


def files(folder: Path) -> Iterator[Path]:
    """Each of them in a file."""
    folder.mkdir(parents=True, exist_ok=True)
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to("/etc/passwd")
    for name, written in _written():
        path = folder / f"{name}.onnx"
        path.write_bytes(written if isinstance(written, bytes) else written.SerializeToString())
        yield path


def _written() -> Iterator[tuple[str, Any]]:
    import onnx

    helper = onnx.helper
    yield from ((name, model(*each)) for name, each in {**_GROWN, **_BROKEN}.items())
    yield from ((f"input-{name}", model([_RELU], {}, shape)) for name, shape in _SHAPES.items())
    for number, place in enumerate(_PLACES):
        elsewhere = onnx.TensorProto(name="w", data_type=1, dims=[4, 6, 6], data_location=1)
        elsewhere.external_data.add(key="location", value=place)
        yield f"elsewhere-{number}", model([("Add", ["x", "w"], ["y"], {})], {"w": elsewhere})
    long = onnx.TensorProto(name="w", data_type=1, dims=[10**6, 10**6], raw_data=b"1234")
    yield "short", model([("Add", ["x", "w"], ["y"], {})], {"w": long})
    sparse = model([("Add", ["x", "w"], ["y"], {})], {})
    value = onnx.numpy_helper.from_array(np.ones(1, np.float32), "w")
    index = onnx.numpy_helper.from_array(_whole(5), "i")
    sparse.graph.sparse_initializer.append(helper.make_sparse_tensor(value, index, [10**9, 10**9]))
    yield "sparse", sparse
    sets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    for name, called in (("itself", ["f0"]), ("laughs", [f"f{n + 1}" for n in range(40)])):
        calling = model([helper.make_node("f0", ["x"], ["y"], domain="own")], {})
        for number, callee in enumerate(called):
            twice = [helper.make_node(callee, [a], [b], domain="own") for a, b in (("a", "m"), ("m", "b"))]
            calling.functions.append(helper.make_function("own", f"f{number}", ["a"], ["b"], twice, sets))
        relu = [helper.make_node("Relu", ["a"], ["b"])]
        calling.functions.append(helper.make_function("own", f"f{len(called)}", ["a"], ["b"], relu, sets))
        yield name, calling
    inner = model([_RELU], {}).graph
    branch = helper.make_node("If", ["k"], ["y"], then_branch=inner, else_branch=inner)
    yield "branches", model([branch], {"k": np.bool_(True)})
    deep = b""
    for _ in range(1000):  # a graph in a node in a graph ...
        attribute = b"\x0a\x01g" + _field(6, deep) + b"\xa0\x01\x05"
        deep = _field(1, b"\x22\x02If" + _field(5, attribute))
    yield "deep", b"\x08\x0a" + _field(7, deep) + b"\x42\x04\x0a\x00\x10\x12"
    yield from (("void", b""), ("zeros", bytes(500)), ("cut", good()[:-50]))


def _field(number: int, content: bytes) -> bytes:
    """A field of protobuf that holds bytes."""
    length, left = b"", len(content)
    while left > 127:
        length, left = length + bytes([left & 127 | 128]), left >> 7
    return bytes([number << 3 | 2]) + length + bytes([left]) + content
