"""Run what is not done yet, wave by wave, and write the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from intertwine.sweep.backends import open_backend
from intertwine.sweep.plan import plan_sweep
from intertwine.sweep.spec import Sweep
from intertwine.sweep.store import Store
from intertwine.sweep.table import write_table
from intertwine.sweep.task import Task

Progress = Callable[[str, int, int], None]  # (what has ended, how many are done, of how many)


@dataclass(frozen=True)
class Report:
    """How many tasks there are, how many ran now, and which failed and why."""

    table: Path
    tasks: int
    ran: int
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def reused(self) -> int:
        return self.tasks - self.ran


def run_sweep(
    sweep: Sweep,
    folder: str | Path,
    *,
    backend: str = "joblib",
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Report:
    """Do the tasks of a sweep that are not done, and write DIR/table.parquet from all that are.

    A failed task stops only what needs it; the same call tries it again.
    """
    store = Store(Path(folder))
    waves = plan_sweep(sweep)
    everything = [task for wave in waves for task in wave]
    labels = {task.key: task.label for task in everything}
    failed: dict[str, str] = {}
    ran = 0
    if not all(store.is_done(task.key) for task in everything):
        with open_backend(backend, store.root, jobs) as run:
            for wave in waves:
                for outcome in run(_ready(wave, store, failed, labels)):
                    ran += 1
                    if outcome.error:
                        failed[labels[outcome.key]] = outcome.error
                    if progress is not None:
                        done = sum(store.is_done(task.key) for task in everything)
                        progress(labels[outcome.key], done, len(everything))
    return Report(write_table(store, everything), len(everything), ran, failed)


def _ready(wave: list[Task], store: Store, failed: dict[str, str], labels: dict[str, str]) -> list[Task]:
    """The tasks of a wave that are to run; those whose needs failed are noted instead."""
    todo: dict[str, Task] = {}
    for task in wave:
        if store.is_done(task.key):
            continue
        missing = [key for key in task.needs if not store.is_done(key)]
        if missing:
            failed[task.label] = f"needs {labels.get(missing[0], missing[0])}, which failed"
        else:
            todo[task.key] = task
    return list(todo.values())
