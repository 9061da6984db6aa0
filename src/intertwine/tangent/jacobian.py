"""Rows of the Jacobian d f(x; theta) / d theta in float64, by reverse mode, for as many x as wanted."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from intertwine.errors import ModelError
from intertwine.graph.example import Example
from intertwine.graph.export import Traced
from intertwine.graph.run import results
from intertwine.ir.ledger import Ids
from intertwine.rules import find_rule
from intertwine.tangent.coordinates import Coordinates

SHORT = 1e-4  # of a long row: rows as short as this may be rounding
MOST_OUTPUTS = 192  # of one call that are differentiated; of more, so many random combinations


def _differentiable(target: Any) -> Any:
    """What has gradients for all arguments."""
    rule = find_rule(target)
    return None if rule is None else rule.differentiable


class Jacobian:
    """theta -> f(x; theta) of one model at some coordinates.

    chosen: the coordinates to differentiate by, in order (None: all of them).
    """

    def __init__(
        self, traced: Traced, model: nn.Module, at: Coordinates, chosen: Ids | None = None, seed: int = 0
    ) -> None:
        self.traced, self.at, self.chosen = traced, at, chosen
        self.generator = torch.Generator().manual_seed(seed)
        state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        self.fixed = {n: t.detach().cpu() for n, t in state.items() if n not in at.values}
        self.wanted = list(at.values) if chosen is None else at.weights_of(chosen)

    @property
    def columns(self) -> int:
        """How many coordinates there are."""
        return self.at.size if self.chosen is None else len(self.chosen)

    @property
    def sizes(self) -> np.ndarray:
        """What each coordinate is measured in."""
        return self.at.sizes if self.chosen is None else self.at.sizes[self.chosen]

    def rows(self, example: Example) -> np.ndarray:
        """A row an output of one call (or so many random combinations of them).

        Rows that are short beside the others are left out: what is left of a softmax that is saturated is
        rounding, and brought to length 1 it would count.
        """
        found = self._taken(example)
        length = np.linalg.norm(found, axis=1)
        return found[length >= SHORT * np.quantile(length, 0.9)] if len(found) else found

    def _taken(self, example: Example) -> np.ndarray:
        leaves = {name: self.at.values[name].detach().requires_grad_() for name in self.wanted}
        given = example.map(lambda x: x.detach().cpu())
        with torch.enable_grad(), torch.random.fork_rng(devices=[]), sdpa_kernel(SDPBackend.MATH):
            torch.manual_seed(0)
            found = results(
                self.traced, {**self.fixed, **self.at.values, **leaves}, given.args, given.kwargs,
                instead=_differentiable,
            )  # fmt: skip
            smooth = [_sized(out) for out in found if out.requires_grad]
            if not smooth:
                return np.zeros((0, self.columns))
            flat = torch.cat(smooth)
            return self._by(flat[torch.isfinite(flat)], leaves)

    def _by(self, flat: Tensor, leaves: dict[str, Tensor]) -> np.ndarray:
        n = len(flat)
        if n <= MOST_OUTPUTS:
            seeds = torch.eye(n, dtype=torch.float64)
        else:
            seeds = torch.randn(MOST_OUTPUTS, n, generator=self.generator, dtype=torch.float64) / n**0.5
        inputs = list(leaves.values())
        grads: tuple[Tensor | None, ...]
        try:
            grads = torch.autograd.grad(
                flat, inputs, seeds, retain_graph=True, is_grads_batched=True, allow_unused=True
            )
        except RuntimeError:  # some op has no batched gradient: one at a time
            each = [
                torch.autograd.grad(flat, inputs, seed, retain_graph=True, allow_unused=True)
                for seed in seeds
            ]
            grads = tuple(
                None if parts[0] is None else torch.stack([p for p in parts if p is not None])
                for parts in zip(*each, strict=True)
            )
        blank = len(seeds)
        parts = [
            np.zeros((blank, len(kept))) if g is None else g.reshape(blank, -1).numpy()[:, kept]
            for g, kept in zip(grads, self._kept, strict=True)
        ]
        rows: np.ndarray = np.concatenate(parts, axis=1) * self.sizes
        if not np.isfinite(rows).all():
            raise ModelError(
                "the derivative of the model by its weights is not finite",
                so="its functional dimension has no meaning here",
                do="give other inputs or other weights",
            )
        return rows

    @cached_property
    def _kept(self) -> list[Ids]:
        """For every weight that is wanted, which of its entries are: no others are ever put side by side."""
        starts = [self.at.start[name] for name in self.wanted]
        sizes = [self.at.values[name].numel() for name in self.wanted]
        if self.chosen is None:
            return [np.arange(size) for size in sizes]
        bounds = np.searchsorted(self.chosen, [(s, s + n) for s, n in zip(starts, sizes, strict=True)])
        return [self.chosen[a:b] - start for (a, b), start in zip(bounds, starts, strict=True)]


def _sized(out: Tensor) -> Tensor:
    """An output in units of its own size: several may have unlike ones. A complex number is two real ones."""
    out = torch.view_as_real(out) if out.is_complex() else out
    size = float(out.detach().nan_to_num(0.0, 0.0, 0.0).square().mean().sqrt()) if out.numel() else 0.0
    return out.reshape(-1) / (size or 1.0)


def draws(example: Example, seed: int = 0) -> Iterator[Example]:
    """The example, then random inputs like it: reals of its mean and spread, whole numbers of its range.

    Every row has a length of its own, up to several times the example's: units that switch far out count too.
    """
    yield example
    generator = torch.Generator().manual_seed(seed)

    def like(x: Tensor) -> Tensor:
        x = x.detach().cpu()
        if x.is_floating_point():
            noise = torch.randn(x.shape, generator=generator, dtype=torch.float64)
            spread = float(x.double().std()) if x.numel() > 1 else 0.0
            middle = float(x.double().mean()) if x.numel() else 0.0
            rows = torch.randn(x.shape[:1], generator=generator, dtype=torch.float64).exp()
            noise = noise * rows.reshape(-1, *(1,) * (x.dim() - 1)) if x.dim() else noise
            return (middle + noise * (spread or 1.0)).to(x.dtype)
        if not x.numel() or bool((x == x.reshape(-1)[0]).all()):
            return x
        if x.dtype == torch.bool:
            return _exchanged(x, generator)
        return torch.randint(int(x.min()), int(x.max()) + 1, x.shape, generator=generator).to(x.dtype)

    while True:
        yield example.map(like)


def _exchanged(x: Tensor, generator: torch.Generator) -> Tensor:
    """Entries at the same place exchanged between rows; a row without one that is true stays (a mask)."""
    order = torch.rand(x.shape, generator=generator).argsort(dim=0)
    new = x.gather(0, order)
    empty = ~new.reshape(len(new), -1).any(dim=1)
    return torch.where(empty.reshape(-1, *(1,) * (x.dim() - 1)), x, new)
