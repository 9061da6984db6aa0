"""Some programs of a run, in a process of its own: verdicts, what was covered, and the failures shrunk."""

from __future__ import annotations

import gc
import random
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

from .check import Result
from .fast_export import in_one_pass, install
from .generate import generate
from .program import Model
from .shrink import judge, shrink, signature
from .table import leave_out

Job = tuple[int, int, int, str]  # seed, first and last program, templates to leave out


LIMIT = 60.0  # CPU seconds a program may take; most take a tenth of one
SHRINKING = 600.0


class TooSlow(BaseException):
    """A program took longer than its limit (no Exception, which a check would call a crash of its own)."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """End what runs inside after so many CPU seconds, so that one program never stops a run."""

    def stop(*_: object) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def op_names(text: str) -> list[str]:
    """The functions and methods that a program calls."""
    return re.findall(r"(?<!self\.)\b([A-Za-z_]\w*)\(", text)


def run_chunk(job: Job) -> dict[str, Any]:
    """Check programs first..last of a seed: counts, and the failures shrunk."""
    torch.set_num_threads(1)
    install()
    gc.freeze()  # what the modules hold is not garbage; to look through it all takes a tenth of the time
    gc.set_threshold(50_000, 20, 50)
    seed, first, last, without = job
    leave_out(without)
    counts: dict[str, Counter[str]] = {k: Counter() for k in ("verdict", "op", "moved op", "group", "sizes")}
    seconds: Counter[str] = Counter()
    findings = []
    for index in range(first, last):
        start = time.process_time()
        program = generate(random.Random(f"{seed}-{index}").choice)
        seconds["generate"] += time.process_time() - start
        try:
            with in_one_pass(), at_most(LIMIT):
                result = judge(program)
        except TooSlow:
            result = Result("slow", detail=f"more than {LIMIT:.0f} CPU seconds")
        except Exception as error:  # the fuzzer's own fault
            counts["verdict"][f"fuzzer error {type(error).__name__}"] += 1
            print(f"fuzzer error in program {index}: {error}\n{program.short()}", file=sys.stderr)
            continue
        seconds.update(result.seconds)
        counts["verdict"][result.verdict] += 1
        names = set(op_names(program.body() + " ".join(program.parts.values())))
        counts["op"].update(names)
        if result.verdict in ("ok", "wrong"):
            counts["moved op"].update(names)
        counts["group"].update(set(result.groups))
        counts["sizes"][str(result.sizes_run)] += 1
        if result.failed:
            start = time.process_time()
            small, small_result = program, result
            if result.verdict != "slow":
                with suppress(TooSlow), in_one_pass(), at_most(SHRINKING):
                    small, small_result = shrink(program, result)
            seconds["shrink"] += time.process_time() - start
            findings.append(
                {
                    "signature": signature(small, small_result),
                    "verdict": small_result.verdict,
                    "detail": small_result.detail,
                    "error": small_result.error,
                    "traced at": small.shapes[0],
                    "fails at": small_result.size,
                    "groups": small_result.groups,
                    "short": small.short(),
                    "source": small.source(Model(small).constructors),
                    "seed": seed,
                    "index": index,
                }
            )
    return {"counts": counts, "seconds": seconds, "findings": findings, "last": last}
