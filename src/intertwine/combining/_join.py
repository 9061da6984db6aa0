"""join(models): one network that holds all of them side by side, and computes what they compute.

    hidden axis        the channels of all networks, one after the other
    weight inside      block diagonal
    last layer         rows side by side (heads="each"), or sum_k s_k W_k h_k + b_k ("one": the mean output)

The networks are of one architecture; widths, and with heads of their own the outputs, may differ. Which
dimensions are hidden is read off the symmetry. Nothing is claimed: the joined network must compute what was
promised, or `Unsupported` says so. Merging its channels, across networks and within, is zipping.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_map

from intertwine.data.batches import arguments
from intertwine.data.evaluation import like_inputs, logits_of
from intertwine.errors import InputError, Unsupported
from intertwine.graph.copying import copy_model
from intertwine.graph.export import Traced, named_tensors
from intertwine.merging.shrink import fix_layers, replace_tensors
from intertwine.rules import facts
from intertwine.symmetry import Symmetry

Heads = Literal["one", "each"]
HEADS: tuple[Heads, ...] = ("one", "each")
TOLERANCE = 1e-4  # in float32, relative to the largest output


def join(
    models: Sequence[nn.Module],
    symmetry: Symmetry,
    inputs: Any,
    *,
    shares: Sequence[float] | None = None,
    heads: Heads = "one",
) -> nn.Module:
    """All networks in one; symmetry: that of the first; inputs: what it is checked on.

    >>> from intertwine import trace
    >>> a, b = (nn.Sequential(nn.Linear(3, n), nn.ReLU(), nn.Linear(n, 2)).eval() for n in (4, 6))
    >>> x = torch.randn(5, 3)
    >>> both = join([a, b], trace(a, x), x)
    >>> both[0].out_features, torch.allclose(both(x), (a(x) + b(x)) / 2, atol=1e-6)
    (10, True)
    """
    shares = shares or [1 / len(models)] * len(models)
    states = [named_tensors(m) for m in models]
    for k, state in enumerate(states[1:], 2):
        odd = [n for n in {**states[0], **state} if _rank(states[0], n) != _rank(state, n)]
        if odd:
            raise InputError(f"model {k} is of another architecture than the first: {odd[0]}")
    hidden = {(m.param, m.dim): m.role for a in symmetry.alike.axes if a.mergeable for m in a.members}
    head = last_layer(symmetry.traced) if heads == "each" else {}
    joined = copy_model(models[0]).eval()
    before = {name: tuple(t.shape) for name, t in states[0].items()}
    new = {
        name: joined_tensor([s[name].detach() for s in states], name, hidden, shares, head)
        for name, t in states[0].items()
        if t.is_floating_point()
    }
    fix_layers(joined, replace_tensors(joined, new), before)
    assert_computes(joined, models, shares if heads == "one" else None, inputs)
    return joined


def last_layer(traced: Traced) -> dict[str, int]:
    """Weight and bias of the product that makes the output -> their dimension that the outputs lie on."""
    names = traced.weights
    (output,) = [n for n in traced.graph.nodes if n.op == "output"]
    node = next(iter(output.all_input_nodes), None)
    product = facts(node).product if node is not None and node.op == "call_function" else None
    if node is None or product is None:
        raise Unsupported("the output is not made by one linear layer", so="networks cannot keep their heads")
    at_weight, at_bias, summed = product
    weight = node.args[at_weight]
    bias = node.args[at_bias] if at_bias is not None and len(node.args) > at_bias else None
    found = {}
    for read, dim in ((weight, 1 - summed % 2), (bias, 0)):
        if isinstance(read, fx.Node):
            if read.name not in names or len(read.users) > 1:
                raise Unsupported("the last layer shares its weights", so="networks cannot keep their heads")
            found[names[read.name]] = dim
    return found


def joined_tensor(
    tensors: Sequence[Tensor],
    name: str,
    hidden: Mapping[tuple[str, int], str],
    shares: Sequence[float] = (),
    head: Mapping[str, int] = MappingProxyType({}),
) -> Tensor:
    """The weights of one layer of all networks as one. shares: of what is made of all together, which is
    their mean. head: a dimension that the outputs lie on."""
    first = tensors[0]
    dims = [d for d in range(first.dim()) if (name, d) in hidden or head.get(name) == d]
    makes = any(hidden.get((name, d)) != "in" for d in dims)
    fixed = [[n for d, n in enumerate(t.shape) if d not in dims] for t in tensors]
    if any(sizes != fixed[0] for sizes in fixed):
        raise InputError(
            f"the networks differ in a size of {name} that no symmetry acts on: "
            f"{' and '.join(str(tuple(t.shape)) for t in tensors)}",
            so="they do not share inputs or outputs",
            do='networks of different outputs keep their own with heads="each"',
        )
    if not makes:  # what is made of all networks together is their mean
        tensors = [share * t for share, t in zip(shares, tensors, strict=True)]
    if not dims:
        return torch.stack(list(tensors)).sum(0)
    shape = [sum(t.shape[d] for t in tensors) if d in dims else n for d, n in enumerate(first.shape)]
    out, start = first.new_zeros(shape), [0] * first.dim()
    for tensor in tensors:
        for d, n in enumerate(tensor.shape):
            if d in dims:
                start[d] += n
        here = [
            slice(start[d] - n, start[d]) if d in dims else slice(None) for d, n in enumerate(tensor.shape)
        ]
        out[tuple(here)] = tensor
    return out


def _in_float32(x: Any) -> Any:
    """Networks (a copy in eval mode) and inputs of half precision, which rounds away what is to be seen."""
    if isinstance(x, nn.Module):
        copied = copy_model(x).eval()
        return copied.float() if like_inputs(x).dtype.itemsize < 4 else copied
    return x.float() if isinstance(x, Tensor) and x.is_floating_point() and x.itemsize < 4 else x


@torch.no_grad()
def assert_computes(
    joined: nn.Module, models: Sequence[nn.Module], shares: Sequence[float] | None, inputs: Any
) -> None:
    """Raise unless it gives the mean of the models' outputs by their shares; None: those side by side."""
    args, kwargs = tree_map(_in_float32, arguments(inputs))
    own = [logits_of(_in_float32(m)(*args, **kwargs)) for m in models]
    wanted = torch.cat(own, -1) if shares is None else sum(s * y for s, y in zip(shares, own, strict=True))
    assert isinstance(wanted, Tensor)
    try:
        found = logits_of(_in_float32(joined)(*args, **kwargs))
        rounded = 2 * torch.finfo(like_inputs(joined).dtype).eps  # a mean of weights in half precision
        most = max(TOLERANCE, rounded) * float(wanted.abs().max())
        right = found.shape == wanted.shape and float((found - wanted).abs().max()) <= most
    except Exception:  # whatever a forward does with shapes that it was not written for
        right = False
    if not right:
        raise Unsupported(
            "these networks cannot lie side by side in one of their kind",
            so="something mixes all channels, as a layer norm does, depends on their number, "
            "or puts the channels of several layers or groups in a row",
            do="use --how layerwise",
        )


def _rank(state: Mapping[str, Tensor], name: str) -> int:
    return state[name].dim() if name in state else -1
