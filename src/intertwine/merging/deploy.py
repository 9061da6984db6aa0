"""What a smaller model is for: how long a call takes here, and files that other programs run.

An exported file is written only after it has computed what the model does, on ten inputs, at several batches.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from intertwine.errors import InputError, MissingExtra, Unsupported, VerificationFailed
from intertwine.files import replacing
from intertwine.foreign import report_nothing
from intertwine.graph.export import eval_copy
from intertwine.graph.program import export_program, free_shapes, load_program
from intertwine.text import first_line

FORMS = {"torch": ".pt2", "onnx": ".onnx"}
INPUTS = 10
TOLERANCE = 1e-4
Call = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Exported:
    """A written file: its largest difference from the model, as a share of its outputs; batches tried."""

    path: str
    form: str
    max_error: float
    batches: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def latencies(
    models: Sequence[nn.Module], args: tuple[Any, ...], kwargs: Mapping[str, Any], repeats: int = 10
) -> list[float]:
    """The median time of one call of each in seconds, after one that does not count.

    They are called in turn, so that what else the machine does hits all of them alike.

    >>> [time > 0 for time in latencies([nn.Linear(2, 2), nn.Linear(2, 1)], (torch.zeros(1, 2),), {})]
    [True, True]
    """
    copies = [eval_copy(model, share=True) for model in models]
    times: list[list[float]] = [[] for _ in models]
    with torch.no_grad():
        for _ in range(repeats + 1):
            for model, taken in zip(copies, times, strict=True):
                start = time.perf_counter()
                model(*args, **kwargs)
                taken.append(time.perf_counter() - start)
    return [statistics.median(taken[1:]) for taken in times]


@contextmanager
def exporting(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], path: str | Path, form: str
) -> Iterator[Exported]:
    """Write `model` as an exported program (.pt2) or ONNX, and check that it computes the same.

    The batch stays free where the model allows it. The file takes its place at the end of the block; nothing
    is left behind if the check fails, or what is written meanwhile.
    """
    if form not in FORMS:
        raise InputError(f"no form {form!r}", do=f"use one of {', '.join(FORMS)}")
    copied, call = eval_copy(model), (tuple(args), dict(kwargs))
    write, open_file = (_write_torch, _open_torch) if form == "torch" else (_write_onnx, _open_onnx)
    target = Path(f"{path}{FORMS[form]}")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / target.name
        for free in (True, False):  # a batch may be written into the model
            try:
                write(copied, call, file, free)
                error, batches = _compare(copied, open_file(file), call, free)
                break
            except (Unsupported, VerificationFailed):
                raise
            except Exception as problem:  # exporters fail in their own ways, or write what nobody can read
                if not free:
                    what = f"the model cannot be exported to {form}: {first_line(problem)}"
                    raise InputError(what) from problem
        written = file.read_bytes()
    with replacing(target) as beside:
        beside.write_bytes(written)
        yield Exported(str(target), form, error, batches)


def _compare(
    model: nn.Module, exported: Callable[[Call], list[Tensor]], call: Call, free: bool
) -> tuple[float, tuple[int, ...]]:
    """The largest relative error over random inputs, some of them of other batch sizes."""
    worst, sizes = 0.0, []
    for size, inputs in _inputs(call, free):
        with torch.no_grad():
            expected = [t for t in tree_leaves(model(*inputs[0], **inputs[1])) if isinstance(t, Tensor)]
        for ours, theirs in zip(expected, exported(inputs), strict=False):
            if ours.is_floating_point():
                scale = max(float(ours.abs().max()), 1e-12)
                worst = max(worst, float((ours - theirs).abs().max()) / scale)
        sizes.append(size)
    if not worst <= TOLERANCE:
        raise VerificationFailed(
            f"the exported model differs from the model by {worst:.1e} of its outputs",
            so="the file was not written",
        )
    return worst, tuple(dict.fromkeys(sizes))


def _inputs(call: Call, free: bool) -> Iterator[tuple[int, Call]]:
    """Ten calls with other values: new reals, whole numbers of the example in another order."""
    generator = torch.Generator().manual_seed(0)
    batch = next((len(t) for t in tree_leaves(call) if isinstance(t, Tensor) and t.dim()), 1)
    for number in range(INPUTS):
        size = (batch, 1, 3)[number % 3] if free else batch

        def other(value: Any, size: int = size) -> Any:
            if not isinstance(value, Tensor):
                return value
            if value.dim() and len(value) == batch:
                value = value[torch.arange(size) % batch]
            if value.is_floating_point():
                return torch.randn(value.shape, generator=generator, dtype=value.dtype)
            return value.flatten()[torch.randperm(value.numel(), generator=generator)].reshape(value.shape)

        yield size, tree_map(other, call)


def _write_torch(model: nn.Module, call: Call, path: Path, free: bool) -> None:
    export_program(model, *call, path=path, free_batch=free)


def _open_torch(path: Path) -> Callable[[Call], list[Tensor]]:
    module, _, _ = load_program(path)

    def run(call: Call) -> list[Tensor]:
        with torch.no_grad():
            return [t for t in tree_leaves(module(*call[0], **call[1])) if isinstance(t, Tensor)]

    return run


def _write_onnx(model: nn.Module, call: Call, path: Path, free: bool) -> None:
    report_nothing()
    try:
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error.name} is not installed", do='pip install "intertwine[onnx]"') from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            model, call[0], kwargs=call[1], dynamo=True, verbose=False,
            dynamic_shapes=free_shapes(model, *call) if free else None,
        )  # fmt: skip
        assert program is not None
        program.save(str(path))


def _open_onnx(path: Path) -> Callable[[Call], list[Tensor]]:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]

    def run(call: Call) -> list[Tensor]:
        tensors = [t for t in tree_leaves(call) if isinstance(t, Tensor)]
        found = session.run(None, {n: t.numpy() for n, t in zip(names, tensors, strict=True)})
        return [torch.from_numpy(array) for array in found]

    return run
