"""Who reads an axis, how its features are distributed there, and what can absorb a change of their mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, fx

from intertwine.merging.measured import Seen
from intertwine.merging.moments import Moments, propagate_moments
from intertwine.merging.places import Place
from intertwine.rules import facts
from intertwine.symmetry import Symmetry
from intertwine.symmetry.naming import carries, origin


@dataclass(frozen=True, eq=False)
class Reading:
    """One weight that reads the axis. mean, cov: of the axis's features as this weight sees them.

    slope: (outputs,) of the batch norm that follows, which says how much each output matters.
    absorber: a bias (sign +1) or the running mean of the batch norm that follows (sign -1), or "".
    beside: the variance of what the output is added to (the skip of a residual block), in the same units.
    doubt: how little the moments are to be trusted; channels / rows where they were measured.
    """

    place: Place
    mean: Tensor
    cov: Tensor
    slope: Tensor | None
    absorber: str
    sign: float
    beside: float = 0.0
    doubt: float = 1.0

    def second_moment(self) -> Tensor:
        """The covariance if the mean can be absorbed, otherwise the uncentred second moment."""
        return self.cov if self.absorber else self.cov + torch.outer(self.mean, self.mean)


def find_readings(
    symmetry: Symmetry,
    places: Iterable[Place],
    weights: Mapping[str, Tensor],
    moments: Mapping[str, Moments],
    measured: Mapping[str, Seen] | None = None,
) -> list[Reading]:
    """The readers of one axis; `moments` by node name, propagated, and by weight, measured."""
    traced = symmetry.traced
    nodes = {name: node for node in traced.graph.nodes for name in [traced.weights.get(node.name)] if name}
    out = []
    for place in places:
        if not place.consumes:
            continue
        node = _contraction(nodes.get(place.param), place)
        read = node.args[0] if node is not None else None
        known = moments.get(read.name) if isinstance(read, fx.Node) else None
        mean, cov = _restrict(known, place)
        slope, absorber, sign = (
            (None, "", 1.0) if node is None else _after(node, traced.weights, weights, symmetry)
        )
        beside = 0.0 if node is None else _beside(node, moments)
        reading = Reading(place, mean, cov, slope, absorber, sign, beside)
        seen = (measured or {}).get(place.param)
        out.append(_as_seen(reading, seen) if seen is not None and seen.dim == place.dim else reading)
    return out


def _as_seen(reading: Reading, seen: Seen) -> Reading:
    """The same reader with the moments that it was seen to read, and the bias that it was seen to add."""
    where = reading.place.where
    pixels = where.shape[1]
    index = torch.from_numpy(where)
    mean, cov = seen.mean[index].mean(1), torch.zeros(len(where), len(where), dtype=torch.float64)
    for k in range(pixels):
        cov += seen.cov[index[:, k]][:, index[:, k]] / pixels
    known = replace(reading, mean=mean, cov=cov, doubt=min(1.0, len(mean) / seen.rows))
    if reading.absorber or seen.uses > 1:
        return known
    return replace(known, absorber=seen.bias, sign=1.0)


def _contraction(placeholder: fx.Node | None, place: Place) -> fx.Node | None:
    """The one linear or convolution that contracts this dimension of the weight."""
    users = list(placeholder.users) if placeholder is not None else []
    if len(users) != 1 or place.dim != 1:
        return None
    reads = facts(users[0]).rows is not None
    if reads and len(users[0].args) > 1 and users[0].args[1] is placeholder:
        return users[0]
    return None


def _restrict(known: Moments | None, place: Place) -> tuple[Tensor, Tensor]:
    """The moments of the axis's channels; the copies of a channel after a flatten are averaged."""
    size = len(place.where)
    if known is None or int(place.where.max()) >= len(known.mean) * known.copies:
        return torch.zeros(size, dtype=torch.float64), torch.eye(size, dtype=torch.float64)
    index = torch.from_numpy(place.where[:, 0] // known.copies)
    return known.mean[index], known.cov[index][:, index]


def _beside(node: fx.Node, moments: Mapping[str, Moments]) -> float:
    """Total variance of the other summand where the output (after its batch norm) goes into an addition."""
    at = node
    for _ in range(3):
        users = list(at.users)
        if len(users) != 1:
            return 0.0
        if facts(users[0]).adds:
            others = [a for a in users[0].args[:2] if isinstance(a, fx.Node) and a is not at]
            known = moments.get(others[0].name) if others else None
            return float(known.cov.diag().sum()) if known is not None else 0.0
        if not carries(users[0]) and facts(origin(users[0])).statistics is None:
            return 0.0
        at = users[0]
    return 0.0


def _after(
    node: fx.Node, names: Mapping[str, str], weights: Mapping[str, Tensor], symmetry: Symmetry
) -> tuple[Tensor | None, str, float]:
    users = list(node.users)
    bias = node.args[2] if len(node.args) > 2 else None
    own = names.get(bias.name, "") if isinstance(bias, fx.Node) else ""
    if bias is not None and isinstance(bias, fx.Node) and len(bias.users) > 1:
        own = ""
    if len(users) == 1 and facts(users[0]).statistics is not None:
        found = [names.get(a.name, "") if isinstance(a, fx.Node) else "" for a in users[0].args[1:5]]
        gain, _, mean, var = found
        if mean and var:
            shift = symmetry.structure.inference.shifts.get(var, 1e-5)
            slope = (weights[var].to(torch.float64) + shift).rsqrt()
            if gain:
                slope = slope * weights[gain].to(torch.float64)
            return slope, own or mean, 1.0 if own else -1.0
    return None, own, 1.0


__all__ = ["Reading", "find_readings", "propagate_moments"]
