"""One process at a time: a lock on a file, which the system takes back when its owner dies."""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from intertwine.files.replace import make_folders, reporting

_PATIENCE = 1.0  # seconds after which somebody who waits is told for whom
_POLL = 0.05
_UNKNOWN = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)


@contextmanager
def locked(path: str | Path, what: str) -> Iterator[None]:
    """Hold the lock file `path`, which says who holds it and is removed afterwards; wait for another holder.

    what: what the holder does, for those who wait: "process 12 trains in runs/a".

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with locked(Path(folder) / ".lock", "works there"):
    ...         print((Path(folder) / ".lock").read_text() == str(os.getpid()))
    ...     os.listdir(folder)
    True
    []
    """
    path = Path(path)
    with reporting(path):
        handle = _acquire(path, what)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()  # before the lock goes: who waits for it looks whether the file is still there
        os.close(handle)


def clear_lock(path: str | Path, what: str) -> None:
    """Remove the lock file of a process that was killed when its work was done; wait for a living one."""
    if os.path.lexists(path):
        with locked(path, what):
            pass


def _acquire(path: Path, what: str) -> int:
    began, told = time.monotonic(), False
    while True:
        make_folders(path.parent)  # a holder that failed may have removed it
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0), 0o666)
        try:
            if _try_lock(handle) and _is_at(handle, path):
                _sign(handle, path)
                return handle
            owner = os.pread(handle, 32, 0).decode(errors="replace")
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
        if not told and time.monotonic() - began > _PATIENCE:
            logging.getLogger("intertwine").warning("waiting for process %s, which %s", owner or "?", what)
            told = True
        time.sleep(_POLL)


def _sign(handle: int, path: Path) -> None:
    """Write who holds the lock; where that fails (a full disk) no lock is left behind."""
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
    except OSError:
        path.unlink()
        raise


def _try_lock(handle: int) -> bool:
    try:
        import fcntl
    except ModuleNotFoundError:  # not a POSIX system: two processes would be the user's own doing
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _UNKNOWN:  # a file system without locks is used without
            raise
    return True


def _is_at(handle: int, path: Path) -> bool:
    """Whether the open file is the one at the path: its holder removes a lock file before it lets go."""
    try:
        there, here = os.stat(path), os.fstat(handle)
    except FileNotFoundError:
        return False
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)
