"""find_isomorphism(a, b): g with g . theta_a = theta_b (Definition 2.1 of source 000), or why not."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from intertwine.checks import checked
from intertwine.orbit.action import double
from intertwine.orbit.pair import Pairing
from intertwine.orbit.units import Weights
from intertwine.symmetry import Element, Symmetry

TOLERANCE = 1e-5  # relative to the largest entry of a weight; float32 checkpoints differ by about 1e-6


@dataclass(frozen=True)
class Isomorphism:
    """element: carries the first model into the second, or None; then `weight` of `axis` differs by `error`.

    error: the largest difference of an entry, relative to the largest entry of that weight.
    """

    element: Element | None
    axis: str
    weight: str
    error: float

    def __bool__(self) -> bool:
        return self.element is not None

    @property
    def reason(self) -> str:
        """Why there is none, in a sentence; empty if there is one."""
        if self:
            return ""
        where = f"axis {self.axis}" if self.axis else "no symmetry moves it"
        return f"no element carries one into the other: {self.weight} differs by {self.error:.2g} ({where})"


@checked
def find_isomorphism(
    model_a: nn.Module,
    model_b: nn.Module,
    symmetry: Symmetry,
    tolerance: float | None = None,
    *,
    restarts: int = 3,
    seed: int = 0,
) -> Isomorphism:
    """The element that carries `model_a` into `model_b`, if there is one: that of `align(model_b, model_a)`.

    It is checked on all weights and buffers, never a guess. tolerance: relative to the largest entry of a
    weight (default: 1e-5, or what weights of half precision are rounded by). restarts: random starts of the
    search, which is made where the closed form finds none.

    >>> import torch
    >>> from intertwine import act, trace
    >>> mlp = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> symmetry = trace(mlp, torch.zeros(1, 3))
    >>> bool(find_isomorphism(mlp, act(mlp, symmetry.sample(0)), symmetry))
    True
    >>> other = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> bool(find_isomorphism(mlp, other, symmetry))
    False
    """
    pair = Pairing(symmetry, model_b, model_a)
    tolerance = max(TOLERANCE, pair.rounding / 2) if tolerance is None else tolerance
    before, after = _others(model_a, symmetry), _others(model_b, symmetry)
    # The closed form may come near and miss, where scalings of several channels hang together: then search.
    for find in (
        pair.on_orbit,
        lambda: pair.exchange and pair.searched(restarts=restarts, seed=seed, first=pair.exchange),
        lambda: pair.searched(restarts=restarts, seed=seed),
    ):
        element = find()
        if element is None:
            continue
        weight, error = _worst({**before, **pair.moved(element)}, {**after, **pair.a})
        if error <= tolerance:
            return Isomorphism(element, "", "", error)
    return Isomorphism(None, _axis_of(symmetry, weight), weight, error)


def _others(model: nn.Module, symmetry: Symmetry) -> dict[str, Tensor]:
    """What no element moves, and has to be equal as it is."""
    named = [*model.named_parameters(), *model.named_buffers()]
    return double({n: t for n, t in named if t.is_floating_point() and n not in symmetry.shapes})


def _worst(left: Weights, right: Weights) -> tuple[str, float]:
    """The weight that differs most, and by how much."""
    errors = {
        name: float((left[name] - tensor).abs().max() / tensor.abs().max().clamp_min(1e-12))
        for name, tensor in right.items()
        if tensor.numel()
    }
    worst = max(errors, key=lambda name: errors[name], default="")
    return worst, errors.get(worst, 0.0)


def _axis_of(symmetry: Symmetry, weight: str) -> str:
    """The axis that a weight makes, or one that it carries."""
    held = [(m.role == "out", axis) for axis in symmetry.axes for m in axis.members if m.param == weight]
    moving = [pair for pair in held if pair[1].group.moves]
    return max(moving, key=lambda pair: pair[0])[1].name if moving else ""
