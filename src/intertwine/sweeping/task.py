"""A task is a kind and its inputs; its key is their hash, and the key names its result.

    key = sha256(kind, version of the kind, inputs as canonical JSON, keys of the tasks it needs)

Two tasks with the same key compute the same thing, so a finished one never runs again; a changed recipe
changes the keys of what depends on it, and of nothing else. `task_kind` adds a kind; its version is raised
when its code starts to give other numbers. A task carries the name of the module that registers its kind, so
that a fresh worker process knows where to look.

What a task does follows from the plan alone. The folder of a result is read for numbers and weights, never
for what to run: a task hands the tasks that it needs, with their inputs, to its work.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from intertwine.errors import InputError, IntertwineError

Row = dict[str, Any]


@dataclass(frozen=True)
class Need:
    """A finished task that another one reads: what it was planned to do, and its files."""

    task: Task
    folder: Path
    digests: Mapping[str, str]

    @property
    def inputs(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.task.inputs)
        return found

    def file(self, name: str) -> Path:
        """One of its files, which must be what it was when the task ended."""
        from intertwine.sweeping.store import digest_of

        path = self.folder / name
        if name not in self.digests or digest_of(path) != self.digests[name]:
            raise InputError(
                f"{path} is not what {self.task.label or self.task.kind} wrote",
                do=f"delete {self.folder} to run that task again",
            )
        return path


# (inputs, the tasks it needs, folder of its own) -> rows of the table
Work = Callable[[Mapping[str, Any], Sequence[Need], Path], list[Row]]


@dataclass(frozen=True)
class TaskKind:
    """What a kind of task does, which edition of its code, and the files that it leaves to others."""

    name: str
    version: int
    work: Work
    files: tuple[str, ...] = ()

    @property
    def home(self) -> str:
        """The module that registers this kind when it is imported."""
        return self.work.__module__


_KINDS: dict[str, TaskKind] = {}


def task_kind(name: str, *, version: int, files: Sequence[str] = ()) -> Callable[[Work], Work]:
    """Register a kind of task; a name can be taken once.

    files: what it leaves in its folder for tasks that need it; it is done only while they are there.
    """

    def register(work: Work) -> Work:
        if name in _KINDS:
            raise InputError(f"the task kind {name!r} exists already")
        _KINDS[name] = TaskKind(name, version, work, tuple(files))
        return work

    return register


def find_kind(name: str, home: str = "") -> TaskKind:
    """A registered kind; `home` is imported first where the kind is not known yet."""
    import intertwine.sweeping.kinds  # noqa: F401  (the package's own kinds register themselves)

    if name not in _KINDS and home:
        importlib.import_module(home)
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
    needs: tuple[Task, ...] = ()
    label: str = ""  # for people; not part of the key
    home: str = ""  # the module of its kind; not part of the key

    @classmethod
    def of(cls, kind: str, inputs: Mapping[str, Any], needs: Sequence[Task] = (), label: str = "") -> Task:
        """A task from plain data and the tasks whose results it reads."""
        home = find_kind(kind).home
        return cls(kind, json.dumps(inputs, sort_keys=True), tuple(needs), label, home)

    @cached_property
    def key(self) -> str:
        """The name of the result."""
        version = find_kind(self.kind, self.home).version
        parts = [self.kind, version, self.inputs, [task.key for task in self.needs]]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:20]


@dataclass(frozen=True)
class TaskOutcome:
    """How a task ended: `error` is empty if it is done; `code` is what the command exits with."""

    key: str
    error: str = ""
    code: int = 0


def run_task(task: Task, root: str) -> TaskOutcome:
    """Do one task unless it is done; errors are returned, so that one failure stops nothing else.

    Torch uses one thread meanwhile: parallelism is across tasks, and one thread gives one order of sums.
    """
    import torch

    from intertwine.sweeping.store import ResultStore

    store, threads = ResultStore(Path(root)), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with store.locked(task):  # another sweep, or a worker whose driver was killed, may be at it
            if not store.is_done(task):
                work = find_kind(task.kind, task.home).work
                rows = work(json.loads(task.inputs), [store.need(t) for t in task.needs], store.folder(task))
                store.finish(task, rows)
    except Exception as error:  # a task may fail in any way; the sweep goes on with the others
        code = error.exit_code if isinstance(error, IntertwineError) else 1
        return TaskOutcome(task.key, f"{type(error).__name__}: {error}", code)
    finally:
        torch.set_num_threads(threads)
    return TaskOutcome(task.key)
