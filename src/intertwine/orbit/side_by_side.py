"""Which module of B is which one of A, of those that change places (`symmetry.exchange`).

At the point of least norm only permutations, signs and rotations are left of what acts inside modules. They
leave the singular values of every weight as they are, so members are matched by these, and by the norms of
what is theirs in other weights (a router's rows). For models of one orbit this tells members apart wherever
anything does; for others it is a guess.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from intertwine.ir.ledger import Ids
from intertwine.orbit.units import Weights
from intertwine.symmetry.members import Exchanges, Family


def match_members(exchanges: Exchanges, a: Weights, b: Weights) -> Ids:
    """Member -> its place: where each one of b goes. a, b: the weights of two models of least norm."""
    out = exchanges.identity()
    for start, family in zip(exchanges.start, exchanges.families, strict=False):
        cost = np.zeros((family.size, family.size))
        for left, right in zip(_told(family, a), _told(family, b), strict=True):
            scale = max(float(left.norm(dim=1).max()), float(right.norm(dim=1).max()), 1e-300)
            cost += torch.cdist(right, left).numpy() / scale
        rows, columns = linear_sum_assignment(cost)
        out[start + rows] = start + columns
    return out


def _told(family: Family, weights: Weights) -> list[Tensor]:
    """(members, numbers): what no permutation, sign or rotation inside of the members changes."""
    found = list[Tensor]()
    for names in zip(*family.tensors, strict=True):
        if all(name in weights for name in names):
            found.append(torch.stack([_spectrum(weights[name]) for name in names]))
    for (name, dim), where in family.beside.items():
        if name in weights:
            parts = [weights[name].movedim(dim, 0)[torch.from_numpy(places)] for places in where]
            found.append(torch.stack([_spectrum(part) for part in parts]))
    return found


def _spectrum(weight: Tensor) -> Tensor:
    """Singular values of a weight as a matrix; of a vector its length."""
    told: Tensor = torch.linalg.svdvals(weight.flatten(1)) if weight.dim() > 1 else weight.norm()[None]
    return told
