"""Every pair of policies, in representation and in function, on the states that both of them visit.

    states: those of A's rollouts and those of B's, as many of each, joined
    cka: linear CKA of the features before the heads
    jsd, spearman: of the action probabilities, mean over states

Rollouts in a small grid meet the same few views again and again, so each network runs once on the views that
occur, and a pair reads off the rows that belong to its states.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from intertwine.comparing.function import jensen_shannon, rank_correlation
from intertwine.comparing.measures import similarity
from intertwine.errors import InputError
from intertwine.zoo.agent import ActorCritic


@dataclass(frozen=True)
class PolicyPair:
    """Two policies, by name; a value is None where it is not defined (features that never change)."""

    a: str
    b: str
    cka: float | None
    jsd: float
    spearman: float | None


def compare_policies(nets: Mapping[str, ActorCritic], states: Mapping[str, Tensor]) -> list[PolicyPair]:
    """All pairs of `nets`; `states[name]` are the views that the policy of that name met (N x 3 x 7 x 7)."""
    names = list(nets)
    counts = {len(states[name]) for name in names}
    if len(counts) > 1:
        raise InputError(
            f"rollouts of {min(counts)} to {max(counts)} states", do="take as many states of every policy"
        )
    views, places = torch.unique(torch.cat([states[name] for name in names]), dim=0, return_inverse=True)
    met = dict(zip(names, places.chunk(len(names)), strict=True))
    features: dict[str, Tensor] = {}
    odds: dict[str, Tensor] = {}
    with torch.no_grad():
        for name, net in nets.items():
            found = net.features(views.float())
            features[name] = found.double()
            odds[name] = net.actor(found).double().log_softmax(1)
    return [
        _pair(a, b, torch.cat([met[a], met[b]]), features, odds) for a, b in itertools.combinations(names, 2)
    ]


def _pair(
    a: str, b: str, rows: Tensor, features: Mapping[str, Tensor], odds: Mapping[str, Tensor]
) -> PolicyPair:
    divergence = jensen_shannon(odds[a], odds[b])[rows].mean()
    ranks = rank_correlation(odds[a], odds[b])[rows]
    return PolicyPair(
        a, b, _cka(features[a][rows], features[b][rows]), float(divergence), _known(float(ranks.nanmean()))
    )


def _cka(x: Tensor, y: Tensor) -> float | None:
    if any(bool((side == side[0]).all()) for side in (x, y)):
        return None
    return _known(similarity(x, y, "cka"))


def _known(value: float) -> float | None:
    return None if value != value else value
