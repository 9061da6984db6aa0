"""How alike two networks are as functions: their outputs on the same inputs, for classifiers and for
policies.

Sections 3.3 and 3.5 of Yellapragada 2020. An output is a vector of logits over classes or discrete actions;
every number is a mean over inputs and comes with a bootstrap interval over inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from intertwine.checks import checked
from intertwine.comparing.collecting import Runner
from intertwine.comparing.features import check_finite
from intertwine.data.batches import Batches
from intertwine.errors import DataError, InputError

Kind = Literal["logits", "probabilities", "log-probabilities"]


@dataclass(frozen=True)
class Estimate:
    """A mean over inputs, with a bootstrap interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class FunctionalSimilarity:
    """Two networks as functions.

    jsd: Jensen-Shannon divergence, 0 to ln 2 (natural log). disagreement: share of inputs with another top
    class. spearman: rank correlation of the class probabilities, mean over inputs (None if every output ties
    all classes). logit_distance: |Z_a - Z_b|, logits centred per input and scaled to unit norm over all
    inputs, 0 to 2: no temperature changes it. Accuracies are None without labels.
    """

    inputs: int
    classes: int
    jsd: Estimate
    disagreement: Estimate
    spearman: Estimate | None
    logit_distance: Estimate | None
    accuracy_a: float | None = None
    accuracy_b: float | None = None
    accuracy_difference: Estimate | None = None
    tied_inputs: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    COLUMNS: ClassVar = ("", "value", "low", "high", "meaning")

    def rows(self) -> list[list[object]]:
        """A row a number that is known, with what it means."""
        meanings: list[tuple[str, Estimate | float | None, str]] = [
            ("Jensen-Shannon divergence", self.jsd, "0 same, 0.693 (ln 2) disjoint"),
            ("disagreement", self.disagreement, "share of inputs with another top class"),
            ("Spearman", self.spearman, "rank correlation of class probabilities, mean over inputs"),
            ("logit distance", self.logit_distance, "0 same, 2 opposite; no temperature changes it"),
            ("accuracy of A", self.accuracy_a, ""),
            ("accuracy of B", self.accuracy_b, ""),
            ("accuracy, B minus A", self.accuracy_difference, ""),
        ]
        rows: list[list[object]] = []
        for name, value, meaning in meanings:
            if isinstance(value, Estimate):
                rows.append([name, value.value, value.low, value.high, meaning])
            elif value is not None:
                rows.append([name, value, None, None, meaning])
        return rows


class Outputs:
    """Per-input statistics of two networks' outputs, added batch by batch; `a + b` joins shards."""

    def __init__(self, kind: Kind = "logits") -> None:
        self.kind = kind
        self.classes = 0
        self._rows: list[Tensor] = []
        self._right: list[Tensor] = []

    def update(self, a: Tensor, b: Tensor, labels: Tensor | None = None) -> None:
        """Add outputs N x K of both networks on the same inputs."""
        log_a, log_b = (
            _log_probabilities(a, self.kind, "the first outputs"),
            _log_probabilities(b, self.kind, "the second outputs"),
        )
        if log_a.shape != log_b.shape:
            raise DataError(
                f"outputs of shape {tuple(a.shape)} and {tuple(b.shape)}",
                so="functions cannot be compared",
                do="compare networks with the same number of classes, on the same inputs",
            )
        self.classes = log_a.shape[1]
        za, zb = _centred_logits(a, log_a, self.kind), _centred_logits(b, log_b, self.kind)
        columns = (
            jensen_shannon(log_a, log_b),
            (log_a.argmax(1) != log_b.argmax(1)).double(),
            rank_correlation(log_a, log_b),
            za.square().sum(1),
            zb.square().sum(1),
            (za * zb).sum(1),
        )
        self._rows.append(torch.stack(columns, 1).cpu())
        if labels is not None:
            if len(labels) != len(log_a):
                raise DataError(f"{len(log_a)} outputs but {len(labels)} labels")
            truth = labels.to(log_a.device)
            self._right.append(
                torch.stack([log_a.argmax(1) == truth, log_b.argmax(1) == truth], 1).double().cpu()
            )

    def __add__(self, other: Outputs) -> Outputs:
        if self.kind != other.kind or (self._rows and other._rows and self.classes != other.classes):
            raise InputError("these outputs do not belong together")
        total = Outputs(self.kind)
        total.classes = self.classes or other.classes
        total._rows, total._right = self._rows + other._rows, self._right + other._right
        return total

    def result(self, *, resamples: int = 500, level: float = 0.95, seed: int = 0) -> FunctionalSimilarity:
        """The numbers with intervals; inputs are resampled with replacement."""
        if not self._rows:
            raise DataError("no outputs to compare")
        rows = torch.cat(self._rows).numpy()
        right = torch.cat(self._right).numpy() if self._right else None
        draws = np.random.default_rng(seed).multinomial(
            len(rows), np.full(len(rows), 1 / len(rows)), resamples
        )

        def estimate(statistic: Callable[[np.ndarray], np.ndarray]) -> Estimate:
            """`statistic` maps weights (draws x inputs) to values."""
            values = statistic(draws.astype(float))
            low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
            return Estimate(float(statistic(np.ones((1, len(rows))))[0]), float(low), float(high))

        def mean(column: np.ndarray) -> Estimate:
            return estimate(lambda weights: weights @ column / weights.sum(1))

        defined = ~np.isnan(rows[:, 2])
        ranks = np.where(defined, rows[:, 2], 0.0)
        varies = rows[:, 3].sum() > 0 and rows[:, 4].sum() > 0
        return FunctionalSimilarity(
            inputs=len(rows),
            classes=self.classes,
            jsd=mean(rows[:, 0]),
            disagreement=mean(rows[:, 1]),
            spearman=estimate(lambda w: w @ ranks / np.maximum(w @ defined, 1)) if defined.any() else None,
            logit_distance=estimate(lambda w: _distance(w, rows[:, 3:])) if varies else None,
            accuracy_a=None if right is None else float(right[:, 0].mean()),
            accuracy_b=None if right is None else float(right[:, 1].mean()),
            accuracy_difference=None if right is None else mean(right[:, 1] - right[:, 0]),
            tied_inputs=int((~defined).sum()),
        )


