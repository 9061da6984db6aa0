"""Alignment by loss: the group elements for which the average of the moved networks does what they all do.

    minimise over g_2 ... g_n   E over inputs of  KL(p || f(x, sum_k s_k g_k theta_k)),
                                p = softmax(sum_k s_k f(x, theta_k))

from elements found in closed form, with Adam. No labels. Batch norms use the statistics of the batch, as the
average is repaired later. Any model: what can be moved is read off its symmetry.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from intertwine.combining._distil import rows_of, teachers
from intertwine.combining._free import FreeElement
from intertwine.data.batches import arguments, count_rows
from intertwine.data.evaluation import logits_of
from intertwine.graph.export import eval_copy
from intertwine.merging.repair import norms_of
from intertwine.symmetry import Element, Symmetry, act

STEPS = 300
RATE = 0.01
BATCH = 64


def learn_elements(
    models: Sequence[nn.Module],
    elements: Sequence[Element],
    symmetry: Symmetry,
    shares: Sequence[float],
    inputs: Any,
    *,
    steps: int = STEPS,
    learning_rate: float = RATE,
    permute: bool = True,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> tuple[Element, ...]:
    """Elements from which the average loses less; where learning did not help, those that were given."""
    frees = [FreeElement(symmetry, permute=permute) for _ in models[1:]]
    starts = [
        _floats(models[0]),
        *(_floats(act(m, e)) for m, e in zip(models[1:], elements[1:], strict=True)),
    ]
    net = eval_copy(models[0]).requires_grad_(False)
    for norm in norms_of(net).values():
        norm.train()
    taught = teachers(models, shares, inputs)
    generator = torch.Generator().manual_seed(seed)
    free = [p for f in frees for p in f.parameters() if p.numel()]
    if not free:
        return tuple(elements)
    optimizer = torch.optim.Adam(free, lr=learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    def loss(chosen: Tensor) -> Tensor:
        moved = [starts[0], *(f(start) for f, start in zip(frees, starts[1:], strict=True))]
        mixed = {n: sum(s * w[n] for s, w in zip(shares, moved, strict=True)) for n in starts[0]}
        args, kwargs = arguments(rows_of(inputs, chosen))
        return taught.divergence(chosen, logits_of(functional_call(net, mixed, args, kwargs)))

    fixed = torch.randperm(count_rows(inputs), generator=generator)[: 4 * BATCH]
    with torch.no_grad():
        before = float(loss(fixed))
    for step in range(steps):
        chosen = torch.randint(count_rows(inputs), (BATCH,), generator=generator)
        optimizer.zero_grad()
        found = loss(chosen)
        if not torch.isfinite(found):
            return tuple(elements)
        found.backward()
        optimizer.step()
        schedule.step()
        if progress is not None and step % 20 == 0:
            progress(f"alignment by loss, step {step} of {steps}")
    with torch.no_grad():
        after = float(loss(fixed))
    if not math.isfinite(after) or after > before:
        return tuple(elements)
    return (elements[0], *(f.element() @ e for f, e in zip(frees, elements[1:], strict=True)))


def _floats(model: nn.Module) -> dict[str, Tensor]:
    """Its parameters; buffers are those of the network that runs."""
    return {name: p.detach() for name, p in model.named_parameters() if p.is_floating_point()}
