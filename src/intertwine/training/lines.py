"""YAML into dataclasses, where every complaint names the file and the line.

`read_yaml` composes the text into nodes (which know their lines) and `build` fills a dataclass from a node
by the types of its fields: int, float, bool, str, Literal, tuple[T, ...], T | None, dict[str, T], Any and
nested dataclasses. Nothing is converted silently except int -> float.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from intertwine import numbers
from intertwine.errors import InputError, MissingExtra
from intertwine.reading import parsing
from intertwine.text import first_line, quoted

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Located:
    """A YAML node and the file it is from."""

    node: Any
    file: str

    @property
    def where(self) -> str:
        """`recipe.yml, line 7`."""
        return f"{self.file}, line {self.node.start_mark.line + 1}"

    def fail(self, what: str, do: str = "") -> InputError:
        """An error that points at this node."""
        return InputError(what, where=self.where, do=do)

    def at(self, node: Any) -> Located:
        return Located(node, self.file)


def yaml() -> Any:
    """PyYAML, or MissingExtra."""
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise MissingExtra("PyYAML is not installed", do='pip install "intertwine[train]"') from error
    return yaml


def read_yaml(text: str, file: str) -> Located:
    """The root node of a YAML text; InputError with the line of a syntax error, or for an empty file."""
    library = yaml()
    with parsing(file):
        try:
            node = library.compose(text, Loader=library.SafeLoader)
        except library.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            where = f"{file}, line {mark.line + 1}" if mark is not None else file
            problem = getattr(error, "problem", None) or first_line(error)
            raise InputError(f"this is not YAML: {problem}", where=where) from error
    if node is None:
        raise InputError("the file is empty", where=file)
    return Located(node, file)


def build(kind: type[T], at: Located, name: str = "the recipe") -> T:
    """An instance of the dataclass `kind` from a mapping node.

    >>> @dataclasses.dataclass
    ... class Point:
    ...     x: int
    ...     y: float = 0.0
    >>> build(Point, read_yaml("x: 1", "point.yml"))
    Point(x=1, y=0.0)
    >>> print(_message(lambda: build(Point, read_yaml("x: 1\\nz: 2", "point.yml"))))
    unknown key 'z' in the recipe
      at   point.yml, line 2
      do   the keys are x, y
    """
    entries = _entries(at, name)
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for key, (where, _) in entries.items():
        if key not in fields:
            near = difflib.get_close_matches(key, fields, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise where.fail(
                f"unknown key {quoted(key)} in {name}", f"{hint}the keys are {', '.join(fields)}"
            )
    for key, field in fields.items():
        needed = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if needed and key not in entries:
            raise at.fail(f"{name} has no {key!r}")
    values = {key: convert(hints[key], node, key) for key, (_, node) in entries.items()}
    try:
        return kind(**values)
    except InputError as error:  # a dataclass that checks itself does not know its lines
        raise InputError(error.what, where=_line_of(error, entries, at), do=error.do) from error


def _line_of(error: InputError, entries: dict[str, tuple[Located, Located]], at: Located) -> str:
    """The line of the key that the complaint starts with, else that of the whole mapping."""
    key = error.what.split(" ", 1)[0].split(".")[0].rstrip(":")
    return (entries[key][0] if key in entries else at).where


def _entries(at: Located, name: str) -> dict[str, tuple[Located, Located]]:
    """key -> (where the key is, where its value is) of a mapping node, each key once."""
    if at.node.id != "mapping":
        raise at.fail(f"{name} must be a mapping (key: value)")
    entries: dict[str, tuple[Located, Located]] = {}
    for key_node, value in at.node.value:
        key = str(key_node.value)
        if key in entries:
            raise at.at(key_node).fail(f"the key {quoted(key)} appears twice in {name}")
        entries[key] = (at.at(key_node), at.at(value))
    return entries


def convert(kind: Any, at: Located, name: str) -> Any:
    """The value of a node as `kind`."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return plain(at)
    if origin in (Union, types.UnionType):
        return _optional(arguments, at, name)
    if origin is Literal:
        value = _scalar(at, name)
        if value not in arguments:
            raise at.fail(f"{name} is {quoted(value)}", f"choose one of {', '.join(map(str, arguments))}")
        return value
    if origin is tuple:
        if at.node.id != "sequence":
            raise at.fail(f"{name} must be a list, as in [1, 2]")
        return tuple(convert(arguments[0], at.at(item), name) for item in at.node.value)
    if origin is dict:
        return {
            key: convert(arguments[1], node, f"{name}.{key}") for key, (_, node) in _entries(at, name).items()
        }
    if dataclasses.is_dataclass(kind):
        return build(typing.cast(type, kind), at, name)
    return _number_or_text(kind, at, name)


def _optional(kinds: tuple[Any, ...], at: Located, name: str) -> Any:
    if type(None) in kinds and at.node.id == "scalar" and _scalar(at, name) is None:
        return None
    rest = [kind for kind in kinds if kind is not type(None)]
    for kind in rest[:-1]:
        try:
            return convert(kind, at, name)
        except InputError:
            continue
    return convert(rest[-1], at, name)


_WORDS = {bool: "true or false", str: "text"}
_NUMBERS: dict[type, Any] = {int: numbers.Whole(-numbers.LARGEST), float: numbers.finite}


def _number_or_text(kind: Any, at: Located, name: str) -> Any:
    value = _scalar(at, name)
    if kind in _NUMBERS:  # YAML 1.1 takes 1e-4, without a dot, for text
        if kind is int and isinstance(value, str):
            raise at.fail(f"{name} must be a whole number, not {quoted(value)}")
        try:
            return _NUMBERS[kind](value, name)
        except InputError as error:
            raise at.fail(error.what) from error
    if type(value) is kind:
        return value
    if kind is str and at.node.id == "scalar":
        return str(at.node.value)
    raise at.fail(f"{name} must be {_WORDS[kind]}, not {quoted(value)}")


def _scalar(at: Located, name: str) -> Any:
    if at.node.id != "scalar":
        raise at.fail(f"{name} must be a single value, not a {at.node.id}")
    return plain(at)


def plain(at: Located) -> Any:
    """The node as plain Python data, as yaml.safe_load would give it."""
    library = yaml()
    loader = library.SafeLoader("")
    try:
        with parsing("this"):  # 2024-13-45 and !!int abc raise what they like
            return loader.construct_document(at.node)
    except InputError as error:
        raise at.fail(error.what) from error


def _message(call: Any) -> str:
    """The text of the InputError that a call raises (for the examples above)."""
    try:
        call()
    except InputError as error:
        return str(error)
    return ""
