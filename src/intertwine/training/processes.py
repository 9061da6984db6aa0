"""Several processes that train together: this command, started once more for each further device.

They wait for each other at every step, so one that dies would leave the others waiting. Who started them
looks after them: a death ends all, with an error that says whose it was. Only the first writes files.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from intertwine.errors import InputError, IntertwineError, ProcessDied
from intertwine.text import quoted, shown

RANK = "LOCAL_RANK"  # as Lightning, torchrun and others say which of the processes this one is
_STARTER = "INTERTWINE_STARTER"
_LOOK, _NOTICE, _END = 0.5, 10.0, 60.0  # seconds: between two looks, for a step to fail, for all to end


def is_first(devices: int) -> bool:
    """Whether this process is the one that speaks."""
    return devices == 1 or os.environ.get(RANK, "0") == "0"


@contextmanager
def together(devices: int) -> Iterator[None]:
    """Inside, `devices` processes run: the others are this same command (or script) again.

    Raises ProcessDied, in all that are left, where one of them has died.
    """
    if devices == 1:
        yield
    elif RANK in os.environ:  # one of the others, or somebody else has started us all
        if not os.environ[RANK].isdecimal():
            raise InputError(f"{RANK} is {quoted(os.environ[RANK])} in the environment, which is no number")
        try:
            yield
        except Exception as error:
            if os.environ.get(_STARTER, str(os.getppid())) != str(os.getppid()):
                raise ProcessDied("the process that started this one has ended") from error
            raise
    else:
        with _others(devices) as others:
            try:
                yield
            except Exception as error:
                if isinstance(error, IntertwineError) or not others.has_died(_NOTICE):
                    raise
                raise others.error() from error
            others.wait()


class _Others:
    """The further processes, and a thread that looks after them."""

    def __init__(self, processes: list[subprocess.Popen[bytes]]) -> None:
        self.processes = processes
        self.died, self.over = threading.Event(), threading.Event()
        self.watch = threading.Thread(target=self._watch, name="processes of training", daemon=True)
        self.watch.start()

    def error(self) -> ProcessDied:
        """Which of them has died, and of what."""
        codes = {rank: p.poll() for rank, p in enumerate(self.processes, 2)}
        rank, code = next((r, c) for r, c in codes.items() if c)
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        return ProcessDied(
            f"process {rank} of {len(self.processes) + 1} was ended {how}",
            so="training stopped; the last saved state is whole",
            do="the same command goes on from there",
        )

    def has_died(self, seconds: float = 0.0) -> bool:
        """Whether one of them has, or does so soon: a broken connection is noticed before a death."""
        return self.died.wait(seconds)

    def wait(self) -> None:
        """Until all have ended well."""
        for process in self.processes:
            try:
                process.wait(_END)
            except subprocess.TimeoutExpired:
                process.kill()
        if any(process.poll() for process in self.processes):
            self.died.set()

    def end(self) -> None:
        """All of them, whatever they do: they hold no files."""
        self.over.set()
        for process in self.processes:
            process.kill()
            process.wait()

    def _watch(self) -> None:
        while not self.over.wait(_LOOK):
            if any(process.poll() for process in self.processes):
                self.died.set()
                if not self.over.wait(_NOTICE):  # torch waits for the dead, and hears nothing meanwhile
                    error = self.error()
                    self.end()
                    if sys.stderr is not None:
                        sys.stderr.write(f"{shown(f'{type(error).__name__}: {error}')}\n")
                        sys.stderr.flush()
                    os._exit(error.exit_code)
                return


@contextmanager
def _others(devices: int) -> Iterator[_Others]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    said = {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "NODE_RANK": "0", "WORLD_SIZE": str(devices),
        RANK: "0", _STARTER: str(os.getpid()),
    }  # fmt: skip
    before = {name: os.environ.get(name) for name in said}
    os.environ.update(said)
    others = _Others(
        [subprocess.Popen(_command(), env=os.environ | {RANK: str(rank)}) for rank in range(1, devices)]
    )
    try:
        yield others
    finally:
        others.end()
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _command() -> list[str]:
    """How this process was started."""
    main = sys.modules["__main__"].__spec__
    place = ["-m", main.name] if main is not None else [os.path.abspath(sys.argv[0])]
    return [sys.executable, *place, *sys.argv[1:]]
