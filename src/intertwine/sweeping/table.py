"""All results of a sweep as one tidy table: a row is one number, its columns say of what."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from intertwine.errors import InputError, MissingExtra
from intertwine.files import replacing
from intertwine.sweeping.store import COLUMNS, ResultStore
from intertwine.sweeping.task import Task

TABLE = "table.parquet"


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise MissingExtra("pyarrow is not installed", do='pip install "intertwine[train]"') from error
    return pyarrow


def write_table(store: ResultStore, tasks: list[Task]) -> Path:
    """DIR/table.parquet from the tasks that are done, in the order of the plan; NaN becomes null."""
    arrow = _pyarrow()
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for task in tasks:
        if store.is_done(task):
            for row in store.rows(task):
                full = {"kind": task.kind, "task": task.key, **row}
                for name in COLUMNS:
                    value = full.get(name)
                    columns[name].append(None if isinstance(value, float) and math.isnan(value) else value)
    schema = arrow.schema([(name, getattr(arrow, kind)()) for name, kind in COLUMNS.items()])
    path = store.root / TABLE
    with replacing(path, parents=True) as beside, beside.open("wb") as file:
        arrow.parquet.write_table(arrow.table(columns, schema=schema), file)
    return path


def read_table(folder: str | Path) -> Any:
    """The pyarrow table of a sweep; `.to_pylist()` gives rows, `.to_pandas()` a frame where pandas is."""
    arrow = _pyarrow()
    path = Path(folder) / TABLE
    try:
        return arrow.parquet.read_table(path)
    except (OSError, arrow.ArrowException) as error:
        raise InputError(f"cannot read {path}: {error}", do="run the sweep first") from error
