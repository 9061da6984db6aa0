"""Which cases of a long run have held: a line a case in a file, so that a run that was stopped goes on.

What was wrong is not written down: it is tried again. A table that has grown since has other numbers and is
run from its beginning.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

Item = TypeVar("Item")


class State:
    """The cases that held, by part and number.

    >>> state = State(None)
    >>> [number for number, _ in state.todo("calls", "abc", slice(0, None, 2))]
    [0, 2]
    >>> state.held("calls", 2, 3)
    >>> [number for number, _ in state.todo("calls", "abc", slice(0, None, 2))]
    [0]
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._held: set[str] = set()
        if path is not None and path.exists():
            self._held = set(path.read_text().splitlines())

    def todo(self, part: str, cases: Sequence[Item], share: slice) -> list[tuple[int, Item]]:
        """The cases of this share that have not held yet, with their numbers in the whole table."""
        numbered = list(enumerate(cases))[share]
        return [(n, case) for n, case in numbered if _line(part, n, len(cases)) not in self._held]

    def held(self, part: str, number: int, total: int) -> None:
        """Nothing was wrong with this one."""
        line = _line(part, number, total)
        self._held.add(line)
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(f"{line}\n")


def _line(part: str, number: int, total: int) -> str:
    return f"{part} {number}/{total}"
