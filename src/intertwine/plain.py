"""Any value as JSON can hold it."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any


def to_plain(value: Any) -> Any:
    """`value` as JSON can hold it: dataclasses and tensors unfold, NaN and infinity become null.

    >>> from pathlib import Path
    >>> to_plain({"a": float("nan"), 1: (2, Path("x"))})
    {'a': None, '1': [2, 'x']}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | bool | int):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if hasattr(value, "_asdict"):
        return to_plain(value._asdict())
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return [to_plain(item) for item in sorted(value, key=str)]
    if hasattr(value, "tolist"):  # tensors, arrays and their scalars
        return to_plain(value.tolist())
    if isinstance(value, Iterable):
        return [to_plain(item) for item in value]
    return str(value)


def to_json(value: Any) -> str:
    """The JSON document of a value: no NaN, which is not JSON, and nothing that a terminal would obey."""
    text = json.dumps(to_plain(value), indent=2, allow_nan=False, ensure_ascii=False)
    if text.replace("\n", "").isprintable():
        return text + "\n"
    # plain ASCII, and DEL is the one character of it that JSON lets stand
    return json.dumps(to_plain(value), indent=2, allow_nan=False).replace("\x7f", "\\u007f") + "\n"
