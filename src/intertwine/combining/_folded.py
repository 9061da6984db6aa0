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

from intertwine.combining._layerwise import batch_graph
from intertwine.combining._lockstep import cut
from intertwine.data.batches import arguments
from intertwine.errors import Unsupported
from intertwine.graph.example import Example
from intertwine.graph.export import assert_runs, eval_copy, named_tensors
from intertwine.merging.folding import Folding, find_folding, outputs_of_both
from intertwine.merging.torch_modules import as_rms_norm
from intertwine.symmetry import Symmetry
from intertwine.symmetry.tracing import proved

SAME = 1e-3  # of the largest output: what may differ between plain norms and the norms that were given


class Folded:
    """How networks fold, and the folded ones; with fold=None, all as they are where one does not fold.

    claimed: what the rules say of the first of them, on the graph of a whole batch: all walks over the inputs
    run on that one graph. call: the arguments of one call, on which is proved what is claimed.
    """

    def __init__(
        self, models: Sequence[nn.Module], inputs: Any, fold: bool | None, call: tuple[Any, Any] | None = None
    ) -> None:
        self.models, (args, kwargs) = list(models), call or arguments(cut(inputs, 2))
        if call is not None:  # the inputs are known to fit, a call of the caller's is not
            assert_runs(models[0], args, kwargs)
        self.example = Example.of(args, kwargs)
        self.folding: Folding | None = None
        self.claimed = Symmetry(batch_graph(models[0], inputs))
        if fold is False:
            return
        with suppress(*(() if fold else (Unsupported,))):
            known = [self.claimed, *[None] * (len(models) - 1)]
            found = [find_folding(m, args, kwargs, c) for m, c in zip(models, known, strict=True)]
            if fold or len({repr(folding) for folding, _ in found}) == 1:
                self.folding, self.models = found[0][0], [model for _, model in found]
                self.claimed = Symmetry(batch_graph(self.models[0], inputs))

    def symmetry(self) -> Symmetry:
        """The proved symmetry of the first network, folded or not."""
        return proved(self.models[0], self.claimed, self.example)


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
        known = as_rms_norm(norm)
        norm.weight.fill_(1.0 - (known[1] if known else 0.0))
        if getattr(norm, "bias", None) is not None:
            norm.bias.copy_(state.get(f"{path}.shift", torch.zeros_like(norm.bias)))
    pairs = zip(*outputs_of_both(model, out, Example.of(*arguments(example))), strict=True)
    same = all(float((a - b).abs().max()) <= SAME * float(a.abs().max()) for a, b in pairs)
    return out if same else None
