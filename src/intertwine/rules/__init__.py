"""One rule an op. Importing this package fills the table."""

from intertwine.rules import (
    aliases,
    attention,
    control,
    conv,
    fourier,
    linear,
    lookup,
    matrices,
    norm,
    pointwise,
    recurrent,
    reduce,
    shape,
)
from intertwine.rules.registry import RULES, Context, Rule, facts, find_rule, rule

__all__ = [
    "RULES",
    "Context",
    "Rule",
    "aliases",
    "attention",
    "control",
    "conv",
    "facts",
    "find_rule",
    "fourier",
    "linear",
    "lookup",
    "matrices",
    "norm",
    "pointwise",
    "recurrent",
    "reduce",
    "rule",
    "shape",
]
