"""Temporary names say who owns them, so what a killed process left can be told from what a living one writes.

    .intertwine-tmp-HOST-BOOT-PID-START-RANDOM[.suffix]

HOST names the machine and its process table, BOOT its current uptime, START when the process began (ids
are given out again). Every write sweeps its folder. What another machine left is judged by its age.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import socket
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

_PATTERN = re.compile(
    r"\.intertwine-tmp-(?P<host>[0-9a-f]{8})-(?P<boot>[0-9a-f]{8})-(?P<pid>\d+)-(?P<start>\d+)-[0-9a-f]{8}"
    r"(?P<suffix>\.\w{1,16})?"
)
_LONGEST_SUFFIX = 16
_FOREIGN_SECONDS = 24 * 3600.0  # after which a file of a machine that cannot be asked counts as left behind


def temporary_name(suffix: str = "") -> str:
    """A new name; writers that choose a format by the suffix still can.

    >>> temporary_name(".png").endswith(".png"), is_temporary(temporary_name()), is_temporary(".a")
    (True, True, False)
    """
    short = suffix if re.fullmatch(r"\.\w+", suffix) and len(suffix) <= _LONGEST_SUFFIX else ""
    host, boot = _machine()
    pid = os.getpid()
    return f".intertwine-tmp-{host}-{boot}-{pid}-{_start(pid) or 0}-{secrets.token_hex(4)}{short}"


def is_temporary(name: str) -> bool:
    """Whether a name is one of `temporary_name`."""
    return _PATTERN.fullmatch(name) is not None


def sweep_leftovers(folder: str | Path, *, deep: bool = False) -> None:
    """Remove what killed processes left in a folder (`deep`: and below it); what cannot be removed stays."""
    from intertwine.files.folder import finish_exchange

    finish_exchange(folder)
    for place in _folders(Path(folder)) if deep else [Path(folder)]:
        for path in find_leftovers(place):
            remove(path)


def find_leftovers(folder: Path) -> list[Path]:
    """What processes that are no more left in a folder."""
    try:
        with os.scandir(folder) as entries:
            return [folder / entry.name for entry in entries if is_left_behind(entry.name, entry)]
    except OSError:
        return []


def remove(path: Path) -> None:
    """Remove a temporary file or folder of ours, if that is possible."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def is_left_behind(name: str, entry: os.DirEntry[str] | None = None) -> bool:
    """Whether a temporary name belongs to a process that is no more."""
    found = _PATTERN.fullmatch(name)
    if found is None:
        return False
    host, boot = _machine()
    if found["host"] != host:
        with suppress(OSError):
            return entry is not None and time.time() - entry.stat().st_mtime > _FOREIGN_SECONDS
        return False
    if found["boot"] != boot:
        return True
    start = _start(int(found["pid"]))
    return start is None or (int(found["start"]) != start and start != 0)


def _folders(folder: Path) -> list[Path]:
    return [Path(place) for place, _, _ in os.walk(folder) if not is_temporary(Path(place).name)]


@lru_cache(maxsize=1)
def _machine() -> tuple[str, str]:
    """This machine with its process table, and its uptime."""
    table = boot = ""
    with suppress(OSError):
        table = str(os.stat("/proc/self/ns/pid").st_ino)
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    names = (f"{socket.gethostname()} {table}", boot)
    return tuple(hashlib.sha256(name.encode()).hexdigest()[:8] for name in names)  # type: ignore[return-value]


def _start(pid: int) -> int | None:
    """When a process began, in ticks; 0 where the system does not tell, None if there is no such process."""
    try:
        # the name of the command, in brackets, may hold anything
        state, *fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return None if state in "ZX" else int(fields[18])
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return None
    except (OSError, ValueError, IndexError):
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except (OSError, OverflowError):
        pass
    return 0
