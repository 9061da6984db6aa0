"""Files that others wrote: what may be opened, what it may cost, and that no parser's exception escapes."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from intertwine.errors import InputError, IntertwineError
from intertwine.text import first_line, quoted

if TYPE_CHECKING:
    from torch import Tensor

_TEXT_BYTES = 16 * 2**20
_MOST_FILES = 20_000_000  # ImageNet-21k has 14 million
_WHAT = {
    stat.S_ISDIR: "a folder",
    stat.S_ISFIFO: "a pipe",
    stat.S_ISSOCK: "a socket",
    stat.S_ISCHR: "a device",
    stat.S_ISBLK: "a device",
}


def user_path(text: str | Path, error: type[InputError] = InputError) -> Path:
    """The path that a user wrote, `~` expanded.

    >>> user_path("a\\0b")
    Traceback (most recent call last):
    intertwine.errors.InputError: 'a\\x00b' is not a path: it holds a NUL character
    """
    if "\0" in str(text):
        raise error(f"{quoted(str(text))} is not a path: it holds a NUL character")
    if not str(text):
        raise error("the path is empty")
    try:
        return Path(text).expanduser()
    except RuntimeError as problem:
        raise error(f"{quoted(str(text))}: there is no such user", do="write the whole path") from problem


def existing_file(path: str | Path, kind: str = "file", error: type[InputError] = InputError) -> Path:
    """The path of a regular file that can be opened; `error` says what else it is.

    A pipe would block, and files are read more than once, so `<(...)` of a shell cannot be used either.
    """
    path = user_path(path, error)
    try:
        mode = path.stat().st_mode
    except FileNotFoundError as problem:
        raise error(f"no such file: {path}", where=str(path.absolute()), do=f"give {_a(kind)}") from problem
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise error(f"cannot open the {kind} {quoted(str(path))}: {reason}") from problem
    if not stat.S_ISREG(mode):
        what = next((words for test, words in _WHAT.items() if test(mode)), "something else")
        do = "write what it carries into a file first" if what == "a pipe" else "name a file"
        raise error(f"{path} is {what}, not {_a(kind)}", where=str(path.absolute()), do=do)
    if not os.access(path, os.R_OK):
        raise error(f"cannot open the {kind} {path}: you may not read it", where=str(path.absolute()))
    if _is_made_while_read(path):
        raise error(f"{path} is made by the system while it is read, not {_a(kind)}", do="name a file")
    return path


def _a(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}"


def _is_made_while_read(path: Path) -> bool:
    """Whether this is one of those files (of /proc, say) that have no size, and bytes, or never an end."""
    if path.stat().st_size:
        return False
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return False  # who opens it is told why
    try:
        return bool(os.read(handle, 1))
    except OSError:
        return True
    finally:
        os.close(handle)


def files_below(folder: Path, suffixes: Collection[str], error: type[InputError] = InputError) -> list[Path]:
    """What has one of these endings below a folder and is no folder, sorted.

    Links to folders and other file systems are left out (a slip of the finger may name `/`, with /proc in
    it), and a folder of millions of files is refused.
    """
    found, seen, device = [], 0, folder.stat().st_dev
    for place, folders, names in os.walk(folder):
        seen += len(names)
        if seen > _MOST_FILES:
            raise error(
                f"below {folder} there are more than {_MOST_FILES:,} files", do="name a folder of data"
            )
        folders[:] = [name for name in folders if os.lstat(os.path.join(place, name)).st_dev == device]
        found += [Path(place, name) for name in names if Path(name).suffix.lower() in suffixes]
    return sorted(found)


def assert_plain_folder(folder: Path, error: type[InputError] = InputError) -> None:
    """Refuse a folder, for a library that opens what it finds there, with a pipe or a device in it.

    >>> assert_plain_folder(Path("/dev"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    intertwine.errors.InputError: ... is a device, neither a file nor a folder
    """
    with parsing(f"the folder {quoted(str(folder))}", error):
        for name in sorted(os.listdir(folder)):
            path = folder / name
            mode = path.stat().st_mode if path.exists() else stat.S_IFREG  # who opens a broken link is told
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                what = next((words for test, words in _WHAT.items() if test(mode)), "something else")
                raise error(f"{quoted(str(path))} is {what}, neither a file nor a folder")


def read_text(path: str | Path, kind: str = "file", error: type[InputError] = InputError) -> str:
    """The text of a file that a user named."""
    path = existing_file(path, kind, error)
    if path.stat().st_size > _TEXT_BYTES:
        raise error(f"{path} has {path.stat().st_size / 2**20:,.0f} MB: it is no {kind} of ours")
    with parsing(path, error):
        try:
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError as problem:
            raise error(f"cannot read {path}: it is not text", where=str(path.absolute())) from problem


@contextmanager
def parsing(
    what: str | Path, error: type[InputError] = InputError, *, so: str = "", do: str = ""
) -> Iterator[None]:
    """Whatever is raised inside becomes `error`: given hostile bytes, a parser raises anything at all.

    >>> with parsing("x.bin"):
    ...     [][3]
    Traceback (most recent call last):
    intertwine.errors.InputError: cannot read x.bin: list index out of range
    """
    try:
        yield
    except (IntertwineError, KeyboardInterrupt, GeneratorExit):
        raise
    except RecursionError as problem:
        raise error(f"cannot read {what}: it is nested too deeply", so=so, do=do) from problem
    except MemoryError as problem:
        raise error(f"cannot read {what}: it takes more memory than there is", so=so, do=do) from problem
    except BaseException as problem:  # what panics in Rust derives from BaseException
        raise error(f"cannot read {what}: {first_line(problem)}", so=so, do=do) from problem


@contextmanager
def muted() -> Iterator[None]:
    """What compiled code writes to stderr on its own, as Rust does when it panics, is dropped."""
    try:
        saved = os.dup(2)
    except OSError:  # it is closed
        yield
        return
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(null)


def read_safetensors(
    path: str | Path,
    kind: str,
    error: type[InputError] = InputError,
    *,
    do: str = "",
    header_only: bool = False,
) -> tuple[dict[str, str], dict[str, Tensor]]:
    """What the header of a safetensors file says, and its tensors; a pipe or malformed bytes are `error`."""
    from safetensors import safe_open

    path = existing_file(path, kind, error)
    with parsing(path, error, so=f"it is not {_a(kind)}", do=do), safe_open(path, framework="pt") as file:
        names = [] if header_only else list(file.keys())
        return dict(file.metadata() or {}), {name: file.get_tensor(name) for name in names}


@cache
def memory_bytes() -> float:
    """The memory of the machine, or of the container if that has less."""
    total = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    try:
        allowed = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return total
    return min(total, float(allowed)) if allowed.isdecimal() else total


def check_memory(needed: float, what: str, error: type[InputError] = InputError, do: str = "") -> None:
    """Refuse, before anything is allocated, what would take more than half of the memory.

    >>> check_memory(4e18, "an image")
    Traceback (most recent call last):
    intertwine.errors.InputError: an image would take 4,000,000,000 GB, more than half of the memory here
    """
    if needed > 0.5 * memory_bytes():
        raise error(f"{what} would take {needed / 1e9:,.0f} GB, more than half of the memory here", do=do)
