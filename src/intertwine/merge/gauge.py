"""Compare channels modulo the group of their axis: bring every channel into one canonical scale.

With log-norms l_p of a channel's slices and exponents e_p of the axis's rescalings, the gauge is

    t = argmin sum_p (l_p + e_p . t)^2,      a slice is multiplied by exp(e_p . t)

Two channels that differ by a rescaling have the same canonical form: l moves by e . s, and t by -s. Signs are
fixed by the first weight that can be negated (a batch norm's gain, if there is one).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from intertwine.merge.places import Place
from intertwine.symmetry import Symmetry

Exponents = tuple[int, int, np.ndarray, np.ndarray]  # kind, component, real and sign exponents of a scale


def find_gauge(
    symmetry: Symmetry,
    places: Sequence[Place],
    weights: Mapping[str, Tensor],
    decided_by: Sequence[bool] | None = None,
) -> list[np.ndarray]:
    """For each place the factor of every channel that brings it to its canonical scale.

    decided_by: the places whose norms and signs count (all without it).
    """
    size = len(places[0].where)
    rows = [p.rows(weights[p.param].to(torch.float64) + p.shift) for p in places]
    norms = np.stack([r.norm(dim=1).cpu().numpy() for r in rows])
    sides = np.stack([_side(r).cpu().numpy() for r in rows])
    if decided_by is not None:
        ignored = ~np.array(decided_by)
        norms[ignored], sides[ignored] = 0.0, 0.0
    factors = np.ones((len(places), size))
    scales = [symmetry.structure.slots[p.param, p.dim].scale.reshape(-1)[p.where[:, 0]] for p in places]
    order = sorted(range(len(places)), key=lambda i: (places[i].role != "gain", i))
    for c in range(size):
        found = [symmetry.structure.scalings.exponents(int(s[c])) for s in scales]
        factors[:, c] = np.exp(_real(found, norms[:, c])) * _sign(found, sides[:, c], order)
    return list(factors)


def _columns(found: Sequence[Exponents], signs: bool) -> np.ndarray:
    """(places, unknowns): exponents of every place, one block of columns for each component of scales."""
    picked = [f[3] if signs else f[2] for f in found]
    starts: dict[tuple[int, int], int] = {}
    total = 0
    for f, exponents in zip(found, picked, strict=True):
        if (f[0], f[1]) not in starts:
            starts[f[0], f[1]] = total
            total += len(exponents)
    out = np.zeros((len(found), total))
    for i, (f, exponents) in enumerate(zip(found, picked, strict=True)):
        start = starts[f[0], f[1]]
        out[i, start : start + len(exponents)] = exponents
    return out


def _real(found: Sequence[Exponents], norms: np.ndarray) -> np.ndarray:
    exponents = _columns(found, signs=False)
    seen = norms > 0
    if not exponents.shape[1] or not seen.any():
        return np.zeros(len(norms))
    solution = np.linalg.lstsq(exponents[seen], -np.log(norms[seen]), rcond=None)[0]
    return exponents @ solution


def _sign(found: Sequence[Exponents], sides: np.ndarray, order: Sequence[int]) -> np.ndarray:
    """Solve over GF(2) by elimination: each place in turn that still has a free sign is made positive."""
    exponents = _columns(found, signs=True).astype(np.int64) % 2
    signs = np.ones(len(sides))
    if not exponents.any():
        return signs
    free = np.eye(exponents.shape[1], dtype=np.int64)
    for i in order:
        if not len(free):
            break
        reach = (free @ exponents[i]) % 2
        if not reach.any() or sides[i] == 0:
            continue
        pivot = int(np.flatnonzero(reach)[0])
        if sides[i] * signs[i] < 0:
            signs = signs * (1 - 2 * ((exponents @ free[pivot]) % 2))
        free = np.delete((free + np.outer(reach, free[pivot])) % 2, pivot, axis=0)
    return signs


def _side(rows: Tensor) -> Tensor:
    """A number for each slice that changes its sign with it: the inner product with a fixed direction."""
    generator = torch.Generator().manual_seed(rows.shape[1])
    direction = torch.randn(rows.shape[1], generator=generator, dtype=torch.float64)
    return rows @ (
        direction.to(rows.device)
        if rows.shape[1] > 1
        else torch.ones(1, dtype=rows.dtype, device=rows.device)
    )
