"""Reading files that something else may have put there: a pipe or a device never blocks, JSON is JSON."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any


def read_regular(path: str | Path) -> bytes:
    """The bytes of a regular file; OSError for everything else, a pipe that nobody writes to included."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        return file.read()


def read_json(path: str | Path) -> Any:
    """The document in a JSON file; OSError or ValueError, also where it is nested beyond reason."""
    try:
        return json.loads(read_regular(path))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
