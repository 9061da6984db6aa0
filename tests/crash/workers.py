"""A pool of forked workers, so that the driver of a sweep can die while they go on.

joblib and Ray do the same through processes that take seconds to start; what is written where does not depend
on how a task reaches its worker. Orphans of a killed driver are adopted, and waited for when all is over.
"""

from __future__ import annotations

import ctypes
import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from intertwine.sweeping import backends
from intertwine.sweeping.task import Task, TaskOutcome, run_task

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Children of children that died become ours."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def wait_for_orphans() -> None:
    """Until no child is left."""
    with suppress(ChildProcessError):
        while True:
            os.wait()


def fork_workers() -> None:
    """From now on in this process, joblib's place is taken by a fork for every task."""
    backends._BACKENDS["joblib"] = _forked


@contextmanager
def _forked(root: Path, jobs: int) -> Iterator[backends.Mapper]:
    def run(tasks: list[Task]) -> Iterator[TaskOutcome]:
        running = [_start(task, root) for task in tasks]
        for pipe in running:
            with open(pipe, "rb") as file:
                yield pickle.load(file)

    yield run


def _start(task: Task, root: Path) -> int:
    """The reading end of the pipe that a new worker writes its outcome to."""
    read, write = os.pipe()
    if not os.fork():
        os.close(read)
        with suppress(BrokenPipeError), open(write, "wb") as file:  # the driver is gone
            pickle.dump(run_task(task, str(root)), file)
        os._exit(0)
    os.close(write)
    return read
