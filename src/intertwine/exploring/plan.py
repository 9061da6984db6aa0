"""Decide by measurement how to evaluate many parameter vectors: batched or streamed, in which pieces.

Batching over parameters wins where a network is so small that Python dominates, and loses where its
arithmetic does (grouped convolutions of small images are slow on a CPU). No rule of thumb survives
another machine, so a few candidates are timed, each within the memory bound.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from intertwine.errors import InputError
from intertwine.exploring.objective import Objective
from intertwine.text import first_line

DEFAULT_MEMORY = 512 * 2**20


# Below this many bytes of work a second thread costs more to wake than it does.
_SMALL = 8 * 2**20


@contextmanager
def threads_for(work: int) -> Iterator[None]:
    """One thread for small work (bytes written by one call), as many as there were for more."""
    before = torch.get_num_threads()
    if work < _SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class EvaluationPlan:
    """Evaluate `vectors` parameter vectors at a time over `examples` inputs at a time."""

    batched: bool
    vectors: int
    examples: int
    seconds_per_point: float
    reason: str

    def describe(self) -> str:
        """One line for a report.

        >>> EvaluationPlan(True, 64, 512, 2e-5, "fastest of 6").describe()
        'batched, 64 parameter vectors x 512 inputs at a time (fastest of 6)'
        """
        how = "batched" if self.batched else "streamed"
        return f"{how}, {self.vectors} parameter vectors x {self.examples} inputs at a time ({self.reason})"


def plan_evaluation(
    objective: Objective,
    *,
    memory: int = DEFAULT_MEMORY,
    batched: bool | None = None,
    points: int | None = None,
) -> EvaluationPlan:
    """The fastest way to evaluate the objective within `memory` bytes of activations.

    `batched` forces one of the two ways. `points` is how many will be evaluated: for a few, nothing is timed.
    """
    if memory <= 0:
        raise InputError(f"the memory bound must be positive, not {memory}")
    per_example = objective.bytes_per_example()
    limit = max(1, memory // per_example)
    if not objective.splittable and limit < objective.size:
        raise InputError(
            f"one forward pass over all {objective.size} inputs needs about "
            f"{per_example * objective.size / 2**20:.0f} MB, the bound is {memory / 2**20:.0f} MB",
            so="batch norm uses the statistics of all inputs, so they cannot be cut into pieces",
        )
    streamed = [(False, 1, n) for n in _pieces(objective, limit, (256, 512, 1024, objective.size))]
    together = [
        (True, vectors, n)
        for n in _pieces(objective, limit, (512, objective.size))
        for vectors in (4, 32, 256)
        # A batch holds the activations and the parameters of all its vectors.
        if vectors * (n * per_example + objective.theta.nbytes) <= memory
    ]
    candidates = (streamed if batched is not True else []) + (together if batched is not False else [])
    if not candidates:
        candidates = [(True, 1, min(limit, objective.size))]
    if points is not None and points <= 4 and batched is None:
        return EvaluationPlan(*streamed[0], 0.0, "too few points to measure")
    return _fastest(objective, candidates)


def _pieces(objective: Objective, limit: int, sizes: tuple[int, ...]) -> list[int]:
    if not objective.splittable:
        return [objective.size]
    return sorted({min(size, objective.size, limit) for size in sizes})


def _fastest(objective: Objective, candidates: list[tuple[bool, int, int]]) -> EvaluationPlan:
    best: tuple[float, tuple[bool, int, int]] | None = None
    failure: Exception | None = None
    for candidate in candidates:
        try:
            seconds = _seconds_per_point(objective, candidate, give_up=best[0] if best else None)
        except Exception as error:  # vmap has no rule for an op of this model: the other way remains
            failure = error
            continue
        if best is None or seconds < best[0]:
            best = (seconds, candidate)
    if best is None:
        why = first_line(failure) if failure is not None else ""
        raise InputError("the model cannot be evaluated batched", where=why)
    reason = f"fastest of {len(candidates)} measured"
    if failure is not None:
        reason += "; batching is not possible for this model"
    return EvaluationPlan(*best[1], best[0], reason)


def _seconds_per_point(
    objective: Objective, candidate: tuple[bool, int, int], *, give_up: float | None, repeats: int = 2
) -> float:
    """Best of a few timings over a part of C, scaled to all of it; stops early when clearly slower."""
    batched, vectors, examples = candidate
    rows = objective.theta.expand(vectors, -1).contiguous()
    share = examples / objective.size
    best = float("inf")
    for _ in range(repeats + 1):
        began = time.perf_counter()
        with torch.no_grad():
            objective.sums(rows, slice(0, examples), batched=batched)
        best = min(best, (time.perf_counter() - began) / vectors / share)
        # Clearly slower, or so slow that warming up does not matter and every try costs.
        if (give_up is not None and best > 3 * give_up) or best * vectors * share > 1:
            break
    return best
