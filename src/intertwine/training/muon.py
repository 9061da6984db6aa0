"""SGD that turns convolution kernels instead of moving them.

Where a norm follows, a kernel computes the same function at every positive scale, so only its direction can
be learned. A step therefore stays on the sphere of the kernel's first norm, and its length is a share of that
norm. The direction is Muon's (Jordan et al. 2024): the momentum as a matrix, outputs by the rest, with its
singular values made nearly equal, so that what many images agree on does not drown the rest.

A kernel that no norm follows keeps its norm as well; what comes after it then learns the scale.

Everything else (biases, norms, linear layers, tokens, kernels that begin at zero) takes the steps of SGD.
`torch.optim.Muon` takes matrices only, lets norms drift, and multiplies in bfloat16, which most CPUs emulate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.sgd import sgd

# The quintic of Jordan et al.: five rounds bring singular values from 0.002 to 1 into 0.7 to 1.2.
_QUINTIC = (3.4445, -4.7750, 2.0315)
_ROUNDS = 5
_TINY = 1e-12


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
    def step(self, closure: Any = None) -> Any:
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
    """Turn every kernel on its sphere by a step of `lr` times its norm; those of one shape together."""
    alike: dict[tuple[int, int], list[tuple[Tensor, Tensor]]] = {}
    for weight, gradient, momentum in zip(weights, gradients, momenta, strict=True):
        momentum.mul_(group["momentum"]).add_(gradient)
        direction = gradient.add(momentum, alpha=group["momentum"]) if group["nesterov"] else momentum
        # The order of the columns changes nothing, and in that of the memory no entry has to move.
        order = (0, *sorted(range(1, weight.dim()), key=weight.stride, reverse=True))
        rows = weight.permute(order)
        pair = (rows, direction.permute(order).flatten(1))
        alike.setdefault((len(rows), rows[0].numel()), []).append(pair)
    for pairs in alike.values():
        before = torch.stack([rows.flatten(1) for rows, _ in pairs])
        steps = equalize(torch.stack([direction for _, direction in pairs]))
        norm = _norm(before)
        after = before - steps * (group["lr"] * norm / _norm(steps).clamp(min=_TINY))
        after *= norm / _norm(after)
        for (rows, _), turned in zip(pairs, after, strict=True):
            rows.copy_(turned.view(rows.shape))


def _norm(matrices: Tensor) -> Tensor:
    result: Tensor = matrices.norm(dim=(-2, -1), keepdim=True)
    return result


def equalize(matrices: Tensor) -> Tensor:
    """(count, rows, columns) with their singular values brought near 1, by products alone.

    X <- (a + b G + c G^2) X with G = X X', five times. All factors are polynomials of the first G and
    commute, so the rounds need only G and the product of the factors, both as small as the short side of X.

    >>> torch.linalg.svdvals(equalize(torch.diag(torch.tensor([4.0, 1.0, 0.1]))[None])).round(decimals=1)
    tensor([[0.9000, 0.7000, 0.7000]])
    """
    wide = matrices if matrices.shape[1] <= matrices.shape[2] else matrices.mT
    wide = wide / _norm(wide).clamp(min=_TINY)
    gram = wide @ wide.mT
    a, b, c = _QUINTIC
    product = torch.eye(gram.shape[1], dtype=gram.dtype, device=gram.device).expand_as(gram)
    for _ in range(_ROUNDS):
        factor = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)  # without a, which the next three add
        product = torch.baddbmm(product, factor, product, beta=a)
        gram = torch.baddbmm(gram, factor, gram, beta=a)
        gram = torch.baddbmm(gram, gram, factor, beta=a)
    wide = product @ wide
    return wide if matrices.shape[1] <= matrices.shape[2] else wide.mT
