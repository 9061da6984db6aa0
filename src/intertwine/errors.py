"""Every error that intertwine raises on purpose.

    IntertwineError
    ├── InputError            bad usage or bad input            exit code 2
    │   ├── ModelError        the model cannot be built, loaded or run on the example
    │   ├── WeightsError      a checkpoint is missing, corrupt, unsafe, or does not fit
    │   ├── DataError         a data set is missing or malformed
    │   ├── WrongKind         an argument of a function is another kind of thing; also a TypeError
    │   └── NotFound          a name (axis, layer, measure, zoo entry) that does not exist
    ├── Unsupported           understood, but not possible here    exit code 3
    │   ├── ExportFailed      torch.export cannot trace the model
    │   └── MissingExtra      an optional dependency is not installed
    ├── VerificationFailed    a claimed symmetry did not hold      exit code 1
    └── ProcessDied           one of several that work together    exit code 1

On the command line an exception of any other kind is a bug of ours: one line, exit code 70.

A message has up to four parts: what happened, where, so what, and what to do:

>>> print(NotFound("no axis named 'conv9'", where="resnet20", do="intertwine inspect lists the names"))
no axis named 'conv9'
  at   resnet20
  do   intertwine inspect lists the names
"""

from __future__ import annotations

import re
import sys

_START = 300  # characters
# How torch says that an op or a forward has no derivative, or does not take numbers or layouts of a kind.
_NO_KERNEL = re.compile(
    r"derivative for '\w+' is not implemented|not implemented for '\w+'"
    r"|does not require grad and does not have a grad_fn"
    r"|Could not run '[\w:.]+' with arguments from the '\w+' backend"
)


class IntertwineError(Exception):
    """Base of the tree; carries the four parts of a message and an exit code."""

    exit_code = 2

    def __init__(self, what: str, *, where: str = "", so: str = "", do: str = "") -> None:
        self.what, self.where, self.so, self.do = what, where, so, do
        super().__init__(what)

    def __str__(self) -> str:
        parts = [self.what]
        for label, text in (("at", self.where), ("so", self.so), ("do", self.do)):
            if text:
                parts.append(f"  {label}   {text}")
        return "\n".join(parts)


class InputError(IntertwineError, ValueError):
    """Bad usage or bad input."""


class ModelError(InputError):
    """The model cannot be built, loaded or run on the example."""


class WeightsError(InputError):
    """A checkpoint is missing, corrupt, unsafe, or does not fit the model."""


class DataError(InputError):
    """A data set is missing or malformed."""


class WrongKind(InputError, TypeError):
    """An argument of a function is another kind of thing than its annotation says."""


class NotFound(InputError):
    """A name that does not exist."""


class Unsupported(IntertwineError):
    """Understood, but not possible here."""

    exit_code = 3


def unsolvable(error: BaseException) -> Unsupported | None:
    """What a factorisation that does not exist means, or an op that torch has no code for; None for any other
    error.

    >>> import numpy
    >>> unsolvable(numpy.linalg.LinAlgError("Singular matrix")).exit_code, unsolvable(KeyError())
    (3, None)
    >>> print(unsolvable(NotImplementedError("min_all not implemented for 'ComplexFloat'")).what)
    torch cannot compute this: min_all not implemented for 'ComplexFloat'
    """
    if isinstance(error, RuntimeError) and _NO_KERNEL.search(str(error)[:_START]):
        return Unsupported(
            f"torch cannot compute this: {str(error).splitlines()[0][:_START]}",
            so="the model, its weights or its inputs are of a kind that it has no code for",
            do="give floating-point numbers, and ops that can be differentiated where that is needed",
        )
    kinds = [
        vars(sys.modules[name])["LinAlgError"]  # whoever raised one has imported it
        for name in ("numpy.linalg", "torch.linalg") if name in sys.modules
    ]  # fmt: skip
    if not isinstance(error, tuple(kinds)):
        return None
    return Unsupported(
        f"an equation of the weights and inputs has no solution in float64: {str(error).splitlines()[0]}",
        so="their numbers are too large, too far apart, or not finite",
        do="look at the largest weights and inputs; rescale them, or normalise the data",
    )


class ExportFailed(Unsupported):
    """torch.export cannot trace the model."""


class MissingExtra(Unsupported):
    """An optional dependency is not installed."""


class RefutedClaim(UserWarning):
    """Acting refuted a symmetry that a rule claims: it is frozen, and the rule has a bug."""


class VerificationFailed(IntertwineError):
    """A claimed symmetry did not hold."""

    exit_code = 1


class ProcessDied(IntertwineError):
    """One of several processes that work together was ended from outside."""

    exit_code = 1