@checked
def functional_similarity(
    model_a: nn.Module, model_b: nn.Module, data: Any, *, kind: Kind = "logits", seed: int = 0
) -> FunctionalSimilarity:
    """Compare two networks as functions on `data`; policies over discrete actions are the same thing.

    >>> net = nn.Linear(3, 4)
    >>> result = functional_similarity(net, net, torch.randn(8, 3))
    >>> round(result.jsd.value, 12), result.disagreement.value
    (0.0, 0.0)
    """
    outputs = Outputs(kind)
    a, b = Runner(model_a), Runner(model_b)
    for inputs, labels in Batches(data, device=a.device):
        outputs.update(a.run(inputs, only=())[1], b.run(inputs, only=())[1], labels)
    return outputs.result(seed=seed)


def jensen_shannon(log_p: Tensor, log_q: Tensor, *, base: float = math.e) -> Tensor:
    """(KL(p | m) + KL(q | m)) / 2 with m = (p + q) / 2, for each row of log-probabilities; at most log 2.

    >>> one, two = torch.tensor([[1.0, 0.0]]).log(), torch.tensor([[0.0, 1.0]]).log()
    >>> round(float(jensen_shannon(one, two, base=2)), 6)
    1.0
    """
    p, q = log_p.exp(), log_q.exp()
    log_m = torch.logaddexp(log_p, log_q) - math.log(2)
    terms = (
        torch.special.xlogy(p, p)
        - p * log_m.clamp(min=-1e30)
        + torch.special.xlogy(q, q)
        - q * log_m.clamp(min=-1e30)
    )
    result: Tensor = (terms.sum(1) / 2).clamp(min=0) / math.log(base)
    return result


def rank_correlation(a: Tensor, b: Tensor) -> Tensor:
    """Spearman correlation of each row of `a` with that of `b`; ties share a rank, NaN where a row ties
    everything."""
    from scipy.stats import rankdata

    ranks = [torch.from_numpy(rankdata(side.cpu().numpy(), axis=1)).to(a.device) for side in (a, b)]
    x, y = (r - r.mean(1, keepdim=True) for r in ranks)
    norm = (x.square().sum(1) * y.square().sum(1)).sqrt()
    return torch.where(norm > 0, (x * y).sum(1) / norm.where(norm > 0, torch.ones_like(norm)), torch.nan)


def _distance(weights: np.ndarray, squares: np.ndarray) -> np.ndarray:
    aa, bb, ab = (weights @ squares).T
    result: np.ndarray = np.sqrt(np.maximum(2 - 2 * ab / np.sqrt(aa * bb), 0))
    return result


def _log_probabilities(outputs: Tensor, kind: Kind, name: str) -> Tensor:
    if not isinstance(outputs, Tensor) or outputs.ndim != 2 or outputs.shape[1] < 2:
        shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise DataError(
            f"outputs of shape {shape} are not one distribution for each input",
            where=name,
            so="functions cannot be compared",
            do="give a network whose output is inputs x classes (or actions), with at least two classes",
        )
    value = outputs.detach().double()
    if kind == "log-probabilities":
        return value
    check_finite(value, name)
    if kind == "logits":
        return torch.log_softmax(value, 1)
    if kind == "probabilities":
        if (value < 0).any() or (value.sum(1) - 1).abs().max() > 1e-3:
            raise DataError("rows are not probabilities", where=name, do="use kind='logits'")
        return (value / value.sum(1, keepdim=True)).log()
    raise InputError(f"no kind of output named {kind!r}", do="use logits, probabilities or log-probabilities")


def _centred_logits(outputs: Tensor, log_p: Tensor, kind: Kind) -> Tensor:
    """Logits with zero mean for each input; probabilities of zero have no logit and count as 1e-30."""
    logits = outputs.detach().double() if kind == "logits" else log_p.clamp(min=math.log(1e-30))
    return logits - logits.mean(1, keepdim=True)
