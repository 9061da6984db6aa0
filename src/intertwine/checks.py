"""Arguments of public functions: of the kind that the annotation says, numbers in the range of their name.

One vocabulary, one range: a `seed` or a `batch` means the same everywhere, so what it may be is said once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from types import UnionType
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin

from intertwine import numbers
from intertwine.errors import IntertwineError, ModelError, WrongKind, unsolvable
from intertwine.numbers import Real, Whole
from intertwine.text import first_line

P = ParamSpec("P")
R = TypeVar("R")

_RANGES: dict[Real | Whole, str] = {
    numbers.seed: "seed",
    numbers.whole: "epochs restarts controls number examples together",
    numbers.fraction: "beta quantile threshold max_drop density max_ratio",
    numbers.share: "target_params target_flops",
    numbers.positive: "learning_rate lr ridge tolerance bound epsilon seconds max_seconds",
    numbers.nonnegative: "spread save_seconds memory",
    numbers.below_one: "momentum",
    numbers.processes: "jobs devices threads",
    Whole(1, 4): "dim",
}
RANGES = {name: each for each, names in _RANGES.items() for name in names.split()}
_LARGEST = 10**300  # what a float holds, with room for sums
_OTHERS: dict[str, Real | Whole] = {"int": numbers.count, "float": numbers.finite}


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, which raises InputError for numbers out of range and for other kinds of things.

    >>> @checked
    ... def draw(count: int, seed: int = 0) -> int:
    ...     return count + seed
    >>> draw(3, seed=4)
    7
    >>> draw(3, seed=-1)
    Traceback (most recent call last):
    intertwine.errors.InputError: seed must be a whole number from 0 to 4,294,967,295, not -1
    >>> draw([3])
    Traceback (most recent call last):
    intertwine.errors.WrongKind: the argument count of draw is a list, not a number
    """
    signature = inspect.signature(function)
    known = getattr(function, "__globals__", {})
    tests = {name: _test(parameter, known) for name, parameter in signature.parameters.items()}

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        given = signature.bind(*args, **kwargs)
        for name, value in given.arguments.items():
            test, parameter = tests[name], signature.parameters[name]
            if test is not None and value is not parameter.default:
                where = f"the argument {name} of {function.__name__}"
                try:
                    given.arguments[name] = test(value, name, where)
                except IntertwineError:
                    raise
                except Exception as error:  # whatever a thing of others raises when it is looked at
                    raise WrongKind(f"{where} is a {type(value).__name__}: {first_line(error)}") from error
        try:
            return function(*given.args, **given.kwargs)
        except (RuntimeError, ValueError) as error:  # of which those of numpy and torch are
            told = unsolvable(error)
            if told is None:
                raise
            raise told from error

    return call


Test = Callable[[Any, str, str], Any]  # the value, its name, where it stands -> the value to go on with


def _test(parameter: inspect.Parameter, known: Mapping[str, Any]) -> Test | None:
    """What an argument is asked, by its annotation; None where the function asks itself.

    known: the names of the function's module, of which some are classes.
    """
    kind = str(parameter.annotation).removesuffix(" | None")
    if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
        return None
    optional = kind != str(parameter.annotation)
    if kind in _OTHERS:
        return _number(RANGES.get(parameter.name, _OTHERS[kind]), optional, int if kind == "int" else float)
    found = _meaning(kind, known)
    return None if found is None else _kind(*found, optional)


Meaning = tuple[Callable[[Any], bool], str]  # whether a value is of a kind, and the kind in words


def _meaning(kind: str, known: Mapping[str, Any]) -> Meaning | None:
    """What an annotation asks of a value; None where a part of it is not known here."""
    several = _alternatives(kind)
    if len(several) > 1:
        each = [_meaning(part, known) for part in several]
        if any(part is None for part in each):
            return None
        return _any_of([part for part in each if part is not None])
    for start, meaning in _KINDS.items():
        if kind == start or (start.endswith("[") and kind.startswith(start)):
            return _with_items(meaning, kind, known) if start in _ITEMS else meaning
    own = known.get(kind)
    if get_origin(own) is Literal:
        return _KINDS["str"]
    if get_origin(own) is Callable:
        return _KINDS["Callable["]
    if get_origin(own) in (Union, UnionType):
        return _meaning(" | ".join(map(_written, get_args(own))), known)
    if isinstance(own, type) and own is not Any:
        return lambda value: isinstance(value, own), f"{'an' if kind[0] in 'AEIOU' else 'a'} {kind}"
    return None


