"""SGD, Adam and L-BFGS for a stack of independent problems: every row of a k x p matrix is one start.

`torch.optim` minimises one scalar; here k rows move together and must not influence each other, so step
sizes, curvature pairs and line searches are kept per row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from intertwine.errors import InputError

# Rows -> (loss of every row, gradient of every row).
Closure = Callable[[Tensor], tuple[Tensor, Tensor]]

DEFAULT_RATES = {"sgd": 0.015, "adam": 0.01, "lbfgs": 1.0}


class RowOptimizer(Protocol):
    """Moves every row one step; forgets the past of the rows that were restarted."""

    full_batch: bool

    def step(self, rows: Tensor, closure: Closure) -> tuple[Tensor, Tensor]:
        """The moved rows, and the losses before the move."""

    def forget(self, mask: Tensor) -> None:
        """Clear the state of the rows in `mask`."""

    def slow(self, mask: Tensor) -> None:
        """Take smaller steps with the rows in `mask`, which circle around their minimum."""


class _Rates:
    """The learning rate of every row: one common rate, cut for rows that stopped improving."""

    def __init__(self, lr: float) -> None:
        self.lr = lr
        self._factor: Tensor | None = None

    def rates(self, rows: Tensor) -> Tensor:
        if self._factor is None:
            self._factor = rows.new_ones(len(rows), 1)
        return self.lr * self._factor

    def slow(self, mask: Tensor) -> None:
        if self._factor is not None:
            self._factor[mask] *= 0.3

    def forget(self, mask: Tensor) -> None:
        if self._factor is not None:
            self._factor[mask] = 1


class RowSGD(_Rates):
    """t <- t - lr v, v <- momentum v + g."""

    full_batch = False

    def __init__(self, lr: float, momentum: float = 0.0) -> None:
        super().__init__(lr)
        self.momentum = momentum
        self._velocity: Tensor | None = None

    def step(self, rows: Tensor, closure: Closure) -> tuple[Tensor, Tensor]:
        losses, gradient = closure(rows)
        if self.momentum:
            if self._velocity is None:
                self._velocity = torch.zeros_like(rows)
            self._velocity = self.momentum * self._velocity + gradient
            gradient = self._velocity
        return rows - self.rates(rows) * gradient, losses

    def forget(self, mask: Tensor) -> None:
        super().forget(mask)
        if self._velocity is not None:
            self._velocity[mask] = 0


class RowAdam(_Rates):
    """Adam (Kingma and Ba) with a step count for every row, because rows restart at different times."""

    full_batch = False

    def __init__(self, lr: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8) -> None:
        super().__init__(lr)
        self.betas, self.eps = betas, eps
        self._state: tuple[Tensor, Tensor, Tensor] | None = None

    def step(self, rows: Tensor, closure: Closure) -> tuple[Tensor, Tensor]:
        losses, gradient = closure(rows)
        if self._state is None:
            self._state = (torch.zeros_like(rows), torch.zeros_like(rows), rows.new_zeros(len(rows), 1))
        mean, square, count = self._state
        one, two = self.betas
        mean = one * mean + (1 - one) * gradient
        square = two * square + (1 - two) * gradient.square()
        count = count + 1
        self._state = (mean, square, count)
        scale = (square / (1 - two**count)).sqrt() + self.eps
        return rows - self.rates(rows) * (mean / (1 - one**count)) / scale, losses

    def forget(self, mask: Tensor) -> None:
        super().forget(mask)
        for part in self._state or ():
            part[mask] = 0


class RowLBFGS:
    """Limited-memory BFGS: two-loop recursion and Armijo backtracking, each for every row by itself.

    A curvature pair with s.y <= 0 is switched off for that row (rho = 0) instead of spoiling it.
    """

    full_batch = True

    def __init__(self, lr: float = 1.0, history: int = 10, halvings: int = 12) -> None:
        self.lr, self.history, self.halvings = lr, history, halvings
        self._pairs: list[tuple[Tensor, Tensor, Tensor]] = []
        self._last: tuple[Tensor, Tensor] | None = None

    def step(self, rows: Tensor, closure: Closure) -> tuple[Tensor, Tensor]:
        losses, gradient = self._last if self._last is not None else closure(rows)
        direction = self._direction(gradient)
        slope = (direction * gradient).sum(1)
        uphill = slope >= 0
        direction = torch.where(uphill[:, None], -gradient, direction)
        slope = torch.where(uphill, -gradient.square().sum(1), slope)
        moved, new_losses, new_gradient = self._search(rows, losses, direction, slope, closure)
        self._remember(moved - rows, new_gradient - gradient)
        self._last = (new_losses, new_gradient)
        return moved, losses

    def _direction(self, gradient: Tensor) -> Tensor:
        q, alphas = -gradient, []
        for s, y, rho in reversed(self._pairs):
            alpha = rho * (s * q).sum(1)
            alphas.append(alpha)
            q = q - alpha[:, None] * y
        if self._pairs:
            s, y, rho = self._pairs[-1]
            scale = torch.where(rho > 0, (s * y).sum(1) / y.square().sum(1).clamp_min(1e-300), 1.0)
            q = q * scale[:, None]
        else:
            # The first step has no curvature: a unit-length step at most.
            q = q / gradient.norm(dim=1, keepdim=True).clamp_min(1.0)
        for (s, y, rho), alpha in zip(self._pairs, reversed(alphas), strict=True):
            beta = rho * (y * q).sum(1)
            q = q + (alpha - beta)[:, None] * s
        return q

    def _search(
        self, rows: Tensor, losses: Tensor, direction: Tensor, slope: Tensor, closure: Closure
    ) -> tuple[Tensor, Tensor, Tensor]:
        size = torch.full_like(slope, self.lr)
        for _ in range(self.halvings):
            moved = rows + size[:, None] * direction
            new_losses, new_gradient = closure(moved)
            fine = new_losses <= losses + 1e-4 * size * slope
            if bool(fine.all()):
                return moved, new_losses, new_gradient
            size = torch.where(fine, size, size / 2)
        # Rows without any decrease stay where they are.
        size = torch.where(fine, size, 0.0)
        moved = rows + size[:, None] * direction
        return moved, *closure(moved)

    def _remember(self, s: Tensor, y: Tensor) -> None:
        product = (s * y).sum(1)
        usable = product > 1e-10 * s.norm(dim=1) * y.norm(dim=1)
        rho = torch.where(usable, 1 / product.clamp_min(1e-300), 0.0)
        self._pairs = [*self._pairs, (s, y, rho)][-self.history :]

    def forget(self, mask: Tensor) -> None:
        for _, _, rho in self._pairs:
            rho[mask] = 0
        self._last = None

    def slow(self, mask: Tensor) -> None:
        """Nothing to do: the line search already chose the step."""


def make_optimizer(name: str, lr: float | None = None, momentum: float = 0.0) -> RowOptimizer:
    """The optimizer called `name` ("sgd", "adam", "lbfgs"), with its default rate unless one is given."""
    if name not in DEFAULT_RATES:
        raise InputError(f"no optimizer named {name!r}", do=f"use one of {', '.join(DEFAULT_RATES)}")
    rate = DEFAULT_RATES[name] if lr is None else lr
    if not rate > 0:
        raise InputError(f"the learning rate must be positive, not {rate}")
    if name == "sgd":
        return RowSGD(rate, momentum)
    return RowAdam(rate) if name == "adam" else RowLBFGS(rate)
