"""Pre-norm networks, with plain norms while they are combined, and with their own norms afterwards.

The gain of a norm ties the residual stream to its coordinates: `fold` moves it into the weights that read the
norm, and every rotation of the stream is a symmetry. What was made of folded networks has plain norms. A norm
whose gain is one computes the same where the stream has no mean: the architecture that was given comes back,
unless a table had to be untied or a shift had to stay (a head without a bias), which rotates with the stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import nn

from intertwine.combining._distil import scores_of
from intertwine.errors import Unsupported
from intertwine.graph.example import Example
from intertwine.graph.export import eval_copy, export
from intertwine.merging.folding import Folding, find_folding
from intertwine.merging.shrink import named_tensors
from intertwine.symmetry import Symmetry, trace
from intertwine.symmetry.tracing import proved

SAME = 1e-3  # of the largest output: what may differ between plain norms and the norms that were given


class Folded:
    """How networks fold, and the folded ones; with fold=None, all as they are where one does not fold.

    call: the arguments of one call. The first network's graph is kept for its symmetry, if it stays as it is.
    """

    def __init__(self, models: Sequence[nn.Module], call: tuple[Any, Any], fold: bool | None) -> None:
        self.models, self.call = list(models), call
        self.folding: Folding | None = None
        self._claimed: Symmetry | None = None
        if fold is False:
            return
        claimed = Symmetry(export(models[0], *call))
        with suppress(*(() if fold else (Unsupported,))):
            known = [claimed, *[None] * (len(models) - 1)]
            found = [find_folding(m, *call, c) for m, c in zip(models, known, strict=True)]
            if fold or len({repr(folding) for folding, _ in found}) == 1:
                self.folding, self.models = found[0][0], [model for _, model in found]
                return
        self._claimed = claimed

    def symmetry(self) -> Symmetry:
        """The proved symmetry of the first network, folded or not."""
        if self._claimed is None:
            return trace(self.models[0], *self.call)
        return proved(self.models[0], self._claimed, Example.of(*self.call))


@torch.no_grad()
def unfolded(model: nn.Module, folding: Folding, given: nn.Module, example: Any) -> nn.Module | None:
    """A network like `given` that computes what the folded `model` does; None where there is none."""
    if folding.untied or folding.factored:
        return None
    out, state = eval_copy(given), named_tensors(model)
    for name, tensor in named_tensors(out).items():
        if name in state:
            tensor.copy_(state[name])
    for path in folding.norms:
        norm: Any = out.get_submodule(path)
        norm.weight.fill_(1.0)
        if getattr(norm, "bias", None) is not None:
            norm.bias.copy_(state.get(f"{path}.shift", torch.zeros_like(norm.bias)))
    ours, theirs = scores_of(model, example), scores_of(out, example)
    return out if float((ours - theirs).abs().max()) <= SAME * float(ours.abs().max()) else None
