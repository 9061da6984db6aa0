"""What every verb returns: numbers (`to_dict`), a table (`to_frame`), a page (`page`, `save`), a `repr`.

A result says `to_dict` and `tables`; the rest follows, on the terminal and in a notebook alike.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from intertwine.cells import format_cell
from intertwine.checks import checked
from intertwine.errors import InputError, MissingExtra
from intertwine.files import write_bytes
from intertwine.plain import to_json, to_plain

if TYPE_CHECKING:
    import pandas


_LONGEST = 100  # characters of a repr


class Table(NamedTuple):
    """Rows under column names; `right`: the columns of numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    right: Sequence[str] = ()


class Result:
    """What the results of all verbs can do.

    >>> class Two(Result):
    ...     def to_dict(self):
    ...         return {"a": 1, "rows": [1, 2]}
    ...     def tables(self):
    ...         return [Table("two <b>", ["n"], [[1], [2]])]
    >>> Two()
    Two(a=1)
    >>> "two &lt;b&gt;" in Two()._repr_html_()
    True
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in {"page", "save"} & vars(cls).keys():  # of every result, its own form of them included
            setattr(cls, name, checked(vars(cls)[name]))
        if "to_dict" in vars(cls):
            setattr(cls, "to_dict", _plainly(vars(cls)["to_dict"]))  # noqa: B010 (mypy knows methods)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `--json` prints it: what json.dumps takes, and None for what is no number."""
        raise NotImplementedError

    def tables(self) -> Sequence[Table]:
        """What is shown; the first one is what `to_frame` gives."""
        numbers = [[name, value] for name, value in self.to_dict().items() if _is_short(value)]
        return [Table(type(self).__name__, ["", ""], numbers)]

    def remarks(self) -> Sequence[str]:
        """Lines that stand below the tables."""
        return ()

    def to_frame(self) -> pandas.DataFrame:
        """The first table as a pandas DataFrame."""
        try:
            import pandas
        except ImportError as error:
            raise MissingExtra(
                "to_frame() needs pandas", do="pip install pandas, or use to_dict()"
            ) from error
        table = self.tables()[0]
        return pandas.DataFrame([list(row) for row in table.rows], columns=list(table.columns))

    def page(self, **options: Any) -> Any:
        """The HTML page, with pictures where there are some."""
        import intertwine  # pages lie above all results

        return intertwine.page(self, **options)

    @checked
    def save(self, path: str | Path) -> Path:
        """The page (.html) or the numbers (.json), whole or not at all."""
        kind = Path(path).suffix
        if kind == ".html":
            result: Path = self.page().write(path)
            return result
        if kind == ".json":
            return write_bytes(path, to_json(self.to_dict()).encode())
        raise InputError(f"cannot save as {kind or 'a file without an ending'}", do="use .html or .json")

    def __repr__(self) -> str:
        told = self.to_dict()
        parts = [f"{key}={_short(value)}" for key, value in told.items() if _is_short(value)]
        parts = parts or [f"{key}: {len(value)}" for key, value in told.items() if value]
        text = f"{type(self).__name__}({', '.join(parts)})"
        return text if len(text) <= _LONGEST else text[: _LONGEST - 4] + "...)"

    def _repr_html_(self) -> str:
        lines = [f"<p>{html.escape(line)}</p>" for line in self.remarks()]
        return "".join([*map(_table_html, self.tables()), *lines])


def _plainly(to_dict: Callable[[Any], dict[str, Any]]) -> Callable[[Any], dict[str, Any]]:
    @wraps(to_dict)
    def plain(self: Any) -> dict[str, Any]:
        told: dict[str, Any] = to_plain(to_dict(self))
        return told

    return plain


def _is_short(value: Any) -> bool:
    return value is None or isinstance(value, str | bool | int | float)


def _short(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) else format_cell(value)


def _table_html(table: Table) -> str:
    def row(tag: str, cells: Sequence[Any]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(format_cell(c))}</{tag}>" for c in cells) + "</tr>"

    body = "".join(row("td", cells) for cells in table.rows)
    title = f"<caption>{html.escape(table.title)}</caption>"
    return f"<table>{title}<thead>{row('th', table.columns)}</thead><tbody>{body}</tbody></table>"
