"""What an ONNX file may cost: a few bytes of it can ask for any amount of memory, so sizes come first."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor
from torch.overrides import TorchFunctionMode

from intertwine.errors import ModelError, Unsupported
from intertwine.reading import check_memory
from intertwine.text import quoted

MOST_NUMBERS = 30_000_000  # of one value that sizes alone decide: a mask between 5,000 positions
COPIES = 4  # ours, onnxruntime's, and both in float64
MOST_NODES = 1_000_000  # of a graph whose functions are written out

# What sizes, indices and masks are computed with; each makes no more than its inputs, broadcast, say.
_OF_SIZES = frozenset(
    """Abs Add And ArgMax ArgMin Cast Ceil Clip Concat Constant ConstantOfShape Cos CumSum Div Equal Exp
    Expand EyeLike Flatten Floor Gather GatherElements GatherND Greater GreaterOrEqual Identity
    IsInf IsNaN Less LessOrEqual Log Max Min Mod Mul Neg NonZero Not OneHot Or Pad Pow Range
    Reciprocal ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum Reshape Round ScatterElements
    ScatterND Shape Sign Sin Size Slice Split Sqrt Squeeze Sub Sum Tile Transpose Trilu Unsqueeze
    Where Xor""".split()
)


def of_sizes(operator: str) -> bool:
    """Whether onnx's own reference may compute this of known numbers."""
    return operator in _OF_SIZES


Sizes = Callable[[Sequence[Any], Mapping[str, Any]], Sequence[float]]
_GROWING: dict[str, Sizes] = {  # operator -> the sizes of what it makes, where numbers in the file say them
    "ConstantOfShape": lambda of, _: [*np.ravel(of[0])],
    "Expand": lambda of, _: [*np.shape(of[0]), *np.ravel(of[1])],
    "Tile": lambda of, _: [*np.shape(of[0]), *np.ravel(of[1])],
    "Range": lambda of, _: [abs(float(of[1]) - float(of[0])) / max(abs(float(of[2])), 1e-30)],
    "Pad": lambda of, _: [n + 2 * float(np.max(np.abs(of[1]), initial=0)) for n in np.shape(of[0])],
    "OneHot": lambda of, _: [*np.shape(of[0]), float(np.ravel(of[1])[0])],
    "Gather": lambda of, said: [*np.delete(np.shape(of[0]), said.get("axis", 0)), *np.shape(of[1])],
    "GatherND": lambda of, _: [*np.shape(of[0])[1:], *np.shape(of[1])],
}


def check_numbers(operator: str, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> None:
    """Refuse to compute what is no arithmetic of sizes, or makes more numbers than any mask has."""
    if not of_sizes(operator):
        raise Unsupported(f"{operator} of constants")
    if operator in _GROWING:
        sizes: Sequence[float] = _GROWING[operator](inputs, attributes)
    else:
        sizes = _broadcast([np.shape(each) for each in inputs])
    made = math.prod(max(float(size), 1.0) for size in sizes)
    if not made <= MOST_NUMBERS:
        raise ModelError(f"{operator} would make {made:.2g} numbers, and {MOST_NUMBERS:.0e} is the most")


def _broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape of them together, or of one after the other where they do not fit."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        return (sum(math.prod(shape) for shape in shapes),)


class Bounded(TorchFunctionMode):
    """While inside, results that do not fit the memory are refused; tensors are to be on the device meta.

    All of them are counted, since a graph keeps what it computed; views of others are not.
    """

    def __init__(self) -> None:
        super().__init__()
        self.taken = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for each in made if isinstance(made, tuple | list) else (made,):
            if isinstance(each, Tensor) and not each._is_view():
                self.take(each.numel() * each.element_size())
        return made

    def take(self, size: int) -> None:
        """Count so many bytes."""
        self.taken += size
        check_memory(COPIES * self.taken, "what it computes", ModelError)


def check_functions(model: Any) -> None:
    """Refuse functions of the file that call themselves, or each other so often that no memory holds them."""
    bodies = {(each.domain, each.name): each.node for each in model.functions}
    sizes: dict[tuple[str, str], int] = {}  # 0: not finished yet
    waiting = list(bodies)
    while waiting:
        name = waiting[-1]
        called = [(n.domain, n.op_type) for n in bodies[name] if (n.domain, n.op_type) in bodies]
        todo = [each for each in called if each not in sizes]
        if todo and name not in sizes:
            sizes[name] = 0
            waiting += todo
        elif any(not sizes[each] for each in called):
            raise ModelError(f"its function {quoted(name[1])} calls itself")
        else:
            sizes[name] = max(1, len(bodies[name]) + sum(sizes[each] for each in called))
            waiting.pop()
    total = sum(sizes.get((n.domain, n.op_type), 1) for n in model.graph.node)
    if total > MOST_NODES:
        raise ModelError(
            f"with its functions written out it has {total:,} nodes, and {MOST_NODES:,} is the most"
        )
