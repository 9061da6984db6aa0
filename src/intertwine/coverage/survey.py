"""Verify many models, each in a process of its own with a time and a memory limit.

Results are kept after every model, so a killed survey goes on where it was.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from intertwine.errors import InputError
from intertwine.files import replacing


@dataclass(frozen=True)
class Row:
    """What the survey found out about one model.

    status: exact; wrong (a claimed symmetry does not hold); unproved (a wrong action changes nothing either);
    same (its ops and module are those of `like`, which was verified); failed, with the error.
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
    signature: str = ""
    like: str = ""
    error: str = ""


def survey(
    specs: Sequence[str],
    out: str | Path,
    *,
    jobs: int = 1,
    seconds: float = 600.0,
    gigabytes: float = 10.0,
    dedupe: bool = False,
    progress: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Verify every model of `specs` that `out` does not hold yet, and keep all rows in `out`.

    dedupe: a model with the same defining module and the same set of ops as an earlier one is not run again.
    """
    from joblib import Parallel, delayed

    path = Path(out)
    rows = {row.model: row for row in read_rows(path)}
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["intertwine.coverage.worker"])

    def visit(spec: str) -> None:
        known = {row.signature: row.model for row in rows.values() if row.signature and not row.like}
        row = _isolated(context, spec, known if dedupe else {}, seconds, gigabytes)
        rows[spec] = row
        write_rows(path, [rows[s] for s in sorted(rows)])
        progress(row)

    todo = [spec for spec in specs if spec not in rows]
    # Threads only wait for processes here.
    Parallel(n_jobs=jobs, backend="threading")(delayed(visit)(spec) for spec in todo)
    return [rows[spec] for spec in specs]


def _isolated(context: Any, spec: str, known: dict[str, str], seconds: float, gigabytes: float) -> Row:
    from intertwine.coverage.worker import work

    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(send, spec, known, gigabytes))
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
    except (json.JSONDecodeError, TypeError, KeyError) as error:
        raise InputError(f"{path} is not a coverage file: {error}", do="name another file with -o") from error


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """All rows, whole or not at all."""
    with replacing(path) as beside:
        beside.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
