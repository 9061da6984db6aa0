"""Modules that stand side by side in a container, one for each channel of an axis: experts of a mixture.

An entry goes as a whole, and those behind it move up, as if the container had been built with fewer.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from intertwine.merging.plan import AxisPlan, MergePlan


def entries(container: nn.Module) -> list[str]:
    """The names of the entries that hold weights.

    >>> entries(nn.ModuleList([nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)]))
    ['0', '2']
    """
    return [name for name, m in container.named_children() if next(m.parameters(), None) is not None]


def find_lists(model: nn.Module, prefix: str, size: int) -> tuple[str, ...]:
    """The containers below a module that hold so many entries with weights of the same names and shapes."""
    inner = model.get_submodule(prefix)
    found = []
    for path, module in inner.named_modules():
        if isinstance(module, (nn.ModuleList, nn.ModuleDict)) and len(entries(module)) == size:
            kinds = {_shapes(module.get_submodule(name)) for name in entries(module)}
            if len(kinds) == 1:
                found.append(f"{prefix}.{path}" if prefix and path else prefix or path)
    return tuple(found)


def _shapes(module: nn.Module) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((name, tuple(p.shape)) for name, p in module.named_parameters())


def dropped_entries(plan: MergePlan) -> dict[str, set[int]]:
    """Container -> the numbers of the entries that the plan removes."""
    return {path: {m.drop for m in a.merges} for a in plan.axes if a.merges for path in a.containers}


def drop_entries(model: nn.Module, dropped: Mapping[str, set[int]]) -> None:
    """Take entries out of containers; those that stay have the first names."""
    for path, gone in dropped.items():
        container = model.get_submodule(path)
        names = entries(container)
        kept = [container.get_submodule(name) for k, name in enumerate(names) if k not in gone]
        for name in names[len(kept) :]:
            delattr(container, name)
        for name, module in zip(names, kept, strict=False):
            setattr(container, name, module)


def keep_first(model: nn.Module, counts: Mapping[str, int]) -> None:
    """So many entries of each container, for a model that is to take the weights of a smaller one."""
    for path, count in counts.items():
        drop_entries(model, {path: set(range(count, len(entries(model.get_submodule(path)))))})


def leaving(model: nn.Module, axis: AxisPlan) -> dict[str, int]:
    """Prefix of an entry's weights -> after how many others of its axis the entry goes."""
    order = {merge.drop: k for k, merge in enumerate(axis.merges)}
    named = [(path, entries(model.get_submodule(path))) for path in axis.containers]
    return {
        f"{path}.{name}.": order[k] for path, names in named for k, name in enumerate(names) if k in order
    }


__all__ = ["drop_entries", "dropped_entries", "entries", "find_lists", "keep_first", "leaving"]
