"""Files are written beside their target, put on the disk and renamed: there whole, or as they were before.

A link stays and what it points to is replaced; a device, a pipe or an open descriptor (/dev/stdout) is
written into. The mode is the old file's, or what the umask leaves.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from intertwine.errors import InputError
from intertwine.files.leftovers import sweep_leftovers, temporary_name
from intertwine.files.read import read_regular

if TYPE_CHECKING:
    from torch import Tensor

_OPEN_DESCRIPTORS = re.compile(r"/proc/(self|\d+)(/task/\d+)?/fd")
_LINKS = 40  # as many as the kernel follows
_PIPE_SECONDS = 10.0  # to wait for a reader at the other end of a named pipe
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def replacing(path: str | Path, *, parents: bool = False) -> Iterator[Path]:
    """A path beside the target to write to; it takes the target's place if nothing is raised.

    parents: make the folders above it.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder) / "a.txt") as beside:
    ...         _ = beside.write_text("whole")
    ...     (Path(folder) / "a.txt").read_text(), len(os.listdir(folder))
    ('whole', 1)
    """
    with reporting(path):
        special = is_special(path)
        place = _delivering(Path(path)) if special else _renaming(real_path(path), parents)
        with place as beside:
            try:
                yield beside
            except InputError as error:  # of what writes beside by itself: people know the target alone
                error.what = error.what.replace(str(beside), str(path))
                raise


def write_into(written: ExitStack, path: str | Path, write: Callable[[Path], object]) -> None:
    """One of several files that are all written or none: it takes its place when the stack is left.

    A device is written to at once, before any of the others is there.
    """
    with ExitStack() as at_once:
        write((at_once if is_special(path) else written).enter_context(replacing(path)))


def write_bytes(path: str | Path, data: bytes, *, parents: bool = False, keep_equal: bool = False) -> Path:
    """A file with this content; with `keep_equal`, one that has it already is left alone."""
    if keep_equal:
        with suppress(OSError):
            if read_regular(path) == data:
                return Path(path)
    with replacing(path, parents=parents) as beside:
        beside.write_bytes(data)
    return Path(path)


def write_tensors(
    path: str | Path,
    tensors: Mapping[str, Tensor],
    metadata: dict[str, str] | None = None,
    *,
    parents: bool = False,
    keep_equal: bool = False,
) -> Path:
    """A safetensors file; tensors that share memory are stored under each of their names."""
    import torch
    from safetensors.torch import save

    # clone: safetensors refuses tensors that share memory, and views that are not contiguous
    plain = {k: v.detach().cpu().clone(memory_format=torch.contiguous_format) for k, v in tensors.items()}
    return write_bytes(path, save(plain, metadata), parents=parents, keep_equal=keep_equal)


def assert_can_write(path: str | Path, *, parents: bool = True) -> None:
    """Raise the InputError that `replacing` would raise already now, where that can be foreseen."""
    with reporting(path):
        if is_special(path):
            return
        target = real_path(path)
        if target.exists():
            _assert_replaceable(target)
        folder = target.parent
        while parents and not folder.exists() and folder != folder.parent:
            folder = folder.parent
        if not folder.is_dir():
            reason = errno.ENOTDIR if folder.exists() else errno.ENOENT
            raise OSError(reason, os.strerror(reason), str(folder))
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))


@contextmanager
def reporting(path: str | Path) -> Iterator[None]:
    """Failures to write become InputError."""
    try:
        yield
    except OSError as error:
        full = error.errno in _FULL
        raise InputError(
            f"cannot write {path}: {error.strerror or error}",
            where=_absolute(path),
            so="what was there before is untouched" if full else "",
            do="make room there, or choose another place" if full else "choose another place",
        ) from error
    except ValueError as error:
        if isinstance(error, InputError) or not _is_no_path(path):
            raise
        raise InputError(f"{str(path)!r} cannot be the name of a file", do="choose another name") from error


def is_special(path: str | Path) -> bool:
    """Whether a path names a device, a pipe, a socket or an open descriptor: something to write into."""
    if _descriptor(path) is not None:
        return True
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def real_path(path: str | Path) -> Path:
    """Where the links of a path lead, whether there is something or not; OSError if they lead in a circle."""
    real = os.path.realpath(path)
    if os.path.islink(real):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return Path(real)


def sync(path: Path) -> None:
    """Have a file or a folder on the disk, where the file system can tell."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(handle)


def make_folders(folder: Path) -> None:
    """A folder and those above it."""
    folder.mkdir(parents=True, exist_ok=True)


@contextmanager
def _renaming(target: Path, parents: bool) -> Iterator[Path]:
    if parents:
        make_folders(target.parent)
    old = target.stat() if target.exists() else None
    if old is not None:
        _assert_replaceable(target)
    sweep_leftovers(target.parent)
    beside = target.parent / temporary_name(target.suffix)
    created = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
    handle = os.open(beside, created, 0o666 if old is None else stat.S_IMODE(old.st_mode) & 0o666)
    try:
        mode = stat.S_IMODE(os.fstat(handle).st_mode if old is None else old.st_mode)
        os.close(handle)
        yield beside
        beside.chmod(mode)  # the writer may have put a file of its own there
        if old is not None and (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
            with suppress(OSError):
                os.chown(beside, old.st_uid, old.st_gid)
        sync(beside)
        os.replace(beside, target)
        sync(target.parent)
    finally:
        beside.unlink(missing_ok=True)


def _assert_replaceable(target: Path) -> None:
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "it is write-protected", str(target))


@contextmanager
def _delivering(target: Path) -> Iterator[Path]:
    """Write to a temporary file and, once it is whole, into the device or pipe."""
    sweep_leftovers(tempfile.gettempdir())
    beside = Path(tempfile.gettempdir()) / temporary_name(target.suffix)
    os.close(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    try:
        yield beside
        with beside.open("rb") as source, open(_open_special(target), "wb") as sink:
            shutil.copyfileobj(source, sink)
    finally:
        beside.unlink(missing_ok=True)


def _open_special(path: Path) -> int:
    number = _descriptor(path)
    if number is not None and number >= 0:
        return os.dup(number)  # shares its place in the file: what was written before stays
    flags = os.O_WRONLY | os.O_CLOEXEC | os.O_APPEND
    if not stat.S_ISFIFO(os.stat(path).st_mode):
        return os.open(path, flags)
    until = time.monotonic() + _PIPE_SECONDS
    while True:
        try:
            handle = os.open(path, flags | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            if time.monotonic() > until:
                raise OSError(errno.ENXIO, "nobody reads from this pipe", str(path)) from error
            time.sleep(0.02)
        else:
            os.set_blocking(handle, True)
            return handle


def _descriptor(path: str | Path) -> int | None:
    """The number of the open descriptor that a path such as /dev/stdout names; -1 for another process's."""
    here = os.path.abspath(path)
    for _ in range(_LINKS):
        folder, name = os.path.split(here)
        found = _OPEN_DESCRIPTORS.fullmatch(os.path.realpath(folder))
        if found is not None and name.isdecimal():
            return int(name) if found[1] in ("self", str(os.getpid())) else -1
        if not os.path.islink(here):
            return None
        here = os.path.normpath(os.path.join(os.path.realpath(folder), os.readlink(here)))
    return None


def _absolute(path: str | Path) -> str:
    try:
        return str(Path(path).absolute().parent)
    except OSError:  # the working directory is gone
        return ""


def _is_no_path(path: str | Path) -> bool:
    try:
        os.stat(path)
    except ValueError:  # a null byte, or characters that the file system's encoding lacks
        return True
    except OSError:
        return False
    return False
