"""Which number of a config sets which dimension of which weight: found by building with another number.

Nothing is known about a family: every whole number of its config is doubled (or changed otherwise) in turn,
the model is built on the device meta, which costs no memory, and what changed is governed by that number.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from intertwine.merging.plan import AxisPlan
from intertwine.symmetry import Axis
from intertwine.vision_shim import offline

Path = tuple[str | int, ...]
Shapes = dict[str, tuple[int, ...]]
Dim = tuple[str, int]


def shapes_of(model_class: Any, config: Any) -> Shapes | None:
    """The shapes of a model's parameters under a config; None if it cannot be built."""
    try:
        with torch.device("meta"), warnings.catch_warnings(), offline(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")
            built = model_class._from_config(copy.deepcopy(config))
    except Exception:  # numbers that do not fit each other; each family complains in its own way
        return None
    return {name: tuple(p.shape) for name, p in built.named_parameters(remove_duplicate=False)}


def governed(model: nn.Module, sizes: Iterable[int]) -> dict[Path, list[Dim]]:
    """Config number -> the dimensions that change with it; tried if it divides one of `sizes`."""
    wanted = set(sizes)
    model_class = type(model)
    config: Any = copy.deepcopy(model.config)
    base = shapes_of(model_class, config)
    if base is None:
        return {}
    found: dict[Path, list[Dim]] = {}
    for path, value in _numbers(config.to_dict()):
        if value is not None and not any(size % value == 0 for size in wanted):
            continue
        # what is not said (GPT-2's n_inner) may be said; a number that is there is made larger
        tries = [2 * size for size in sorted(wanted)] if value is None else [2 * value, value + 1, value // 2]
        for number in tries:
            changed = shapes_of(model_class, with_numbers(config, {path: number}))
            dims = _differing(base, changed) if changed is not None else []
            if value is None:
                dims = [(n, d) for n, d in dims if 2 * base[n][d] == number]
            if dims:
                found.setdefault(path, []).extend(dims)
                if value is not None:
                    break
    return found


class ConfigNumbers:
    """Which numbers of its config set the widths of a model's axes."""

    def __init__(self, model: nn.Module, axes: Iterable[Axis]) -> None:
        self._dims = governed(model, {a.size for a in axes})
        self._setters: dict[Dim, set[Path]] = {}
        for path, dims in self._dims.items():
            for dim in dims:
                self._setters.setdefault(dim, set()).add(path)

    def key(self, axis: AxisPlan) -> str:
        """For `Limits.uniform`: axes that one number sets have the same key."""
        found = self._numbers((p.param, p.dim) for p in axis.places)
        return " ".join(sorted(".".join(map(str, path)) for path in found)) or axis.name

    def say(self, places: Mapping[str, Iterable[Dim]]) -> set[str]:
        """The axes (given by their places) that have a number which sets nothing beside such axes."""
        numbers = {name: self._numbers(dims) for name, dims in places.items()}
        held: dict[Path, set[Dim]] = {}
        for name, dims in places.items():
            for path in numbers[name]:
                held.setdefault(path, set()).update(dims)
        alone = {path for path, dims in held.items() if dims.issuperset(self._dims[path])}
        return {name for name, found in numbers.items() if found & alone}

    def _numbers(self, dims: Iterable[Dim]) -> set[Path]:
        setters = [self._setters.get(dim, set()) for dim in dims]
        return set.intersection(*setters) if setters else set()


def narrowed_config(model: nn.Module, shapes: Mapping[str, tuple[int, ...]]) -> Any | None:
    """The config under which the model has these shapes, or None if no choice of its numbers gives them."""
    base = shapes_of(type(model), model.config)
    if base is None:
        return None
    target = {name: shape for name, shape in shapes.items() if name in base}  # of a list, entries may be gone
    changed = {(n, d): (base[n][d], target[n][d]) for n, d in _differing(base, target)}
    config: Any = copy.deepcopy(model.config)
    if not changed and target.keys() == base.keys():
        return config
    numbers: dict[Path, int] = {}
    fields = governed(model, {old for old, _ in changed.values()})
    wrong = len(changed) + len(base) - len(target)
    candidates = {
        (path, value)
        for path, dims in fields.items()
        for dim in dims
        if dim in changed
        for value in _values(_at(config.to_dict(), path), *changed[dim])
    }
    while wrong:
        scored = []
        for path, value in sorted(candidates, key=str):
            if numbers.get(path) == value:
                continue
            built = shapes_of(type(model), with_numbers(config, {**numbers, path: value}))
            if built is not None and target.keys() <= built.keys() <= base.keys():
                off = len(_differing(target, built)) + len(built) - len(target)
                scored.append((off, path, value))
        best = min(scored, key=lambda s: s[0], default=None)
        if best is None or best[0] >= wrong:
            return None
        wrong, numbers[best[1]] = best[0], best[2]
    return with_numbers(config, numbers)


def _is_container(holder: Any) -> bool:
    return isinstance(holder, dict | list)


def with_numbers(config: Any, numbers: Mapping[Path, int]) -> Any:
    """A copy of the config with other numbers."""
    copied = copy.deepcopy(config)
    for path, value in numbers.items():
        holder: Any = copied
        for part in path[:-1]:
            holder = holder[part] if _is_container(holder) else getattr(holder, str(part))
        if _is_container(holder):
            holder[path[-1]] = value
        else:
            setattr(holder, str(path[-1]), value)
    return copied


def _values(old: int | None, before: int, after: int) -> list[int]:
    """What a number may become so that a dimension shrinks from `before` to `after`."""
    if old is None:
        return [after]
    return [old * after // before] if old * after % before == 0 else []


def _numbers(values: Any, path: Path = ()) -> list[tuple[Path, int | None]]:
    """Every whole number above 1 of a config, and what is None; those of nested configs and lists too."""
    if isinstance(values, dict):
        return [found for name, inner in values.items() for found in _numbers(inner, (*path, name))]
    if isinstance(values, list):
        return [found for place, inner in enumerate(values) for found in _numbers(inner, (*path, place))]
    whole = isinstance(values, int) and not isinstance(values, bool) and values > 1
    sized = values is None and path and any(part in str(path[-1]) for part in ("inner", "dim", "size"))
    return [(path, values)] if whole or sized else []


def _at(values: Any, path: Path) -> Any:
    for part in path:
        values = values[part]
    return values


def _differing(a: Mapping[str, tuple[int, ...]], b: Mapping[str, tuple[int, ...]]) -> list[Dim]:
    both = [n for n in a if n in b and len(a[n]) == len(b[n])]
    return [(n, d) for n in both for d in range(len(a[n])) if a[n][d] != b[n][d]]
