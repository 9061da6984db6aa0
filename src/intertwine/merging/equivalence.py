"""feature_complexity: the number of classes of features left at a given beta (Definition 2.4 of source 000).

The other definitions of the source, isomorphisms and automorphisms, are questions about the orbit (`orbit`).
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from intertwine.checks import checked
from intertwine.errors import InputError
from intertwine.graph.export import check_values
from intertwine.merging.decide import PAPER_BETAS, Options, Planner
from intertwine.symmetry import Symmetry


@checked
def feature_complexity(
    model: nn.Module,
    symmetry: Symmetry,
    betas: Sequence[float] = PAPER_BETAS,
    *,
    distance: str = "paper",
    axes: Sequence[str] | None = None,
) -> dict[float, dict[str, int]]:
    """beta -> axis -> feature complexity, every axis measured against the original weights of its neighbours.

    One merge sequence an axis is computed, and cut at every beta.
    """
    check_values(model)
    if not len(betas):
        raise InputError("betas is empty", do="give at least one")
    options = Options("ifm", order="independent", distance=distance, repair="none").checked()
    whole = Planner(model, symmetry, options, axes, check=False).at_beta(max(betas))
    return {beta: whole.cut(beta).complexity for beta in betas}
