"""Random starting points for the search: a fresh initialisation of any module, or theta plus noise."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from intertwine.errors import InputError
from intertwine.exploring.objective import Objective

# count, seed -> count x p matrix of starting points.
Starts = Callable[[int, int], Tensor]


def make_starts(objective: Objective, kind: str | Starts, spread: float) -> Starts:
    """The function that draws starting points.

    "random" calls `reset_parameters` of every submodule, as its author's initialisation would, and
    draws the parameters that no submodule resets from a normal distribution with the moments of theta.
    "perturbed" adds to each parameter of theta normal noise of `spread` times its root mean square.
    """
    if callable(kind):
        return kind
    if kind == "random":
        return lambda count, seed: _reset(objective, count, seed)
    if kind == "perturbed":
        if not spread > 0:
            raise InputError(f"the spread of perturbed starts must be positive, not {spread}")
        return lambda count, seed: _perturb(objective, count, seed, spread)
    raise InputError(f"no starts named {kind!r}", do="use 'random', 'perturbed' or a function")


def _reset(objective: Objective, count: int, seed: int) -> Tensor:
    device = objective.theta.device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        return torch.stack([_fresh(objective) for _ in range(count)])


def _fresh(objective: Objective) -> Tensor:
    module = objective.module(objective.theta)
    reset: set[int] = set()
    for part in module.modules():
        method = getattr(part, "reset_parameters", None) or getattr(part, "_reset_parameters", None)
        if callable(method):
            method()
            reset.update(id(p) for p in part.parameters(recurse=False))
    with torch.no_grad():
        for parameter in module.parameters():
            if id(parameter) not in reset:
                mean, deviation = parameter.mean(), parameter.std(correction=0)
                parameter.copy_(mean + deviation * torch.randn_like(parameter))
    return objective.layout.flatten(dict(module.named_parameters()))


def _perturb(objective: Objective, count: int, seed: int, spread: float) -> Tensor:
    theta = objective.theta
    generator = torch.Generator(device=theta.device).manual_seed(seed)
    noise = torch.randn(count, len(theta), generator=generator, device=theta.device, dtype=theta.dtype)
    sizes = torch.cat(
        [
            part.square().mean().sqrt().expand(part.numel())
            for part in objective.layout.unflatten(theta).values()
        ]
    )
    return theta + spread * sizes * noise
