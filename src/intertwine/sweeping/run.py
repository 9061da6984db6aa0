"""Run what is not done yet, wave by wave, and write the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from intertwine import zoo
from intertwine.checks import checked
from intertwine.errors import ModelError
from intertwine.progress import Progress
from intertwine.results import Result, Table
from intertwine.sweeping.backends import open_backend
from intertwine.sweeping.plan import plan_sweep
from intertwine.sweeping.spec import Sweep, read_sweep
from intertwine.sweeping.store import ResultStore
from intertwine.sweeping.table import TABLE, read_table, write_table
from intertwine.sweeping.task import Task


@dataclass(frozen=True)
class Tally:
    """How many tasks there are, how many ran now, and which failed and why."""

    tasks: int
    ran: int
    failed: dict[str, str]
    exit_code: int  # 2 where a task failed by bad input, 1 where it failed otherwise

    @property
    def reused(self) -> int:
        return self.tasks - self.ran


@dataclass(frozen=True, repr=False)
class SweepReport(Tally, Result):
    """What a sweep did, and where its table is."""

    table: Path

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `intertwine sweep --json` prints it."""
        return {"table": str(self.table), "tasks": self.tasks, "ran": self.ran, "failed": self.failed}

    def tables(self) -> Sequence[Table]:
        """The numbers of the table file, a row a number."""
        found = read_table(self.table.parent)
        return [Table("sweep", found.column_names, [list(row.values()) for row in found.to_pylist()])]

    def page(self, **options: Any) -> Any:
        """The spread of every quantity, and what failed."""
        from intertwine.sweeping.page import sweep_page

        return sweep_page(self, **options)

    def remarks(self) -> list[str]:
        """Counts, failures and where the table is."""
        counts = f"{self.tasks} tasks: {self.reused} were done before, {self.ran} ran now"
        failures = [f"failed: {label}: {error}" for label, error in self.failed.items()]
        return [counts, *failures, f"wrote {self.table}"]


@checked
def sweep(
    sweep: Sweep | str | Path,
    out: str | Path,
    *,
    backend: str = "joblib",
    jobs: int | None = None,
    progress: Progress | None = None,
) -> SweepReport:
    """Do the tasks of a sweep, or of its file, that are not done; write out/table.parquet from all that are.

    A failed task stops only what needs it; the same call tries it again. Data that cannot be read and models
    that do not exist are told before anything is written.
    """
    chosen = sweep if isinstance(sweep, Sweep) else read_sweep(sweep)
    return run_sweep(chosen, out, backend=backend, jobs=jobs, progress=progress)


def run_sweep(
    sweep: Sweep,
    folder: str | Path,
    *,
    backend: str = "joblib",
    jobs: int | None = None,
    progress: Progress | None = None,
) -> SweepReport:
    """`sweep` of a Sweep."""
    store, waves = ResultStore(Path(folder)), plan_sweep(sweep)
    store.assert_ours(TABLE)

    def check(tasks: list[Task]) -> None:
        assert_can_start(sweep, tasks)

    tally = run_tasks(waves, store, backend=backend, jobs=jobs, progress=progress, check=check)
    table = write_table(store, [task for wave in waves for task in wave])
    return SweepReport(tally.tasks, tally.ran, tally.failed, tally.exit_code, table)


def run_tasks(
    waves: list[list[Task]],
    store: ResultStore,
    *,
    backend: str = "joblib",
    jobs: int | None = None,
    progress: Progress | None = None,
    check: Callable[[list[Task]], None] | None = None,
) -> Tally:
    """Do the tasks that are not done; a task needs only tasks of earlier waves.

    check: is given the tasks of the first wave that are to run, and raises what would stop them all.
    """
    everything = [task for wave in waves for task in wave]
    labels = {task.key: task.label for task in everything}
    done = {task.key for task in everything if store.is_done(task)}
    for task in everything:
        if task.key in done:
            store.tidy(task)
    failed: dict[str, str] = {}
    ran = code = 0
    if len(done) < len(labels):
        if check is not None:
            check([task for task in waves[0] if task.key not in done])
        with open_backend(backend, store.root, jobs) as run:
            for wave in waves:
                for outcome in run(_ready(wave, done, failed)):
                    ran += 1
                    if outcome.error:
                        failed[labels[outcome.key]] = outcome.error
                        code = max(code, outcome.code or 1)  # a worker that died has none
                    else:
                        done.add(outcome.key)
                    if progress is not None:
                        progress(len(done), len(labels), labels[outcome.key])
    return Tally(len(everything), ran, failed, code)


def assert_can_start(sweep: Sweep, tasks: list[Task]) -> None:
    """Raise the InputError that every one of these train tasks would end with."""
    from intertwine.sweeping.kinds import load_data_of

    for model in sweep.train.models:
        _assert_exists(model)
    if tasks:
        load_data_of(tasks[0])


def _assert_exists(model: str) -> None:
    kind, _, name = model.rpartition(":")
    if kind in ("", "zoo"):
        zoo.entry(name)
    elif kind.endswith(".py") and not Path(kind).is_file():
        raise ModelError(f"no such file: {kind}", do="paths are relative to the working directory")


def _ready(wave: list[Task], done: set[str], failed: dict[str, str]) -> list[Task]:
    """The tasks of a wave that are to run; those whose needs failed are noted instead."""
    todo: dict[str, Task] = {}
    for task in wave:
        missing = [need for need in task.needs if need.key not in done]
        if task.key not in done and missing:
            failed[task.label] = f"needs {missing[0].label or missing[0].key}, which failed"
        elif task.key not in done:
            todo[task.key] = task
    return list(todo.values())
