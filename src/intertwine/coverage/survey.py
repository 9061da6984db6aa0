"""Verify many models, each in a process of its own with a time and a memory limit.

Results are kept after every model, so a killed survey goes on where it was.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from intertwine.errors import InputError
from intertwine.files import replacing


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

    like: models that are not run because they have the architecture of another (see `catalogue`).
    """
    from joblib import Parallel, delayed

    path = Path(out)
    rows = {row.model: row for row in read_rows(path)}
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["intertwine.coverage.worker"])

    def visit(spec: str) -> None:
        rows[spec] = row = _isolated(context, spec, seconds, gigabytes)
        write_rows(path, [rows[s] for s in sorted(rows)])
        progress(row)

    first = {spec: (like or {}).get(spec, spec) for spec in specs}
    todo = [spec for spec in dict.fromkeys(first.values()) if spec not in rows]
    # Threads only wait for processes here.
    Parallel(n_jobs=jobs, backend="threading")(delayed(visit)(spec) for spec in todo)
    return [rows[spec] if spec in rows else _alike(spec, rows[first[spec]]) for spec in specs]


def _alike(spec: str, row: Row) -> Row:
    status = "same" if row.status == "exact" else row.status
    return Row(spec, status, like=row.model, error=row.error)


def _isolated(context: Any, spec: str, seconds: float, gigabytes: float) -> Row:
    from intertwine.coverage.worker import work

    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(send, spec, gigabytes))
    process.start()
    send.close()
    try:
        if receive.poll(seconds):
            return Row(**receive.recv())
        return Row(spec, "failed", error=f"took more than {seconds:.0f} s")
    except EOFError:
        process.join()
        return Row(spec, "failed", error=f"the process died (exit code {process.exitcode})")
    finally:
        process.kill()
        process.join()
        receive.close()


def limit_memory(gigabytes: float) -> None:
    """At most this much more address space than the process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    limit = int(gigabytes * 2**30) + pages * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def read_rows(path: Path) -> list[Row]:
    """Rows of an earlier run, or none."""
    if not path.exists():
        return []
    try:
        return [
            Row(**{**row, "unknown_ops": tuple(row["unknown_ops"])}) for row in json.loads(path.read_text())
        ]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError(f"{path} is not a coverage file: {error}", do="name another file with -o") from error


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """All rows, whole or not at all."""
    with replacing(path) as beside:
        beside.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
