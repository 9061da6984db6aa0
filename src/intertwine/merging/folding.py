"""fold(model): a pre-norm network whose norms are plain, so that every rotation of its stream is a symmetry.

    LN(x) = g (x - mean x) / sigma + b
    W LN(x) + c = (W diag(g)) rms(M x) + (c + W b),      M = I - 1 1^T / n

The gain g goes into the weights W that read the norm, the shift b into their biases (or stays, as b / g,
where one of them has none), and M into everything that writes to the stream. What is left, x / rms(x),
commutes with every rotation: `trace` of the folded model finds O(n) on its stream. A table that is also read
as a matrix (a tied head) is untied. Nothing is claimed: the folded model must compute what the model does.

Where a gain is a weight and a constant, g = c + w (Gemma's is 1 + w), c is read off what the norm computes;
so is the factor of a table whose rows are multiplied by one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from intertwine.checks import checked
from intertwine.errors import Unsupported
from intertwine.graph.eager import run_module
from intertwine.graph.example import Example
from intertwine.graph.export import Traced, check_model, eval_copy, export, named_tensors
from intertwine.merging.factoring import factored
from intertwine.merging.gained import GainedNorm, find_gained_norms
from intertwine.merging.torch_modules import as_rms_norm, row_factor
from intertwine.rules.registry import facts
from intertwine.symmetry import Axis, Symmetry
from intertwine.text import first_line

TOLERANCE = 1e-9


class PlainNorm(nn.Module):
    """x / sqrt(mean x^2 + eps) along the last dimension, whatever its size, and a shift if there is one.

    >>> PlainNorm(0.0)(torch.tensor([3.0, -3.0]))
    tensor([ 1., -1.])
    """

    def __init__(self, eps: float, shift: Tensor | None = None) -> None:
        super().__init__()
        self.eps = eps
        self.shift = None if shift is None else nn.Parameter(shift)

    def forward(self, x: Tensor) -> Tensor:
        out = F.rms_norm(x, x.shape[-1:], None, self.eps)
        return out if self.shift is None else out + self.shift

    def extra_repr(self) -> str:
        return f"eps={self.eps}"


class UntiedEmbedding(nn.Module):
    """Looks rows up in `table`; `weight` is the matrix that others read under its name."""

    def __init__(self, weight: Tensor, factor: float = 1.0) -> None:
        super().__init__()
        self.weight = weight  # the same object: whatever else is tied to it stays so
        self.table = nn.Parameter(factor * weight.detach())

    def forward(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.table)


@dataclass(frozen=True)
class Folding:
    """What folding changes in the modules of a model; weights apart, so that a stored one can be rebuilt.

    norms: path -> (eps, whether a shift stays). untied: paths of embeddings that get a table of their own.
    factored: paths of embeddings that are products (`factoring`).
    """

    norms: Mapping[str, tuple[float, bool]] = field(default_factory=dict)
    untied: tuple[str, ...] = ()
    factored: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        norms = {path: list(kept) for path, kept in self.norms.items()}
        return {"norms": norms, "untied": list(self.untied), "factored": list(self.factored)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Folding:
        """What `to_dict` wrote."""
        norms = {str(p): (float(eps), bool(kept)) for p, (eps, kept) in data["norms"].items()}
        return cls(norms, tuple(map(str, data["untied"])), tuple(map(str, data.get("factored", ()))))

    def rebuild(self, model: nn.Module) -> nn.Module:
        """A copy of the model with the folded modules in place; its weights are to be loaded."""
        copied = eval_copy(model)
        made: dict[int, UntiedEmbedding] = {}
        for path in self.untied:  # embeddings that share their table still do
            old: Any = copied.get_submodule(path)
            new = UntiedEmbedding(old.weight, row_factor(old) or 1.0)
            _set(copied, path, made.setdefault(id(old.weight), new.requires_grad_(old.weight.requires_grad)))
        for path, (eps, shifted) in self.norms.items():
            old = copied.get_submodule(path)
            shift = old.weight.detach().clone() if shifted else None
            _set(copied, path, PlainNorm(eps, shift).requires_grad_(old.weight.requires_grad))
        for layer in copied.modules():
            if isinstance(layer, nn.TransformerEncoderLayer) and isinstance(layer.norm1, PlainNorm):
                layer.activation_relu_or_gelu = 0  # torch's fused kernel takes out a mean: leave it alone
        return factored(copied.train(model.training), self.factored)


@checked
def fold(model: nn.Module, example: Any, kwargs: Mapping[str, Any] | None = None) -> nn.Module:
    """The same function with plain norms; `Unsupported`, with the reason, where it cannot be had.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    >>> folded = fold(net, torch.zeros(2, 3))
    >>> x = torch.randn(5, 3)
    >>> folded[1], torch.allclose(folded(x), net(x), atol=1e-5)
    (PlainNorm(eps=1e-05), True)
    """
    return find_folding(model, example, kwargs)[1]


def find_folding(
    model: nn.Module, example: Any, kwargs: Mapping[str, Any] | None = None, claimed: Symmetry | None = None
) -> tuple[Folding, nn.Module]:
    """How the model folds, and the folded model. claimed: the model's symmetry, proved or not, if known."""
    check_model(model)
    given = Example.of(example, kwargs)
    plain, gains = _with_norms_of_torch(model)
    symmetry = claimed if claimed is not None and plain is model else _symmetry(plain, given)
    untied = _tied_tables(plain, symmetry.traced)
    if untied:
        plain = Folding(untied=untied).rebuild(plain)
        symmetry = _symmetry(plain, given)
    norms = find_gained_norms(symmetry, plain)
    streams = [a for a in symmetry.axes if any(m.param == n.gain for n in norms for m in a.members)]
    if not norms or not streams:
        raise Unsupported("the model has no norm with a gain that only weights read", so="nothing to fold")
    shifted = {n.path: bool(n.shift) and not all(r.bias for r in n.readers) for n in norms}
    folding = Folding({n.path: (n.eps, shifted[n.path]) for n in norms}, untied)
    folded = folding.rebuild(model)
    factors = {path: row_factor(model.get_submodule(path)) or 1.0 for path in untied}
    state = _folded_state(plain, symmetry, streams, norms, shifted, factors, gains)
    for name, gain in gains.items():  # of norms that stay as they are
        state[name] += named_tensors(model)[name].detach() - gain
    with torch.no_grad():
        for name, tensor in named_tensors(folded).items():
            if name in state:
                tensor.copy_(state[name])
    assert_same(model, folded, given, state)
    return folding, folded


