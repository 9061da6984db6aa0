"""Whatever ends a command becomes one line on stderr and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from itertools import pairwise

from intertwine.errors import InputError, IntertwineError, MissingExtra, ModelError, unsolvable
from intertwine.foreign import place_in_user_code, put_back
from intertwine.text import first_line, shown

OUR_BUG = 70  # EX_SOFTWARE of sysexits.h
_PASSING = ("__torch_dispatch__", "__torch_function__")  # an op of somebody's code goes through them


def report(error: BaseException) -> int:
    """Say what ended the command; the exit code."""
    try:
        known = _as_ours(error, put_back())
    except Exception:  # code of others changed even what is asked here
        known = None
    if known is not None:
        say_error(f"{type(known).__name__}: {known}")
        return known.exit_code
    say_error(
        f"{type(error).__name__}: {first_line(error)} [{_place(error)}]: this is a bug of intertwine; please "
        "report this line and the command (--debug shows the traceback)"
    )
    return OUR_BUG


def _as_ours(error: BaseException, changed: list[str]) -> IntertwineError | None:
    """What is not a bug, whoever raised it: our errors, code of others that exits, no memory, no disk.

    changed: functions of torch, numpy and Python that code of the user's had replaced.
    """
    if isinstance(error, IntertwineError):
        return error
    if isinstance(error, SystemExit):  # we never exit in the middle; a return code of 0 would be a lie
        return ModelError(f"the model's code ended the command: {first_line(error)}", do="remove sys.exit")
    if isinstance(error, MemoryError) or _is_out_of_memory(error):
        return InputError(
            f"the memory is not enough: {first_line(error)}", do="give less data, or smaller inputs"
        )
    if isinstance(error, OSError) and error.strerror:
        named = f"{error.filename}: " if error.filename else ""
        return InputError(f"{named}{error.strerror}")
    if isinstance(error, ImportError) and not (error.name or "").startswith("intertwine"):
        return MissingExtra(
            f"a package cannot be imported: {first_line(error)}",
            do="install it again; a file or variable (PYTHONPATH) may put another one in its place",
        )
    told = unsolvable(error)
    if told is not None:
        return told
    place = place_in_user_code(error)
    if place:
        return ModelError(
            f"the model's code failed: {type(error).__name__}: {first_line(error)}", where=place
        )
    if _is_of_a_layer(error):
        return ModelError(
            f"a layer fails on what it is given: {type(error).__name__}: {first_line(error)}",
            where=_place(error),
            do="check that model and data belong together (shapes, precision, vocabulary)",
        )
    if changed:
        names = ", ".join(changed[:3]) + (" and others" if len(changed) > 3 else "")
        return ModelError(
            f"the model's code replaced {names}, and then: {type(error).__name__}: {first_line(error)}",
            do="give it back what it replaced",
        )
    return None


def _is_out_of_memory(error: BaseException) -> bool:
    """torch has no class of its own for it on the CPU, nor has the loader of libraries."""
    text = str(error) if isinstance(error, RuntimeError | ImportError) else ""
    return any(said in text for said in ("can't allocate memory", "out of memory", "failed to map segment"))


def _is_of_a_layer(error: BaseException) -> bool:
    """Whether we called a module, and it raised this: its inputs are of a model and data of others."""
    module = sys.modules.get("torch.nn.modules.module")  # if it was never imported, no layer was called
    after: traceback.FrameSummary | None = None
    frames = [frame for frame in _frames(error) if frame.name not in _PASSING]
    for before, frame in pairwise(frames):
        after = frame if _is_ours(before) else None if _is_ours(frame) else after
    return after is not None and module is not None and after.filename == module.__file__


def _is_ours(frame: traceback.FrameSummary) -> bool:
    return f"{os.sep}intertwine{os.sep}" in frame.filename


def _place(error: BaseException) -> str:
    """The last line of ours that the error passed through, as `merging/plan.py:88`."""
    ours = [f for f in _frames(error) if _is_ours(f)]
    last = ours[-1] if ours else next(iter(reversed(list(_frames(error)))), None)
    if last is None:
        return "?"
    return f"{last.filename.rpartition(f'{os.sep}intertwine{os.sep}')[2]}:{last.lineno}"


def _frames(error: BaseException) -> Iterator[traceback.FrameSummary]:
    yield from traceback.extract_tb(error.__traceback__)


def say_error(text: str) -> None:
    """A line on stderr, whatever -q says, and whatever code of others made of `print`."""
    if sys.stderr is not None:
        sys.stderr.write(f"{shown(text)}\n")
