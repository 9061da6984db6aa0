"""What a run tells: RUN/metrics.jsonl, TensorBoard events where tensorboard is installed, and a listener.

The journal follows the state: on resuming, lines of epochs that the state has not reached are dropped (they
are about to be made again), and so is a line that a kill cut short.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from intertwine.errors import InputError
from intertwine.files import read_regular, write_bytes
from intertwine.training.state import METRICS

_FIELDS = {"epoch", "loss", "accuracy", "test_accuracy", "test_loss"}
Listener = Callable[[dict[str, Any]], None]


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The whole lines of RUN/metrics.jsonl, in order."""
    try:
        lines = read_regular(Path(folder) / METRICS).splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"cannot read {Path(folder) / METRICS}: {error.strerror}") from error
    rows = []
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):  # the last line of a killed process
            break
        if not isinstance(row, dict) or _FIELDS - row.keys():
            break
        rows.append(row)
    return rows


class Journal:
    """Appends epochs to metrics.jsonl and TensorBoard; `close` it, or use it with `with`.

    Of several processes only one writes.
    """

    def __init__(self, folder: Path, epoch: int, *, writes: bool = True) -> None:
        self.path, self.writes, self._events = folder / METRICS, writes, None
        self.rows = read_metrics(folder)[:epoch]
        if [row["epoch"] for row in self.rows] != list(range(1, epoch + 1)):
            raise InputError(
                f"{self.path} does not hold the {epoch} epochs that the run has behind it",
                so="the run cannot go on",
                do="put it back, or choose a new folder with -o",
            )
        if writes:
            write_bytes(self.path, "".join(map(_line, self.rows)).encode())
            self._events = _summary_writer(folder / "tensorboard", epoch)

    def add(self, row: dict[str, Any]) -> None:
        """Write one epoch."""
        self.rows.append(row)
        if not self.writes:
            return
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(_line(row))
                file.flush()
                os.fsync(file.fileno())  # the state that says so comes next
        except OSError as error:
            raise InputError(f"cannot write {self.path}: {error.strerror}", do="make room there") from error
        if self._events is not None:
            for name, value in row.items():
                if name != "epoch" and value is not None:
                    self._events.add_scalar(name, value, row["epoch"])
            self._events.flush()

    def close(self) -> None:
        if self._events is not None:
            self._events.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _line(row: dict[str, Any]) -> str:
    return json.dumps(row, allow_nan=False) + "\n"


def _summary_writer(folder: Path, epoch: int) -> Any:
    """TensorBoard's writer, or None where it is not installed; later steps of a killed run are purged."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder), purge_step=epoch + 1)
