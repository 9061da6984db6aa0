"""Verify many models, each in a process of its own with a time and a memory limit.

Results are kept after every model, so a killed survey goes on where it was. Several surveys may share a
file: each adds its rows to what is there, under a lock.
"""

from __future__ import annotations

import multiprocessing
import resource
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from intertwine.foreign import safe_workers
from intertwine.surveying.rows import Kept, read_items

_FAREWELL = 10.0  # seconds, for a process that has done its work
PATIENCE = 20  # times its limit that a model may take by the clock: it may wait, and other work go on


@dataclass(frozen=True)
class Row:
    """What the survey found out about one model.

    status: exact; wrong (a claimed symmetry does not hold); unproved (a wrong action changes nothing either);
    same (its module and ops are those of `like`, which is exact); failed, with the error.
    """

    model: str
    status: str
    parameters: int = 0
    max_error: float | None = None
    control_error: float | None = None
    parameter_coverage: float | None = None
    axes: int = 0
    frozen: dict[str, str] = field(default_factory=dict)
    unknown_ops: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    like: str = ""
    error: str = ""
    limits: dict[str, float] = field(default_factory=dict)  # under which it failed


def survey(
    specs: Sequence[str],
    out: str | Path,
    *,
    jobs: int = 1,
    seconds: float = 600.0,
    gigabytes: float = 10.0,
    like: Mapping[str, str] | None = None,
    progress: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Verify every model of `specs` that `out` does not hold yet, and keep all rows in `out`.

    A model that failed under other limits, or for want of a processor, is tried again. like: models that are
    not run because they have the architecture of another (see `catalogue`).
    """
    from joblib import Parallel, delayed

    limits = {"seconds": float(seconds), "gigabytes": float(gigabytes)}
    kept = Kept(out, Row, "coverage file", "model", indent=1)
    lock = threading.Lock()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["intertwine.surveying.worker"])

    def is_settled(spec: str) -> bool:
        row = kept.items.get(spec)
        return row is not None and (row.status != "failed" or row.limits == limits)

    def visit(spec: str) -> None:
        with lock:
            kept.read()  # another survey may have been there
            known = is_settled(spec)
        if not known:
            row = _isolated(context, spec, seconds, gigabytes)
            row = replace(row, limits=row.limits or limits) if row.status == "failed" else row
            with lock:
                kept.add([row])
        progress(kept.items[spec])

    first = {spec: (like or {}).get(spec, spec) for spec in specs}
    todo = [spec for spec in dict.fromkeys(first.values()) if not is_settled(spec)]
    # Threads only wait for processes here.
    with safe_workers():
        Parallel(n_jobs=jobs, backend="threading")(delayed(visit)(spec) for spec in todo)
    rows = kept.items
    return [rows[spec] if spec in rows else _alike(spec, rows[first[spec]]) for spec in specs]


def _alike(spec: str, row: Row) -> Row:
    status = "same" if row.status == "exact" else row.status
    return Row(spec, status, like=row.model, error=row.error)


def _isolated(context: Any, spec: str, seconds: float, gigabytes: float) -> Row:
    from intertwine.surveying.worker import work

    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(send, spec, gigabytes, seconds))
    process.start()
    send.close()
    try:
        if receive.poll(PATIENCE * seconds):
            row = Row(**receive.recv())
            process.join(_FAREWELL)  # killed, it would leave what it holds to Python's tracker, which says so
            return row
        # Said of the machine, not of the model: under other limits than those asked for, so tried again.
        limit = PATIENCE * seconds
        return Row(spec, "failed", error=f"took over {limit:.0f} s by the clock", limits={"clock": limit})
    except EOFError:
        process.join()
        if process.exitcode == -signal.SIGXCPU:
            return Row(spec, "failed", error=f"took more than {seconds:.0f} s")
        return Row(spec, "failed", error=f"the process died (exit code {process.exitcode})")
    finally:
        process.kill()
        process.join()
        receive.close()


def limit_memory(gigabytes: float) -> None:
    """At most this much more address space than the process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    _limit(resource.RLIMIT_AS, int(gigabytes * 2**30) + pages * resource.getpagesize())


def limit_time(seconds: float) -> None:
    """At most so many seconds of the processor: a limit by the clock would depend on who else computes."""
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    _limit(resource.RLIMIT_CPU, int(used + seconds) + 1, grace=5)


def _limit(kind: int, limit: int, grace: int = 0) -> None:
    """Lower a limit; one that is lower already (ulimit) stays, since nobody may raise it."""
    _, most = resource.getrlimit(kind)
    most = limit + grace if most == resource.RLIM_INFINITY else min(most, limit + grace)
    resource.setrlimit(kind, (min(limit, most), most))


def read_rows(path: str | Path) -> list[Row]:
    """Rows of an earlier run, or none."""
    return read_items(Path(path), Row, "coverage file")
