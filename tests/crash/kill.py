"""SIGKILL at the n-th file event of a piece of work, in a process forked from this one.

A file event is what changes a folder: opening for writing, renaming, removing, making a folder, a change of
mode (as Python's audit hooks report them), an exchange of folders, and every fsync. The process dies just
before it; at an fsync the end of what was written is cut off first, as a power cut would.
"""

from __future__ import annotations

import os
import signal
import stat
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from intertwine.files import folder as folder_module

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
PATHS = {"os.rename": (0, 1), "os.mkdir": (0,), "os.remove": (0,), "os.rmdir": (0,), "os.chmod": (0,)}
KILLED = -signal.SIGKILL


def run(work: Callable[[Path], Any], root: Path, fatal: int = 0) -> tuple[int, int]:
    """Do the work in a child that dies at its `fatal`-th event (never, if 0): (exit code, events)."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        _child(work, root, fatal, write)
    os.close(write)
    with open(read, "rb") as pipe:
        told = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if told[:1] == b"!":
        raise AssertionError(told[1:].decode())
    return code, int(told or 0)


def _child(work: Callable[[Path], Any], root: Path, fatal: int, write: int) -> None:
    told = b"!"
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        events = watch(root, fatal)
        os.register_at_fork(after_in_child=lambda: os.close(write))  # who asks waits for us, not for workers
        work(root)
        told = str(events[0]).encode()
    except BaseException:
        told += traceback.format_exc().encode()
    finally:
        os.write(write, told[:60_000])
        os._exit(0)


def watch(root: Path, fatal: int) -> list[int]:
    """Count the events of this process below `root` from now on, and die at one of them."""
    count, inside, own = [0], f"{root.resolve()}{os.sep}", os.getpid()
    real_fsync, real_exchange = os.fsync, folder_module.exchange

    def happen(handle: int | None = None) -> None:
        if os.getpid() != own:  # a worker: it survives
            return
        count[0] += 1
        if count[0] == fatal:
            if handle is not None and stat.S_ISREG(os.fstat(handle).st_mode):
                path = os.readlink(f"/proc/self/fd/{handle}")
                os.truncate(path, max(0, os.stat(path).st_size - 7))
            os.kill(os.getpid(), signal.SIGKILL)

    def concerns(path: Any) -> bool:
        try:
            return os.path.abspath(os.fsdecode(path)).startswith(inside)
        except (TypeError, ValueError):
            return False

    def hook(event: str, args: tuple[Any, ...]) -> None:
        opened = event == "open" and isinstance(args[2], int) and args[2] & WRITING and concerns(args[0])
        if opened or (event in PATHS and any(concerns(args[i]) for i in PATHS[event])):
            happen()

    def fsync(handle: int) -> None:
        happen(handle)
        real_fsync(handle)

    def exchange(a: Path, b: Path) -> bool:
        happen()
        done = real_exchange(a, b)
        happen()
        return done

    os.fsync = fsync
    folder_module.exchange = exchange
    sys.addaudithook(hook)
    return count
