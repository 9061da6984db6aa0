"""Names of scalar functions. Nothing here says anything about their groups."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from intertwine.errors import NotFound

Scalar = Callable[[Tensor], Tensor]


def _rbf(x: Tensor) -> Tensor:
    return torch.exp(-x.square() / 2) / math.sqrt(2 * math.pi)


def _heaviside(x: Tensor) -> Tensor:
    return torch.heaviside(x, torch.zeros((), dtype=x.dtype))


def _prelu(x: Tensor) -> Tensor:
    return F.prelu(x, torch.full((1,), 0.25, dtype=x.dtype))


# The rows of Table 1 of Godfrey et al. 2022, in its order ("x**D" is understood for every number D).
TABLE_1: dict[str, Scalar] = {
    "identity": torch.clone,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "leaky_relu": F.leaky_relu,
    "rbf": _rbf,
    "x**2": torch.square,
    "x**3": partial(torch.pow, exponent=3),
}

EXTRA: dict[str, Scalar] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "softplus": F.softplus,
    "elu": F.elu,
    "celu": partial(F.celu, alpha=0.5),
    "selu": F.selu,
    "prelu": _prelu,
    "relu6": F.relu6,
    "squared_relu": lambda x: torch.relu(x).square(),
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "hardtanh": F.hardtanh,
    "threshold": partial(F.threshold, threshold=0.5, value=0.0),
    "logsigmoid": F.logsigmoid,
    "tanh": torch.tanh,
    "tanhshrink": F.tanhshrink,
    "softsign": F.softsign,
    "softshrink": F.softshrink,
    "hardshrink": F.hardshrink,
    "erf": torch.erf,
    "atan": torch.atan,
    "sin": torch.sin,
    "cos": torch.cos,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "log": torch.log,
    "log1p": torch.log1p,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal,
    "abs": torch.abs,
    "square": torch.square,
    "neg": torch.neg,
    "sign": torch.sign,
    "heaviside": _heaviside,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "trunc": torch.trunc,
}

_ALIASES = {"swish": "silu", "linear": "identity", "step": "heaviside", "relu2": "squared_relu"}
_POWER = re.compile(r"x\*\*(-?\d{1,9}(?:\.\d{1,18})?(?:/\d{1,9})?)", re.ASCII)


def names() -> list[str]:
    """Every name with a row in the table: Table 1 of Godfrey et al. 2022, then the others."""
    return [*TABLE_1, *EXTRA]


def find_function(name: str) -> Scalar:
    """The function of a name; "x**D" is the power D, an integer, a decimal or a fraction.

    >>> find_function("x**1/2")(torch.tensor([9.0]))
    tensor([3.])
    """
    key = _ALIASES.get(name.lower(), name.lower())
    function = TABLE_1.get(key) or EXTRA.get(key)
    if function is not None:
        return function
    if power := _POWER.fullmatch(key):
        top, _, bottom = power[1].partition("/")
        if not bottom or int(bottom):
            return partial(torch.pow, exponent=float(top) / int(bottom or 1))
    near = difflib.get_close_matches(key, [*names(), *_ALIASES], n=3)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise NotFound(f"no activation named {name!r}", do=hint + "known: x**D, " + ", ".join(names()))
