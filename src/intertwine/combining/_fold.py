"""fold(model): a pre-norm network whose norms are plain, so that every rotation of its stream is a symmetry.

    W LN(x) + c = (W diag(g)) rms(M x) + (c + W b),      LN(x) = g (x - mean x) / sigma + b,  M = I - 1 1' / n

The gain g goes into the weights W that read the norm, the shift b into their biases (or stays, as b / g,
where one of them has none), and M into everything that writes to the stream. What is left commutes with
every rotation, and `trace` of the folded model finds O(n) there. A table that is also read as a matrix (a
tied head) is untied. The folded model is run beside the model in float64: nothing is taken on trust.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from intertwine.errors import Unsupported
from intertwine.graph.example import Example
from intertwine.graph.export import eval_copy, export
from intertwine.merging.shrink import named_tensors
from intertwine.symmetry import Axis, Symmetry
from intertwine.symmetry.naming import carries

_CENTRES = {"aten.layer_norm.default": True, "aten.rms_norm.default": False}  # whether it subtracts the mean
TOLERANCE = 1e-9


class _PlainNorm(nn.Module):
    """x / sqrt(mean x^2 + eps) along the last dimension, and a shift if one had to stay."""

    def __init__(self, eps: float, shift: Tensor | None = None) -> None:
        super().__init__()
        self.eps = eps
        self.shift = None if shift is None else nn.Parameter(shift)

    def forward(self, x: Tensor) -> Tensor:
        out = F.rms_norm(x, x.shape[-1:], None, self.eps)
        return out if self.shift is None else out + self.shift


class _Untied(nn.Module):
    """An embedding that looks rows up in `table`; `weight` is the matrix that others read under its name."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.detach().clone())
        self.table = nn.Parameter(weight.detach().clone())

    def forward(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.table)


@dataclass(frozen=True)
class _Norm:
    """A norm that only weights read. biases: of its readers, "" where there is none."""

    path: str
    gain: str
    shift: str
    eps: float
    centres: bool
    readers: tuple[str, ...]
    biases: tuple[str, ...]

    @property
    def keeps_shift(self) -> bool:
        """Whether a reader without a bias leaves the shift where it is."""
        return bool(self.shift) and not all(self.biases)


def fold(model: nn.Module, example: Any, kwargs: Mapping[str, Any] | None = None) -> nn.Module:
    """The same function with plain norms; `Unsupported`, with the reason, where it cannot be had.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    >>> folded, x = fold(net, torch.zeros(2, 3)), torch.randn(5, 3)
    >>> torch.allclose(folded(x), net(x), atol=1e-5)
    True
    """
    given = Example.of(example, kwargs)
    traced = export(model, given.args, given.kwargs)
    norms = [n for node in traced.graph.nodes if (n := _norm(node, traced.weights, model)) is not None]
    gains = {n.gain for n in norms}
    streams = [a for a in Symmetry(traced).axes if any(m.param in gains for m in a.members)]
    if not streams:
        raise Unsupported("the model has no norm with a gain that only weights read", so="nothing to fold")
    readers = {name.rpartition(".")[0] for n in norms for name in n.readers}
    untied = sorted(path for path in readers if isinstance(model.get_submodule(path), nn.Embedding))
    tables = {f"{path}.weight": f"{path}.table" for path in untied}
    state = {name: t.detach().double() for name, t in named_tensors(model).items() if t.is_floating_point()}
    state |= {table: state[weight] for weight, table in tables.items()}
    for axis in streams:
        mine = [n for n in norms if any(m.param == n.gain for m in axis.members)]
        if any(n.centres for n in mine):
            _centre(axis, mine, state, tables)
    for norm in norms:
        _move_gain(norm, state)
    folded = eval_copy(model)
    for path in untied:
        _set(folded, path, _Untied(folded.get_submodule(path).weight))  # type: ignore[arg-type]
    for norm in norms:
        shift = state[norm.gain].float() if norm.keeps_shift else None
        _set(folded, norm.path, _PlainNorm(norm.eps, shift))
    _prove(model, _filled(eval_copy(folded).double(), state), given)
    return _filled(folded, state)


