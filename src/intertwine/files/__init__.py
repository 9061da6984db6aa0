"""Every file and folder that intertwine writes goes through here: there whole, or as it was before.

replacing("a.html")                 a path beside the target to write to, which takes its place at the end
write_bytes / write_tensors         the same, for what is in memory
write_into(stack, "a.html", write)  one of several, all of which are written or none
replacing_folder("small", check)    the same for a folder; an existing one is exchanged in one step
locked("run/.lock", "trains in run")  one process at a time; the lock of a killed one is gone with it
sweep_leftovers("run")              what killed processes left in a folder
"""

from __future__ import annotations

from intertwine.files.folder import assert_folder_replaceable, finish_exchange, replacing_folder
from intertwine.files.leftovers import sweep_leftovers
from intertwine.files.lock import clear_lock, locked
from intertwine.files.read import read_json, read_regular
from intertwine.files.replace import (
    assert_can_write,
    is_special,
    replacing,
    write_bytes,
    write_into,
    write_tensors,
)

__all__ = [
    "assert_can_write",
    "assert_folder_replaceable",
    "clear_lock",
    "finish_exchange",
    "is_special",
    "locked",
    "read_json",
    "read_regular",
    "replacing",
    "replacing_folder",
    "sweep_leftovers",
    "write_bytes",
    "write_into",
    "write_tensors",
]
