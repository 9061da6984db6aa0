"""A task is a kind and its inputs; its key is their hash, and the key names its result.

    key = sha256(kind, version of the kind, inputs as canonical JSON, keys of the tasks it needs)

Two tasks with the same key compute the same thing, so a finished one never runs again; a changed recipe
changes the keys of what depends on it, and of nothing else. `task_kind` adds a kind; its version is raised
when its code starts to give other numbers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from intertwine.errors import InputError

Row = dict[str, Any]
# (inputs, folders of the tasks it needs, folder of its own) -> rows of the table
Work = Callable[[Mapping[str, Any], Sequence[Path], Path], list[Row]]


@dataclass(frozen=True)
class Kind:
    """What a kind of task does, and which edition of its code."""

    name: str
    version: int
    work: Work


_KINDS: dict[str, Kind] = {}


def task_kind(name: str, *, version: int) -> Callable[[Work], Work]:
    """Register a kind of task; a name can be taken once."""

    def register(work: Work) -> Work:
        if name in _KINDS:
            raise InputError(f"the task kind {name!r} exists already")
        _KINDS[name] = Kind(name, version, work)
        return work

    return register


def find_kind(name: str) -> Kind:
    """A registered kind."""
    import intertwine.sweep.kinds  # noqa: F401  (the package's own kinds register themselves)

    if name not in _KINDS:
        raise InputError(f"no task kind {name!r}", do=f"registered: {', '.join(sorted(_KINDS))}")
    return _KINDS[name]


@dataclass(frozen=True)
class Task:
    """One task; `inputs` is canonical JSON, so that a task is hashable, picklable and plain.

    >>> a = Task.of("merge", {"x": 1, "y": [2]})
    >>> b = Task.of("merge", {"y": [2], "x": 1})
    >>> a.key == b.key != Task.of("merge", {"x": 2, "y": [2]}).key
    True
    """

    kind: str
    inputs: str
    needs: tuple[str, ...] = ()
    label: str = ""  # for people; not part of the key

    @classmethod
    def of(cls, kind: str, inputs: Mapping[str, Any], needs: Sequence[Task] = (), label: str = "") -> Task:
        """A task from plain data and the tasks whose results it reads."""
        return cls(kind, json.dumps(inputs, sort_keys=True), tuple(task.key for task in needs), label)

    @cached_property
    def key(self) -> str:
        """The name of the result."""
        parts = [self.kind, find_kind(self.kind).version, self.inputs, self.needs]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:20]


@dataclass(frozen=True)
class Outcome:
    """How a task ended: `error` is empty if it is done."""

    key: str
    error: str = ""


def run_task(task: Task, root: str) -> Outcome:
    """Do one task unless it is done; errors are returned, so that one failure stops nothing else.

    Torch uses one thread meanwhile: parallelism is across tasks, and one thread gives one order of sums.
    """
    import torch

    from intertwine.sweep.store import Store

    store, threads = Store(Path(root)), torch.get_num_threads()
    if store.is_done(task.key):
        return Outcome(task.key)
    torch.set_num_threads(1)
    try:
        folder = store.folder(task.key)
        rows = find_kind(task.kind).work(
            json.loads(task.inputs), [store.folder(key) for key in task.needs], folder
        )
        store.finish(task, rows)
    except Exception as error:  # a task may fail in any way; the sweep goes on with the others
        return Outcome(task.key, f"{type(error).__name__}: {error}")
    finally:
        torch.set_num_threads(threads)
    return Outcome(task.key)
