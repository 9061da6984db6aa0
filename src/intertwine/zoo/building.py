"""Building a model stops as soon as it grows beyond reason: sizes come from files and arguments of others.

torch calls back when a module, a parameter or a buffer is put into another module; that is where the model is
counted, before its weights are drawn or copied. A config that asks for 10^9 layers ends after the first few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn.modules import module as hooks

from intertwine.errors import ModelError
from intertwine.reading import check_memory

MOST_MODULES = 100_000  # ResNet-1202 has 6,000; a model with hundreds of experts a layer some 60,000


@contextmanager
def bounded(
    what: str, assert_size: Callable[[int], None] | None = None, most: int = MOST_MODULES
) -> Iterator[None]:
    """Whatever is built inside is counted; ModelError where it has too many modules or does not fit memory.

    assert_size: is told the number of weights so far, and raises what it likes, in place of the question
    whether those that are no meta tensors fit memory.

    >>> with bounded("a net", most=2):
    ...     _ = nn.Sequential(nn.ReLU(), nn.ReLU(), nn.ReLU())
    Traceback (most recent call last):
    intertwine.errors.ModelError: a net has more than 2 modules
      so   it was not built
    """
    modules = numbers = size = 0

    def on_module(*_: Any) -> None:
        nonlocal modules
        modules += 1
        if modules > most:
            raise ModelError(f"{what} has more than {most:,} modules", so="it was not built")

    def on_tensor(module: nn.Module, name: str, tensor: Any) -> None:
        nonlocal numbers, size
        if not isinstance(tensor, Tensor):
            return
        try:
            count = tensor.numel()
        except Exception:  # a lazy one has no shape yet
            return
        numbers += count
        if assert_size is not None:
            assert_size(numbers)
        elif not tensor.is_meta:
            size += count * tensor.element_size()
            check_memory(size, what, ModelError)

    with ExitStack() as stack:
        for handle in (
            hooks.register_module_module_registration_hook(on_module),
            hooks.register_module_parameter_registration_hook(on_tensor),
            hooks.register_module_buffer_registration_hook(on_tensor),
        ):
            stack.callback(handle.remove)
        try:
            yield
        except (MemoryError, RuntimeError) as error:
            if isinstance(error, MemoryError) or "allocate memory" in str(error):
                raise ModelError(f"{what} does not fit into memory", so="it was not built") from error
            raise
