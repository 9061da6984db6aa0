"""Several runs side by side, so that what all of them read is made once.

Where a model is too large for a copy, a weight is raised and moved when an op reads it, and then forgotten.
One after another, the runs of a proof would make every weight once for each size of the inputs. Here each run
is a thread of its own that stops where it reads something that is not at hand; one goes on at a time, and
something new is made, and the old forgotten, when none can go on without it. So one weight is held, and where
all runs read in the same order, each is made once.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import torch

T = TypeVar("T")
Make = Callable[[], Any]


class _Left(BaseException):
    """Ends a run whose result nobody waits for any more."""


class _Run(Generic[T]):
    """One run: `wants` is what it waits for, `random` the state of its random numbers."""

    def __init__(self, work: Callable[[Callable[[Hashable], Any]], T]) -> None:
        self.wants: Hashable | None = None
        self.given: Any = None
        self.result: T | None = None
        self.error: BaseException | None = None
        self.done = self.left = False
        self.random = torch.default_generator.get_state()
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        body = contextvars.copy_context().run
        self._thread = threading.Thread(target=body, args=(self._body, work), daemon=True)
        self._thread.start()

    def _body(self, work: Callable[[Callable[[Hashable], Any]], T]) -> None:
        self._go.acquire()
        try:
            if not self.left:
                self.result = work(self._read)
        except BaseException as error:  # it is raised where the result is asked for
            self.error = error
        finally:
            self.done = True
            self._stopped.release()

    def _read(self, key: Hashable) -> Any:
        """In the thread: wait until it is at hand."""
        self.wants = key
        self._stopped.release()
        self._go.acquire()
        if self.left:
            raise _Left
        value, self.given = self.given, None
        return value

    def go_on(self, value: Any = None) -> None:
        """Until it waits again or is done, with its own random numbers."""
        torch.default_generator.set_state(self.random)
        self.given, self.wants = value, None
        self._go.release()
        self._stopped.acquire()
        self.random = torch.default_generator.get_state()

    def leave(self) -> None:
        """End it, wherever it is."""
        if not self.done:
            self.left = True
            self._go.release()
        self._thread.join()


def run_side_by_side(
    works: Sequence[Callable[[Mapping[Any, Make]], T]], makers: Mapping[Any, Make]
) -> list[T]:
    """What each work returns that is given a table of makers; a maker is called for all that wait for it.

    >>> made = []
    >>> table = {"w": lambda: made.append("w") or 3.0}
    >>> run_side_by_side([lambda read: read["w"]() + 1, lambda read: read["w"]() + 2], table)
    [4.0, 5.0]
    >>> made
    ['w']
    """
    with torch.random.fork_rng(devices=[]):
        runs: list[_Run[T]] = [_Run(_reading(work, makers)) for work in works]
        try:
            for run in runs:
                run.go_on()
            while waiting := [run for run in runs if not run.done]:
                key = waiting[0].wants
                value = makers[key]()
                for run in waiting:
                    while run.wants == key and not run.done:
                        run.go_on(value)
                del value
        finally:
            for run in runs:
                run.leave()
    for run in runs:
        if run.error is not None:
            raise run.error
    return [run.result for run in runs]  # type: ignore[misc]


def _reading(work: Callable[[Mapping[Any, Make]], T], makers: Mapping[Any, Make]) -> Callable[..., T]:
    def start(read: Callable[[Hashable], Any]) -> T:
        return work({key: lambda key=key: read(key) for key in makers})  # type: ignore[misc]

    return start
