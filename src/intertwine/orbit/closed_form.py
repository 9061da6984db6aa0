"""For models of one orbit: the element, exactly, from the weights whose other dimensions are in place.

B = g A. The first weights of a net have an input that nothing moves, so their channels in A and in B are the
same up to a permutation and rescalings. Once these are matched and rescaled, the next weights are in place
along their inputs, and so on: every axis is found once, by what is known of the weights that carry it
(`evidence`). A channel is described by what no rescaling of it changes:

    the directions of its slices (one for each way in which slices are scaled), and
    the logs of their norms, as far as no rescaling changes them: Q l with Q E = 0, E the exponents

and a block (head) of a linear axis by the row spaces of M and R and by R'M, which no matrix changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import torch
from torch import Tensor

from intertwine.ir.ledger import Ids
from intertwine.orbit.action import GroupAction
from intertwine.orbit.evidence import Known
from intertwine.orbit.matching import Solver, place_family
from intertwine.orbit.matrices import whitened
from intertwine.orbit.state import Match, State
from intertwine.orbit.units import Spot, Unit, Weights
from intertwine.orbit.unordered import crossed_share, unordered

_WIDE = 512  # slices longer than this are hashed to half as many numbers
_MANY = 16 * _WIDE  # and at most so many numbers of each are worked on at a time
_APART = 0.05  # mean disagreement of matched channels from which on two models are not of one orbit
_NEVER = 1e6  # a disagreement that no match makes up for
_Group = tuple[int, tuple[float, ...], tuple[int, ...]]  # component of scales, exponents, exponents of signs

_Slices = tuple[Tensor, Tensor]  # (channels, numbers) and (channels,): sketches and squared norms
_SETTLED: _Group = (-1, (), ())  # not rescaled, or rescaled already


Colours = tuple[Ids, Ids]


def bring_onto(
    action: GroupAction,
    target: Weights,
    state: State,
    colours: Colours | None = None,
    *,
    angles: bool = False,
) -> bool:
    """Bring the weights of `state` onto `target`; False, with the state left midway, if no element does.

    colours: for every class of the target and of the state; only channels of equal colours are matched.
    angles: pairs of rotary embeddings may be turned.
    """
    known = Known(action, target, state, angles=angles)
    left, pending = list(action.forest.units), list[Unit]()
    while left:
        shares = {unit.index: known.share(unit) for unit in left}
        if not any(shares.values()):
            shares = {unit.index: crossed_share(known, unit) for unit in left}
        unit = max(left, key=lambda u: shares[u.index])
        root = unit.lineage()[-1]
        if not shares[unit.index] or not _match(known, root, colours):
            return False
        found = [u for u in root.family() if shares.get(u.index, 0.0) >= shares[unit.index]]
        done = {u.index: u for v in found for u in v.lineage() if u.index in shares}
        known.place(done.values())
        left = [u for u in left if u.index not in done]
        pending = _resolve_all(known, [*done.values(), *pending])
    while True:
        open_ = [u for u in pending if u.linear is not None]
        if not open_:
            return True
        # Its neighbours are at least as wide, so their matrices can make up for any choice of this one's.
        narrow = min(open_, key=lambda u: u.classes.shape[1])
        known.settle(narrow)
        pending = _resolve_all(known, [u for u in pending if u is not narrow])


def _resolve_all(known: Known, units: list[Unit]) -> list[Unit]:
    """Rescalings and matrices as far as they are determined, each by what the others tell; the rest."""
    before: float | None = None
    while units and known.extent != before:
        before = known.extent
        units = [unit for unit in units if not _resolve(known, unit)]
        known.turn_pairs()
    return units


def _resolve(known: Known, unit: Unit) -> bool:
    return known.turn(unit) if unit.linear is not None else known.rescale(unit)


def _match(known: Known, root: Unit, colours: Colours | None) -> bool:
    """Permute a family as the known weights say; False if they disagree."""
    family = [unit for unit in root.family() if unit.moves]
    if not family:
        return True
    gains = {u.index: -disagreement(known, u) for u in family if u.linear is None}
    if colours is not None:
        for unit in (u for u in family if u.linear is None):
            flat = unit.classes.reshape(-1)
            there, here = colours[0][flat], colours[1][known.state.origin[flat]]
            gains[unit.index] -= _NEVER * (there[:, None] != here)
    turns = {u.index: -_turned(known, u) for u in family if u.linear is not None}
    solver = Solver(gains, rotations=True, turns=turns)
    found = place_family(known.structure, root, solver)
    disagreeing = -sum(solver.match(root, k, k)[0] for k in range(len(root.classes)))
    if disagreeing > _APART * sum(u.size for u in family):
        return False
    known.state.match(Match(found.relabel, {}), root.reach)
    return True


def disagreement(known: Known, unit: Unit) -> np.ndarray:
    """(channels of the target, channels of the weights): 0 where they can be the same channel."""
    groups = _groups(known, unit)
    total = np.zeros((unit.size, unit.size))
    norms: dict[int, list[tuple[tuple[float, ...], np.ndarray, np.ndarray]]] = {}
    for number, ((component, real, sign), (left, right)) in enumerate(groups.items()):
        (a, size_a), (b, size_b) = _directions(left), _directions(right)
        cosine = (a @ b.T).numpy()
        total += 1 - (np.abs(cosine) if any(sign) else cosine)
        total -= np.outer(size_a == 0, size_b == 0)
        # Slices whose rescaling is nobody's concern here (component -2) have no norm to compare.
        if component > -2:
            floor = 1e-12 * max(size_a.max(), size_b.max(), 1e-300)
            logs = (np.log(np.maximum(size, floor)) for size in (size_a, size_b))
            norms.setdefault(component if any(real) else -1 - number, []).append((real, *logs))
    for rows in norms.values():
        exponents = np.array([row[0] for row in rows]).reshape(len(rows), -1)
        keep = _complement(exponents)
        kept = (keep @ np.stack([row[k] for row in rows]) for k in (1, 2))
        for x, y in zip(*kept, strict=True):
            total += np.minimum((x[:, None] - y[None, :]) ** 2, 1.0)
    return total / max(len(groups), 1)


def _complement(exponents: np.ndarray) -> np.ndarray:
    """Orthonormal rows Q with Q E = 0, as many as there are."""
    left, values, _ = np.linalg.svd(exponents)
    return left[:, int((values > 1e-9).sum()) :].T


def _groups(known: Known, unit: Unit) -> dict[_Group, tuple[_Slices, _Slices]]:
    """What is seen of a unit in A and in B, by the way in which it is scaled."""
    found: dict[_Group, list[tuple[_Slices, _Slices]]] = {}
    for spot, *slices in known.spots(unit):
        a, b = (x.reshape(*spot.where.shape, -1) for x in slices)
        for copies, key in _scaled_alike(known, spot):
            parts = (a, b) if len(copies) == a.shape[1] else (a[:, copies], b[:, copies])
            pairs = found.setdefault(key, [])
            pairs.append((_sketched(parts[0].flatten(1)), _sketched(parts[1].flatten(1))))
            if sum(side.shape[1] for (side, _), _ in pairs) > _MANY:  # a stream has hundreds
                found[key] = [_both_joined(pairs)]
    if not found:
        found[_SETTLED] = [(_sketched(a), _sketched(b)) for a, b in unordered(known, unit)]
    return {key: _both_joined(pairs) for key, pairs in found.items() if pairs}


def _both_joined(pairs: list[tuple[_Slices, _Slices]]) -> tuple[_Slices, _Slices]:
    return _joined([a for a, _ in pairs]), _joined([b for _, b in pairs])


def _scaled_alike(known: Known, spot: Spot) -> Iterator[tuple[list[int], _Group]]:
    """The copies of a spot, by the way in which they are scaled."""
    s = known.structure
    at = s.span[spot.slot][0] + spot.where
    settled = (known.rescaled[s.scales[at]] | ~known.scales.free[at]).all(axis=0)
    found: dict[_Group, list[int]] = {}
    for copy in range(spot.where.shape[1]):
        if settled[copy]:
            key = _SETTLED
        elif spot.kind >= 0:
            kind = known.scales.kinds[spot.kind]
            real, sign = kind.real[spot.local], kind.sign[spot.local] % 2
            key = (int(s.component[at[0, copy]]), tuple(real.tolist()), tuple(sign.tolist()))
        else:  # scaled by something inside the channel, every position on its own
            key = (-2, (float(at[0, copy]),), (1,))
        found.setdefault(key, []).append(copy)
    for key, copies in found.items():
        yield copies, key


def _sketched(slices: Tensor) -> _Slices:
    """Slices, hashed if they are long (count sketch: sums of signed entries), and their squared norms."""
    squares, width = torch.linalg.vector_norm(slices, dim=1).square(), slices.shape[1]
    if width > _WIDE:
        draw = torch.Generator().manual_seed(width)
        bucket = torch.randint(_WIDE // 2, (width,), generator=draw)
        signs = torch.randint(2, (width,), generator=draw).to(slices.dtype) * 2 - 1
        sketch = slices.new_zeros(len(slices), _WIDE // 2)
        for part, to, sign in zip(*(x.split(_MANY, -1) for x in (slices, bucket, signs)), strict=True):
            sketch.index_add_(1, to, part * sign)
        slices = sketch
    return slices, squares


def _joined(parts: list[_Slices]) -> _Slices:
    """Parts of the same slices, side by side: a sketch of a sketch keeps angles as one sketch does."""
    sketch, _ = _sketched(torch.cat([slices for slices, _ in parts], dim=1))
    return sketch, torch.stack([squares for _, squares in parts]).sum(0)


def _directions(slices: _Slices) -> tuple[Tensor, np.ndarray]:
    """Sketches of norm 1, and the norms of the slices."""
    sketch, squares = slices
    return sketch / sketch.norm(dim=1, keepdim=True).clamp_min(1e-300), squares.sqrt().numpy()


def _turned(known: Known, unit: Unit) -> np.ndarray:
    """(blocks of the target, blocks of the weights): 0 where a matrix can bring one onto the other."""
    assert unit.linear is not None
    parts = [part for part in known.parts(unit) if part[2][0].shape[2]]
    if unit.linear.orthogonal:
        found = [_same_up_to_rotation(*pair) for _, _, pair in parts]
    else:
        found = [_same_row_space(*pair) for _, _, pair in parts]
        make, read = ([part[1:] for part in parts if part[0] == exponent] for exponent in (1, -1))
        for (sized, made), (also, used) in product(make, read):
            cosine = _same_product(made, used)
            found.append(cosine if sized and also else cosine.abs())  # a scale may have a sign
    blocks, width = unit.classes.shape
    answer: np.ndarray = width * np.mean(
        [1 - x.numpy() for x in found] or [np.zeros((blocks, blocks))], axis=0
    )
    return answer


def _same_up_to_rotation(a: Tensor, b: Tensor) -> Tensor:
    """|A B'|_* / (|A| |B|) for every pair of blocks."""
    u, v = (x / x.norm(dim=(1, 2), keepdim=True).clamp_min(1e-300) for x in (a, b))
    nuclear = torch.linalg.matrix_norm(torch.einsum("ink,jmk->ijnm", u, v), "nuc")
    answer: Tensor = nuclear + _both(_is_zero(a), _is_zero(b))
    return answer


