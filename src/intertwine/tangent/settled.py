"""The null space of a Jacobian over so many inputs that fresh ones do not shrink it.

Rows are gathered until there are more than columns. If their rank is the largest that there can be, that is
all; else half as many again, and some hundreds at least, must leave the null space as it is; as long as they
do not they are added, so that a unit that is seldom active is seen in the end. Of all rows only the factor R
of Q R is kept: rank, null space and lengths are those of R.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from intertwine.graph.example import Example
from intertwine.progress import Progress, counted
from intertwine.tangent.jacobian import Jacobian
from intertwine.tangent.spaces import Rank, factor, null_space, scaled, unit_rows

SPARE = 1.15  # rows for each column, before more of them are asked to change nothing
CALLS = 8  # that rows come from at least: rows of one call look alike
FRESH = 512  # rows at least that change nothing: a unit may be active once in a hundred inputs
ROUNDS = 10


def settled_null(
    jacobian: Jacobian,
    examples: Iterator[Example],
    most: int,
    progress: Progress | None = None,
    times: int = 1,
) -> tuple[Rank, np.ndarray, np.ndarray, int, bool]:
    """(rank, null space, lengths of the columns that it is scaled by, calls, whether fresh inputs agree).

    most: a bound of the rank that is known. times: as many fresh inputs as usual.
    """
    rows, calls = _rows(jacobian, examples, int(SPARE * most) + 64, progress)
    seen, kept = len(rows), unit_rows(rows)
    for _ in range(ROUNDS):
        flat, lengths = scaled(kept)
        found, null = null_space(flat, most)
        result = found, null, lengths / jacobian.sizes
        if found.rank == most and found.certain:
            return *result, calls, True
        fresh, more = _rows(jacobian, examples, max(times * FRESH, seen // 2), progress, times * CALLS)
        if not len(fresh):
            break
        fresh = unit_rows(fresh)
        seen, calls = seen + len(fresh), calls + more
        weighed = fresh / np.where(lengths > 0, lengths, np.inf)
        unseen = np.abs(fresh[:, lengths == 0]).max(initial=0.0)
        if np.abs(weighed @ null).max(initial=0.0) < 1e-6 and unseen < 1e-9:
            return *result, calls, True
        kept = factor(np.concatenate([kept, fresh]))
    return *result, calls, False


def _rows(
    jacobian: Jacobian, examples: Iterator[Example], count: int, progress: Progress | None, least: int = CALLS
) -> tuple[np.ndarray, int]:
    """At least so many rows, of several calls, unless the inputs end."""
    parts, calls, total = [np.zeros((0, jacobian.columns))], 0, 0
    advance = counted(progress, count, "rows of the Jacobian")
    for example in examples:
        parts.append(jacobian.rows(example))
        calls, total = calls + 1, total + len(parts[-1])
        if advance is not None:
            advance(len(parts[-1]))
        if calls >= least and (total >= count or not total):
            break
    return np.concatenate(parts), calls
