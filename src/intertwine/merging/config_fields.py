"""Which number of a config sets which dimension of which weight: found by building with another number.

Nothing is known about a family: every whole number of its config, and every ratio (`mlp_ratio`), is doubled
(or changed otherwise) in turn, the model is built on the device meta, which costs no memory, and what changed
is governed by that number.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
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
MOST = 8  # choices of numbers that are left out, to find others of the same shapes
_SIZES, _RATIOS = ("inner", "dim", "size"), ("ratio", "factor", "mult", "expan")  # in names of fields


def shapes_of(
    model_class: Any, config: Any, numbers: Mapping[Path, Number] = MappingProxyType({})
) -> Shapes | None:
    """The shapes of a model's parameters under a config with other numbers; None if it cannot be built."""
    built = _without_memory(model_class, config, numbers)
    if built is None:
        return None
    return {name: tuple(p.shape) for name, p in built.named_parameters(remove_duplicate=False)}


def parameters_of(model_class: Any, config: Any) -> int:
    """How many parameters a model has under a config; tied ones count once."""
    built = _without_memory(model_class, config, {})
    return 0 if built is None else sum(p.numel() for p in built.parameters())


def _without_memory(model_class: Any, config: Any, numbers: Mapping[Path, Number]) -> nn.Module | None:
    try:
        with torch.device("meta"), warnings.catch_warnings(), offline(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")
            built: nn.Module = model_class._from_config(with_numbers(config, numbers))
    except Exception:  # numbers that do not fit each other or their field; each family complains as it likes
        return None
    return built


def governed(model: nn.Module, sizes: Iterable[int], config: Any = None) -> dict[Path, list[Dim]]:
    """Config number -> the dimensions that change with it; tried if it divides one of `sizes`.

    config: the model's own, or one that says more.
    """
    wanted = set(sizes)
    model_class = type(model)
    config = copy.deepcopy(model.config if config is None else config)
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


def spelled_out(model: nn.Module) -> Any:
    """The config with sizes that it leaves open and modules hold under such a name (`head_dim`, where heads
    share the width of the stream): with them said, other numbers say less."""
    known: Any = model.config
    held: dict[str, set[int]] = {}
    for module in model.modules():
        for name, value in vars(module).items():
            if type(value) is int and value > 1 and any(part in name for part in _SIZES) and name[0] != "_":
                held.setdefault(name, set()).add(value)
    config, base = known, shapes_of(type(model), known)
    for name, values in held.items():
        if len(values) == 1 and getattr(known, name, None) is None:
            (value,) = values
            said, twice = (with_numbers(config, {(name,): number}) for number in (value, 2 * value))
            if shapes_of(type(model), said) == base != shapes_of(type(model), twice):
                config = said
    return config


def _tries(value: Number | None, wanted: set[int]) -> list[Number]:
    if value is None:
        return [2 * size for size in sorted(wanted)]
    return [2 * value, value / 2] if isinstance(value, float) else [2 * value, value + 1, value // 2]


class ConfigNumbers:
    """Which numbers of its config set the widths of a model's axes."""

    def __init__(self, model: nn.Module, axes: Iterable[Axis]) -> None:
        self.model: Any = model
        self._spelled = spelled_out(model)
        self._dims = governed(model, {a.size for a in axes}, self._spelled)
        self._setters: dict[Dim, set[Path]] = {}
        for path, dims in self._dims.items():
            for dim in dims:
                self._setters.setdefault(dim, set()).add(path)

    @property
    def whole(self) -> set[int]:
        """The whole numbers above 1 that the config holds."""
        return {v for _, v in _numbers(self.model.config.to_dict()) if isinstance(v, int)}

    def key(self, axis: AxisPlan, named: Mapping[str, str] = MappingProxyType({})) -> str:
        """For `Limits.uniform`: axes of one number have one key. named: other names of weights."""
        found = self._numbers((named.get(p.param, p.param), p.dim) for p in axis.places)
        values = self._spelled.to_dict()
        exact = {path for path in found if _at(values, path) == axis.size}  # of heads times their size, one
        found = exact or found
        return " ".join(sorted(".".join(map(str, path)) for path in found)) or axis.name

    def configs(self, shapes: Shapes, follow: Collection[str] = (), untied: bool = False) -> Iterator[Any]:
        """`narrowed_configs` of the model. follow: weights of whatever shapes the config gives them."""
        return _narrowed(self.model, self._spelled, self._dims, shapes, follow, untied)

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


def narrowed_configs(model: nn.Module, shapes: Shapes, untied: bool = False) -> Iterator[Any]:
    """The configs under which the model has these shapes; none if no choice of its numbers gives them.

    Several may: two heads of eight channels are as wide as four of four. untied: the head no longer is the
    table of the embedding.
    """
    found = False
    for config in _narrowed(model, model.config, None, shapes, (), untied):
        found = True
        yield config
    if not found and (spelled := spelled_out(model)) is not model.config:
        yield from _narrowed(model, spelled, None, shapes, (), untied)


def _narrowed(
    model: Any,
    start: Any,
    fields: Mapping[Path, list[Dim]] | None,
    shapes: Shapes,
    follow: Collection[str],
    untied: bool,
) -> Iterator[Any]:
    """start: the config to begin with. fields: what `governed` says of it, if it is known."""
    config: Any = copy.deepcopy(start)
    if untied:
        _untie(config)
    base = _without(shapes_of(type(model), config), follow)
    if base is None:
        return
    target = {name: shape for name, shape in shapes.items() if name in base}  # of a list, entries may be gone
    changed = {(n, d): (base[n][d], target[n][d]) for n, d in _differing(base, target)}
    if not changed and target.keys() == base.keys():
        yield config
        return
    if fields is None:
        fields = governed(model, {old for old, _ in changed.values()}, config)
    values = config.to_dict()
    candidates = {
        (path, value)
        for path, dims in fields.items()
        for dim in dims
        if dim in changed
        for value in _values(_at(values, path), *changed[dim], _is_ratio(path))
    }

    @cache
    def off(numbers: frozenset[tuple[Path, Number]]) -> int | None:
        built = _without(shapes_of(type(model), config, dict(numbers)), follow)
        if built is None or not target.keys() <= built.keys() <= base.keys():
            return None
        return len(_differing(target, built)) + len(built) - len(target)

    waiting: list[frozenset[Path]] = [frozenset()]  # numbers to do without
    seen: set[frozenset[tuple[Path, Number]]] = set()
    wrong = len(changed) + len(base) - len(target)
    for without in waiting:
        numbers, left = _fitting([c for c in candidates if c[0] not in without], off, wrong)
        if numbers in seen or (left and without):
            continue
        seen.add(numbers)
        if not left and _can_be_read(found := with_numbers(config, dict(numbers))):
            yield found
        if len(waiting) < MOST:  # one that fits alone may stand in the way of two that fit together
            waiting += [without | {path} for path, _ in sorted(numbers, key=str)]


def _fitting(
    candidates: Iterable[tuple[Path, Number]],
    off: Callable[[frozenset[tuple[Path, Number]]], int | None],
    wrong: int,
) -> tuple[frozenset[tuple[Path, Number]], int]:
    """One number after the other, each that leaves the fewest dimensions wrong; and how many still are."""
    numbers: dict[Path, Number] = {}
    while wrong:
        scored = [
            (count, path, value)
            for path, value in sorted(candidates, key=str)
            if numbers.get(path) != value
            and (count := off(frozenset({**numbers, path: value}.items()))) is not None
        ]
        best = min(scored, key=lambda s: s[0], default=None)
        if best is None or best[0] >= wrong:
            break
        wrong, numbers[best[1]] = best[0], best[2]
    return frozenset(numbers.items()), wrong


def _without(shapes: Shapes | None, names: Collection[str]) -> Shapes | None:
    return shapes and {name: shape for name, shape in shapes.items() if name not in names}


def _untie(config: Any) -> None:
    for holder in (config, *(v for v in vars(config).values() if hasattr(v, "tie_word_embeddings"))):
        if getattr(holder, "tie_word_embeddings", False):
            holder.tie_word_embeddings = False


def _can_be_read(config: Any) -> bool:
    """Whether its class takes the numbers together, as it will when the file is read (heads that divide)."""
    try:
        type(config).from_dict(config.to_dict())
    except Exception:  # every class complains as it likes
        return False
    return True


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
