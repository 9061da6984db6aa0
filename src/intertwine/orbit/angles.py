"""Pairs of channels that a rotary embedding turns, z -> w z, while w is not known and when it is found.

Of a pair that may be turned by any w only what no w changes can be compared. With p real numbers that are
always the same, and z_j the entries of the pair along the other dimensions,

    z / (|z| sgn sum_j p_j z_j)                 does not change if z becomes w z

(without |z| where |w| is 1). Once the pair lies where it belongs, w follows from both:
z_a = w z_b, or z_a = z_b / conj(w) where the pair is read.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from intertwine.symmetry.pairs import Slot, Turns

Compared = tuple[Slot, Tensor, Tensor]  # a dimension of a weight, and what is seen of it in A and in B


def without_angles(turns: Turns, open_: np.ndarray, tensor: Tensor, slot: Slot) -> Tensor:
    """One dimension of a weight with those of its pairs that are open (a mask) as no w changes them.

    >>> turns = Turns(1, {("q", 0): (np.array([[0, 1]]), np.array([0]), np.array([1]))}, np.array([False]))
    >>> one = torch.tensor([[3.0, 1.0], [4.0, 2.0]], dtype=torch.float64)
    >>> other = turns.multiply(one, ("q", 0), np.array([0.7j]))
    >>> left, right = (without_angles(turns, np.array([True]), x, ("q", 0)) for x in (one, other))
    >>> bool(torch.allclose(left, right)), bool(torch.allclose(one, other))
    (True, False)
    """
    where, pair, _ = turns.places.get(slot, (np.zeros((0, 2), np.int64),) * 3)
    chosen = open_[pair] if len(where) else np.zeros(0, bool)
    if not chosen.any():
        return tensor
    index, scaled = torch.from_numpy(where[chosen]), torch.from_numpy(turns.scaled[pair[chosen]])
    front = tensor.movedim(slot[1], -1).clone()
    z = torch.complex(front[..., index[:, 0]], front[..., index[:, 1]])
    rows = z.reshape(-1, len(index))
    probe = torch.randn(len(rows), 1, generator=torch.Generator().manual_seed(len(rows)), dtype=rows.dtype)
    divisor = torch.sgn((probe.real * rows).sum(0)) * torch.where(scaled, rows.norm(dim=0), 1.0)
    z = z / torch.where(divisor == 0, 1.0, divisor)
    front[..., index[:, 0]], front[..., index[:, 1]] = z.real, z.imag
    return front.movedim(-1, slot[1])


def find_angles(turns: Turns, seen: Iterator[Compared]) -> tuple[np.ndarray, np.ndarray]:
    """log w of every pair, and which of them something tells."""
    agreement, size, weight = np.zeros(turns.count, complex), np.zeros(turns.count), np.zeros(turns.count)
    for slot, left, right in seen:
        where, pair, exponent = turns.places[slot]
        index = torch.from_numpy(where)
        rows = []
        for tensor in (left, right):
            front = tensor.movedim(slot[1], -1)
            z = torch.complex(front[..., index[:, 0]], front[..., index[:, 1]])
            rows.append(z.reshape(-1, len(index)))
        (a, b), norms = rows, [row.norm(dim=0).numpy() for row in rows]
        told = (norms[0] > 0) & (norms[1] > 0)
        scale = np.where(told, norms[0] * norms[1], 1.0)
        np.add.at(agreement, pair, np.where(told, (b.conj() * a).sum(0).numpy() / scale, 0))
        logs = [np.log(np.where(told, norm, 1.0)) for norm in norms]
        np.add.at(size, pair, exponent * (logs[0] - logs[1]))
        np.add.at(weight, pair, told)
    found = np.where(turns.scaled, size / np.maximum(weight, 1.0), 0.0) + 1j * np.angle(agreement)
    return found, weight > 0
