"""What the models of a library are, without allocating one: defining module, parameters, the set of ops.

A model is built and run on the meta device, where tensors have shapes and no numbers, so timm's whole list
of about 1,350 names takes minutes and not the hours of exporting each. Results are kept beside the survey.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from intertwine.surveying.libraries import build, module_of
from intertwine.surveying.rows import Kept

KEEP_EVERY = 50  # models between two writes of the file


@dataclass(frozen=True)
class Described:
    """One name of the library.

    ops: names of the ops that one forward pass calls; empty, with the error, if it needs numbers.
    """

    name: str
    module: str
    parameters: int
    ops: tuple[str, ...]
    error: str = ""

    @property
    def architecture(self) -> tuple[str, ...]:
        """Equal for two names exactly if they share the module and the set of ops."""
        return (self.module, *(self.ops or (self.name,)))


class _Ops(TorchDispatchMode):
    """Remembers the name of every op that runs under it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.add(str(func))
        return func(*args, **(kwargs or {}))


def describe(spec: str) -> Described:
    """Build one model on the meta device and run it once."""
    module, count, recorder = "", 0, _Ops()
    try:
        with torch.device("meta"), warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            source = build(spec)
            module = module_of(source)
            count = sum(p.numel() for p in source.model.parameters())
            with recorder:
                source.model.eval()(*source.example, **source.kwargs)
    except Exception as error:  # whatever a third party's code does without numbers, it is only not described
        text = (str(error).splitlines() or [""])[0][:200]
        return Described(spec, module, count, (), f"{type(error).__name__}: {text}")
    return Described(spec, module, count, tuple(sorted(recorder.seen)))


def catalogue(
    specs: Sequence[str], path: str | Path, progress: Callable[[], None] = lambda: None
) -> list[Described]:
    """An entry for each model: read from `path`, or described and kept there."""
    kept = Kept(path, Described, "catalogue", "name")
    todo, found = [spec for spec in specs if spec not in kept.items], []
    for count, spec in enumerate(todo, start=1):
        found.append(describe(spec))
        if count % KEEP_EVERY == 0 or count == len(todo):
            kept.add(found)
        progress()
    return [kept.items[spec] for spec in specs]


def smallest_of_each(entries: Iterable[Described], key: Callable[[Described], Any]) -> dict[str, str]:
    """Name -> the name with the fewest parameters among those with the same key.

    >>> small, large = Described("s", "m", 1, ("add",)), Described("l", "m", 9, ("add",))
    >>> smallest_of_each([large, small], lambda entry: entry.architecture)
    {'s': 's', 'l': 's'}
    """
    first: dict[Any, str] = {}
    ordered = sorted(entries, key=lambda e: (e.parameters or float("inf"), e.name))
    return {entry.name: first.setdefault(key(entry), entry.name) for entry in ordered}
