"""One progress protocol: `progress(done, total, what)` is called while a verb works."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int, str], None]  # 0 in all: how much there is to do is not known
Advance = Callable[[int], None]  # inside of a verb: so much more is done


def placed(progress: Progress | None, where: str) -> Progress | None:
    """The same, where what is counted is counted at one of several places.

    >>> placed(lambda *said: print(*said), "layer1")(1, 2, "inputs")
    1 2 layer1: inputs
    """
    if progress is None or not where:
        return progress
    return lambda done, total, what: progress(done, total, f"{where}: {what}")


def counted(progress: Progress | None, total: int, what: str) -> Advance | None:
    """`advance(n)` for a loop that knows how much it has just done.

    >>> advance = counted(lambda *said: print(*said), 10, "inputs")
    >>> advance(4); advance(6)
    4 10 inputs
    10 10 inputs
    """
    if progress is None:
        return None
    done = 0

    def advance(count: int = 1) -> None:
        nonlocal done
        done += count
        progress(done, total, what)

    return advance
