"""Results on disk: DIR/results/KEY/result.json, written last and as a whole, means that KEY is done.

It is believed only if it says what the planned task says (so that its key is the name of its folder) and if
the files that it lists are there in the size that they had.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from intertwine.errors import InputError
from intertwine.files import clear_lock, locked, read_json, write_bytes
from intertwine.sweeping.task import Need, Row, Task, find_kind

RESULT, _LOCK = "result.json", ".lock"
# The columns of the table, and what a row may hold in each.
COLUMNS = {
    "kind": "string", "task": "string", "model": "string", "seed": "int64", "model_b": "string",
    "seed_b": "int64", "layer": "string", "layer_b": "string", "epoch": "int64", "setting": "float64",
    "quantity": "string", "value": "float64",
}  # fmt: skip
_TYPES: dict[str, tuple[type, ...]] = {"string": (str,), "int64": (int,), "float64": (int, float)}


class ResultStore:
    """The results below one folder; on a cluster the folder must be visible to every machine."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._done: dict[str, dict[str, Any]] = {}  # results never change once they are believed

    def assert_ours(self, *names: str) -> None:
        """InputError if files that are about to be written are there and no run wrote any results here."""
        results = self.root / "results"
        found = [name for name in names if (self.root / name).exists()]
        if results.exists() and not results.is_dir():
            found = [results.name]
        if found and not results.is_dir():
            raise InputError(
                f"{self.root} holds {found[0]}, which nothing of ours wrote",
                so="nothing was changed",
                do="choose another folder with -o",
            )

    def folder(self, task: Task) -> Path:
        """Where a task keeps its files."""
        return self.root / "results" / task.key

    def locked(self, task: Task) -> AbstractContextManager[None]:
        """One process at a time works on a task."""
        return locked(self.folder(task) / _LOCK, f"works on {task.label or task.key}")

    def tidy(self, task: Task) -> None:
        """Remove the lock of a process that was killed right after it had finished a task."""
        clear_lock(self.folder(task) / _LOCK, f"works on {task.label or task.key}")

    def is_done(self, task: Task) -> bool:
        """Whether there is a result of exactly this task."""
        if task.key not in self._done:
            found = self._read(task)
            if found is None:
                return False
            self._done[task.key] = found
        return True

    def need(self, task: Task) -> Need:
        """A finished task, for one that reads it."""
        if not self.is_done(task):
            raise InputError(f"the result of {task.label or task.key} is gone", do="run the sweep again")
        files = {name: digest for name, (_, digest) in self._done[task.key]["files"].items()}
        return Need(task, self.folder(task), files)

    def finish(self, task: Task, rows: list[Row]) -> None:
        """Keep the rows; from now on the task is done."""
        content = {**_says(task), "rows": rows, "files": self._files(task)}
        write_bytes(self.folder(task) / RESULT, json.dumps(content).encode(), parents=True)

    def rows(self, task: Task) -> list[Row]:
        """The rows of a task that is done."""
        if not self.is_done(task):
            raise InputError(f"there is no result of {task.label or task.key} in {self.folder(task)}")
        rows: list[Row] = self._done[task.key]["rows"]
        return rows

    def _read(self, task: Task) -> dict[str, Any] | None:
        try:
            found = read_json(self.folder(task) / RESULT)
        except (OSError, ValueError):
            return None
        if not isinstance(found, dict) or {key: found.get(key) for key in _says(task)} != _says(task):
            return None
        if not _are_rows(found.get("rows")) or not self._are_there(task, found.get("files")):
            return None
        return found

    def _files(self, task: Task) -> dict[str, tuple[int, str]]:
        """Size and digest of what a task leaves to others."""
        paths = {name: self.folder(task) / name for name in find_kind(task.kind).files}
        return {name: (path.stat().st_size, digest_of(path)) for name, path in paths.items()}

    def _are_there(self, task: Task, files: Any) -> bool:
        """Whether the files are there in their sizes; who reads one compares its digest too."""
        if not isinstance(files, dict) or files.keys() != set(find_kind(task.kind).files):
            return False
        for name, entry in files.items():
            path = self.folder(task) / name
            if not (isinstance(entry, list) and len(entry) == 2 and isinstance(entry[1], str)):
                return False
            if not path.is_file() or path.stat().st_size != entry[0]:
                return False
        return True


def _says(task: Task) -> dict[str, Any]:
    """What a result says about its task: all that its key is made of."""
    version = find_kind(task.kind).version
    needs = [need.key for need in task.needs]
    return {"kind": task.kind, "version": version, "inputs": json.loads(task.inputs), "needs": needs}


def digest_of(path: Path) -> str:
    """The hash of a file; empty where there is none."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def _are_rows(rows: Any) -> bool:
    return isinstance(rows, list) and all(isinstance(row, dict) and _is_row(row) for row in rows)


def _is_row(row: Mapping[str, Any]) -> bool:
    return all(
        name in COLUMNS and (value is None or (type(value) in _TYPES[COLUMNS[name]] and _fits(value)))
        for name, value in row.items()
    )


def _fits(value: Any) -> bool:
    return not isinstance(value, int) or -(2**63) <= value < 2**63