def _written(part: Any) -> str:
    """A part of an alias as an annotation has it."""
    return (
        str(part).replace("collections.abc.", "").replace("typing.", "") if get_args(part) else part.__name__
    )


def _alternatives(kind: str) -> list[str]:
    """What stands between the bars that are in no brackets.

    >>> _alternatives("Sequence[str | None] | str")
    ['Sequence[str | None]', 'str']
    """
    parts, depth = [""], 0
    for letter in kind:
        depth += (letter == "[") - (letter == "]")
        if letter == "|" and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _any_of(each: list[Meaning]) -> Meaning:
    return lambda value: any(fits(value) for fits, _ in each), " or ".join(
        dict.fromkeys(words for _, words in each)
    )


def _with_items(meaning: Meaning, kind: str, known: Mapping[str, Any]) -> Meaning:
    """A sequence or a mapping whose entries are looked at too, where it may be looked at twice."""
    fits, words = meaning
    entries = kind[kind.index("[") + 1 : kind.rindex("]")].removesuffix(", ...").removeprefix("str, ")
    inner = _meaning(entries, known)
    if inner is None:
        return meaning

    def fit(value: Any) -> bool:
        value = _listed(value)
        try:
            each = value.values() if isinstance(value, Mapping) else value
            return fits(value) and (not hasattr(value, "__len__") or all(map(inner[0], each)))
        except Exception:  # whatever the iteration over a thing of others raises
            return False

    return fit, f"{words} of which each is {inner[1]}"


def _listed(value: Any) -> Any:
    """What an array or a tensor holds; None where it holds nothing that one could look at."""
    if not hasattr(value, "tolist"):
        return value
    try:
        return value.tolist()
    except (RuntimeError, NotImplementedError, TypeError):  # on the device meta, or sparse
        return None


def _number(span: Real | Whole, optional: bool, kind: Callable[[float], float]) -> Test:
    def test(value: Any, name: str, where: str) -> Any:
        if value is None and optional:
            return value
        if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:  # of numpy or torch
            value = value.item()
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise WrongKind(f"{where} is a {type(value).__name__}, not a number")
        return kind(span(value, name))  # torch's whole numbers have 64 bits, its real ones do not

    return test


def _kind(fits: Callable[[Any], bool], what: str, optional: bool) -> Test:
    arrays = any(word in what for word in _ARRAYS)  # elsewhere they are numbers or names, to be compared

    def test(value: Any, name: str, where: str) -> Any:
        if not arrays and hasattr(value, "ndim") and value.ndim and fits(_listed(value)):
            value = _listed(value)
        if isinstance(value, Iterator) and fits([]):  # its entries can be looked at once only
            value = list(value)
        if fits(value) or (value is None and optional):
            return value
        if fits is _is_model:
            raise ModelError(f"expected a torch.nn.Module, got {type(value).__name__}", where=where)
        raise WrongKind(f"{where} is a {type(value).__name__}, not {what}")

    return test


def _is_model(value: Any) -> bool:
    from torch import nn

    return isinstance(value, nn.Module)


def _are_models(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_model, value))


def _is_named(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)


def _is_several(value: Any) -> bool:
    unordered = isinstance(value, str | bytes | set | frozenset | Mapping)
    return isinstance(_listed(value), Iterable) and not unordered


def _is_number(value: Any) -> bool:
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:  # of numpy or torch
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, float) or abs(value) < _LARGEST


def _is_whole(value: Any) -> bool:
    return _is_number(value) and not isinstance(value.item() if hasattr(value, "item") else value, float)


_KINDS: dict[str, Meaning] = {
    "nn.Module": (_is_model, "a torch.nn.Module"),
    "Sequence[nn.Module]": (_are_models, "a list of torch.nn.Module"),
    "bool": (lambda value: type(value).__name__ in ("bool", "bool_"), "True or False"),  # numpy's, too
    "str": (lambda value: isinstance(value, str), "a text"),
    "int": (_is_whole, "a whole number"),
    "float": (_is_number, "a number"),
    "None": (lambda value: value is None, "None"),
    "torch.dtype": (
        lambda value: type(value).__name__ == "dtype" and str(value).startswith("torch."),
        "a dtype",
    ),
    "Callable[": (callable, "a function"),
    "Literal[": (lambda value: isinstance(value, str), "a text"),
    "Mapping[": (_is_named, "a mapping with names"),
    "Sequence[": (_is_several, "a sequence"),
}
_ARRAYS = ("Tensor", "Array", "ndarray")
_ITEMS = ("Sequence[", "Mapping[")
