"""Code of others that runs in our process: what it raises, what it prints, and what it changes around it.

A factory may call sys.exit, close stdout, change the working directory or torch's defaults. None of that
decides how a command ends, where its output goes or in which precision it computes. Functions of torch that
it replaces stay as it wants them, but are known: what fails because of them is not called a bug of ours.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import Any, NoReturn
from weakref import WeakSet

from intertwine.errors import ModelError
from intertwine.interrupts import HungUp, Terminated
from intertwine.text import first_line

USER_MODULE = "intertwine_user_"  # how the modules of `file.py:factory` are named
_SAFE_PATH = "PYTHONSAFEPATH"
_REPORTING = {"ORT_DISABLE_TELEMETRY": "1", "RAY_USAGE_STATS_ENABLED": "0"}
_counting = threading.Lock()
_threads: WeakSet[threading.Thread] = WeakSet()  # that code of others started
_starting, _safe_before = 0, os.environ.get(_SAFE_PATH)  # who starts workers; what was set before
# What a signal raises. A class of the user's own that derives from KeyboardInterrupt is an error.
SIGNALLED = (KeyboardInterrupt, Terminated, HungUp)


@contextmanager
def user_code(what: str) -> Iterator[None]:
    """Code of the user's: what it raises, sys.exit included, is a ModelError; what it prints goes to stderr.

    >>> with user_code("make()"):
    ...     sys.exit(0)
    Traceback (most recent call last):
    intertwine.errors.ModelError: make(): SystemExit: its code called sys.exit(0)
    """
    _remember()
    out = _Lent(sys.stderr)  # results go to stdout, and `--json` must stay JSON
    try:
        with kept_process(), redirect_stdout(out), redirect_stderr(out):
            yield
    except BaseException as error:
        if is_signal(error):
            raise
        raise ModelError(f"{what}: {type(error).__name__}: {first_line(error)}") from error


def is_signal(error: BaseException) -> bool:
    """Whether this is Ctrl-C, SIGTERM or SIGHUP, as far as one can see.

    >>> is_signal(KeyboardInterrupt()), is_signal(type("Mine", (KeyboardInterrupt,), {})())
    (True, False)
    """
    return type(error) in SIGNALLED


def place_in_user_code(error: BaseException) -> str:
    """Where in a file of the user's an error comes from, as `net.py:12`; empty if from none.

    The module is known by the name that `file.py:factory` is loaded under.
    """
    place, trace = "", error.__traceback__
    while trace is not None:
        if str(trace.tb_frame.f_globals.get("__name__", "")).startswith(USER_MODULE):
            place = f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


@contextmanager
def kept_process() -> Iterator[None]:
    """The working directory, the limit of recursion, warnings, torch's defaults and modes are afterwards as
    before. os._exit raises SystemExit inside; a process that is forked inside ends there.

    Modules, and places where they are found, may be added, but not taken away.

    >>> import torch
    >>> with kept_process():
    ...     torch.set_default_dtype(torch.float16)
    >>> torch.get_default_dtype()
    torch.float32
    """
    import torch

    folder, depth = _folder(), sys.getrecursionlimit()
    owner, places, known = os.getpid(), sys.path, list(sys.path)
    finders, modules = list(sys.meta_path), dict(sys.modules)
    dtype, device, gradients = torch.get_default_dtype(), torch.get_default_device(), torch.is_grad_enabled()
    inference, mixed = torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")
    strict, on = _strictness(), _modes()
    running = set(threading.enumerate())
    try:
        with warnings.catch_warnings(), _staying():
            yield
    finally:
        if os.getpid() != owner:
            os._exit(1)  # a copy of this command: the one that was started goes on
        _threads.update(thread for thread in threading.enumerate() if thread not in running)
        if folder is not None and _folder() != folder:
            with suppress(OSError):  # it was removed
                os.chdir(folder)
        sys.setrecursionlimit(depth)
        found = sys.path if isinstance(sys.path, list) else known
        sys.path = places  # it may add places, but we go on importing from ours
        places[:] = [*found, *(place for place in known if place not in found)]
        sys.meta_path.extend(finder for finder in finders if finder not in sys.meta_path)
        sys.modules.update({name: each for name, each in modules.items() if sys.modules.get(name) is None})
        left = _switched_off(on)
        torch.set_default_dtype(dtype)
        if torch.get_default_device() != device:
            torch.set_default_device(None if device.type == "cpu" else device)
        torch.set_grad_enabled(gradients)
        torch.set_autocast_enabled("cpu", mixed)
        if _strictness() != strict:  # asking is free; setting it imports torch's compiler, a second or two
            torch.use_deterministic_algorithms(strict[0], warn_only=strict[1])
    if torch.is_inference_mode_enabled() != inference:
        left.append("torch.inference_mode")
    if left:
        raise ModelError(f"it left {left[0]} switched on", do="use it in a with statement")


def _modes() -> tuple[list[Any], list[Any]]:
    """What is switched on and sees every function, and every op, of torch, but for its default device."""
    from torch.overrides import _get_current_function_mode_stack
    from torch.utils._device import DeviceContext
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    functions, ops = _get_current_function_mode_stack(), _get_current_dispatch_mode_stack()
    return [mode for mode in functions if not isinstance(mode, DeviceContext)], ops


def _switched_off(before: tuple[list[Any], list[Any]]) -> list[str]:
    """The names of modes that were switched on since, which are off now."""
    from torch import overrides
    from torch.utils import _python_dispatch

    left = []
    pops: tuple[Callable[[], object], ...] = (overrides._pop_mode, _python_dispatch._pop_mode)
    for number, pop in enumerate(pops):
        while len(_modes()[number]) > len(before[number]):
            left.append(type(pop()).__name__)
    return left


@contextmanager
def _staying() -> Iterator[None]:
    """os._exit ends no process but those that are forked inside."""
    owner, leave = os.getpid(), os._exit

    def stay(status: int) -> NoReturn:
        if os.getpid() != owner:
            leave(status)
        raise SystemExit(status)

    os._exit = stay
    try:
        yield
    finally:
        if os._exit is stay:
            os._exit = leave


def are_threads_left(seconds: float = 1.0) -> bool:
    """Whether threads that code of others started still run after so many seconds; they keep the process."""
    until = time.monotonic() + seconds
    for thread in list(_threads):
        if not thread.daemon:
            thread.join(max(until - time.monotonic(), 0.0))
    return any(thread.is_alive() and not thread.daemon for thread in list(_threads))


@contextmanager
def safe_workers() -> Iterator[None]:
    """Interpreters that are started inside import nothing from the working directory.

    Without it a file multiprocessing.py or numpy.py that lies there would run in every worker, because Python
    puts the working directory first for -c and -m, which is how pools start theirs.
    """
    global _starting, _safe_before
    with _counting:
        if not _starting:
            _safe_before = os.environ.get(_SAFE_PATH)
        _starting += 1
        os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        with _counting:
            _starting -= 1
            if not _starting:  # another thread may still start workers
                os.environ.pop(_SAFE_PATH, None)
                if _safe_before is not None:
                    os.environ[_SAFE_PATH] = _safe_before


def report_nothing() -> None:
    """Before onnxruntime or Ray is imported: they report their use to their makers, and onnxruntime keeps the
    machine's number for it in the home folder. Whoever wants that sets the variables otherwise."""
    for name, value in _REPORTING.items():
        os.environ.setdefault(name, value)


