"""A weight with the positions of one of its dimensions last, however they lie.

Along most dimensions a position is a place. Where the order along a dimension may differ in each group of
dimension 0 (the input channels of a grouped convolution), a position is a group and a place.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Size, Tensor

from intertwine.ir.ledger import Ids


def in_front(tensor: Tensor, shape: Sequence[int], dim: int) -> Tensor:
    """(everything else, positions). shape: (places,) or (groups, places), as `Slot.ids` has it.

    >>> import torch
    >>> in_front(torch.arange(8).reshape(4, 2), (2, 2), 1).tolist()
    [[0, 1, 4, 5], [2, 3, 6, 7]]
    """
    if len(shape) == 1:
        return tensor.movedim(dim, -1)
    groups = tensor.reshape(shape[0], -1, *tensor.shape[1:])
    return groups.movedim((0, dim + 1), (-2, -1)).flatten(-2)


def put_back(front: Tensor, shape: Sequence[int], dim: int, size: Size) -> Tensor:
    """What `in_front` was given, of that size."""
    if len(shape) == 1:
        return front.movedim(-1, dim)
    groups: Tensor = front.reshape(*front.shape[:-1], *shape).movedim((-2, -1), (0, dim + 1))
    return groups.reshape(size)


def taken(tensor: Tensor, shape: Sequence[int], dim: int, source: Ids) -> Tensor:
    """new[p] = old[source[p]] for the positions along a dimension, once dimension 0 has been moved."""
    if len(shape) == 1:
        return tensor.index_select(dim, torch.from_numpy(source).to(tensor.device))
    # Group g' already holds the channels of the group it came from.
    places = source % shape[1] + shape[1] * np.repeat(np.arange(shape[0]), shape[1])
    index = torch.from_numpy(places).to(tensor.device)
    return put_back(in_front(tensor, shape, dim).index_select(-1, index), shape, dim, tensor.shape)
