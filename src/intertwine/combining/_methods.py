"""Averages of weights that people expect: one function a method, theta_1 ... theta_n -> theta.

average   sum_k s_k theta_k
slerp     along the great circle between two, tensor by tensor
task      base + scale * sum_k s_k (theta_k - base)                        Ilharco et al. 2022
ties      the same of trimmed differences that agree in sign               Yadav et al. 2023
fisher    sum_k s_k F_k theta_k / sum_k s_k F_k                            Matena and Raffel 2021
soup      the average of those models that raise the accuracy, in turn     Wortsman et al. 2022
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from intertwine.aligning import mix
from intertwine.combining._distil import scores_of
from intertwine.data import evaluate
from intertwine.data.batches import Batches
from intertwine.data.evaluation import like_inputs
from intertwine.errors import DataError, InputError
from intertwine.graph.copying import copy_model

Weights = dict[str, Tensor]
_LEAST = 1e-10  # of the Fisher information, so that weights that nothing sees are averaged


@dataclass(frozen=True)
class Settings:
    """What the methods ask for besides models: shares, the common start, data, strengths."""

    shares: Sequence[float]
    base: nn.Module | None = None
    data: Any = None
    scale: float = 1.0
    density: float = 0.2
    limit: int = 256
    seed: int = 0
    mended: Callable[[nn.Module], nn.Module] | None = None  # what is done about the statistics of an average


Method = Callable[[Sequence[nn.Module], Settings], nn.Module]
METHODS: dict[str, Method] = {}


def method(function: Method) -> Method:
    """Register a way of averaging under its name."""
    METHODS[function.__name__] = function
    return function


def floats(model: nn.Module) -> Weights:
    """Parameters and buffers that are numbers, in float64."""
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {name: t.detach().double() for name, t in named.items() if t.is_floating_point()}


def with_weights(like: nn.Module, weights: Mapping[str, Tensor]) -> nn.Module:
    """A copy in eval mode that has these weights."""
    out = copy_model(like).eval()
    with torch.no_grad():
        for name, tensor in {**dict(out.named_parameters()), **dict(out.named_buffers())}.items():
            if name in weights:
                tensor.copy_(weights[name])
    return out


@method
def average(models: Sequence[nn.Module], settings: Settings) -> nn.Module:
    """sum_k s_k theta_k."""
    return mix(models, settings.shares)


@method
def slerp(models: Sequence[nn.Module], settings: Settings) -> nn.Module:
    """sin((1-t) w) / sin(w) A + sin(t w) / sin(w) B, w the angle between A and B; the line where w is 0."""
    if len(models) != 2:
        raise InputError(f"slerp goes between two models, not {len(models)}", do="use --how average")
    t, out = settings.shares[1], Weights()
    a, b = (floats(m) for m in models)
    for name, left in a.items():
        right = b[name]
        cosine = (left * right).sum() / (left.norm() * right.norm()).clamp_min(1e-300)
        angle = torch.arccos(cosine.clamp(-1, 1))
        if torch.sin(angle) < 1e-6:
            out[name] = (1 - t) * left + t * right
        else:
            out[name] = (torch.sin((1 - t) * angle) * left + torch.sin(t * angle) * right) / torch.sin(angle)
    return with_weights(models[0], out)


@method
def task(models: Sequence[nn.Module], settings: Settings) -> nn.Module:
    """base + scale * sum_k s_k (theta_k - base)."""
    base, changes = _changes(models, settings)
    total = {n: sum(s * c[n] for s, c in zip(settings.shares, changes, strict=True)) for n in base}
    return with_weights(models[0], {n: base[n] + settings.scale * total[n] for n in base})


@method
def ties(models: Sequence[nn.Module], settings: Settings) -> nn.Module:
    """Trim each difference to its largest `density`, take the sign of the sum, average what agrees."""
    base, changes = _changes(models, settings)
    out = Weights()
    for name, start in base.items():
        stack = torch.stack([_trimmed(change[name], settings.density) for change in changes])
        shares = torch.tensor(settings.shares, dtype=stack.dtype, device=stack.device).reshape(
            -1, *[1] * (stack.dim() - 1)
        )
        sign = (shares * stack).sum(0).sign()
        agree = (stack.sign() == sign) & (stack != 0)
        weight = (shares * agree).sum(0)
        mean = (shares * stack * agree).sum(0) / weight.clamp_min(1e-300)
        out[name] = start + settings.scale * mean
    return with_weights(models[0], out)


@method
def fisher(models: Sequence[nn.Module], settings: Settings) -> nn.Module:
    """sum_k s_k F_k theta_k / sum_k s_k F_k, F_k the diagonal Fisher information of model k on inputs."""
    if settings.data is None:
        raise InputError("fisher needs inputs", do="give train_data")
    information = [fisher_information(m, settings) for m in models]
    weights = [floats(m) for m in models]
    out = Weights()
    for name in weights[0]:
        values = torch.stack([w[name] for w in weights])
        parts = [
            share * f.get(name, values.new_zeros(())) + share * _LEAST
            for share, f in zip(settings.shares, information, strict=True)
        ]
        total = torch.stack([torch.broadcast_to(p, weights[0][name].shape) for p in parts])
        total = total / total.amax(0)  # so that no product overflows
        out[name] = (total * values).sum(0) / total.sum(0)
    return with_weights(models[0], out)


@method
def soup(models: Sequence[nn.Module], settings: Settings) -> nn.Module:
    """Greedy: from the best model on, add each that does not lower the accuracy on labelled train_data.

    What is judged is the average as it will be, with its statistics mended; one model alone stays as it is.
    """
    if settings.data is None:
        raise InputError("a soup needs labelled inputs to choose by", do="give train_data with labels")
    score = {k: evaluate(model, settings.data).accuracy for k, model in enumerate(models)}
    order = sorted(score, key=lambda k: -score[k])
    chosen, best, mixed = [order[0]], score[order[0]], copy_model(models[order[0]]).eval()
    for k in order[1:]:
        trial = mix([models[j] for j in (*chosen, k)], [1 / (len(chosen) + 1)] * (len(chosen) + 1))
        trial = trial if settings.mended is None else settings.mended(trial)
        found = evaluate(trial, settings.data).accuracy
        if found >= best:
            chosen, best, mixed = [*chosen, k], found, trial
    return mixed


def fisher_information(model: nn.Module, settings: Settings) -> Weights:
    """E over inputs and over the model's own labels of (d log p / d theta)^2; no labels are read."""
    own = copy_model(model).eval()
    generator = torch.Generator().manual_seed(settings.seed)
    total = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in own.named_parameters()}
    count = 0
    device = like_inputs(own).device
    for inputs, _ in Batches(settings.data, batch=1, limit=settings.limit, device=device):
        scores = scores_of(own, inputs).log_softmax(-1)
        scores = scores.reshape(-1, scores.shape[-1])
        _assert_finite("what a network computes", [scores])
        drawn = torch.multinomial(scores.detach().exp().cpu(), 1, generator=generator).to(device)
        own.zero_grad()
        scores.gather(1, drawn).sum().backward()
        for name, p in own.named_parameters():
            if p.grad is not None:
                total[name] += p.grad.double().square()
        count += 1
    _assert_finite("the squared gradient of a network", total.values())
    return {name: value / max(count, 1) for name, value in total.items()}


def _assert_finite(what: str, values: Iterable[Tensor]) -> None:
    if not all(bool(value.isfinite().all()) for value in values):
        raise DataError(
            f"{what} on these inputs is not finite",
            so="it has no Fisher information there",
            do="prepare the inputs as the networks expect them",
        )


def _changes(models: Sequence[nn.Module], settings: Settings) -> tuple[Weights, list[Weights]]:
    if settings.base is None:
        raise InputError(
            "task arithmetic needs the model that the others were trained from",
            do="give base=MODEL (--base FILE), or use how='average'",
        )
    base = floats(settings.base)
    found = [floats(m) for m in models]
    if any({n: t.shape for n, t in base.items()} != {n: t.shape for n, t in each.items()} for each in found):
        raise InputError("the base has other weights than the models", do="give the model that they share")
    return base, [{name: weights[name] - base[name] for name in base} for weights in found]


def _trimmed(change: Tensor, density: float) -> Tensor:
    """The largest `density` of the entries; the others are zero."""
    keep = max(1, round(density * change.numel()))
    least = change.abs().flatten().kthvalue(change.numel() - keep + 1).values
    return torch.where(change.abs() >= least, change, 0.0)
