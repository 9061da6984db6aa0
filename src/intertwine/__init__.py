"""intertwine: infer, prove and use the weight-space symmetries of any PyTorch model.

>>> import torch, intertwine
>>> from torch import nn
>>> mlp = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
>>> symmetry = intertwine.trace(mlp, torch.zeros(1, 3))
>>> [(axis.name, axis.size, str(axis.group)) for axis in symmetry.axes if not axis.frozen_because]
[('0', 8, 'positive monomial')]
"""

from __future__ import annotations

from importlib import metadata as _metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intertwine.activations import intertwiner
from intertwine.align import align, alignment_report, interpolate
from intertwine.errors import IntertwineError
from intertwine.explore import find_equivalents
from intertwine.inside import attribute, dissect
from intertwine.merge import apply_merge, feature_complexity, plan_merge
from intertwine.orbit import automorphisms, find_isomorphism
from intertwine.similarity import collect, compare, functional_similarity
from intertwine.stitch import rotate, stitch
from intertwine.symmetry import (
    Axis,
    Element,
    Group,
    Member,
    Report,
    Symmetry,
    act,
    assert_symmetric,
    trace,
    verify,
)
from intertwine.tangent import Dimension, dimension

if TYPE_CHECKING:
    from torch import nn

    from intertwine.report.page import Page

__version__ = _metadata.version("intertwine")


def load(path: str | Path, *, run_code: bool = False, source: str | None = None) -> nn.Module:
    """The smaller model in a folder that `intertwine merge` wrote (see `intertwine.zoo.merged.load`)."""
    from intertwine.zoo import merged

    return merged.load(path, run_code=run_code, source=source)


def page(result: Any, **options: Any) -> Page:
    """The HTML page of a result that has one: `page(attribute(...)).write("page.html")`."""
    from intertwine.report import page_of

    return page_of(result, **options)


__all__ = [
    "Axis",
    "Dimension",
    "Element",
    "Group",
    "IntertwineError",
    "Member",
    "Report",
    "Symmetry",
    "act",
    "align",
    "alignment_report",
    "apply_merge",
    "assert_symmetric",
    "attribute",
    "automorphisms",
    "collect",
    "compare",
    "dimension",
    "dissect",
    "feature_complexity",
    "find_equivalents",
    "find_isomorphism",
    "functional_similarity",
    "interpolate",
    "intertwiner",
    "load",
    "page",
    "plan_merge",
    "rotate",
    "stitch",
    "trace",
    "verify",
]
