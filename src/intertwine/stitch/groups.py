"""phi_sigma(G_sigma) of the activation that made a value: the smallest class that can stitch it (Thm. 4.2).

The activation is found in the graph and its group is decided by evaluating it, so a LeakyReLU of slope 1 is
the identity whatever it is called.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, fx

from intertwine.activations import Intertwiner, intertwiner
from intertwine.errors import InputError
from intertwine.trace.surgery import Surgeon
from intertwine.trace.values import CARRIES, op_name, source_node

Scale = Literal["none", "sign", "positive", "nonzero"]
# Act on each channel alone and commute with every linear map of channels, or are one.
_LINEAR = frozenset(
    "conv1d conv2d conv3d convolution linear addmm mm matmul bmm add sub mean sum avg_pool1d avg_pool2d "
    "avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d batch_norm layer_norm group_norm "
    "_native_batch_norm_legit_no_training embedding upsample_nearest2d upsample_bilinear2d".split()
)
_AVERAGES = frozenset(op for op in _LINEAR if op == "mean" or "avg_pool" in op)
_MAXIMA = frozenset("max_pool1d max_pool2d max_pool3d adaptive_max_pool2d amax".split())


@dataclass(frozen=True)
class LayerGroup:
    """GL(n), or permutations times diagonals with entries of one kind; and the activation it belongs to.

    >>> LayerGroup("relu", linear=False, scale="positive").name
    'permutation x positive diagonal'
    """

    activation: str
    linear: bool
    scale: Scale

    @property
    def name(self) -> str:
        if self.linear:
            return "GL(n)"
        suffix = {"none": "", "sign": " x sign", "positive": " x positive diagonal"}
        return "permutation" + suffix.get(self.scale, " x nonzero diagonal")


def find_group(surgeon: Surgeon, name: str) -> LayerGroup:
    """The group of the activation whose result the value is; GL(n) where no activation comes last.

    Pooling and reshaping are looked through. What is not understood leaves permutations only.

    >>> import torch
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> surgeon = Surgeon(net, (torch.zeros(2, 3),))
    >>> [find_group(surgeon, layer).name for layer in ("0", "1", "3")]
    ['GL(n)', 'permutation', 'permutation x positive diagonal']
    """
    node, maximum = source_node(surgeon.node(name)), False
    while op_name(node) in CARRIES | _AVERAGES | _MAXIMA and node.all_input_nodes:
        maximum |= op_name(node) in _MAXIMA
        node = source_node(node.all_input_nodes[0])
    op = op_name(node)
    if node.op == "placeholder" or op in _LINEAR:
        return LayerGroup("identity", linear=not maximum, scale="positive" if maximum else "nonzero")
    sigma = _scalar(node)
    if sigma is None:
        return LayerGroup(op, linear=False, scale="none")
    try:
        found = intertwiner(sigma)
    except InputError:
        return LayerGroup(op, linear=False, scale="none")
    if found.linear and not maximum:
        return LayerGroup(op, linear=True, scale="nonzero")
    scale: Scale = "positive" if found.linear else _image(found)
    if maximum:  # a maximum commutes with positive scales only
        scale = {"sign": "none", "nonzero": "positive"}.get(scale, scale)  # type: ignore[assignment]
    return LayerGroup(op, linear=False, scale=scale)


def _image(found: Intertwiner) -> Scale:
    """The diagonal entries of phi_sigma(G_sigma): b with sigma(a x) = b sigma(x)."""
    odd = found.sign == "odd"
    if found.scalars == "none" or (found.scalars == "sign" and not odd):
        return "none"
    if found.scalars == "sign" or found.degree == 0:
        return "sign" if odd else "none"
    return "nonzero" if odd else "positive"


def _scalar(node: fx.Node) -> Callable[[Tensor], Tensor] | None:
    """The op as a function of its first argument, if no other tensor takes part."""
    if node.op != "call_function" or len(node.all_input_nodes) != 1 or not isinstance(node.args[0], fx.Node):
        return None
    target, rest, named = node.target, node.args[1:], dict(node.kwargs)

    def sigma(x: Tensor) -> Tensor:
        return target(x, *rest, **named)  # type: ignore[operator]

    return sigma
