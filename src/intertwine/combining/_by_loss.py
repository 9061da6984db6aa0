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

from intertwine.combining._distil import teachers
from intertwine.combining._free import FreeElement
from intertwine.data.batches import arguments, count_rows, take
from intertwine.data.evaluation import logits_of
from intertwine.graph.export import eval_copy
from intertwine.merging.repair import norms_of
from intertwine.progress import Progress
from intertwine.symmetry import Element, Symmetry, act

STEPS = 300
RATE = 0.01
PLACES = 10.0  # a channel changes its place when its logits have crossed: they walk further than angles do
BATCH = 64
LOOK = 20  # steps between two looks at how good the average is


@torch.enable_grad()  # also under the no_grad of a caller
def learn_elements(
    models: Sequence[nn.Module],
    elements: Sequence[Element],
    symmetry: Symmetry,
    shares: Sequence[float],
    inputs: Any,
    *,
    steps: int = STEPS,
    learning_rate: float = RATE,
    permute: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[Element, ...]:
    """The best elements on the way, those that were given among them; permute: channels may change places.

    Without it only scales and matrices are learned: the straight-through gradient of a permutation says
    little about another one, and while channels jump the rest learns less.
    """
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
    turned = [p for f in frees for p in (f.scale, *f.turns.parameters()) if p.numel()]
    placed = [p for f in frees for p in f.places.parameters()]
    if not turned and not placed:
        return tuple(elements)
    groups: list[dict[str, Any]] = [{"params": turned}, {"params": placed, "lr": PLACES * learning_rate}]
    optimizer = torch.optim.Adam([g for g in groups if g["params"]], lr=learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    def loss(chosen: Tensor) -> Tensor:
        moved = [starts[0], *(f(start) for f, start in zip(frees, starts[1:], strict=True))]
        mixed = {n: sum(s * w[n] for s, w in zip(shares, moved, strict=True)) for n in starts[0]}
        args, kwargs = arguments(take(inputs, chosen))
        return taught.divergence(chosen, logits_of(functional_call(net, mixed, args, kwargs)))

    held = torch.randperm(count_rows(inputs), generator=generator)[: 4 * BATCH]
    best, kept = _value(loss, held), tuple(elements)
    for step in range(1, steps + 1):
        chosen = torch.randint(count_rows(inputs), (BATCH,), generator=generator)
        optimizer.zero_grad()
        found = loss(chosen)
        if not torch.isfinite(found):
            break
        found.backward()
        optimizer.step()
        schedule.step()
        if step % LOOK and step != steps:
            continue
        if progress is not None:
            progress(step, steps, "alignment by loss")
        if (now := _value(loss, held)) < best:
            moved = (f.element() @ e for f, e in zip(frees, elements[1:], strict=True))
            best, kept = now, (elements[0], *moved)
    return kept


@torch.no_grad()
def _value(loss: Callable[[Tensor], Tensor], rows: Tensor) -> float:
    found = float(loss(rows))
    return found if math.isfinite(found) else math.inf


def _floats(model: nn.Module) -> dict[str, Tensor]:
    """Its parameters; buffers are those of the network that runs."""
    return {name: p.detach() for name, p in model.named_parameters() if p.is_floating_point()}
