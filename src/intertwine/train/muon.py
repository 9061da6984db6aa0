"""SGD that turns convolution kernels instead of moving them.

Where a norm follows, a kernel computes the same function at every positive scale, so only its direction can
be learned. A step therefore stays on the sphere of the kernel's first norm, and its length is a share of that
norm. The direction is Muon's (Jordan et al. 2024): the momentum as a matrix, outputs by the rest, with its
singular values made nearly equal, so that what many images agree on does not drown the rest.

Everything else (biases, norms, linear layers, kernels that begin at zero) takes the steps of SGD.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.sgd import sgd

# The quintic of Jordan et al.: five rounds bring singular values from 0.002 to 1 into 0.7 to 1.2.
_QUINTIC = (3.4445, -4.7750, 2.0315)
_ROUNDS = 5


class Muon(torch.optim.Optimizer):
    """Groups with `turns` hold kernels and their `lr` is the share of the norm that a step is long.

    >>> kernel = torch.nn.Parameter(torch.ones(2, 1, 2, 2))
    >>> optimizer = Muon([{"params": [kernel], "turns": True}], lr=0.1, momentum=0.9)
    >>> (kernel[0, 0, 0, 0] * 3).backward()
    >>> optimizer.step()
    >>> round(float(kernel.detach().norm() ** 2), 4)
    8.0
    """

    def __init__(
        self,
        groups: Sequence[dict[str, Any]],
        *,
        lr: float,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "nesterov": nesterov, "weight_decay": weight_decay}
        super().__init__(list(groups), defaults | {"turns": False})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step along the gradients that are there."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            weights = [p for p in group["params"] if p.grad is not None]
            gradients = [p.grad for p in weights]
            momenta = [self._momentum(p) for p in weights]
            rule = _turn if group["turns"] else _move
            if weights:
                rule(weights, gradients, momenta, group)
        return loss

    def _momentum(self, weight: Tensor) -> Tensor:
        state = self.state[weight]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(weight)
        found: Tensor = state["momentum_buffer"]
        return found


def _move(
    weights: list[Tensor], gradients: list[Tensor], momenta: list[Tensor], group: dict[str, Any]
) -> None:
    """PyTorch's SGD."""
    sgd(
        weights, gradients, list(momenta), foreach=True, lr=group["lr"], momentum=group["momentum"],
        nesterov=group["nesterov"], weight_decay=group["weight_decay"], dampening=0.0, maximize=False,
    )  # fmt: skip


def _turn(
    weights: list[Tensor], gradients: list[Tensor], momenta: list[Tensor], group: dict[str, Any]
) -> None:
    """Turn every kernel on its sphere by a step of `lr` times its norm."""
    for weight, gradient, momentum in zip(weights, gradients, momenta, strict=True):
        momentum.mul_(group["momentum"]).add_(gradient)
        direction = gradient.add(momentum, alpha=group["momentum"]) if group["nesterov"] else momentum
        step = equalize(direction.flatten(1)).reshape(weight.shape)
        norm = weight.norm()
        weight.sub_(step * (group["lr"] * norm / step.norm().clamp(min=1e-12)))
        weight.mul_(norm / weight.norm())


def equalize(matrix: Tensor) -> Tensor:
    """The matrix with its singular values brought near 1, by products alone.

    >>> torch.linalg.svdvals(equalize(torch.diag(torch.tensor([4.0, 1.0, 0.1])))).round(decimals=1)
    tensor([0.9000, 0.7000, 0.7000])
    """
    a, b, c = _QUINTIC
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    wide = wide / wide.norm().clamp(min=1e-12)
    for _ in range(_ROUNDS):
        gram = wide @ wide.T
        wide = a * wide + (b * gram + c * gram @ gram) @ wide
    return wide if matrix.shape[0] <= matrix.shape[1] else wide.T