def _symmetry(model: nn.Module, given: Example) -> Symmetry:
    return Symmetry(export(model, given.args, given.kwargs))


def _folded_state(
    plain: nn.Module,
    symmetry: Symmetry,
    streams: list[Axis],
    norms: list[GainedNorm],
    shifted: Mapping[str, bool],
    factors: Mapping[str, float],
    gains: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """The weights of the folded model in float64, by all their names.

    factors: of tables of their own; gains: those that the dtype of the model would round.
    """
    named = named_tensors(plain)
    state = {name: t.detach().to(torch.float64) for name, t in named.items() if t.is_floating_point()}
    state |= gains
    for path, factor in factors.items():
        state[f"{path}.table"] = factor * state[f"{path}.weight"]
    for axis in streams:
        _centre(axis, [n for n in norms if any(m.param == n.gain for m in axis.members)], state)
    for norm in norms:
        _fold_norm(norm, state, shifted[norm.path])
    read = {id(named[name]): name for name in symmetry.traced.weights.values() if name in named}
    for name, tensor in named.items():  # a tied weight has several names, and the graph knows one of them
        if name in state and id(tensor) in read:
            state[name] = state[read[id(tensor)]]
    return state


def _with_norms_of_torch(model: nn.Module) -> tuple[nn.Module, dict[str, Tensor]]:
    """Modules that compute an RMS norm op by op as `nn.RMSNorm`; their gains in float64, by weight."""
    found = {path: known for path, m in model.named_modules() if (known := as_rms_norm(m)) is not None}
    if not found:
        return model, {}
    copied, gains = eval_copy(model, share=True), dict[str, Tensor]()
    for path, (norm, constant) in found.items():
        weight = copied.get_submodule(path).get_parameter("weight")
        gains[f"{path}.weight"] = weight.detach().double() + constant
        if not constant:
            norm.weight = weight
        _set(copied, path, norm)
    return copied, gains


def _tied_tables(model: nn.Module, traced: Traced) -> tuple[str, ...]:
    """Embeddings whose table is looked up and read as a matrix too."""
    uses: dict[str, set[bool]] = {}  # a tied weight may stand in the graph under several names
    for node in traced.graph.nodes:
        name = traced.weights.get(node.name, "")
        uses.setdefault(name, set()).update(facts(user).looks_up for user in node.users)
    named = named_tensors(model)
    tied = {id(named[name]) for name, found in uses.items() if name in named and len(found) == 2}
    modules = model.named_modules(remove_duplicate=False)
    return tuple(path for path, m in modules if id(getattr(m, "weight", None)) in tied and row_factor(m))


def _centre(axis: Axis, norms: list[GainedNorm], state: dict[str, Tensor]) -> None:
    """M W for everything that writes to the stream of norms that subtract the mean."""
    if not any(n.centres for n in norms):
        return
    # A weight that reads one norm may write to the stream with its other dimension.
    behind = {(reader.weight, reader.dim) for n in norms for reader in n.readers}
    own = {name for n in norms for name in (n.gain, n.shift)}
    for member in axis.members:
        name = member.param
        if name in own or (name, member.dim) in behind:
            continue
        if member.role == "in":
            raise Unsupported(
                f"{name} reads the stream without a norm before it",
                so="its mean counts, and cannot be taken out of the stream",
            )
        state[name] = state[name] - state[name].mean(member.dim, keepdim=True)


def _fold_norm(norm: GainedNorm, state: dict[str, Tensor], shifted: bool) -> None:
    gain, shift = state[norm.gain], state.get(norm.shift)
    if shifted:
        if bool((gain.abs() < 1e-6 * gain.abs().max()).any()):
            raise Unsupported(f"{norm.gain} is zero for a channel whose shift is read without a bias")
        assert shift is not None
        state[f"{norm.path}.shift"] = shift / gain
    for reader in norm.readers:
        weight = state[reader.weight].movedim(reader.dim, -1)
        channel = torch.from_numpy(reader.channel).to(gain.device)
        here = channel >= 0
        if shift is not None and not shifted:
            read = weight @ torch.where(here, shift[channel], 0.0)
            window = read.reshape(len(read), -1)  # of a convolution; 1 of a linear layer
            state[reader.bias] = state[reader.bias] + window.sum(1)
        weight = weight * torch.where(here, gain[channel], 1.0)
        state[reader.weight] = weight.movedim(-1, reader.dim)


def assert_same(
    model: nn.Module, other: nn.Module, given: Example, state: Mapping[str, Tensor] = MappingProxyType({})
) -> None:
    """`Unsupported` unless both compute the same. state: weights of the other in float64."""
    pairs = outputs_of_both(model, other, given, state)
    errors = [
        float((a - b).abs().max() / a.abs().max().clamp_min(1e-30)) if a.numel() else math.inf
        for a, b in zip(*pairs, strict=True)
    ]
    off = max(errors, key=lambda x: (math.isnan(x), x), default=math.inf)
    if not off <= TOLERANCE:
        raise Unsupported(f"the folded model is off by {off:.1e}", so="its norms stay as they are")


def outputs_of_both(
    model: nn.Module, other: nn.Module, given: Example, state: Mapping[str, Tensor] = MappingProxyType({})
) -> list[list[Tensor]]:
    """What both give in float64, with every cast inside raised: no rounding hides a difference.

    Where one also gives what it keeps for the next token, the first of what they give.
    """
    twin = eval_copy(other).double()
    with torch.no_grad():
        for name, tensor in named_tensors(twin).items():
            if name in state:
                tensor.copy_(state[name])
    try:
        found = [list(run_module(m, given).outputs) for m in (eval_copy(model).double(), twin)]
    except Exception as error:  # kernels that refuse float64 complain in their own ways
        raise Unsupported(
            f"the folded model cannot be checked in float64: {first_line(error)}",
            so="its norms stay as they are",
        ) from error
    return found if len(found[0]) == len(found[1]) else [outputs[:1] for outputs in found]


def _set(model: nn.Module, path: str, module: nn.Module) -> None:
    parent, _, leaf = path.rpartition(".")
    setattr(model.get_submodule(parent), leaf, module)


__all__ = ["Folding", "PlainNorm", "UntiedEmbedding", "find_folding", "fold"]
