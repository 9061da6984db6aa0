"""One rule an op. Importing this package fills the table."""

from intertwine.rules import attention, conv, linear, norm, pointwise, reduce, shape
from intertwine.rules.registry import RULES, Context, Rule, facts, find_rule, rule

__all__ = [
    "RULES",
    "Context",
    "Rule",
    "attention",
    "conv",
    "facts",
    "find_rule",
    "linear",
    "norm",
    "pointwise",
    "reduce",
    "rule",
    "shape",
]
