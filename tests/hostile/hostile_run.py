"""Run a command, or a function, in a fork of this warm process, and see how it ended and what it left."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS = 60.0
_GIGABYTES = 12  # of address space: a case must not take the machine with it


@dataclass(frozen=True)
class Outcome:
    """exit code (negative: the signal that ended it, None: it hung), what it printed, what is new on disk."""

    code: int | None
    out: str
    err: str
    left: tuple[str, ...]

    def wrong(self, allowed: Sequence[int], as_json: bool = False) -> str:
        """What is not as it should be; empty if all is well. as_json: it was to print a document."""
        if self.code is None:
            return f"hangs: {self.err[-300:]}"
        if "Traceback (most recent call last)" in self.err:
            return f"traceback: {self.err[-600:]}"
        if self.code not in allowed:
            return f"exit code {self.code}, not one of {list(allowed)}: {self.err[-400:]}"
        if self.code not in (0, 1) and self.left:
            return f"left {', '.join(self.left)}"
        if "\x1b" in self.out + self.err:
            return f"escape sequences reach the terminal: {self.err[-200:]!r}"
        return _not_json(self.out) if as_json and self.code in (0, 1) else ""


def _not_json(text: str) -> str:
    def refuse(word: str) -> None:
        raise ValueError(f"{word} is no JSON")

    try:
        json.loads(text, parse_constant=refuse)
    except ValueError as error:
        return f"stdout is no JSON: {error}: {text[:200]!r}"
    return ""


_parsers: list[Any] = []  # built once, by `warm`


def warm() -> None:
    """Import what verbs import late, once, and let torch.export fill its caches."""
    import PIL.Image
    import pyarrow.parquet
    import sklearn.datasets
    import torch
    import yaml

    import intertwine
    from intertwine.cli import program

    torch.set_num_threads(1)  # a fork has no threads of its parent's pool
    _parsers.append(program.build_parser())  # it takes as long as all the rest of a refusal
    for name in intertwine.__all__:  # they are imported when they are asked for
        getattr(intertwine, name)
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    intertwine.trace(net, torch.randn(2, 3))
    assert all((PIL.Image, pyarrow.parquet, sklearn.datasets, yaml))


def run_command(
    argv: Sequence[str], seconds: float = SECONDS, before: Callable[[Path], object] | None = None
) -> Outcome:
    """`intertwine ARGV` in an empty folder of its own; `before` is called first, in the child."""
    from intertwine.cli import main, program

    with tempfile.TemporaryDirectory(prefix="hostile-") as name:
        folder = Path(name)

        def work() -> int:
            if before is not None:
                before(folder)
            if _parsers:  # in the child alone: elsewhere a parser asks what is registered
                program.build_parser = lambda: _parsers[0]
            return main(list(argv))

        return run_forked(work, folder, seconds)


def run_forked(work: Callable[[], int], folder: Path, seconds: float = SECONDS) -> Outcome:
    """`work()` in a fork that stands in `folder`; its return value is the exit code."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            _child(work, folder, out.fileno(), err.fileno())
        code = _wait(child, seconds)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode("utf-8", "backslashreplace"))
    return Outcome(code, texts[0], texts[1], tuple(sorted(p.name for p in folder.iterdir())))


def _child(work: Callable[[], int], folder: Path, out: int, err: int) -> None:
    code = 99
    try:
        os.dup2(out, 1)
        os.dup2(err, 2)
        # as the interpreter makes them: pytest's own do not write to the descriptors
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False, errors="backslashreplace")  # noqa: SIM115
        os.chdir(folder)
        os.environ["HOME"] = str(folder)
        resource.setrlimit(resource.RLIMIT_AS, (_GIGABYTES * 2**30, _GIGABYTES * 2**30))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        code = work()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):  # as at the end of Python itself
                stream.flush()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _wait(child: int, seconds: float) -> int | None:
    end = time.monotonic() + seconds
    pause = 0.001
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None
