"""Infer, sample, act, verify."""

from intertwine.ir.groups import Group
from intertwine.symmetry.acting import act
from intertwine.symmetry.axes import Axis, Member
from intertwine.symmetry.inspection import Inspection, inspect
from intertwine.symmetry.symmetry import Symmetry
from intertwine.symmetry.tracing import trace
from intertwine.symmetry.transform import Element
from intertwine.symmetry.translation import Translation
from intertwine.symmetry.verification import Report, assert_symmetric, verify

__all__ = [
    "Axis",
    "Element",
    "Group",
    "Inspection",
    "Member",
    "Report",
    "Symmetry",
    "Translation",
    "act",
    "assert_symmetric",
    "inspect",
    "trace",
    "verify",
]
