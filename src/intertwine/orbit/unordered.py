"""What is known of a channel where units that are not matched yet cross it: what no order of theirs changes.

Heads that share the axis of their keys, or both dimensions of a stack: neither can be matched before the
other. Sums, and sums of squares, over what is exchanged are the same in every order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import Tensor

from intertwine.orbit.evidence import Known
from intertwine.orbit.scales import Slot
from intertwine.orbit.units import Spot, Unit
from intertwine.symmetry.colours import mix


def crossed_share(known: Known, unit: Unit) -> float:
    """How much of the best weight that carries the unit no order of what crosses it changes, 0 to 1."""
    shares = [0.0]
    for spot, copies, others in _orders(known, unit):
        share = (int(copies.max()) + 1) / copies.shape[1]
        for other, groups in others.items():
            share *= (
                known.told(unit, spot.slot, other).mean()
                if groups is None
                else (groups.max() + 1) / len(groups)
            )
        shares.append(float(share))
    return max(shares)


def unordered(known: Known, unit: Unit) -> Iterator[tuple[Tensor, Tensor]]:
    """Slices of a unit that unknown ones cross: sums, and sums of squares, over what they exchange."""
    for spot, copies, others in _orders(known, unit):
        sums = []
        for weights in (known.target, known.state.weights):
            tensor = known.seen(
                weights, unit, spot.slot, [o for o, groups in others.items() if groups is None]
            )
            if tensor is not None:
                both = (_added_up(x, spot, copies, others) for x in (tensor, tensor.square()))
                sums.append(torch.cat([x.flatten(1) for x in both], dim=1))
        if len(sums) == 2:
            yield sums[0], sums[1]


def _orders(known: Known, unit: Unit) -> Iterator[tuple[Spot, np.ndarray, dict[Slot, np.ndarray | None]]]:
    """The spots of a unit with (channels, copies), which copies of a channel nothing tells apart but what
    is unknown, and the same for the positions along the other dimensions (None: these are known).

    Those are left out where the unknown may also be rescaled or turned.
    """
    s = known.structure
    # What lies in an unknown block moves with it.
    fixed = known.placed & (s.classes.ancestors @ (~known.placed).astype(np.float64) == 0)
    fixed[unit.classes] = False
    told = np.where(fixed[s.coordinate_class], mix(s.coordinate_class), np.uint64(0))
    keys = np.add.reduceat(told, s.coordinate_start) + s.copy if len(told) else told
    still = known.sized.copy()
    for orbit in known.partial:
        for slot, (where, _, _) in s.linear[orbit].places.items():
            still[s.span[slot][0] + where] = False
    for slot, (where, pair, _) in s.turns.places.items():
        still[s.span[slot][0] + where[known.unturned[pair]]] = False
    for spot in unit.spots:
        at = s.span[spot.slot][0] + spot.where
        if spot.param not in known.params or not still[at].all():
            continue
        _, copies = np.unique(keys[at], return_inverse=True)
        copies = copies.reshape(at.shape)
        counts = [np.bincount(row, minlength=int(copies.max()) + 1) for row in copies]
        others: dict[Slot, np.ndarray | None] = {}
        for other in known.others(spot.slot):
            start, stop = s.span[other]
            exchanged = still[start:stop].all() and s.slots[other].ids.ndim == 1
            if exchanged and not known.told(unit, spot.slot, other).any():
                others[other] = np.unique(keys[start:stop], return_inverse=True)[1]
            else:
                others[other] = None
        if all(np.array_equal(row, counts[0]) for row in counts):
            yield spot, copies, others


def _added_up(
    tensor: Tensor, spot: Spot, copies: np.ndarray, others: Mapping[Slot, np.ndarray | None]
) -> Tensor:
    """(channels, groups of copies, everything else): sums over the positions and copies of one group."""
    for (_, dim), groups in others.items():
        if groups is not None:
            shape = [int(groups.max()) + 1 if d == dim else n for d, n in enumerate(tensor.shape)]
            tensor = tensor.new_zeros(shape).index_add(dim, torch.from_numpy(groups), tensor)
    slices = spot.slices(tensor).reshape(*copies.shape, -1)
    zero = slices.new_zeros(len(slices), int(copies.max()) + 1, slices.shape[2])
    return zero.scatter_add(1, torch.from_numpy(copies)[:, :, None].expand_as(slices), slices)
