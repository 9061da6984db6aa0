"""coverage: verify over a library of models, whole or in parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from intertwine.checks import checked
from intertwine.errors import InputError
from intertwine.numbers import count
from intertwine.progress import Progress, counted
from intertwine.results import Result, Table
from intertwine.surveying.catalogues import catalogue, smallest_of_each
from intertwine.surveying.libraries import targets
from intertwine.surveying.surveys import Row, survey
from intertwine.surveying.table import render
from intertwine.text import quoted

STATUSES = ("exact", "same", "wrong", "unproved", "failed")


@dataclass(frozen=True, repr=False)
class Coverage(Result):
    """One row a model."""

    library: str
    rows: tuple[Row, ...]

    @property
    def counts(self) -> dict[str, int]:
        """How many models have each status."""
        found = Counter(row.status for row in self.rows)
        return {status: found[status] for status in STATUSES}

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `intertwine coverage --json` prints it."""
        return {"library": self.library, "counts": self.counts, "rows": [asdict(row) for row in self.rows]}

    def tables(self) -> Sequence[Table]:
        """The totals."""
        title = f"{self.library}: {len(self.rows)} models"
        return [Table(title, list(self.counts), [list(self.counts.values())])]

    def page(self, **options: Any) -> Any:
        """How much is covered, and what froze the rest."""
        from intertwine.surveying.page import coverage_page

        return coverage_page(self, **options)

    def markdown(self) -> str:
        """The whole table."""
        return render(self.library, self.rows)


@checked
def coverage(
    library: str,
    out: str | Path,
    *,
    filter: str = "*",
    all: bool = False,
    each_module: bool = False,
    shard: str = "1/1",
    dedupe: bool = False,
    jobs: int = 1,
    seconds: float = 600.0,
    memory: float = 1e10,
    progress: Progress | None = None,
    each: Callable[[Row], None] | None = None,
) -> Coverage:
    """Verify every model of a library with random weights; rows are kept in the JSON file `out`.

    filter: only names that match. all: of hf every config type that has a model, not a sample. each_module:
    only the smallest model of every module. dedupe: of models with the same module and ops, run the smallest.
    shard: "I/N", the I-th of N parts. seconds, memory (bytes): what a model may take. each: called with every
    row. A call that was stopped goes on.
    """
    specs, like = _choose(library, Path(out), filter, all, each_module, shard, dedupe, progress)
    advance = counted(progress, len(set(like.values()) if like else specs), f"{library}: models")

    def tell(row: Row) -> None:
        if advance is not None:
            advance(1)
        if each is not None:
            each(row)

    rows = survey(
        specs, out, jobs=jobs, seconds=seconds, gigabytes=memory / 1e9, like=like, progress=tell
    )  # fmt: skip
    return Coverage(library, tuple(rows))


def _choose(
    library: str, out: Path, pattern: str, all: bool, each_module: bool, shard: str, dedupe: bool,
    progress: Progress | None,
) -> tuple[list[str], dict[str, str]]:  # fmt: skip
    """The models of this shard, and with `dedupe` the model that stands for each."""
    specs = targets(library, pattern, all)
    if not (each_module or dedupe):
        return _shard(specs, shard), {}
    advance = counted(progress, len(specs), f"{library}: modules and ops")
    entries = catalogue(specs, out.with_suffix(".catalogue.json"), lambda: advance and advance(1))
    if each_module:
        return _shard(sorted(set(smallest_of_each(entries, lambda e: e.module).values())), shard), {}
    like = smallest_of_each(entries, lambda e: e.architecture)
    mine = set(_shard(sorted(set(like.values())), shard))
    # By size, as `smallest_of_each` leaves them: a run that is stopped has most of its rows.
    like = {spec: first for spec, first in like.items() if first in mine}
    return list(like), like


def _shard(specs: list[str], text: str) -> list[str]:
    try:
        part, whole = map(count, text.split("/"))
        if part > whole:
            raise ValueError
    except ValueError as error:
        raise InputError(
            f"cannot read the shard {quoted(text)}", do="write I/N with 1 <= I <= N, as in 1/4"
        ) from error
    return specs[part - 1 :: whole]
