"""Run a module itself in float64: other weights, every cast inside raised, always the same random numbers.

Models that cast to float32 inside (most RMS norms in transformers) would hide errors below 1e-7; here every
floating-point dtype that an op asks for is replaced by the one wanted, while the module runs as it is.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import HigherOrderOperator
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from intertwine.graph.example import Example
from intertwine.graph.kernels import KERNELS

_ATOMS = (bool, int, float, str)
_EMPTY = (dict, OrderedDict, set, list)  # what most modules have several of, with nothing in it


class _Precise(TorchDispatchMode):
    """Every op in one precision; `ops` are those that ran, `read` the weights that they read."""

    supports_higher_order_operators = True  # branches and loops

    def __init__(self, dtype: torch.dtype, module: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.dtype = dtype
        self.ops: set[Any] = set()
        self.read: set[str] = set()
        self._weights = {id(t): n for n, t in (*module.named_parameters(), *module.named_buffers())}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.ops.add(func)
        self.read.update(self._weights[id(x)] for x in args if id(x) in self._weights)
        given: Any = (args, kwargs or {})
        if self._is_other(given):  # hardly ever; to look is cheaper than to rebuild
            given = tree_map(self._raised, given)
        kernel = KERNELS.get(func)
        # What holds functions of its own runs them in this mode; all else is done with it.
        with self if kernel is not None and isinstance(func, HigherOrderOperator) else nullcontext():
            try:
                result = (kernel or func)(*given[0], **given[1])
            except RuntimeError:
                if types or given[1].get("dtype") is not None or not _takes_dtype(func):
                    raise
                # Made of numbers alone, one of which the default precision does not hold: finfo(x.dtype).min.
                result = func(*given[0], **{**given[1], "dtype": self.dtype})
        return tree_map(self._raised, result) if self._is_other(result) else result

    def _is_other(self, x: Any) -> bool:
        """Whether something in here has another precision."""
        if isinstance(x, Tensor):
            return x.is_floating_point() and x.dtype != self.dtype
        if isinstance(x, (tuple, list)):
            return any(self._is_other(y) for y in x)
        if isinstance(x, dict):
            return any(self._is_other(y) for y in x.values())
        return isinstance(x, torch.dtype) and x.is_floating_point and x != self.dtype

    def _raised(self, x: Any) -> Any:
        if isinstance(x, torch.dtype):
            return self.dtype if x.is_floating_point else x
        # Operands that are written in place must stay the tensors that they are.
        if isinstance(x, Tensor) and x.is_floating_point() and x.dtype != self.dtype:
            return x.to(self.dtype)
        return x


def _takes_dtype(func: Any) -> bool:
    return any(argument.name == "dtype" for argument in getattr(func, "_schema", func).arguments)


class _Instead(TorchFunctionMode):
    """Parameters, by identity, are replaced when a function reads them."""

    def __init__(self, instead: Mapping[int, Callable[[], Tensor]]) -> None:
        super().__init__()
        self.instead = instead

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = tree_map(self._replaced, (args, kwargs or {}))
        return func(*given[0], **given[1])

    def _replaced(self, x: Any) -> Any:
        return self.instead[id(x)]() if id(x) in self.instead else x


@dataclass(frozen=True)
class CallOutcome:
    """What a call leaves behind: its floating-point outputs, the buffers that it wrote by name, the ops that
    ran, and the weights that were operands of one."""

    outputs: list[Tensor]
    written: dict[str, Tensor]
    ops: frozenset[Any] = frozenset()
    read: frozenset[str] = frozenset()


@torch.no_grad()
def run_module(
    module: nn.Module,
    example: Example,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    instead: Mapping[int, Callable[[], Tensor]] | None = None,
) -> CallOutcome:
    """Run a module that is not the caller's, whose buffers are in `dtype`; what it writes is put back.

    instead: id of a parameter -> what to read in its place. The caller's random state is untouched.
    """
    before = {name: b.clone() for name, b in module.named_buffers()}
    inputs = example.map(lambda x: x.detach().to(dtype if x.is_floating_point() else x.dtype, copy=True))
    other = _Instead(instead) if instead else nullcontext()
    precise = _Precise(dtype, module)
    try:
        with _same_random_numbers(seed, _devices(module)), other, precise:
            outputs = module(*inputs.args, **inputs.kwargs)
    finally:
        if any(isinstance(op, HigherOrderOperator) for op in precise.ops):
            torch._dynamo.reset()  # it compiles branches and loops, and refuses those that ran in a mode
    written = {}
    for name, buffer in module.named_buffers():
        if name in before and not torch.equal(buffer, before[name]):
            written[name] = buffer.detach().clone()
            buffer.data = before[name]
    leaves = [x for x in tree_flatten(_plain(outputs))[0] if isinstance(x, Tensor)]
    return CallOutcome(
        [x.detach() for x in leaves if x.is_floating_point() or x.is_complex()],
        written,
        frozenset(precise.ops),
        frozenset(precise.read),
    )


def fresh_copy(module: nn.Module, own_buffers: bool = False) -> nn.Module:
    """A deep copy that shares the tensors of the module, or only its parameters.

    `copy.deepcopy` spends its time on the ten dictionaries that every module has, nearly all of them empty;
    here a module is copied by its attributes, and only what is neither plain nor empty goes through deepcopy.
    """
    tensors = [*module.parameters(), *(() if own_buffers else module.buffers())]
    memo: dict[int, Any] = {id(t): t for t in tensors}
    modules = list(module.modules())
    kinds = {kind: _copies_plainly(kind) for kind in {type(m) for m in modules}}
    plain = [m for m in modules if kinds[type(m)]]
    for old in plain:
        memo[id(old)] = type(old).__new__(type(old))
    for old in plain:
        state = {name: _copied(value, memo) for name, value in old.__dict__.items()}
        memo[id(old)].__setstate__(state)
    return copy.deepcopy(module, memo)  # the copy that the memo holds, where the module is plain


def _copies_plainly(kind: type) -> bool:
    """Whether deepcopy of a module would copy its attributes and do nothing else."""
    ways = ("__deepcopy__", "__reduce__", "__reduce_ex__", "__getstate__", "__new__")
    slots = any("__slots__" in vars(base) for base in kind.__mro__)
    return not slots and all(getattr(kind, way, None) is getattr(nn.Module, way, None) for way in ways)


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    kind = type(value)
    if value is None or kind in _ATOMS or (kind is tuple and all(type(x) in _ATOMS for x in value)):
        return value
    if kind in _EMPTY and not value and id(value) not in memo:
        memo[id(value)] = kind()
        return memo[id(value)]
    table = kind in (dict, OrderedDict) and id(value) not in memo
    if table and all(x is None or id(x) in memo for x in value.values()):
        memo[id(value)] = kind((name, memo.get(id(x))) for name, x in value.items())
        return memo[id(value)]
    return copy.deepcopy(value, memo)


def _plain(outputs: Any) -> Any:
    """Outputs of transformers are mappings of their own kind; caches and the like are left out."""
    return dict(outputs) if isinstance(outputs, Mapping) else outputs


def _devices(module: nn.Module) -> list[torch.device]:
    return list({p.device for p in module.parameters() if p.device.type == "cuda"})


@contextmanager
def _same_random_numbers(seed: int, devices: Sequence[torch.device]) -> Iterator[None]:
    """Random numbers from a seed on the processor and on these devices; the states before come back.

    `torch.manual_seed` would seed the caller's other devices too, and formats the stack for each kind of
    them, which takes longer than a small model.
    """
    with torch.random.fork_rng(devices=devices):
        torch.default_generator.manual_seed(seed)
        for device in devices:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


def runner(run: Callable[[Example], CallOutcome]) -> Callable[[Example], bool]:
    """example -> whether the model takes it."""

    def runs(example: Example) -> bool:
        try:
            run(example)
        except (Exception, SystemExit):  # whatever a forward raises on a size that it does not take
            return False
        return True

    return runs
