"""The measures: what each is invariant to, its range, how it treats pixels; `similarity` computes any one.

Every measure is larger for more similar features. A *covariance* measure reads moments (streams, any number
of inputs); a *kernel* measure prepares a summary of each side (N x N) and compares the two. Linear CKA is
both, and takes the smaller side.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from torch import Tensor

from intertwine.checks import checked
from intertwine.comparing import covariance, kernels, neighbours
from intertwine.comparing.features import (
    Array,
    Pixels,
    as_features,
    check_paired,
    check_pixels,
    common_size,
    resize,
    rows,
)
from intertwine.comparing.moments import PairMoments
from intertwine.errors import InputError, NotFound
from intertwine.ir.groups import GENERAL, ORTHOGONAL, Group
from intertwine.progress import Progress

F = TypeVar("F", bound=Callable[..., Any])
MEASURES: dict[str, Measure] = {}
_ROTATION = Group(linear=ORTHOGONAL), "one common scale, translations"
_LINEAR = Group(linear=GENERAL), "translations"
_MONOMIAL = Group(permutation=True, positive=1), "translations"
_WEIGHTED = Group(permutation=True), "one common scale, translations; linear maps of the wider side"
_SIZE = "one common scale"


@dataclass(frozen=True)
class Measure:
    """One measure of representational similarity; larger is more similar.

    invariant: the group of channels that it does not see, and in words what it does not see besides.
    chosen: `auto` may take it for a layer; it takes the one of the smallest group that contains the layer's.
    """

    name: str
    title: str
    invariant: tuple[Group, str]
    range: tuple[float, float]
    pixels: Pixels
    source: str
    from_moments: Callable[..., float] | None = None
    prepare: Callable[..., Tensor] | None = None
    between: Callable[..., float] | None = None
    needs_precision: bool = False
    streamed: Pixels = "pool"  # treatment of maps when moments are streamed over all layers of two networks
    chosen: bool = False
    debiased: bool = False  # it reads the sums of squares that debiasing needs

    @property
    def group(self) -> Group:
        """What acts on channels without changing the value."""
        return self.invariant[0]

    @property
    def invariance(self) -> str:
        """What does not change the value, in words."""
        return ", ".join(part for part in (str(self.group), self.invariant[1]) if part)

    @property
    def streams(self) -> bool:
        """Whether moments suffice, so that any number of inputs can be streamed."""
        return self.from_moments is not None

    @property
    def options(self) -> frozenset[str]:
        """Names of the keyword options of this measure."""
        functions = [f for f in (self.from_moments, self.prepare, self.between) if f is not None]
        return frozenset(_keywords(functions)) - {"progress"}

    def check_options(self, options: dict[str, Any]) -> None:
        """Raise InputError for an option that this measure does not have."""
        unknown = sorted(set(options) - self.options)
        if unknown:
            known = ", ".join(sorted(self.options)) or "none"
            raise InputError(f"{self.name} has no option {unknown[0]!r}", do=f"its options: {known}")

    def of_moments(self, moments: PairMoments, **options: Any) -> float:
        """The value from streamed moments."""
        if self.from_moments is None:
            raise InputError(f"{self.name} cannot be computed from moments", do="use similarity(x, y, ...)")
        return self.from_moments(moments, **options)

    def summary(self, x: Tensor, **options: Any) -> Tensor:
        """What this measure keeps of one side: a kernel, ranks of distances, or neighbours."""
        if self.prepare is None:
            raise InputError(f"{self.name} has no kernel form")
        return self.prepare(x, **_only(self.prepare, options))

    def between_summaries(self, a: Tensor, b: Tensor, **options: Any) -> float:
        """The value from two summaries."""
        if self.between is None:
            raise InputError(f"{self.name} has no kernel form")
        return self.between(a, b, **_only(self.between, options))


def _keywords(functions: list[Callable[..., Any]]) -> list[str]:
    kinds = (inspect.Parameter.KEYWORD_ONLY,)
    names = []
    for function in functions:
        fixed = function.keywords if isinstance(function, partial) else {}
        parameters = inspect.signature(function).parameters.values()
        names += [p.name for p in parameters if p.kind in kinds and p.name not in fixed]
    return names


def _only(function: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in _keywords([function])}


_KORNBLITH, _GODFREY = "Kornblith et al. 2019", "Godfrey et al. 2022"
_biased = partial(kernels.kernel_cka, debiased=False)
_debiased = partial(kernels.kernel_cka, debiased=True)


def add_measure(measure: Measure) -> Measure:
    """Make a measure known by its name to `similarity`, `compare` and the command line."""
    if measure.name in MEASURES or measure.name == "auto":
        raise InputError(f"there is a measure named {measure.name!r} already")
    MEASURES[measure.name] = measure
    return measure


def measure(
    name: str,
    group: Group,
    *,
    title: str = "",
    also: str = "",
    range: tuple[float, float] = (0, 1),
    pixels: Pixels = "samples",
    source: str = "",
    prepare: Callable[..., Tensor] | None = None,
    **more: Any,
) -> Callable[[F], F]:
    """Register a function of `PairMoments`, or, with `prepare`, of what it makes of each side, as a measure.

    >>> from intertwine.comparing.moments import PairMoments
    >>> @measure("first-moment", Group(), pixels="pool")
    ... def first_moment(moments: PairMoments) -> float:
    ...     return 1.0
    >>> MEASURES.pop("first-moment").invariance
    'trivial'
    """

    def register(function: F) -> F:
        parts = (function, None, None) if prepare is None else (None, prepare, function)
        add_measure(Measure(name, title or name, (group, also), range, pixels, source, *parts, **more))
        return function

    return register


for _each in (
    Measure(
        "cka", "linear CKA", _ROTATION, (0, 1), "flatten", _KORNBLITH,
        covariance.linear_cka, kernels.linear_kernel, _biased,
    ),
    Measure(
        "cka-debiased", "debiased linear CKA", _ROTATION, (-1, 1), "flatten", "Nguyen et al. 2021",
        covariance.debiased_linear_cka, kernels.linear_kernel, _debiased, debiased=True,
    ),
    Measure(
        "cka-rbf", "RBF CKA", _ROTATION, (-1, 1), "flatten", _KORNBLITH,
        None, kernels.rbf_kernel, kernels.kernel_cka,
    ),
    Measure(
        "cca", "mean CCA", _LINEAR, (0, 1), "samples", "Hotelling 1936",
        covariance.mean_cca, needs_precision=True, chosen=True,
    ),
    Measure(
        "cca-squared", "mean squared CCA", _LINEAR, (0, 1), "samples", _KORNBLITH,
        covariance.mean_squared_cca, needs_precision=True,
    ),
    Measure(
        "svcca", "SVCCA", _ROTATION, (0, 1), "samples", "Raghu et al. 2017",
        covariance.svcca, needs_precision=True,
    ),
    Measure(
        "pwcca", "PWCCA", _WEIGHTED, (0, 1), "samples", "Morcos et al. 2018",
        covariance.pwcca, needs_precision=True,
    ),
    Measure(
        "procrustes", "orthogonal Procrustes", (_ROTATION[0], _SIZE), (0, 1), "samples",
        f"Ding et al. 2021; {_GODFREY}", covariance.orthogonal_procrustes, streamed="samples", chosen=True,
    ),
    Measure(
        "procrustes-permutation", "permutation Procrustes", (_WEIGHTED[0], _SIZE), (0, 1),
        "samples", "Williams et al. 2021", covariance.permutation_procrustes, streamed="samples",
        chosen=True,
    ),
    Measure(
        "procrustes-grelu", "G_ReLU-Procrustes", (_MONOMIAL[0], ""), (0, 1),
        "samples", f"{_GODFREY}, Definition 5.2", covariance.grelu_procrustes, streamed="samples",
        chosen=True,
    ),
    Measure(
        "cka-grelu", "G_ReLU-CKA, max kernel", _MONOMIAL, (-1, 1), "flatten",
        f"{_GODFREY}, Definition 5.3", None, kernels.max_kernel, _debiased,
    ),
    Measure(
        "cka-grelu-laplace", "G_ReLU-CKA, Laplace kernel", _MONOMIAL, (-1, 1), "flatten",
        f"{_GODFREY}, eq. 5.6", None, kernels.laplace_kernel, _debiased,
    ),
    Measure(
        "rsa", "RSA, Spearman", _ROTATION, (-1, 1), "flatten", "Kriegeskorte et al. 2008",
        None, neighbours.distance_ranks, neighbours.rank_correlation,
    ),
    Measure(
        "knn", "mutual k nearest neighbours", _ROTATION, (0, 1), "flatten", "Huh et al. 2024",
        None, neighbours.nearest, neighbours.overlap,
    ),
):  # fmt: skip
    add_measure(_each)


def measure_for(group: Group | str) -> str:
    """The measure of the smallest group that contains the one given, which may be given as it prints.

    >>> measure_for(Group(linear="general linear")), measure_for("positive monomial in each of 4 blocks")
    ('cca', 'procrustes-grelu')
    """
    wanted = Group.parse(group)
    fit = [m for m in MEASURES.values() if m.chosen and wanted <= m.group]
    least = [m for m in fit if not any(n.group <= m.group and not m.group <= n.group for n in fit)]
    return least[0].name


def find_measure(name: str) -> Measure:
    """The measure of that name; NotFound lists the names."""
    if name not in MEASURES:
        raise NotFound(f"no measure named {name!r}", do=f"choose one of {', '.join(MEASURES)}")
    return MEASURES[name]


@checked
def similarity(
    x: Array,
    y: Array,
    measure: str = "cka",
    *,
    pixels: Pixels | None = None,
    group: Group | str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> float:
    """How alike two sets of features of the same inputs are; larger is more alike.

    `x` and `y`: N x C or N x C x H x W, tensors or arrays, widths and spatial sizes may differ. `pixels`
    overrides the measure's treatment of maps (`MEASURES[name].pixels`). `measure="auto"` with the `group` of
    the axis takes the measure of that group. Options: `threshold`, `debiased` (cka-rbf), `variance` (svcca),
    `centre` (CCA, Procrustes), `c` (Laplace), `k` (knn).

    >>> import torch
    >>> x = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    >>> round(similarity(x, 3 * x.flip(1), "procrustes-permutation"), 6)
    1.0
    """
    if measure == "auto":
        if group is None:
            raise InputError(
                "measure='auto' needs the group of the axis", do="pass group=axis.group, or name a measure"
            )
        measure = measure_for(group)
    chosen = find_measure(measure)
    chosen.check_options(options)
    a, b = as_features(x, "the first features"), as_features(y, "the second features")
    check_paired(a, b)
    check_pixels(pixels or chosen.pixels)
    return _compute(chosen, a, b, pixels or chosen.pixels, progress, options)


def _compute(
    chosen: Measure,
    a: Tensor,
    b: Tensor,
    pixels: Pixels,
    progress: Progress | None,
    options: dict[str, Any],
) -> float:
    if pixels == "pool":
        a, b = rows(a, "pool"), rows(b, "pool")
    elif pixels == "samples":
        size = common_size(tuple(a.shape[2:]), tuple(b.shape[2:]))
        a, b = rows(resize(a, size), "samples"), rows(resize(b, size), "samples")
    widths = a[0].numel(), b[0].numel()
    if chosen.streams and (chosen.prepare is None or max(widths) <= len(a)):
        if chosen.needs_precision and chosen.name != "svcca" and len(a) <= max(widths):
            warnings.warn(
                f"{chosen.title} of {len(a)} rows and {max(widths)} channels is 1 by construction",
                stacklevel=3,
            )
        return chosen.of_moments(PairMoments.of(rows(a, "flatten"), rows(b, "flatten")), **options)
    extra = {"progress": progress, **options}
    return chosen.between_summaries(chosen.summary(a, **extra), chosen.summary(b, **extra), **options)
