"""`path/to/file.onnx` as a model: read by onnx, its nodes run by torch; nothing in it is run as code.

What depends on sizes alone is computed by onnx's own reference; all else by the table in `onnx_ops.py`. The
module must compute what the file says: it is held against onnxruntime where that is installed.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from intertwine.errors import MissingExtra, ModelError, Unsupported
from intertwine.foreign import report_nothing
from intertwine.reading import check_memory, existing_file, muted, parsing
from intertwine.text import first_line, quoted
from intertwine.zoo.onnx_bounds import Bounded, check_functions, check_numbers, of_sizes
from intertwine.zoo.onnx_ops import NUMBERS, OPERATORS, STATISTICS
from intertwine.zoo.onnx_values import DTYPES

BATCH = 2
OPSET = 18  # which the operators are written for
_SIDES = (8, 32, 224)  # of other dimensions that the file leaves free: the first that it takes
_TOLERANCE = 1e-4
_INDICES = 8  # whole-number inputs are indices into tables of unknown length
_DO = "give the PyTorch model that the file was made of, as path/to/file.py:factory"


@dataclass(frozen=True)
class Step:
    """One node of the graph."""

    written: bytes

    @cached_property
    def node(self) -> Any:
        import onnx

        return onnx.NodeProto.FromString(self.written)

    @cached_property
    def operator(self) -> str:
        domain = self.node.domain
        return str(self.node.op_type) if domain in ("", "ai.onnx") else f"{domain}.{self.node.op_type}"

    @cached_property
    def attributes(self) -> dict[str, Any]:
        import onnx

        found = {each.name: onnx.helper.get_attribute_value(each) for each in self.node.attribute}
        return {name: v.decode() if isinstance(v, bytes) else v for name, v in found.items()}

    def inputs_at(self, table: Mapping[str, tuple[int, ...]]) -> list[str]:
        """Its inputs at the places that a table says of its operator."""
        return [n for place, n in enumerate(self.node.input) if place in table.get(self.operator, ()) and n]

    def on_numbers(self, inputs: dict[str, Any]) -> tuple[Any, ...]:
        """What it computes of numpy arrays, by onnx's own reference."""
        check_numbers(self.operator, [inputs[name] for name in self.node.input if name], self.attributes)
        return tuple(self._reference.run(None, inputs))

    @cached_property
    def _reference(self) -> Any:
        from onnx.reference import ReferenceEvaluator

        return ReferenceEvaluator(self.node)

    def __deepcopy__(self, memo: Any) -> Step:
        return self


