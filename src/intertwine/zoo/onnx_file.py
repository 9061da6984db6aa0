"""`path/to/file.onnx` as a model: read by onnx, converted by onnx2torch; nothing in it is run as code.

The converted module must compute what the file says: it is held against onnxruntime where that is installed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from intertwine.errors import MissingExtra, ModelError, Unsupported
from intertwine.reading import existing_file
from intertwine.text import first_line, quoted
from intertwine.vision_shim import prepare

BATCH = 2
_TOLERANCE = 1e-4
_INDICES = 8  # whole-number inputs are indices into tables of unknown length
_KINDS = {1: torch.float32, 7: torch.int64, 9: torch.bool, 11: torch.float64}  # of onnx.TensorProto


def load_onnx(spec: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The module and an example of its inputs; dimensions without a number are a batch of 2."""
    path = existing_file(spec, "ONNX file", ModelError)
    onnx, convert = _libraries()
    try:
        read = onnx.load(str(path))
        onnx.checker.check_model(read)
    except Exception as error:  # protobuf's, or the checker's
        raise ModelError(f"{quoted(str(path))} is no valid ONNX file: {first_line(error)}") from error
    example = tuple(_example(value, path) for value in _inputs(read))
    try:
        module: nn.Module = convert(read).eval()
    except Exception as error:  # an operator that it does not know, in words of its own
        raise Unsupported(
            f"onnx2torch cannot convert {quoted(str(path))}: {first_line(error)}",
            do="give the PyTorch model that the file was made of, as path/to/file.py:factory",
        ) from error
    for parameter in module.parameters():
        parameter.requires_grad_(parameter.is_floating_point())
    _check_equal(module, example, read, path)
    return module, example


def _libraries() -> tuple[Any, Any]:
    prepare()  # onnx2torch imports torchvision
    try:
        import onnx
        from onnx2torch import convert
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"an ONNX file is read by onnx and onnx2torch, and {error.name} is not installed",
            do='pip install "intertwine[onnx-in]"',
        ) from error
    return onnx, convert


def _inputs(read: Any) -> list[Any]:
    """Inputs of the graph that no stored tensor gives."""
    stored = {tensor.name for tensor in read.graph.initializer}
    return [value for value in read.graph.input if value.name not in stored]


def _example(value: Any, path: Path) -> Tensor:
    kind = value.type.tensor_type
    dtype = _KINDS.get(kind.elem_type)
    if dtype is None:
        raise Unsupported(f"the input {quoted(value.name)} of {path} is neither real nor whole numbers")
    shape = [size.dim_value or BATCH for size in kind.shape.dim]
    if dtype.is_floating_point:
        return torch.randn(shape, dtype=dtype)
    return torch.randint(0, 2 if dtype is torch.bool else _INDICES, shape).to(dtype)


def _check_equal(module: nn.Module, example: tuple[Tensor, ...], read: Any, path: Path) -> None:
    """Refuse a conversion that computes something else; nothing is checked without onnxruntime."""
    try:
        import onnxruntime
    except ModuleNotFoundError:
        return
    try:
        session = onnxruntime.InferenceSession(read.SerializeToString())
        named = {v.name: x.numpy() for v, x in zip(_inputs(read), example, strict=True)}
        expected = [torch.from_numpy(each) for each in session.run(None, named)]
        with torch.no_grad():
            found = module(*example)
    except Exception as error:  # sizes that do not fit each other
        raise ModelError(
            f"{quoted(str(path))} does not run on an example that we make: {first_line(error)}",
            do="export it with fixed sizes, or with a free batch only",
        ) from error
    pairs = zip(found if isinstance(found, tuple | list) else [found], expected, strict=True)
    for ours, theirs in pairs:
        off = float((ours.double() - theirs.double()).abs().max()) if ours.numel() else 0.0
        scale = float(theirs.double().abs().max()) if theirs.numel() else 0.0
        if not off <= _TOLERANCE * (scale + 1e-30):
            raise ModelError(
                f"converted, {quoted(str(path))} computes something else: {off:.2g} of {scale:.2g}",
                so="nothing was loaded",
                do="give the PyTorch model that the file was made of, as path/to/file.py:factory",
            )
