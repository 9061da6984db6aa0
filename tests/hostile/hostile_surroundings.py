"""Where a command runs: variables, streams, limits and folders that something is wrong with.

Each is a function that is called in the child before the command, with the folder that it stands in.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

Change = Callable[[Path], object]
FULL, BAD = "/dev/full", "\x1b[2J"


def _variables(**values: str | None) -> Change:
    def change(_: Path) -> None:
        tempfile.tempdir = None  # it is looked for again
        for name, value in values.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value

    return change


def _closed(*numbers: int) -> Change:
    def change(_: Path) -> None:
        for number in numbers:
            os.close(number)
        sys.stdout = None if 1 in numbers else sys.stdout
        sys.stderr = None if 2 in numbers else sys.stderr

    return change


def _onto(path: str, flags: int, *numbers: int) -> Change:
    def change(_: Path) -> None:
        for number in numbers:
            os.dup2(os.open(path, flags), number)

    return change


def _nobody_reads(_: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    os.dup2(write, 1)


def _encoded(encoding: str) -> Change:
    def change(_: Path) -> None:
        sys.stdout = open(1, "w", encoding=encoding, closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding=encoding, closefd=False)  # noqa: SIM115

    return change


def limited(name: str, most: int) -> Change:
    return lambda _: resource.setrlimit(getattr(resource, name), (most, most))


def _no_memory(_: Path) -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**24, used + 2**24))


def _folder_gone(folder: Path) -> None:
    (folder / "gone").mkdir()
    os.chdir(folder / "gone")
    (folder / "gone").rmdir()


def _deaf(_: Path) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)


# Where nothing can be printed what was made stays, and the exit code says that nobody has heard of it.
UNHEARD = (
    "stdout closed",
    "all closed",
    "stdout full",
    "both full",
    "stdout that cannot be written",
    "nobody reads",
)
SURROUNDINGS: dict[str, Change] = {
    "no home": _variables(HOME=None),
    "a file as home": _variables(HOME="/dev/null"),
    "no place for temporary files": _variables(TMPDIR="/nope", TEMP="/nope", TMP="/nope"),
    "no columns": _variables(COLUMNS="0", LINES="0"),
    "negative columns": _variables(COLUMNS="-5"),
    "columns that are no number": _variables(COLUMNS=BAD, LINES="x"),
    "many columns": _variables(COLUMNS="9" * 30),
    "another locale": _variables(LANG="C", LC_ALL="C"),
    "an unknown locale": _variables(LANG=BAD, LC_ALL=BAD, TERM=BAD),
    "no caches": _variables(XDG_CACHE_HOME="/nope", HF_HOME="/nope", TORCH_HOME="/nope"),
    "no path": _variables(PATH=None),
    "stdin closed": _closed(0),
    "stdout closed": _closed(1),
    "stderr closed": _closed(2),
    "all closed": _closed(0, 1, 2),
    "stdout full": _onto(FULL, os.O_WRONLY, 1),
    "stderr full": _onto(FULL, os.O_WRONLY, 2),
    "both full": _onto(FULL, os.O_WRONLY, 1, 2),
    "stdout that cannot be written": _onto(os.devnull, os.O_RDONLY, 1),
    "a folder as stdin": _onto("/", os.O_RDONLY, 0),
    "nobody reads": _nobody_reads,
    "ASCII": _encoded("ascii"),
    "Windows": _encoded("cp1252"),
    "a full disk": limited("RLIMIT_FSIZE", 0),
    "an almost full disk": limited("RLIMIT_FSIZE", 100),
    "no more files": limited("RLIMIT_NOFILE", 8),
    "no memory": _no_memory,
    "no folder": _folder_gone,
    "no rights for anybody": lambda _: os.umask(0o777),
    "no signals": _deaf,
}
