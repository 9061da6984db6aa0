"""An element of the symmetry group that can be learned: scales, matrices and permutations with gradients.

    scale     exp(L s)         L: the free rescalings of the group
    matrix    exp(A)           A skew where only rotations are allowed
    channels  P                the permutation nearest to Z, with the gradient of the Sinkhorn limit of exp(Z)

Acting with it is what `symmetry.transform` does, in the same order. It starts where it moves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from intertwine.orbit import Unit
from intertwine.orbit.matching import assign
from intertwine.orbit.units import find_units
from intertwine.symmetry import Element, Symmetry
from intertwine.symmetry.subgroup import find_subgroup
from intertwine.symmetry.transform import carry, identity, multiply

_SINKHORN = 20  # rounds
_START = 3.0  # logit of a channel's own place above all others together


class FreeElement(nn.Module):
    """scale, turns (by orbit) and places (by unit) are its parameters; permute: whether channels may move.

    Channels inside of heads or groups, and those of grouped convolutions, keep their places.
    """

    def __init__(self, symmetry: Symmetry, *, permute: bool = True) -> None:
        super().__init__()
        group = find_subgroup(symmetry)
        self.structure = symmetry.structure
        table = group.log_scales.tocoo()
        at = torch.from_numpy(np.stack([table.row, table.col]).astype(np.int64))
        self.exponents = torch.sparse_coo_tensor(
            at, torch.from_numpy(table.data).float(), table.shape, check_invariants=False
        )
        self.scale = nn.Parameter(torch.zeros(table.shape[1], 1))
        self.turns = nn.ParameterDict(
            {
                str(orbit): torch.zeros(len(axis.fibres), axis.fibres.shape[1], axis.fibres.shape[1])
                for orbit, axis in self.structure.linear.items()
            }
        )
        units = [u for u in find_units(group).units if permute and _alone(u)]
        self.units: dict[str, Unit] = {str(u.index): u for u in units}
        self.places = nn.ParameterDict(
            {name: (_START + math.log(u.size)) * torch.eye(u.size) for name, u in self.units.items()}
        )

    def matrices(self) -> dict[int, Tensor]:
        """Orbit -> (blocks, n, n)."""
        found = {}
        for name, free in self.turns.items():
            skew = self.structure.linear[int(name)].orthogonal
            found[int(name)] = torch.linalg.matrix_exp(free - free.mT if skew else free)
        return found

    def factor(self) -> Tensor:
        """The scale of every position."""
        return torch.exp(torch.sparse.mm(self.exponents, self.scale).reshape(-1))

    def forward(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """g . theta, of these weights."""
        s, factor, linear = self.structure, self.factor(), self.matrices()
        out = dict(weights)
        for name, tensor in out.items():
            shift = s.inference.shifts.get(name, 0.0)
            tensor = tensor + shift if shift else tensor
            for key in [(name, dim) for dim in range(tensor.dim()) if (name, dim) in s.span]:
                tensor = multiply(tensor, s, key, factor, linear)
            out[name] = tensor - shift if shift else tensor
        for name, unit in self.units.items():
            places = self._permutation(name)
            for spot in (spot for spot in unit.spots if spot.param in out):
                out[spot.param] = _moved(out[spot.param], spot.dim, spot.where, places)
        return out

    def _permutation(self, name: str) -> Tensor:
        """(places, channels): a permutation whose gradient is that of the Sinkhorn limit."""
        logits = self.places[name]
        soft = sinkhorn(logits)
        hard = torch.zeros_like(soft)
        hard[torch.from_numpy(assign(logits.detach().double().numpy())), torch.arange(len(soft))] = 1.0
        return hard + soft - soft.detach()

    @torch.no_grad()
    def element(self) -> Element:
        """The element of the group that it has become."""
        base = identity(self.structure)
        relabel = base.relabel.copy()
        placed = [np.zeros(0, np.int64)]
        for name, unit in self.units.items():
            classes = unit.classes.reshape(-1)
            relabel[classes] = classes[assign(self.places[name].double().numpy())]
            placed.append(classes)
        carry(self.structure, relabel, np.concatenate(placed))
        log_scale = torch.sparse.mm(self.exponents.double(), self.scale.double()).reshape(-1).numpy()
        linear = {}
        for name, free in self.turns.items():
            exact = free.double()
            skew = self.structure.linear[int(name)].orthogonal
            linear[int(name)] = torch.linalg.matrix_exp(exact - exact.mT if skew else exact).numpy()
        return Element(self.structure, relabel, log_scale, base.sign, linear)


def sinkhorn(logits: Tensor, rounds: int = _SINKHORN) -> Tensor:
    """A matrix with rows and columns of sum 1: rows and columns of exp(logits) divided by their sums in turn.

    >>> sinkhorn(torch.tensor([[9.0, 0.0], [0.0, 9.0]])).round().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    for _ in range(rounds):
        logits = logits - logits.logsumexp(1, keepdim=True)
        logits = logits - logits.logsumexp(0, keepdim=True)
    return logits.exp()


def _moved(tensor: Tensor, dim: int, where: np.ndarray, places: Tensor) -> Tensor:
    """Channel c, at where[c], goes to where[d] by places[d, c]."""
    front, index = tensor.movedim(dim, -1).clone(), torch.from_numpy(where)
    front[..., index] = torch.einsum("...ck,dc->...dk", front[..., index], places.to(tensor))
    return front.movedim(-1, dim)


def _alone(unit: Unit) -> bool:
    """Whether its channels can be moved without asking what lies in them or around them."""
    tree = unit.parent is not None or unit.children or len(unit.classes) > 1
    return unit.permutes and unit.linear is None and not tree and all(s.groups == 1 for s in unit.spots)
