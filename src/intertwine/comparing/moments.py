"""Moments of two sets of features, accumulated batch by batch: all that CKA, CCA and Procrustes ever need.

A `Cross` holds, for rows x and y about fixed origins: n, sum x, sum y, sum x y', sum |x|^2, sum |y|^2 and,
for the debiased CKA, sum x |y|^2, sum y |x|^2, sum |x|^2 |y|^2. Every entry is a plain sum, so moments of
shards add up, in any order, to the moments of the whole; `Cross.about` moves the origin exactly. The origin
is the mean of the first batch: without it, features with a large mean would lose their digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from intertwine.errors import DataError


@dataclass(frozen=True)
class Cross:
    """Sums over paired rows x - origin_x and y - origin_y, in float64. `a + b` joins two disjoint sets of
    rows.

    >>> x, y = torch.randn(9, 3), torch.randn(9, 2)
    >>> whole, parts = Cross.of(x, y), Cross.of(x[:4], y[:4]) + Cross.of(x[4:], y[4:])
    >>> torch.allclose(whole.centred().xy, parts.centred().xy)
    True
    """

    n: int
    origin_x: Tensor
    origin_y: Tensor
    sum_x: Tensor
    sum_y: Tensor
    xy: Tensor
    norm_x: Tensor  # sum |x|^2
    norm_y: Tensor
    x_norm_y: Tensor | None = None  # sum x |y|^2; the last three only when the debiased CKA is wanted
    y_norm_x: Tensor | None = None
    norm_norm: Tensor | None = None  # sum |x|^2 |y|^2

    @classmethod
    def of(cls, x: Tensor, y: Tensor, *, debiased: bool = True) -> Cross:
        """The moments of the paired rows of two matrices."""
        x, y = x.double(), y.double()
        origin_x, origin_y = x.mean(0), y.mean(0)
        x, y = x - origin_x, y - origin_y
        square_x, square_y = x.square().sum(1), y.square().sum(1)
        return cls(
            x.shape[0],
            origin_x,
            origin_y,
            x.sum(0),
            y.sum(0),
            x.T @ y,
            square_x.sum(),
            square_y.sum(),
            x.T @ square_y if debiased else None,
            y.T @ square_x if debiased else None,
            square_x @ square_y if debiased else None,
        )

    def about(self, origin_x: Tensor, origin_y: Tensor) -> Cross:
        """The same rows seen from other origins; exact algebra, no data needed."""
        e, d, n = self.origin_x - origin_x, self.origin_y - origin_y, self.n
        norm_x = self.norm_x + 2 * e @ self.sum_x + n * e @ e
        norm_y = self.norm_y + 2 * d @ self.sum_y + n * d @ d
        moved = replace(
            self,
            origin_x=origin_x,
            origin_y=origin_y,
            sum_x=self.sum_x + n * e,
            sum_y=self.sum_y + n * d,
            xy=self.xy + torch.outer(self.sum_x, d) + torch.outer(e, self.sum_y + n * d),
            norm_x=norm_x,
            norm_y=norm_y,
        )
        if self.x_norm_y is None or self.y_norm_x is None or self.norm_norm is None:
            return moved
        ee, dd = e @ e, d @ d
        return replace(
            moved,
            x_norm_y=self.x_norm_y + 2 * self.xy @ d + dd * self.sum_x + e * norm_y,
            y_norm_x=self.y_norm_x + 2 * e @ self.xy + ee * self.sum_y + d * norm_x,
            norm_norm=self.norm_norm
            + 2 * d @ self.y_norm_x
            + dd * self.norm_x
            + 2 * e @ self.x_norm_y
            + 4 * e @ self.xy @ d
            + 2 * dd * (e @ self.sum_x)
            + ee * norm_y,
        )

    def second(self, *, centre: bool) -> Tensor:
        """X'Y about the means or of the features as they came; the debiased CKA alone reads more."""
        e, d = (-self.sum_x / self.n, -self.sum_y / self.n) if centre else (self.origin_x, self.origin_y)
        return self.xy + torch.outer(self.sum_x, d) + torch.outer(e, self.sum_y + self.n * d)

    def centred(self) -> Cross:
        """About the means: `xy` is then the cross-covariance times n."""
        return self.about(self.origin_x + self.sum_x / self.n, self.origin_y + self.sum_y / self.n)

    def raw(self) -> Cross:
        """About zero: `xy` is then X'Y of the features as they came."""
        return self.about(torch.zeros_like(self.origin_x), torch.zeros_like(self.origin_y))

    @classmethod
    def joined(cls, parts: Sequence[Cross]) -> Cross:
        """All rows of disjoint sets whose origins are the same."""
        names = [field.name for field in fields(cls) if not field.name.startswith("origin")]
        return replace(parts[0], **{name: _sum([getattr(part, name) for part in parts]) for name in names})

    def __add__(self, other: Cross) -> Cross:
        if self.xy.shape != other.xy.shape:
            raise DataError(
                f"moments of widths {tuple(self.xy.shape)} and {tuple(other.xy.shape)} do not add"
            )
        same = self.origin_x is other.origin_x and self.origin_y is other.origin_y
        return self.joined([self, other if same else other.about(self.origin_x, self.origin_y)])


def _sum(terms: Sequence[Any]) -> Any:
    """None, where any of them is; added in place, since moments of wide layers are large."""
    if any(term is None for term in terms):
        return None
    total = 0 + terms[0]
    for term in terms[1:]:
        total += term
    return total


@dataclass(frozen=True)
class PairMoments:
    """What a covariance measure reads: x with y, x with itself, y with itself, on the same rows."""

    xy: Cross
    xx: Cross
    yy: Cross

    @classmethod
    def of(cls, x: Tensor, y: Tensor) -> PairMoments:
        """Moments of two matrices with paired rows."""
        return cls(Cross.of(x, y), Cross.of(x, x), Cross.of(y, y))

    def about(self, origin_x: Tensor, origin_y: Tensor) -> PairMoments:
        """The same rows seen from other origins; moments about the very same origins can be joined."""
        return PairMoments(
            self.xy.about(origin_x, origin_y),
            self.xx.about(origin_x, origin_x),
            self.yy.about(origin_y, origin_y),
        )

    @classmethod
    def joined(cls, parts: Sequence[PairMoments]) -> PairMoments:
        """All rows of disjoint sets whose origins are the same."""
        sides = zip(*((p.xy, p.xx, p.yy) for p in parts), strict=True)
        return cls(*map(Cross.joined, sides))

    def __add__(self, other: PairMoments) -> PairMoments:
        return PairMoments(self.xy + other.xy, self.xx + other.xx, self.yy + other.yy)
