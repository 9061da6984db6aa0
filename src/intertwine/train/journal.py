"""What a run tells: RUN/metrics.jsonl, TensorBoard events where tensorboard is installed, and a listener.

The journal follows the state: on resuming, lines of epochs that the state has not reached are dropped (they
are about to be made again), and so is a line that a kill cut short.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from intertwine.errors import InputError
from intertwine.files import replacing
from intertwine.train.state import METRICS

Listener = Callable[[dict[str, Any]], None]


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The whole lines of RUN/metrics.jsonl, in order."""
    path = Path(folder) / METRICS
    rows = []
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                rows.append(json.loads(line))
            except ValueError:  # the last line of a killed process
                break
    return rows


class Journal:
    """Appends epochs to metrics.jsonl and TensorBoard; `close` it, or use it with `with`.

    Of several processes only one writes.
    """

    def __init__(self, folder: Path, epoch: int, *, writes: bool = True) -> None:
        self.path, self.writes, self._events = folder / METRICS, writes, None
        self.rows = [row for row in read_metrics(folder) if row["epoch"] <= epoch]
        if writes:
            with replacing(self.path) as beside:
                beside.write_text("".join(_line(row) for row in self.rows), encoding="utf-8")
            self._events = _summary_writer(folder / "tensorboard", epoch)

    def add(self, row: dict[str, Any]) -> None:
        """Write one epoch."""
        self.rows.append(row)
        if not self.writes:
            return
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(_line(row))
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
