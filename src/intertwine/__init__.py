"""intertwine: infer, prove and use the weight-space symmetries of any PyTorch model.

>>> import torch, intertwine
>>> from torch import nn
>>> mlp = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
>>> symmetry = intertwine.trace(mlp, torch.zeros(1, 3))
>>> [(axis.name, axis.size, str(axis.group)) for axis in symmetry.axes if not axis.frozen_because]
[('0', 8, 'positive monomial')]
"""

from __future__ import annotations

from importlib import import_module as _import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intertwine.vision_shim import watch as _watch

if TYPE_CHECKING:
    from torch import nn

    from intertwine.activations import intertwiner
    from intertwine.aligning import align, alignment_report
    from intertwine.checkup import doctor
    from intertwine.combining import combine, interpolate
    from intertwine.comparing import collect, compare, functional_similarity, similarity
    from intertwine.errors import IntertwineError
    from intertwine.exploring import explore, find_equivalents
    from intertwine.inside import attribute, dissect
    from intertwine.merging import apply_merge, feature_complexity, fold, merge, merge_betas, plan_merge
    from intertwine.orbit import automorphisms, find_isomorphism
    from intertwine.pages.collection import report
    from intertwine.pages.page import Page
    from intertwine.recipes.reproducing import reproduce
    from intertwine.stitching import rotate, stitch
    from intertwine.surveying import coverage
    from intertwine.sweeping import sweep
    from intertwine.symmetry import (
        Axis,
        Element,
        Group,
        Member,
        Report,
        Symmetry,
        act,
        assert_symmetric,
        inspect,
        trace,
        verify,
    )
    from intertwine.symmetry.translation import Translation
    from intertwine.tangent import Dimension, dimension
    from intertwine.training import train

    __version__: str

# Where each public name lies. It is imported when it is first asked for: `intertwine --help` and
# `intertwine.__version__` need no torch. A test holds this table against the imports above.
_WHERE = {
    name: module
    for module, names in {
        "activations": "intertwiner",
        "aligning": "align alignment_report",
        "checkup": "doctor",
        "combining": "combine interpolate",
        "comparing": "collect compare functional_similarity similarity",
        "errors": "IntertwineError",
        "exploring": "explore find_equivalents",
        "inside": "attribute dissect",
        "merging": "apply_merge feature_complexity fold merge merge_betas plan_merge",
        "orbit": "automorphisms find_isomorphism",
        "pages.collection": "report",
        "recipes.reproducing": "reproduce",
        "stitching": "rotate stitch",
        "tangent": "Dimension dimension",
        "surveying": "coverage",
        "sweeping": "sweep",
        "symmetry": "Axis Element Group Member Report Symmetry act assert_symmetric inspect trace verify",
        "symmetry.translation": "Translation",
        "training": "train",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib import metadata

        found: Any = metadata.version("intertwine")
    elif name in _WHERE:
        found = getattr(_import_module(f"intertwine.{_WHERE[name]}"), name)
    else:
        raise AttributeError(f"module 'intertwine' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


_watch()


def load(path: str | Path, *, run_code: bool = False, source: str | None = None) -> nn.Module:
    """The smaller model in a folder that `intertwine merge` wrote (see `intertwine.zoo.merged.load`)."""
    from intertwine.zoo import merged

    return merged.load(path, run_code=run_code, source=source)


def page(result: Any, **options: Any) -> Page:
    """The HTML page of a result that has one: `page(attribute(...)).write("page.html")`."""
    from intertwine.pages import page_of

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
    "Translation",
    "act",
    "align",
    "alignment_report",
    "apply_merge",
    "assert_symmetric",
    "attribute",
    "automorphisms",
    "collect",
    "combine",
    "compare",
    "coverage",
    "dimension",
    "dissect",
    "doctor",
    "explore",
    "feature_complexity",
    "find_equivalents",
    "find_isomorphism",
    "fold",
    "functional_similarity",
    "inspect",
    "interpolate",
    "intertwiner",
    "load",
    "merge",
    "merge_betas",
    "page",
    "plan_merge",
    "report",
    "reproduce",
    "rotate",
    "similarity",
    "stitch",
    "sweep",
    "trace",
    "train",
    "verify",
]
