"""Where a command prints: its result on stdout, everything else on stderr.

What cannot be printed (a full disk, a pipe that nobody reads) is an InputError; on stderr it is dropped.
With --json only the document reaches stdout, whoever prints: a library, a model's code, a child process.
"""

from __future__ import annotations

import io
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from intertwine.errors import InputError
from intertwine.text import first_line, shown

T = TypeVar("T")
_documents: list[Any] = []  # where --json's document goes while stdout leads to stderr


class _Guarded:
    """A stream whose failures are an InputError, or nothing at all."""

    def __init__(self, stream: Any, name: str) -> None:
        self._stream, self._name = stream, name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._guard(self._stream.write, text) or 0
        except UnicodeEncodeError:  # a file name that is not text, or an old terminal
            code = getattr(self._stream, "encoding", None) or "ascii"
            return self._guard(self._stream.write, text.encode(code, "backslashreplace").decode(code)) or 0

    def flush(self) -> None:
        self._guard(self._stream.flush)

    def _guard(self, call: Callable[..., T], *args: Any) -> T | None:
        try:
            return call(*args)
        except UnicodeError:
            raise
        except (OSError, ValueError) as error:  # ValueError: a model's code has closed it
            _silence(self._stream)
            if self._name == "stderr":
                return None
            raise InputError(
                f"cannot write to {self._name}: {getattr(error, 'strerror', None) or error}",
                so="the result was not printed, or only in part",
            ) from error


@contextmanager
def guarded_streams() -> Iterator[None]:
    """Print through guards; what the caller closed is filled, so that no file takes its number."""
    _fill_descriptors()
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _Guarded(sys.stdout, "stdout"), _Guarded(sys.stderr, "stderr")
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


@contextmanager
def failing_in_a_line() -> Iterator[None]:
    """What fails where nobody can catch it (a thread, a `__del__`) takes a line, no traceback.

    Warnings are escaped too: they quote names and sources of others.
    """

    def tell(what: str, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, SystemExit):
            print(shown(f"{what}: {type(error).__name__}: {first_line(error)}"), file=sys.stderr)

    before, plain = (threading.excepthook, sys.unraisablehook), warnings.formatwarning
    threading.excepthook = lambda args: tell("in a thread", args.exc_value)
    sys.unraisablehook = lambda args: tell("ignored", args.exc_value)
    warnings.formatwarning = lambda *args, **kwargs: shown(plain(*args, **kwargs))
    try:
        yield
    finally:
        threading.excepthook, sys.unraisablehook = before
        warnings.formatwarning = plain


@contextmanager
def only_json(*, for_good: bool = False) -> Iterator[None]:
    """stdout leads to stderr, for this process and its children; `document` is the real one.

    for_good: it stays so. What threads, __del__ and atexit print would stand behind it.
    """
    real, saved = sys.stdout, os.dup(1)
    os.set_inheritable(saved, False)
    document = real
    try:
        real.flush()
        if _descriptor(real) == 1:
            opened = open(os.dup(saved), "w", encoding=real.encoding, errors="backslashreplace")  # noqa: SIM115
            document = _Guarded(opened, "stdout")
        os.dup2(2, 1)
        sys.stdout = sys.stderr
        _documents.append(document)
        try:
            yield
            document.flush()
        finally:
            _documents.pop()
            with suppress(InputError):
                real.flush()  # what somebody wrote past us goes where the rest went
            sys.stdout = real
            if not for_good or document is real:
                os.dup2(saved, 1)
            if document is not real:
                with suppress(OSError, InputError):
                    document.close()
    finally:
        os.close(saved)


def document() -> Any:
    """The stream for a JSON document."""
    return _documents[-1] if _documents else sys.stdout


def _fill_descriptors() -> None:
    for number, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            # stdout is opened for reading: whoever prints there learns that it is closed
            handle = os.open(os.devnull, flags)
            if handle != number:
                os.dup2(handle, number)
                os.close(handle)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def _descriptor(stream: Any) -> int | None:
    try:
        return int(stream.fileno())
    except (OSError, AttributeError, io.UnsupportedOperation, ValueError):
        return None


def _silence(stream: Any) -> None:
    """Drop what the stream still holds: Python would complain about it at the very end."""
    number = _descriptor(stream)
    if number is not None:
        with suppress(OSError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, number)
            os.close(null)
