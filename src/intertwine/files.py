"""Files are written beside their target and renamed: there whole, or as they were before."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from intertwine.errors import InputError


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
    target = Path(path)
    try:
        if parents:
            target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=target.suffix)
        os.close(handle)
        beside = Path(name)
        try:
            yield beside
            # mkstemp makes private files; give it the mode a plain open() would
            beside.chmod(target.stat().st_mode & 0o777 if target.exists() else 0o644)
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot write {target}: {error.strerror or error}",
            where=str(target.absolute().parent),
            do="choose another place",
        ) from error
