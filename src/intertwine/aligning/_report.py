"""How much of the distance between two models each part of the symmetry group explains."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from torch import nn

from intertwine.aligning._align import Alignment, align
from intertwine.checks import checked
from intertwine.orbit import Pairing
from intertwine.symmetry import Symmetry
from intertwine.symmetry.transform import identity


@dataclass(frozen=True)
class AlignmentReport:
    """Shares of |A - B|^2 over all parameters; they add up to 1.

    permutation: what permutations explain; scaling: what rescalings and signs explain beyond; linear: what
    matrices explain beyond; rest: what no element that was found explains.
    """

    squared_distance: float
    permutation: float
    scaling: float
    linear: float
    rest: float

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


@checked
def alignment_report(
    model_a: nn.Module,
    model_b: nn.Module,
    symmetry: Symmetry,
    *,
    alignment: Alignment | None = None,
    restarts: int = 3,
    seed: int = 0,
) -> AlignmentReport:
    """|A - B|^2 before and after each part of the group has acted, as shares.

    The permutations are those found alone or those of the whole element, whichever explain more; the parts
    of the whole element follow one after the other, and a part that explains nothing gets 0.

    >>> import torch
    >>> from intertwine import act, trace
    >>> mlp = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> symmetry = trace(mlp, torch.zeros(1, 3))
    >>> report = alignment_report(mlp, act(mlp, symmetry.sample(0)), symmetry)
    >>> report.rest < 1e-9 and report.scaling > 0
    True
    """
    pair = Pairing(symmetry, model_a, model_b)
    full = alignment or align(model_a, model_b, symmetry, restarts=restarts, seed=seed)
    alone = align(model_a, model_b, symmetry, group="permutation", restarts=restarts, seed=seed)
    base, g = identity(symmetry.structure), full.element
    parts = [
        [base],
        [alone.element, replace(base, relabel=g.relabel)],
        [replace(base, relabel=g.relabel, log_scale=g.log_scale, sign=g.sign)],
        [g],
    ]
    norm = pair.action.squared_norm(pair.a)
    found = [min(pair.distance(e) for e in elements) ** 2 * norm for elements in parts]
    left = np.minimum.accumulate(found) / max(found[0], 1e-300)
    permutation, scaling, linear = (float(x) for x in left[:-1] - left[1:])
    return AlignmentReport(found[0], permutation, scaling, linear, rest=float(left[-1]))
