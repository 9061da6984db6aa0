"""What becomes of a product: the bias that is added to it, the value that it is added to, and its use."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any

from torch import Tensor, nn

from intertwine.merging.contractions import Contraction, Watch, aten, is_row, storage


class Follow(Watch):
    """Watches contractions until their result is used: `settle` is told what it is added to, if it is.

    later: weights whose products are not computed, since `settle` fills them in.
    """

    def __init__(
        self,
        model: nn.Module,
        settle: Callable[[Contraction, Tensor | None], None],
        at_once: Callable[[Contraction], None] | None = None,
        later: Container[str] = (),
    ) -> None:
        super().__init__(model, self._remember)
        self.settle, self.at_once, self.later = settle, at_once, later
        self.pending: dict[int, Contraction] = {}
        self._biased: Contraction | None = None

    def _remember(self, found: Contraction) -> None:
        if self.at_once is not None:
            self.at_once(found)
        if found.output is not None:
            self.pending[storage(found.output)] = found

    def left_open(self, func: Any, args: tuple[Any, ...]) -> Tensor | None:
        if func not in (aten.mm.default, aten.addmm.default):
            return None
        left, right = args[-2:]
        empty = left.new_empty(left.shape[0], right.shape[1])
        found = self._contraction(func, args, empty)
        return empty if found is not None and found.exact and found.weight in self.later else None

    def before(self, func: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        if not self.pending or _is_view(func):
            return
        given = (*args, *named.values())
        flat = [x for a in given for x in (a if isinstance(a, (list, tuple)) else (a,))]
        for value in (x for x in flat if isinstance(x, Tensor)):
            found = self.pending.pop(storage(value), None)
            if found is None:
                continue
            assert found.output is not None
            others = [x for x in args[:2] if x is not value] if _adds(func) else []
            other = others[0] if len(others) == 1 and isinstance(others[0], Tensor) else None
            plain = found.output.is_contiguous() and value.is_contiguous()
            if other is not None and plain and self.name_of(other) and is_row(other, found.output.shape[1]):
                found.bias, self._biased = self.name_of(other), found
            elif other is not None and plain and other.shape == value.shape:
                self.settle(found, other.reshape(found.output.shape))
            else:
                self.settle(found, None)
        for place in map(storage, written(func, args, named)):  # a product that reads it must not come later
            for key in [k for k, c in self.pending.items() if storage(c.inputs) == place]:
                self.settle(self.pending.pop(key), None)

    def after(self, func: Any, args: tuple[Any, ...], result: Any) -> None:
        if self._biased is not None:
            found, self._biased = self._biased, None
            found.output = result.view(found.inputs.shape[0], -1)
            self.pending[storage(result)] = found

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for found in self.pending.values():
            self.settle(found, None)
        self.pending.clear()


def _is_view(func: Any) -> bool:
    """Whether an op only looks at its operand in another way."""
    if func is aten._unsafe_view.default:  # its schema does not say that the memory is shared
        return True
    returns = func._schema.returns
    info = returns[0].alias_info if returns else None
    return info is not None and not info.is_write


def written(func: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> list[Tensor]:
    """The tensors that an op changes."""
    places = [k for k, a in enumerate(func._schema.arguments) if a.alias_info and a.alias_info.is_write]
    names = [func._schema.arguments[k].name for k in places]
    given = [args[k] if k < len(args) else named.get(name) for k, name in zip(places, names, strict=True)]
    flat = [x for value in given for x in (value if isinstance(value, (list, tuple)) else (value,))]
    return [x for x in flat if isinstance(x, Tensor)]


def _adds(func: Any) -> bool:
    """Whether an op sums its operands, in place or not."""
    return func.overloadpacket in (aten.add, aten.add_)