class OnnxModule(nn.Module):
    """A graph of ONNX: stored tensors under their own names, and the steps that run on them."""

    def __init__(self, graph: Any) -> None:
        import onnx

        super().__init__()
        stored = {each.name: onnx.numpy_helper.to_array(each) for each in graph.initializer}
        self.steps: list[Step] = []
        self.places: dict[str, tuple[str, str]] = {}
        self.flattened: dict[int, int] = {}  # the number of a Reshape -> the dimension that it flattens from
        for step in (Step(node.SerializeToString()) for node in graph.node):
            if step.operator == "Constant":
                stored[step.node.output[0]] = np.asarray(step.on_numbers({})[0])
            else:
                self.steps.append(step)
        self.inputs = [each.name for each in graph.input if each.name not in stored]
        self.outputs = [each.name for each in graph.output]
        # whole numbers and single ones are known beforehand; all other reals are weights
        numbers = {n for step in self.steps for n in step.inputs_at(NUMBERS)}
        self.known = {n: a for n, a in stored.items() if a.dtype.kind in "iub" or not a.ndim or n in numbers}
        weights = {n: a for n, a in stored.items() if n not in self.known}
        measured = {n for step in self.steps for n in step.inputs_at(STATISTICS)}
        self.places |= {name: _store(self, name, a, name in measured) for name, a in weights.items()}
        unknown = sorted({step.operator for step in self.steps} - {*OPERATORS, *_OF_SIZES})
        unknown = [name for name in unknown if not (of_sizes(name) and self._only_numbers(name))]
        if unknown:
            raise Unsupported(f"it holds operators that are not known here: {', '.join(unknown)}", do=_DO)

    def _only_numbers(self, operator: str) -> bool:
        """Whether all nodes of this operator have inputs that sizes alone decide."""
        known, ours = set(self.known), True
        for step in self.steps:
            if step.operator in _OF_SIZES or all(name in known for name in step.node.input if name):
                known |= set(step.node.output)
            elif step.operator == operator:
                ours = False
        return ours

    def forward(self, *inputs: Tensor) -> Any:
        """The outputs of the graph."""
        tensors, known = self._weights() | dict(zip(self.inputs, inputs, strict=True)), dict(self.known)
        for _ in self._running(tensors, known):
            pass
        results = [tensors[n] if n in tensors else torch.as_tensor(np.array(known[n])) for n in self.outputs]
        return results[0] if len(results) == 1 else tuple(results)

    def learn_flattenings(self, *inputs: Tensor) -> None:
        """Note which Reshapes only flatten: the file writes widths there, which merging changes."""
        tensors = self._weights() | dict(zip(self.inputs, inputs, strict=True))
        for number, step, found in self._running(tensors, dict(self.known)):
            x = tensors.get(step.node.input[0]) if step.operator == "Reshape" else None
            if x is None or not isinstance(found, Tensor):
                continue
            pairs = zip(x.shape, found.shape, strict=False)
            same = next((n for n, (old, new) in enumerate(pairs) if old != new), found.dim() - 1)
            if same < x.dim() - 1 and found.dim() == same + 1:
                self.flattened[number] = same

    def check_memory(self, *inputs: Tensor) -> None:
        """Refuse what would compute more than the memory holds, by the shapes of all that it computes."""
        tensors = self._weights() | dict(zip(self.inputs, inputs, strict=True))
        with torch.device("meta"), Bounded() as memory:
            shapes = {name: t.to("meta") for name, t in tensors.items()}
            for _, _, found in self._running(shapes, dict(self.known)):
                memory.take(0 if isinstance(found, Tensor) else np.asarray(found).nbytes)

    def _running(
        self, tensors: dict[str, Tensor], known: dict[str, Any]
    ) -> Iterator[tuple[int, Step, Tensor | Any]]:
        """Run the steps in turn, and put what each computes into `tensors` or `known`."""
        for number, step in enumerate(self.steps):
            found = self._run(number, step, tensors, known)
            kept: dict[str, Any] = tensors if isinstance(found[0], Tensor) else known
            kept.update(zip(step.node.output, found, strict=False))
            yield number, step, found[0]

    def _weights(self) -> dict[str, Tensor]:
        return {n: getattr(self.get_submodule(path), leaf) for n, (path, leaf) in self.places.items()}

    def _run(
        self, number: int, step: Step, tensors: dict[str, Tensor], known: dict[str, Any]
    ) -> tuple[Any, ...]:
        names = list(step.node.input)
        if step.operator in _OF_SIZES and names[0] in tensors:
            shape = [int(size) for size in tensors[names[0]].shape]
            return step.on_numbers({names[0]: np.broadcast_to(np.float32(0), shape)})
        if all(name in known for name in names if name):
            return step.on_numbers({name: known[name] for name in names if name})
        if number in self.flattened:
            return (tensors[names[0]].flatten(self.flattened[number]),)
        values = [known[n] if n in known else tensors.get(n) for n in names]
        found = OPERATORS[step.operator](values, step.attributes)
        return found if isinstance(found, tuple) else (found,)


_OF_SIZES = ("Shape", "Size")
_GRAPHS = (5, 10)  # of onnx.AttributeProto: a graph, several


def _store(module: nn.Module, name: str, array: Any, measured: bool) -> tuple[str, str]:
    """Where a stored tensor lies now: "body.0.weight" in the submodule body.0, if that is free."""
    value = torch.from_numpy(array.copy())

    def keep(owner: nn.Module, leaf: str) -> None:
        if measured:
            owner.register_buffer(leaf, value)
        else:
            owner.register_parameter(leaf, nn.Parameter(value))

    *path, leaf = name.split(".")
    owner = module
    for part in path:
        child = owner._modules.get(part)
        if child is None and (not part or hasattr(owner, part)):
            break
        if child is None:
            child = nn.Module()
            owner.add_module(part, child)
        owner = child
    else:
        if leaf and not hasattr(owner, leaf):
            keep(owner, leaf)
            return ".".join(path), leaf
    flat = "_".join(("stored", *path, leaf))
    while hasattr(module, flat):
        flat += "_"
    keep(module, flat)
    return "", flat


