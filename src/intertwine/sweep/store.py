"""Results on disk: DIR/results/KEY/result.json, written last and as a whole, means that KEY is done."""

from __future__ import annotations

import json
from pathlib import Path

from intertwine.errors import InputError
from intertwine.files import replacing
from intertwine.sweep.task import Row, Task


class Store:
    """The results below one folder; on a cluster the folder must be visible to every machine."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, key: str) -> Path:
        """Where a task keeps its files."""
        place = self.root / "results" / key
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot make {place}: {error.strerror}", do="choose another -o") from error
        return place

    def is_done(self, key: str) -> bool:
        return (self.root / "results" / key / "result.json").is_file()

    def finish(self, task: Task, rows: list[Row]) -> None:
        """Keep the rows; from now on the task is done."""
        content = {"kind": task.kind, "inputs": json.loads(task.inputs), "needs": task.needs, "rows": rows}
        with replacing(self.folder(task.key) / "result.json") as beside:
            beside.write_text(json.dumps(content), encoding="utf-8")

    def rows(self, key: str) -> list[Row]:
        """The rows of a task that is done."""
        path = self.root / "results" / key / "result.json"
        try:
            rows: list[Row] = json.loads(path.read_text(encoding="utf-8"))["rows"]
        except (OSError, ValueError, KeyError) as error:
            raise InputError(f"cannot read {path}: {error}", do="delete it to run the task again") from error
        return rows