def _strictness() -> tuple[bool, bool]:
    import torch

    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


_as_they_were: dict[str, tuple[Any, dict[str, Any]]] = {}  # by name: a module or class, and what it held
_defaults: dict[str, Any] = {}  # torch's dtype and device for new tensors, as they were


def _remember() -> None:
    """What torch and the like hold before the first code of a user runs."""
    if _as_they_were:
        return
    import builtins
    import json

    import numpy
    import torch

    _defaults.update(dtype=torch.get_default_dtype(), device=torch.get_default_device())
    owners: list[Any] = [
        builtins,
        json,
        numpy,
        os,
        torch,
        torch.export,
        torch.linalg,
        torch.nn.functional,
        torch.Tensor,
    ]
    layers = [kind for kind in vars(torch.nn).values() if isinstance(kind, type)]
    for owner in (*owners, *layers):
        name = f"{owner.__module__}.{owner.__qualname__}" if isinstance(owner, type) else owner.__name__
        held = {key: value for key, value in vars(owner).items() if key != "_"}  # what a prompt printed last
        _as_they_were[name] = (owner, held)


def replaced() -> list[str]:
    """What of torch, numpy and Python is not what it was before code of a user ran, and not by torch itself.

    >>> import torch
    >>> with user_code("make()"):
    ...     kept, torch.randn = torch.randn, None
    >>> replaced()
    ['torch.randn']
    >>> torch.randn = kept
    """
    found = []
    for name, (owner, held) in _as_they_were.items():
        now = vars(owner)
        for key, value in held.items():
            other = now.get(key)
            if other is not value and callable(value) and not _of_torch(other):
                found.append(f"{name}.{key}")
    return found


def put_back() -> list[str]:
    """Undo that, for who has only an error left to tell; what it was.

    >>> import builtins
    >>> with user_code("make()"):
    ...     builtins.isinstance = lambda *_: True
    >>> put_back(), isinstance(3, str)
    (['builtins.isinstance'], False)
    """
    found: list[str] = []
    for name, (owner, held) in _as_they_were.items():  # Python's own first, with which the rest is asked
        if owner is sys.modules["builtins"]:
            found = [f"{name}.{key}" for key, value in held.items() if vars(owner).get(key) is not value]
            vars(owner).update(held)
    others = replaced()
    for name in others:
        owner, _, key = name.rpartition(".")
        setattr(_as_they_were[owner][0], key, _as_they_were[owner][1][key])
    return [*found, *others, *_changed_defaults()]


def _changed_defaults() -> list[str]:
    """torch's defaults that a later call of forward left otherwise, put back."""
    found = []
    for name, before in _defaults.items():
        torch = sys.modules["torch"]
        if getattr(torch, f"get_default_{name}")() != before:
            getattr(torch, f"set_default_{name}")(None if str(before) == "cpu" else before)
            found.append(f"the default {name} of torch")
    return found


def _of_torch(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).split(".")[0] == "torch"


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None


class _Lent:
    """A stream that its borrower can write to, but not close."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def close(self) -> None:
        """Nothing: it is not the borrower's."""

    def detach(self) -> Any:
        """The stream itself stays where it is."""
        return self._stream
