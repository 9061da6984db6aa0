"""Some programs of a run, in a process of its own: verdicts, what was covered, and the failures shrunk."""

from __future__ import annotations

import gc
import random
import re
import sys
import time
from collections import Counter
from typing import Any

import torch

from .fast_export import in_one_pass, install
from .generate import generate
from .program import Model
from .shrink import judge, shrink, signature
from .table import leave_out

Job = tuple[int, int, int, str]  # seed, first and last program, templates to leave out


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
            with in_one_pass():
                result = judge(program)
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
            with in_one_pass():
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