def load_onnx(spec: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The module and an example of its inputs; a free first dimension is a batch of 2."""
    path = existing_file(spec, "ONNX file", ModelError)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's and torch's, of numbers in the file
        return _loaded(path, _read(path))


def stored_beside(path: str) -> list[str]:
    """The other files that a graph keeps its weights in; none of what cannot be read."""
    with suppress(Exception):  # who loads it is told why
        import onnx

        read = onnx.load(str(existing_file(path)), load_external_data=False)
        entries = [entry for each in read.graph.initializer for entry in each.external_data]
        places = dict.fromkeys(entry.value for entry in entries if entry.key == "location")
        return [os.path.join(os.path.dirname(path) or ".", place) for place in places]
    return []


def _loaded(path: Path, read: Any) -> tuple[nn.Module, tuple[Tensor, ...]]:
    try:
        with parsing(quoted(str(path)), ModelError, do=_DO):  # tensors of strings, of four bits, ...
            module = OnnxModule(read.graph).eval()
    except Unsupported as error:
        raise Unsupported(f"{quoted(str(path))} cannot be read: {error.what}", do=_DO) from error
    last: Exception | None = None
    for side in _SIDES:
        try:
            values = [value for value in read.graph.input if value.name in module.inputs]
            example = tuple(_example(value, path, side) for value in values)
            with torch.no_grad():
                module.check_memory(*example)
                module.learn_flattenings(*example)
            break
        except Exception as error:  # torch's, of sizes that do not fit each other
            last = error
    else:
        assert last is not None
        if isinstance(last, Unsupported):
            raise Unsupported(f"{quoted(str(path))} cannot be run: {last.what}", do=_DO) from last
        raise _does_not_run(path, last) from last
    _check_equal(module, example, read, path)
    return module, example


def _read(path: Path) -> Any:
    """The model, checked, without functions of its own, in the operator set known here or a newer one."""
    try:
        import onnx
        from onnx import inliner, version_converter
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"an ONNX file is read by onnx, and {error.name} is not installed",
            do='pip install "intertwine[onnx]"',
        ) from error
    try:
        with muted():  # what its C++ prints by itself
            read = onnx.load(str(path))
            onnx.checker.check_model(read)
    except Exception as error:  # protobuf's, or the checker's
        raise ModelError(f"{quoted(str(path))} is no valid ONNX file: {first_line(error)}") from error
    nodes = [*read.graph.node, *(node for function in read.functions for node in function.node)]
    if any(each.type in _GRAPHS for node in nodes for each in node.attribute):
        raise Unsupported(f"{quoted(str(path))} cannot be read: it holds branches or loops", do=_DO)
    if read.graph.sparse_initializer:
        raise Unsupported(f"{quoted(str(path))} cannot be read: it holds sparse tensors", do=_DO)
    check_functions(read)
    try:
        with muted():
            if len(read.functions):
                read = inliner.inline_local_functions(read)
            if max((each.version for each in read.opset_import if not each.domain), default=OPSET) < OPSET:
                read = version_converter.convert_version(read, OPSET)
    except Exception as error:  # an operator whose meaning has changed
        raise Unsupported(
            f"{quoted(str(path))} cannot be raised to operator set {OPSET}: {first_line(error)}", do=_DO
        ) from error
    return read


def _example(value: Any, path: Path, side: int) -> Tensor:
    kind = value.type.tensor_type
    dtype = DTYPES.get(kind.elem_type)
    if dtype is None:
        raise Unsupported(f"the input {quoted(value.name)} of {path} is neither real nor whole numbers")
    shape = [d.dim_value or (side if place else BATCH) for place, d in enumerate(kind.shape.dim)]
    check_memory(math.prod(shape) * dtype.itemsize, f"the input {quoted(value.name)}", ModelError)
    random = torch.Generator().manual_seed(0)  # the caller's random numbers stay as they are
    if dtype.is_floating_point:
        return torch.randn(shape, dtype=dtype, generator=random)
    return torch.randint(0, 2 if dtype is torch.bool else _INDICES, shape, generator=random).to(dtype)


def _does_not_run(path: Path, error: Exception) -> ModelError:
    return ModelError(
        f"{quoted(str(path))} does not run on an example that we make: {first_line(error)}",
        do="export it with fixed sizes, or with a free batch only",
    )


@torch.no_grad()
def _check_equal(module: OnnxModule, example: tuple[Tensor, ...], read: Any, path: Path) -> None:
    """Refuse a module that computes something else; nothing is checked without onnxruntime."""
    report_nothing()
    try:
        import onnxruntime
    except ModuleNotFoundError:
        return
    try:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # it prints what it raises, in colours
        session = onnxruntime.InferenceSession(read.SerializeToString(), options)
        expected = session.run(None, {n: x.numpy() for n, x in zip(module.inputs, example, strict=True)})
        found = module(*example)
    except Exception as error:  # sizes that do not fit each other
        raise _does_not_run(path, error) from error
    for ours, theirs in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
        true = torch.from_numpy(np.asarray(theirs)).double()
        off = float((ours.double() - true).abs().max()) if ours.numel() else 0.0
        scale = float(true.abs().max()) if true.numel() else 0.0
        if ours.shape != true.shape or not off <= _TOLERANCE * (scale + 1e-30):
            raise ModelError(
                f"read by us, {quoted(str(path))} computes something else: {off:.2g} of {scale:.2g}",
                so="nothing was loaded",
                do=_DO,
            )