def _norm(node: fx.Node, names: Mapping[str, str], model: nn.Module) -> _Norm | None:
    """The norm of a node if only weights read it, each of them only here."""
    if str(node.target) not in _CENTRES or len(node.args) < 3 or not isinstance(node.args[2], fx.Node):
        return None
    gain = names.get(node.args[2].name, "")
    path = gain.rpartition(".")[0]
    module: Any = model.get_submodule(path)
    if not gain or not isinstance(module, nn.LayerNorm | nn.RMSNorm):
        return None
    centres = _CENTRES[str(node.target)]
    bias = node.args[3] if centres and len(node.args) > 3 else None
    shift = names.get(bias.name, "") if isinstance(bias, fx.Node) else ""
    eps = torch.finfo(torch.float32).eps if module.eps is None else float(module.eps)
    readers, biases, stack = list[str](), list[str](), list(node.users)
    while stack:
        user = stack.pop()
        if carries(user):
            stack += list(user.users)
            continue
        weight = user.args[1] if str(user.target) == "aten.linear.default" else None
        name = names.get(weight.name, "") if isinstance(weight, fx.Node) else ""
        uses = [u for u in weight.users if str(u.target) != "aten.embedding.default"] if name else []  # type: ignore[union-attr]
        if len(uses) != 1:
            return None
        own = user.args[2] if len(user.args) > 2 else None
        readers.append(name)
        biases.append(names.get(own.name, "") if isinstance(own, fx.Node) and len(own.users) == 1 else "")
    return _Norm(path, gain, shift, eps, centres, tuple(readers), tuple(biases)) if readers else None


def _centre(axis: Axis, norms: list[_Norm], state: dict[str, Tensor], tables: Mapping[str, str]) -> None:
    """M W for everything that writes to the stream of norms that subtract the mean."""
    behind = {name for n in norms for name in n.readers}
    own = {name for n in norms for name in (n.gain, n.shift)}
    for member in axis.members:
        if member.param in own:
            continue
        if member.role == "in" and member.param not in behind:
            raise Unsupported(
                f"{member.param} reads the stream without a norm before it",
                so="its mean counts, and cannot be taken out of the stream",
            )
        if member.param not in behind or member.param in tables:
            name = tables.get(member.param, member.param)
            state[name] = state[name] - state[name].mean(member.dim, keepdim=True)


def _move_gain(norm: _Norm, state: dict[str, Tensor]) -> None:
    gain, shift = state[norm.gain], state.get(norm.shift)
    if norm.keeps_shift:
        if bool((gain.abs() < 1e-6 * gain.abs().max()).any()):
            raise Unsupported(f"{norm.gain} is zero for a channel whose shift is read without a bias")
        assert shift is not None
        state[f"{norm.path}.shift"] = shift / gain
    for reader, bias in zip(norm.readers, norm.biases, strict=True):
        if shift is not None and not norm.keeps_shift:
            state[bias] = state[bias] + state[reader] @ shift
        state[reader] = state[reader] * gain


@torch.no_grad()
def _filled(model: nn.Module, state: Mapping[str, Tensor]) -> nn.Module:
    for name, tensor in named_tensors(model).items():
        if name in state:
            tensor.copy_(state[name])
    return model


@torch.no_grad()
def _prove(model: nn.Module, folded: nn.Module, given: Example) -> None:
    """Both in float64 on the example."""
    args, kwargs = (
        torch.utils._pytree.tree_map(lambda x: x.double() if _is_float(x) else x, part)
        for part in (given.args, dict(given.kwargs))
    )
    left, right = (
        [x for x in tree_leaves(m(*args, **kwargs)) if _is_float(x)]
        for m in (eval_copy(model).double(), folded)
    )
    for a, b in zip(left, right, strict=True):
        off = float((a - b).abs().max() / a.abs().max().clamp_min(1e-30))
        if not off <= TOLERANCE:
            raise Unsupported(f"the folded model is off by {off:.1e}", so="its norms stay as they are")


def _is_float(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()


def _set(model: nn.Module, path: str, module: nn.Module) -> None:
    parent, _, leaf = path.rpartition(".")
    setattr(model.get_submodule(parent), leaf, module)
