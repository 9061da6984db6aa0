"""Ctrl-C, SIGTERM and SIGHUP end a command in the same way, and long work ends between two of its steps.

`SIGTERM` raises Terminated, `SIGHUP` (the terminal is gone) HungUp, both a KeyboardInterrupt, so that what is
cleaned up for the one is for the others. What is ignored when we start (nohup) stays ignored.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Terminated(KeyboardInterrupt):
    """The process was asked to end (SIGTERM)."""


class HungUp(Terminated):
    """The terminal that the process was started from is gone (SIGHUP)."""


_SIGNALS = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated}
if hasattr(signal, "SIGHUP"):  # not on Windows
    _SIGNALS[signal.SIGHUP] = HungUp


@contextmanager
def _handling(handler: Callable[[int, FrameType | None], None], *signals: signal.Signals) -> Iterator[None]:
    """Other handlers while inside; nothing changes outside the main thread, where Python allows none."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = [number for number in signals if signal.getsignal(number) is not signal.SIG_IGN]
    before: dict[signal.Signals, Any] = {number: signal.signal(number, handler) for number in heard}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old if old is not None else signal.SIG_DFL)


@contextmanager
def raising_terminated() -> Iterator[None]:
    """SIGTERM and SIGHUP raise Terminated here; processes forked from here they end as ever."""
    owner = os.getpid()

    def handler(number: int, _frame: FrameType | None) -> None:
        if os.getpid() == owner:
            raise _SIGNALS[signal.Signals(number)]
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    with _handling(handler, *(_SIGNALS.keys() - {signal.SIGINT})):
        yield


@contextmanager
def between_steps() -> Iterator[Callable[[], type[KeyboardInterrupt] | None]]:
    """Yields a question to ask between steps: which interrupt has come, if any. A second one is raised.

    >>> with between_steps() as interrupted:
    ...     signal.raise_signal(signal.SIGINT)
    ...     interrupted()
    <class 'KeyboardInterrupt'>
    """
    come: list[type[KeyboardInterrupt]] = []

    def handler(number: int, _frame: FrameType | None) -> None:
        kind = _SIGNALS[signal.Signals(number)]
        if come:
            raise kind
        come.append(kind)

    with _handling(handler, *_SIGNALS):
        yield lambda: come[0] if come else None
