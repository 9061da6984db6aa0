"""Read by every Python that `real.py` starts: one worker of all dies at its n-th file event.

A worker is a process that is not the driver. Nothing is imported here that takes time.
"""

import os
import signal
import sys

_ROOT, _FATAL = os.environ.get("CRASH_ROOT", ""), int(os.environ.get("CRASH_FATAL", "0"))
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_PATHS = {"os.rename": (0, 1), "os.mkdir": (0,), "os.remove": (0,), "os.rmdir": (0,), "os.chmod": (0,)}
_count = 0


def _concerns(path: object) -> bool:
    return isinstance(path, str | bytes | os.PathLike) and os.fsdecode(path).startswith(_ROOT)


def _hook(event: str, args: tuple) -> None:
    global _count
    opened = event == "open" and isinstance(args[2], int) and args[2] & _WRITING and _concerns(args[0])
    if not opened and not (event in _PATHS and any(_concerns(args[i]) for i in _PATHS[event])):
        return
    if os.environ.get("CRASH_DRIVER") == str(os.getpid()):
        return
    _count += 1
    if _count == _FATAL:
        try:
            os.close(os.open(os.environ["CRASH_MARK"], os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:  # another one has died
            return
        os.kill(os.getpid(), signal.SIGKILL)


if _ROOT and _FATAL:
    sys.addaudithook(_hook)
