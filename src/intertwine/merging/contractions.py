"""Watch every product of a weight with a value while the real model runs, whatever module or op it is in.

    y = x W^T + b          x (rows, inputs), y (rows, outputs)

A linear layer, an addmm, a matmul and an einsum are all one of three products by the time that numbers are
multiplied, and the weight is recognised by its memory. So nothing has to be known of the architecture, every
size of input runs, and integer inputs, masks and keyword arguments are the model's own affair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from intertwine.data.batches import Batches, arguments

aten = torch.ops.aten
MOST = 2**16  # rows that are held in memory at once
BYTES = 4_000_000_000  # that the outputs of all weights may take on them


@dataclass(eq=False)
class Contraction:
    """One product of a weight with a value.

    matrix: (inputs, outputs), the weight's own memory. dim: the dimension of the weight that is summed over.
    bias: the name of what is added to every row, or "". image: channels of a convolution's input as rows.
    exact: output = inputs matrix + bias, and nothing else.
    """

    weight: str
    dim: int
    bias: str
    inputs: Tensor
    output: Tensor | None = None
    matrix: Tensor | None = None
    image: bool = False
    exact: bool = False


Seen = Callable[[Contraction], None]


class Watch(TorchDispatchMode):
    """Calls `seen` for every contraction of a parameter of `model` that runs inside this context.

    >>> net, found = nn.Linear(3, 4), []
    >>> with torch.no_grad(), Watch(net, found.append):
    ...     _ = net(torch.zeros(2, 5, 3))
    >>> [(c.weight, c.dim, c.bias, tuple(c.inputs.shape)) for c in found]
    [('weight', 1, 'bias', (10, 3))]
    """

    def __init__(self, model: nn.Module, seen: Seen) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen = seen
        self._chosen: tuple[str, Tensor] | None = None  # the last matrices that were picked out of a weight
        self.parameters = {storage(p): (name, p) for name, p in model.named_parameters()}

    def __enter__(self) -> Watch:
        self._fast = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)  # one op for a whole layer would hide its products
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        torch.backends.mha.set_fastpath_enabled(self._fast)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        self.before(func, args, named)
        result = None if named else self.left_open(func, args)
        if result is None:
            result = func(*args, **named)
        found = self._contraction(func, args, result)
        if found is not None:
            found.exact &= not named
            self.seen(found)
        self.after(func, args, result)
        return result

    def before(self, func: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        """Called before every op."""

    def left_open(self, func: Any, args: tuple[Any, ...]) -> Tensor | None:
        """What stands in for the result of an op that need not be computed, since it is filled in later."""

    def after(self, func: Any, args: tuple[Any, ...], result: Any) -> None:
        """Called after every op."""

    def name_of(self, value: Any) -> str:
        """The parameter in whose memory a tensor lies, or ""."""
        found = self.parameters.get(storage(value)) if isinstance(value, Tensor) else None
        return found[0] if found is not None else ""

    def _contraction(self, func: Any, args: tuple[Any, ...], result: Any) -> Contraction | None:
        bias, added = "", None
        if func in (aten.index.Tensor, aten.index_select.default):
            name = self.name_of(args[0])
            self._chosen = (name, result) if name and result.dim() == 3 else self._chosen
            return None
        if func is aten.convolution.default:
            x, weight = args[:2]
            name, alone = self.name_of(weight), not args[6] and args[8] == 1
            rows = x.movedim(1, -1).reshape(-1, x.shape[1])
            return Contraction(name, 1, self.name_of(args[2]), rows, image=True) if name and alone else None
        if func is aten.addmm.default:
            bias, (added, left, right) = self.name_of(args[0]), args[:3]
        elif func is aten.mm.default:
            left, right = args[:2]
        elif func is aten.bmm.default and args[0].shape[0] == 1:
            left, right, result = args[0][0], args[1][0], result[0]
        else:
            return self._of_chosen(*args[:2]) if func is aten.bmm.default else None
        for x, weight, out in ((left, right, result), (right.t(), left.t(), result.t())):
            name = self.name_of(weight)
            if name and not self.name_of(x):
                dim = _summed(self.parameters[storage(weight)][1], weight)
                exact = added is None or (bool(bias) and x is left and is_row(added, right.shape[1]))
                return None if dim is None else Contraction(name, dim, bias, x, out, weight, exact=exact)
        return None

    def _of_chosen(self, left: Tensor, right: Tensor) -> Contraction | None:
        """Every row times the matrix of the expert that was chosen for it; nothing is fitted to that."""
        if self._chosen is None:
            return None
        name, matrices = self._chosen
        for x, weight in ((left, right), (right.mT, left.mT)):
            if storage(weight) == storage(matrices) and weight.numel() == matrices.numel():
                dim = _summed(matrices, weight[0])
                return None if dim is None else Contraction(name, dim, "", x.reshape(-1, x.shape[-1]))
        return None


def _summed(parameter: Tensor, matrix: Tensor) -> int | None:
    """Which dimension of a parameter is the first of a matrix that views all of it, or one matrix of many."""
    shape = list(zip(parameter.shape, parameter.stride(), strict=True))
    if parameter.dim() == 3 and matrix.numel() * parameter.shape[0] == parameter.numel():
        shape[0] = (-1, -1)
    elif matrix.numel() != parameter.numel():
        return None
    wanted = (matrix.shape[0], matrix.stride(0))
    return shape.index(wanted) if shape.count(wanted) == 1 else None


def is_row(value: Tensor, width: int) -> bool:
    """Whether it is one number for every channel (XLNet adds two tables of heads to one product)."""
    return value.dim() > 0 and value.shape[-1] == value.numel() == width


def identity(value: Tensor) -> tuple[Any, ...]:
    """What two tensors share that are the same numbers in the same memory."""
    version = 0 if value.is_inference() else value._version
    return storage(value), value.storage_offset(), value.shape, value.stride(), version


def storage(tensor: Tensor) -> int:
    """Where the memory of a tensor begins; views share it."""
    return tensor.untyped_storage().data_ptr()


Call = tuple[tuple[Any, ...], dict[str, Any]]


def calls(data: Iterable[Any], like: Tensor) -> list[Call]:
    """Batches of inputs as arguments of the model: real numbers in its precision, tokens and masks as given.

    >>> [(args, kwargs)] = calls([{"ids": torch.zeros(2, 3, dtype=torch.long)}], torch.zeros(1))
    >>> args, kwargs["ids"].dtype
    ((), torch.int64)
    """
    plain = [dict(b) if isinstance(b, Mapping) else b for b in data] if isinstance(data, list) else data

    def fit(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        return x.to(like.device, like.dtype) if x.is_floating_point() else x.to(like.device)

    found = [arguments(inputs) for inputs, _ in Batches(plain)]
    return [(tuple(map(fit, args)), {k: fit(v) for k, v in kwargs.items()}) for args, kwargs in found]


def first_rows(call: Call, most: int, length: int | None = None) -> Call:
    """The first inputs of a call: as many as have `most` tokens together (other inputs count as 64)."""
    count = max(1, most // max(1, _tokens(call) if length is None else length))

    def first(x: Any) -> Any:
        return x[:count] if isinstance(x, Tensor) and x.dim() else x

    return tuple(map(first, call[0])), {k: first(v) for k, v in call[1].items()}


def _tokens(call: Call) -> int:
    """How many tokens one input of a call has; 64 where it has none."""
    tensors = [x for x in (*call[0], *call[1].values()) if isinstance(x, Tensor) and x.dim()]
    tokens = [x.shape[1] for x in tensors if x.dim() > 1 and not x.is_floating_point()]
    return int(tokens[0]) if tokens else 64


def held_rows(model: nn.Module, call: Call) -> Call:
    """The first inputs of a call on which the outputs of all weights can be held in memory at once."""
    one, taken = first_rows(call, 1), 0

    def count(c: Contraction) -> None:
        nonlocal taken
        taken += 0 if c.output is None else 2 * c.output.numel() * c.output.element_size()  # and its skip

    with torch.no_grad(), Watch(model, count):
        model(*one[0], **one[1])
    return first_rows(call, min(MOST, BYTES * _tokens(call) // max(1, taken)))


def real_rows(call: Call, count: int | None = None) -> Tensor | None:
    """Which rows of a value are no padding, by the call's attention mask; None: all, or it says nothing.

    count: how many rows the value has; one of another form is not described by the mask.
    """
    mask = call[1].get("attention_mask")
    if not isinstance(mask, Tensor) or mask.dim() != 2 or (count is not None and mask.numel() != count):
        return None
    kept = mask.reshape(-1) != 0
    return None if bool(kept.all()) else kept


def trimmed(call: Call) -> Call:
    """A call without the last columns in which every input is padding."""
    mask = call[1].get("attention_mask")
    if not isinstance(mask, Tensor) or mask.dim() != 2 or not bool((mask != 0).any()):
        return call
    length = int((mask != 0).any(0).nonzero().max()) + 1

    def short(x: Any) -> Any:
        long = isinstance(x, Tensor) and x.dim() > 1 and x.shape[:2] == mask.shape
        return x[:, :length] if long else x

    named = {k: v if k.startswith("decoder") else short(v) for k, v in call[1].items()}
    return tuple(map(short, call[0])), named
