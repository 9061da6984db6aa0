"""Who reads an axis, how its features are distributed there, and what can absorb a change of their mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from intertwine.graph.export import eval_copy
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
    """

    place: Place
    mean: Tensor
    cov: Tensor
    slope: Tensor | None
    absorber: str
    sign: float
    beside: float = 0.0

    def second_moment(self) -> Tensor:
        """The covariance if the mean can be absorbed, otherwise the uncentred second moment."""
        return self.cov if self.absorber else self.cov + torch.outer(self.mean, self.mean)


def find_readings(
    symmetry: Symmetry,
    places: Iterable[Place],
    weights: Mapping[str, Tensor],
    moments: Mapping[str, Moments],
) -> list[Reading]:
    """The readers of one axis; `moments` by node name, propagated or measured."""
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
        out.append(Reading(place, mean, cov, slope, absorber, sign, beside))
    return out


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


def measure_moments(model: nn.Module, symmetry: Symmetry, batches: Iterable[Any]) -> dict[str, Moments]:
    """Node name -> measured mean and covariance of what the contractions of a model read.

    Collected by hooks on a copy; nothing of the caller's model is touched. Layers whose input has its
    channels in dimension 1 (convolutions) or last (linear).
    """
    copied = eval_copy(model)
    traced = symmetry.traced
    nodes = {traced.weights[n.name]: n for n in traced.graph.nodes if n.name in traced.weights}
    sums: dict[str, list[Tensor]] = {}
    count: dict[str, int] = {}

    def hook(name: str, dim: int) -> Any:
        def collect(module: nn.Module, args: tuple[Any, ...]) -> None:
            x = args[0].detach().to(torch.float64)
            rows = x.movedim(dim, -1).reshape(-1, x.shape[dim])
            total = sums.setdefault(name, [torch.zeros(1, dtype=torch.float64, device=x.device)] * 2)
            total[0] = total[0] + rows.sum(0)
            total[1] = total[1] + rows.T @ rows
            count[name] = count.get(name, 0) + len(rows)

        return collect

    for path, module in copied.named_modules():
        node = nodes.get(f"{path}.weight" if path else "weight")
        users = [u for u in node.users if isinstance(u.args[0], fx.Node)] if node is not None else []
        if isinstance(module, (nn.Linear, nn.modules.conv._ConvNd)) and users:
            name = users[0].args[0].name
            module.register_forward_pre_hook(hook(name, -1 if isinstance(module, nn.Linear) else 1))
    like = next(copied.parameters())
    with torch.no_grad():
        for batch in batches:
            images = batch[0] if isinstance(batch, (tuple, list)) else batch
            copied(images.to(like.device, like.dtype))
    out = {}
    for name, (first, second) in sums.items():
        mean = first / count[name]
        cov = second / count[name] - torch.outer(mean, mean)
        out[name] = Moments(mean.cpu(), cov.cpu(), 1)
    return out


__all__ = ["Reading", "find_readings", "measure_moments", "propagate_moments"]
