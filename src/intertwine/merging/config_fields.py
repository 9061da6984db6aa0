"""Which number of a config sets which dimension of which weight: found by building with another number.

Nothing is known about a family: every whole number of its config, and every ratio (`mlp_ratio`), is doubled
(or changed otherwise) in turn, the model is built on the device meta, which costs no memory, and what changed
is governed by that number.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from intertwine.merging.plan import AxisPlan
from intertwine.symmetry import Axis
from intertwine.vision_shim import offline

Path = tuple[str | int, ...]
Shapes = dict[str, tuple[int, ...]]
Dim = tuple[str, int]
Number = int | float
_SIZES, _RATIOS = ("inner", "dim", "size"), ("ratio", "factor", "mult", "expan")  # in names of fields


def shapes_of(
    model_class: Any, config: Any, numbers: Mapping[Path, Number] = MappingProxyType({})
) -> Shapes | None:
    """The shapes of a model's parameters under a config with other numbers; None if it cannot be built."""
    try:
        with torch.device("meta"), warnings.catch_warnings(), offline(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")
            built = model_class._from_config(with_numbers(config, numbers))
    except Exception:  # numbers that do not fit each other or their field; each family complains as it likes
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
        if isinstance(value, int) and not any(size % value == 0 for size in wanted):
            continue
        # what is not said (GPT-2's n_inner) may be said; a number that is there is made larger
        for number in _tries(value, wanted):
            changed = shapes_of(model_class, config, {path: number})
            dims = _differing(base, changed) if changed is not None else []
            if value is None:
                dims = [(n, d) for n, d in dims if 2 * base[n][d] == number]
            if dims:
                found.setdefault(path, []).extend(dims)
                if value is not None:
                    break
    return found


def _tries(value: Number | None, wanted: set[int]) -> list[Number]:
    if value is None:
        return [2 * size for size in sorted(wanted)]
    return [2 * value, value / 2] if isinstance(value, float) else [2 * value, value + 1, value // 2]


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
    numbers: dict[Path, Number] = {}
    fields = governed(model, {old for old, _ in changed.values()})
    wrong = len(changed) + len(base) - len(target)
    candidates = {
        (path, value)
        for path, dims in fields.items()
        for dim in dims
        if dim in changed
        for value in _values(_at(config.to_dict(), path), *changed[dim], _is_ratio(path))
    }
    while wrong:
        scored = []
        for path, value in sorted(candidates, key=str):
            if numbers.get(path) == value:
                continue
            built = shapes_of(type(model), config, {**numbers, path: value})
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


def with_numbers(config: Any, numbers: Mapping[Path, Number]) -> Any:
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


def _values(old: Number | None, before: int, after: int, ratio: bool) -> list[Number]:
    """What a number may become so that a dimension shrinks from `before` to `after`.

    >>> _values(4, 64, 48, False), _values(4, 64, 47, False), _values(4, 128, 95, True)
    ([3], [], [2.96875, 2.9765625])
    """
    if old is None:
        return [after]
    if isinstance(old, int) and old * after % before == 0:
        return [old * after // before]
    # the second is never cut off to one less
    return [old * after / before, old * (after + 0.25) / before] if ratio else []


def _is_ratio(path: Path) -> bool:
    return any(part in _name(path) for part in _RATIOS)


def _name(path: Path) -> str:
    """The name of a field; of an entry of a list that of the list."""
    return next((part for part in reversed(path) if isinstance(part, str)), "")


def _numbers(values: Any, path: Path = ()) -> list[tuple[Path, Number | None]]:
    """Every whole number above 1 of a config, every ratio, and what is None; in nested configs and lists too.

    >>> _numbers({"hidden_size": 8, "mlp_ratio": 4.0, "dropout": 0.1, "use": True, "n_inner": None})
    [(('hidden_size',), 8), (('mlp_ratio',), 4.0), (('n_inner',), None)]
    """
    if isinstance(values, dict):
        return [found for name, inner in values.items() for found in _numbers(inner, (*path, name))]
    if isinstance(values, list):
        return [found for place, inner in enumerate(values) for found in _numbers(inner, (*path, place))]
    whole = isinstance(values, int) and not isinstance(values, bool) and values > 1
    ratio = isinstance(values, float) and values > 0 and _is_ratio(path)
    sized = values is None and any(part in _name(path) for part in _SIZES)
    return [(path, values)] if whole or ratio or sized else []


def _at(values: Any, path: Path) -> Any:
    for part in path:
        values = values[part]
    return values


def _differing(a: Mapping[str, tuple[int, ...]], b: Mapping[str, tuple[int, ...]]) -> list[Dim]:
    both = [n for n in a if n in b and len(a[n]) == len(b[n])]
    return [(n, d) for n in both for d in range(len(a[n])) if a[n][d] != b[n][d]]
