"""Norms whose gain can go into the weights that read them, found in the inferred group.

    y = g z,      W y = (W diag(g)) z

A gain can be folded where g -> s g, W -> W / s is a symmetry for every channel alone: then nothing but these
weights W reads the norm, whatever lies between (views, a factor, the choice of an expert for every row). The
scale equations of the group say which weights those are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import fx, nn

from intertwine.ir.ledger import Ids
from intertwine.rules.registry import facts
from intertwine.symmetry import Symmetry
from intertwine.symmetry.naming import carries


@dataclass(frozen=True, eq=False)
class GainReader:
    """A weight behind a norm. channel: of every position of its dimension, that of the norm, or -1.

    bias: what is added to its product, if that belongs to it alone, or "".
    """

    weight: str
    dim: int
    channel: Ids
    bias: str


@dataclass(frozen=True, eq=False)
class GainedNorm:
    """A norm of the graph: its module, its gain and shift, and the weights that read it."""

    path: str
    gain: str
    shift: str
    eps: float
    centres: bool
    readers: tuple[GainReader, ...]


def find_gained_norms(symmetry: Symmetry, model: nn.Module) -> list[GainedNorm]:
    """Every norm of torch with a gain that only weights read, in the order of the graph."""
    names = symmetry.traced.weights
    found = []
    for node in symmetry.traced.graph.nodes:
        centres = facts(node).centres
        if centres is None or len(node.args) < 3 or not isinstance(node.args[2], fx.Node):
            continue
        gain = names.get(node.args[2].name, "")
        path = gain.rpartition(".")[0]
        module: Any = model.get_submodule(path)
        if not gain or not isinstance(module, (nn.LayerNorm, nn.RMSNorm)):
            continue
        given = node.args[3] if centres and len(node.args) > 3 else None
        shift = names.get(given.name, "") if isinstance(given, fx.Node) else ""
        readers = _readers(symmetry, gain, shift, _biases(node, names))
        if readers:
            eps = torch.finfo(torch.float32).eps if module.eps is None else float(module.eps)
            found.append(GainedNorm(path, gain, shift, eps, centres, readers))
    return found


def _readers(
    symmetry: Symmetry, gain: str, shift: str, biases: Mapping[str, str]
) -> tuple[GainReader, ...] | None:
    """The weights with the inverse of the gain's scale, if there is nothing else that it binds."""
    structure, roles = symmetry.structure, symmetry.structure.inference.roles
    if (gain, 0) not in structure.span or structure.slots[gain, 0].ids.ndim > 1:
        return None
    first, last = structure.span[gain, 0]
    own = structure.component[first:last]
    if len(np.unique(own)) < len(own):
        return None
    channel_of = np.full(len(structure.scalings.kind), -1)
    channel_of[own] = np.arange(len(own))
    readers = []
    for (param, dim), (start, end) in structure.span.items():
        channel = channel_of[structure.component[start:end]]
        if param == gain or not (channel >= 0).any():
            continue
        here = structure.scales[start:end][channel >= 0]
        exponents = _exponents(symmetry, here, structure.scales[first:last][channel[channel >= 0]])
        if param == shift and (exponents == 1).all():
            continue
        single = structure.slots[param, dim].ids.ndim == 1
        if roles.get((param, dim)) != "in" or not single or not (exponents == -1).all():
            return None
        readers.append(GainReader(param, dim, channel, biases.get(param, "")))
    return tuple(readers)


def _exponents(symmetry: Symmetry, scales: Ids, of: Ids) -> np.ndarray:
    """Powers of the scales `of` that scales are bound to be; 0 where there is not one rescaling of both."""
    known = symmetry.structure.scalings
    out = np.zeros(len(scales))
    for k in np.unique(known.kind_of[of]):
        real, here = known.kinds[k].real, known.kind_of[of] == k
        if real.shape[1] == 1:
            base = real[known.local_of[of[here]], 0]
            power = real[known.local_of[scales[here]], 0] / np.where(base == 0, np.inf, base)
            out[here] = power
    return out


def _biases(norm: fx.Node, names: Mapping[str, str]) -> dict[str, str]:
    """Weight -> the bias of its product with what the norm gives, as it is, where that is its only use."""
    found: dict[str, str] = {}
    stack = list(norm.users)
    while stack:
        user = stack.pop()
        if carries(user) or _passes_constants(user):
            stack += list(user.users)
            continue
        at_weight, at_bias, _ = facts(user).product or (None, None, 0)
        weight = None if at_weight is None else user.args[at_weight]
        bias = user.args[at_bias] if at_bias is not None and len(user.args) > at_bias else None
        if isinstance(weight, fx.Node) and isinstance(bias, fx.Node) and len(bias.users) == 1:
            found[names.get(weight.name, "")] = names.get(bias.name, "")
    return found


def _passes_constants(node: fx.Node) -> bool:
    """Whether a constant that is added to the operand is added to the result, as by a mean: that is tried."""
    if not facts(node).summarizes or node.all_input_nodes != [node.args[0]] or not callable(node.target):
        return False
    shape = node.args[0].meta["val"].shape  # type: ignore[union-attr]
    x = torch.arange(shape.numel(), dtype=torch.float64).sin().reshape(shape)
    plain, moved = (node.target(y, *node.args[1:], **node.kwargs) for y in (x, x + 3.0))
    return bool(torch.allclose(moved, plain + 3.0))


__all__ = ["GainReader", "GainedNorm", "find_gained_norms"]
