"""Run independent tasks: processes of this machine through joblib, or a cluster through Ray.

Scheduling, retries and transport are theirs; a backend is a context that gives a function from tasks to their
outcomes, as they come. A worker that dies loses only the task in its hands: Ray starts it again elsewhere,
and a train task goes on from its last saved state.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from intertwine import numbers
from intertwine.errors import InputError, MissingExtra, Unsupported
from intertwine.foreign import report_nothing, safe_workers
from intertwine.sweeping.task import Task, TaskOutcome, run_task
from intertwine.text import first_line, quoted

Mapper = Callable[[list[Task]], Iterator[TaskOutcome]]
_RETRIES = 5
_LISTEN_SECONDS = 10.0
# Ray speaks gRPC, which is HTTP/2: both sides begin with a frame of settings, after the client's greeting.
_SETTINGS = b"\x04"
_HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0" + _SETTINGS + bytes(5)
_RAY = "start one (ray start --head), or unset RAY_ADDRESS to use this machine"


@contextmanager
def joblib_backend(root: Path, jobs: int) -> Iterator[Mapper]:
    """Processes of this machine; this process itself if `jobs` is 1."""
    from joblib import Parallel, delayed
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    def run(tasks: list[Task]) -> Iterator[TaskOutcome]:
        pool = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
        try:
            yield from pool(delayed(run_task)(task, str(root)) for task in tasks)
        except TerminatedWorkerError as error:
            raise Unsupported(
                "a worker process died (out of memory?)",
                so="what was finished is kept",
                do="run the same command again, with fewer --jobs if memory is short",
            ) from error

    with safe_workers():
        yield run


@contextmanager
def ray_backend(root: Path, jobs: int) -> Iterator[Mapper]:
    """A Ray cluster: that of RAY_ADDRESS, or a local one with `jobs` worker processes."""
    report_nothing()
    try:
        import ray
    except ModuleNotFoundError as error:
        raise MissingExtra("ray is not installed", do='pip install "intertwine[distributed]"') from error
    mine = not ray.is_initialized()
    if mine:
        local: dict[str, Any] = {"num_cpus": jobs, "include_dashboard": False}
        address = os.environ.get("RAY_ADDRESS", "")
        _assert_someone_listens(address)
        settings = {} if address else local
        try:
            # as a client's job is, so that what lies in the working directory is not imported by workers
            job = ray.job_config.JobConfig(_client_job=True)
            ray.init(log_to_driver=False, logging_level=logging.ERROR, job_config=job, **settings)
        except Exception as error:  # each kind of address fails in its own way
            at = f" at RAY_ADDRESS={quoted(address)}" if address else ""
            raise InputError(f"Ray cannot be used{at}: {first_line(error)}", do=_RAY) from error
    remote = ray.remote(max_retries=_RETRIES, num_cpus=1)(run_task)

    def run(tasks: list[Task]) -> Iterator[TaskOutcome]:
        waiting = {remote.remote(task, str(root.absolute())): task for task in tasks}
        while waiting:
            (ready, *_), _ = ray.wait(list(waiting))
            task = waiting.pop(ready)
            try:
                yield ray.get(ready)
            except ray.exceptions.RayError as error:  # its worker died time and again
                yield TaskOutcome(task.key, f"{type(error).__name__}: {first_line(error)}")

    try:
        with redirect_stdout(sys.stderr):  # where Ray reports a worker that died
            yield run
    finally:
        if mine:
            ray.shutdown()


def _assert_someone_listens(address: str) -> None:
    """Ray itself waits for minutes, and tells stderr so, for an address where it is not."""
    place = address.removeprefix("ray://")
    host, colon, port = place.rpartition(":")
    if not colon:  # "", "auto" and "local" name no place
        return
    try:
        there = (host.strip("[]"), numbers.Whole(1, 65535)(port))
        with socket.create_connection(there, _LISTEN_SECONDS) as connection:
            if os.environ.get("RAY_USE_TLS", "0") == "0":
                connection.settimeout(_LISTEN_SECONDS)
                connection.sendall(_HTTP2)
                if connection.recv(9)[3:4] != _SETTINGS:
                    raise OSError("what listens there is not Ray")
    except (OSError, ValueError) as error:
        raise InputError(
            f"no Ray cluster answers at RAY_ADDRESS={quoted(address)}: {first_line(error)}",
            do=_RAY,
        ) from error


_BACKENDS: dict[str, Callable[[Path, int], AbstractContextManager[Mapper]]] = {
    "joblib": joblib_backend,
    "ray": ray_backend,
}


def open_backend(name: str, root: Path, jobs: int | None) -> AbstractContextManager[Mapper]:
    """A backend by name; as many jobs as there are cores unless told otherwise."""
    if name not in _BACKENDS:
        raise InputError(f"no backend {name!r}", do=f"choose one of {', '.join(_BACKENDS)}")
    return _BACKENDS[name](root, jobs or os.cpu_count() or 1)
