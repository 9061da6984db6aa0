"""Run independent tasks: processes of this machine through joblib, or a cluster through Ray.

Scheduling, retries and transport are theirs; a backend is a context that gives a function from tasks to their
outcomes, as they come. A worker that dies loses only the task in its hands: Ray starts it again elsewhere,
and a train task goes on from its last saved state.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from intertwine.errors import InputError, MissingExtra, Unsupported
from intertwine.sweep.task import Outcome, Task, run_task

Mapper = Callable[[list[Task]], Iterator[Outcome]]
_RETRIES = 5


@contextmanager
def joblib_backend(root: Path, jobs: int) -> Iterator[Mapper]:
    """Processes of this machine; this process itself if `jobs` is 1."""
    from joblib import Parallel, delayed
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    def run(tasks: list[Task]) -> Iterator[Outcome]:
        pool = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
        try:
            yield from pool(delayed(run_task)(task, str(root)) for task in tasks)
        except TerminatedWorkerError as error:
            raise Unsupported(
                "a worker process died (out of memory?)",
                so="what was finished is kept",
                do="run the same command again, with fewer --jobs if memory is short",
            ) from error

    yield run


@contextmanager
def ray_backend(root: Path, jobs: int) -> Iterator[Mapper]:
    """A Ray cluster: that of RAY_ADDRESS, or a local one with `jobs` worker processes."""
    try:
        import ray
    except ModuleNotFoundError as error:
        raise MissingExtra("ray is not installed", do='pip install "intertwine[distributed]"') from error
    mine = not ray.is_initialized()
    if mine:
        local: dict[str, Any] = {"num_cpus": jobs, "include_dashboard": False}
        settings = {} if "RAY_ADDRESS" in os.environ else local
        ray.init(log_to_driver=False, logging_level=logging.ERROR, **settings)
    remote = ray.remote(max_retries=_RETRIES, num_cpus=1)(run_task)

    def run(tasks: list[Task]) -> Iterator[Outcome]:
        waiting = {remote.remote(task, str(root.absolute())): task for task in tasks}
        while waiting:
            (ready, *_), _ = ray.wait(list(waiting))
            task = waiting.pop(ready)
            try:
                yield ray.get(ready)
            except ray.exceptions.RayError as error:  # its worker died time and again
                yield Outcome(task.key, f"{type(error).__name__}: {str(error).splitlines()[0]}")

    try:
        with redirect_stdout(sys.stderr):  # where Ray reports a worker that died
            yield run
    finally:
        if mine:
            ray.shutdown()


_BACKENDS: dict[str, Callable[[Path, int], AbstractContextManager[Mapper]]] = {
    "joblib": joblib_backend,
    "ray": ray_backend,
}


def open_backend(name: str, root: Path, jobs: int | None) -> AbstractContextManager[Mapper]:
    """A backend by name; as many jobs as there are cores unless told otherwise."""
    if name not in _BACKENDS:
        raise InputError(f"no backend {name!r}", do=f"choose one of {', '.join(_BACKENDS)}")
    return _BACKENDS[name](root, jobs or os.cpu_count() or 1)
