"""A folder is filled beside its target, put on the disk and exchanged with it in one step.

Where the file system cannot exchange two folders, the old one is moved away first; a note that lies beside
them meanwhile lets the next process finish what a killed one began.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from intertwine.errors import InputError
from intertwine.files.leftovers import find_leftovers, is_temporary, remove, sweep_leftovers, temporary_name
from intertwine.files.read import read_json
from intertwine.files.replace import make_folders, real_path, reporting, sync

_NOTE = ".exchange"
_AT_FDCWD, _EXCHANGE = -100, 2


@contextmanager
def replacing_folder(path: str | Path, why_not: Callable[[Path], str]) -> Iterator[Path]:
    """A folder beside the target to fill; it takes the target's place if nothing is raised.

    An existing folder is replaced only if `why_not`, which gives the reason to keep it, gives none.
    """
    with reporting(path):
        target = assert_folder_replaceable(path, why_not)
        make_folders(target.parent)
        sweep_leftovers(target.parent)
        beside = target.parent / temporary_name()
        beside.mkdir()
        try:
            yield beside
            for entry in sorted(beside.iterdir()):
                sync(entry)
            sync(beside)
            assert_folder_replaceable(path, why_not)  # time has passed
            try:
                _put(beside, target)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                assert_folder_replaceable(path, why_not)  # another process was faster
                _put(beside, target)
            sync(target.parent)
        finally:
            remove(beside)


def assert_folder_replaceable(path: str | Path, why_not: Callable[[Path], str]) -> Path:
    """Where the links of a path lead, if a folder may be written there; InputError says why not."""
    with reporting(path):
        target = real_path(path)
        if not target.exists():
            finish_exchange(target.parent)
        if target.exists() and not target.is_dir():
            raise InputError(f"{path} exists and is not a folder", do="choose another name")
        reason = why_not(target) if target.exists() else ""
        if reason:
            raise InputError(
                f"{path} exists and {reason}", so="nothing was changed", do="choose another folder"
            )
        return target


def _put(beside: Path, target: Path) -> None:
    """Give `target` the place of `beside`; what was there is at `beside` afterwards."""
    if not target.exists():
        os.rename(beside, target)
        return
    os.chmod(beside, stat.S_IMODE(target.stat().st_mode))
    if not exchange(beside, target):
        _exchange_in_steps(beside, target)


def exchange(a: Path, b: Path) -> bool:
    """Exchange two names in one step; False where that does not exist."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError, TypeError):
        return False
    if rename(_AT_FDCWD, os.fsencode(a), _AT_FDCWD, os.fsencode(b), _EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code), str(b))


def _exchange_in_steps(beside: Path, target: Path) -> None:
    old = target.parent / temporary_name()
    note = target.parent / temporary_name(_NOTE)
    note.write_text(json.dumps({"target": target.name, "new": beside.name, "old": old.name}))
    sync(note)
    sync(target.parent)
    os.rename(target, old)
    try:
        os.rename(beside, target)
    except OSError:
        os.rename(old, target)
        raise
    sync(target.parent)
    note.unlink()
    remove(old)


def finish_exchange(folder: str | Path) -> None:
    """Finish what killed processes began in a folder: the new one, else the old one, takes the place.

    >>> finish_exchange("no/such/folder")
    """
    folder = Path(folder)
    for note in find_leftovers(folder):
        if note.suffix != _NOTE:
            continue
        with suppress(OSError, ValueError, KeyError, TypeError):
            names = read_json(note)
            target = folder / Path(names["target"]).name
            for name in (names["new"], names["old"]):
                if not os.path.lexists(target) and is_temporary(name) and (folder / name).is_dir():
                    os.rename(folder / name, target)
        remove(note)
