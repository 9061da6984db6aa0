"""Ctrl-C and SIGTERM: both end a command in the same way, and long work ends between two of its steps.

`SIGTERM` raises Terminated, a KeyboardInterrupt, so that what is cleaned up for the one is for the other.
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


_SIGNALS = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: Terminated}


@contextmanager
def _handling(handler: Callable[[int, FrameType | None], None], *signals: signal.Signals) -> Iterator[None]:
    """Other handlers while inside; nothing changes outside the main thread, where Python allows none."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[signal.Signals, Any] = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old if old is not None else signal.SIG_DFL)


@contextmanager
def raising_terminated() -> Iterator[None]:
    """SIGTERM raises Terminated here; in processes forked from here it ends them as ever."""
    owner = os.getpid()

    def handler(number: int, _frame: FrameType | None) -> None:
        if os.getpid() == owner:
            raise Terminated
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    with _handling(handler, signal.SIGTERM):
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