def _same_row_space(a: Tensor, b: Tensor) -> Tensor:
    """Mean squared cosine of the angles between row spaces, for every pair of blocks."""
    u, v = whitened(a), whitened(b)
    rank = u.square().sum(dim=(1, 2)).clamp_min(1.0)
    cosines = torch.einsum("ink,jmk->ijnm", u, v).square().sum(dim=(2, 3)) / rank[:, None]
    return cosines + _both(_is_zero(a), _is_zero(b))


def _same_product(make: tuple[Tensor, Tensor], read: tuple[Tensor, Tensor]) -> Tensor:
    """The cosine of R_a'M_a and R_b'M_b for every pair of blocks; nothing tells one nothing from another."""
    (ma, mb), (ra, rb) = make, read

    def inner(m: Tensor, n: Tensor, r: Tensor, s: Tensor) -> Tensor:
        return (torch.einsum("ink,jmk->ijnm", m, n) * torch.einsum("ink,jmk->ijnm", r, s)).sum(dim=(2, 3))

    norms = [inner(m, m, r, r).diagonal().clamp_min(0).sqrt() for m, r in ((ma, ra), (mb, rb))]
    largest = [m.norm(dim=(1, 2)) * r.norm(dim=(1, 2)) for m, r in ((ma, ra), (mb, rb))]
    zero_a, zero_b = (norm <= 1e-9 * most for norm, most in zip(norms, largest, strict=True))
    cosines = inner(ma, mb, ra, rb) / (norms[0][:, None] * norms[1]).clamp_min(1e-300)
    return torch.where(_both(zero_a, zero_b) > 0, 1.0, cosines)


def _is_zero(blocks: Tensor) -> Tensor:
    return (blocks == 0).all(dim=2).all(dim=1)


def _both(a: Tensor, b: Tensor) -> Tensor:
    """1 for the pairs of which both are zero: these are alike."""
    return (a[:, None] & b).to(torch.float64)
