"""Figures 1 to 6 of GENNI (source 004) with the hyperparameters of its appendix B.

The paper does not print the tolerance of its search, nor theta. Here theta is the default initialisation
with the paper's seed, and the tolerance is a fraction of the epsilon of the figure. Each page states epsilon
in units of the variance of the model's outputs: the paper's epsilon = 0.0025 is many times that variance
for both of its networks, so the set it draws holds the best constant function too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intertwine.recipes import Outcome, Progress, Reproduction, Setting
from intertwine.recipes.claims import Claim, holds
from intertwine.recipes.pages import add_verdict, judge

if TYPE_CHECKING:
    from torch import nn

    from intertwine.exploring import EquivalenceSample, Landscape, Objective, Topology
    from intertwine.pages.explore_page import Drawing

SOURCE = "source 004"
DIFFERS = (
    "The source prints neither theta nor the tolerance of its search: theta is the default initialisation "
    "with its "
    "seed, the tolerance a fraction of the figure's epsilon. Components are counted where the source looks."
)
QUICK = "Fewer inputs and a coarser grid."
BATCH = 256  # of both tables of appendix B


@dataclass(frozen=True)
class GenniSettings:
    """One experiment of appendix B and how the search is run in it; `quick` is (inputs, tolerance)."""

    model: str
    inputs: int
    shape: tuple[int, ...]
    lr: float
    seed: int
    tolerance: float
    max_steps: int
    quick: tuple[int, float]
    optimizer: str = "sgd"
    starts: str = "random"
    spread: float = 0.5

    def at_size(self, quick: bool) -> GenniSettings:
        """The experiment of the paper, or a small one."""
        return replace(self, inputs=self.quick[0], tolerance=self.quick[1]) if quick else self


SMALL = GenniSettings(
    "four", 16384, (1,), lr=0.015, seed=10, tolerance=1e-6, max_steps=60_000, quick=(1024, 1e-6)
)
LENET = GenniSettings(
    "lenet5", 8192, (1, 28, 28), lr=0.001, seed=0, tolerance=1e-3, max_steps=4000, quick=(32, 1.5e-3)
)
# epsilon = 1e-5 lies below the variance, where SGD from random starts stalled: the starts are near theta.
LENET_NEAR = GenniSettings(
    "lenet5", 8192, (1, 28, 28), lr=0.0003, seed=0, tolerance=5e-6, max_steps=4000,
    quick=(32, 8e-6), optimizer="adam", starts="perturbed", spread=0.1,
)  # fmt: skip


@dataclass(frozen=True)
class View:
    """A grid of one figure: dimension, bound, points along an axis, epsilon, and points when quick."""

    dim: int
    bound: float
    points: int
    epsilon: float
    quick: int


def four_parameter_net() -> nn.Module:
    """phi(x) = c relu(a x) + d relu(b x) (appendix B.2)."""
    from torch import nn

    return nn.Sequential(nn.Linear(1, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False))


def make_objective(settings: GenniSettings) -> Objective:
    """The network with the paper's seed, and Gaussian inputs."""
    import torch

    from intertwine.exploring import function_distance
    from intertwine.zoo import build

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = four_parameter_net() if settings.model == "four" else build("lenet5", classes=1)
        inputs = torch.randn(settings.inputs, *settings.shape)
    return function_distance(model, inputs)


def find_sample(
    objective: Objective, settings: GenniSettings, dim: int, progress: Progress
) -> EquivalenceSample:
    """theta_0 ... theta_dim by the paper's search."""
    from intertwine.exploring import find_equivalents

    return find_equivalents(
        objective, n=dim + 1, tolerance=settings.tolerance, optimizer=settings.optimizer,
        learning_rate=settings.lr,
        batch=BATCH, max_steps=settings.max_steps, starts=settings.starts, spread=settings.spread,
        seed=settings.seed, population=None if settings.model == "four" else dim + 1, progress=progress,
    )  # fmt: skip


def draw_view(
    objective: Objective, sample: EquivalenceSample, view: View, quick: bool, progress: Progress
) -> Landscape:
    """J on the grid of a view. Only the level is refined, except for a cheap network in two dimensions."""
    from intertwine.exploring import Grid, Refinement, evaluate, span

    points = view.quick if quick else view.points
    cheap = objective.layout.length < 100
    # LeNet-5 stops adding inputs where the side of epsilon is clear by 4 standard errors.
    screen = None if cheap else 4.0
    return evaluate(
        span(sample, view.dim), Grid.cube(view.dim, view.bound, points), objective,
        epsilon=None if cheap and view.dim == 2 else view.epsilon, screen=screen, progress=progress,
        # Most points of a grid in three and four dimensions lie near the level. There J to 10 % is enough,
        # and in four a finest grid that is interpolated where it is smooth.
        precision=0.0 if view.dim == 2 else 0.1,
        refinement=Refinement(interpolate=not cheap and view.dim == 4),
    )  # fmt: skip


def make_figure(
    name: str, title: str, parts: tuple[tuple[GenniSettings, View], ...], embedding: bool,
    folder: Path, setting: Setting, progress: Progress,
) -> Outcome:  # fmt: skip
    """Search, evaluate and draw each part, as an embedding or as it is; one page and one PNG a drawing."""
    from intertwine.errors import MissingExtra
    from intertwine.exploring import find_topology
    from intertwine.exploring.betti import betti_numbers
    from intertwine.pages.explore_page import fill_page
    from intertwine.pages.page import Page
    from intertwine.pages.png import write_png

    page, body = Page(f"{name}: {title}"), []
    files: list[Path] = []
    facts: dict[str, Any] = {}
    claims: list[Claim] = []
    for number, (paper, view) in enumerate(parts):
        settings = paper.at_size(setting.quick)
        objective = make_objective(settings)
        sample = find_sample(objective, settings, view.dim, progress)
        landscape = draw_view(objective, sample, view, setting.quick, progress)
        drawings = choose_drawings(landscape, view, embedding, setting.quick)
        measured = measure(settings, view, objective, sample, landscape)
        topologies = find_topology(landscape, [view.epsilon])
        body.append((drawings, landscape, topologies, measured))
        letter = chr(ord("a") + number) if len(parts) > 1 else ""
        if view.dim <= 3:
            over = [view.epsilon * k for k in (0.5, 1, 2, 4)]
            measured["Betti numbers (b0, b1, ...) over epsilon"] = {
                f"{e:.3g}": list(betti_numbers(landscape.inside(e))) for e in over
            }
        facts |= {f"{key} {letter}".strip(): value for key, value in measured.items()}
        facts[f"components {letter}".strip()] = topologies[0].components
        claims += _claims(name, letter, topologies[0], measured)
        for drawing in drawings:
            try:
                path = folder / f"{name}{letter}-{drawing.name}.png"
                files.append(write_png(drawing.figure, path, f"{name}{letter}, {title}. {drawing.caption}"))
            except MissingExtra as error:
                facts["PNG"] = error.what
    differs = f"{DIFFERS} {QUICK}" if setting.quick else DIFFERS
    if embedding and find_spec("umap") is None:
        differs += " UMAP is not installed: the picture has principal components instead."
    judged = judge(claims, setting, differs)
    for drawings, landscape, topologies, measured in body:
        fill_page(page, drawings, landscape, topologies, measured)
    add_verdict(page, judged, differs)
    page.lead()
    path = folder / f"{name}.html"
    page.write(path)
    return Outcome((path, *files), facts, judged, differs)


def _claims(name: str, letter: str, found: Topology, measured: dict[str, Any]) -> list[Claim]:
    """What the source reads off its figures by eye, as numbers of the grid."""
    where, size = f"figure {name[-1]}{letter}", found.points
    largest = found.largest / size if size else 0.0
    ratio = measured["epsilon / variance of outputs"]
    why = f"epsilon is {ratio:.3g} times the variance of the outputs; below 1 it tells functions apart."
    plural = "s" * (found.components != 1)
    text = f"{found.components} component{plural}, the largest with {largest:.0%} of {size:,} points; "
    text += f"epsilon is {ratio:.3g} times the variance of the outputs"
    claims = [
        holds(f"{where}: components of the epsilon-set", "there is a connected region with low loss"
              if name[-1] in "14" else "the region remains connected", text, "the largest has 90 % of the "
                  "points",
              None if not size else largest >= 0.9, why=why)
    ]  # fmt: skip
    numbers = measured.get("Betti numbers (b0, b1, ...) over epsilon")
    if name == "genni-fig2" and numbers:
        holes = {e: betti[1] for e, betti in numbers.items()}
        claims.append(
            holds("tunnels (b1) of the epsilon-set over epsilon", "An interesting feature, which is not "
                  "obviously "
                  "explained by scaling and permutation symmetries is the hole in Figure 2(b)", str(holes),
                  "b1 > 0 at the epsilon of the figure", list(holes.values())[1] > 0, why=why)
        )  # fmt: skip
    if name in ("genni-fig4", "genni-fig5"):
        claims.append(
            holds(f"{where}: share of the grid in the set", "a large and wider connected region of low "
                  "loss; a "
                  "non-empty interior", f"{found.share:.1%}, box dimension "
                                        f"{found.dimension or float('nan'):.2f}",
                  "some of the grid, and a dimension within 0.35 of the grid's",
                  None if found.dimension is None
                  else found.share > 0 and found.dimension > int(name[-1]) - 2 - 0.35, why=why)
        )  # fmt: skip
    return claims


def choose_drawings(landscape: Landscape, view: View, embedding: bool, quick: bool) -> list[Drawing]:
    """The drawings of a figure of the paper: figures 3 and 6 are embeddings, the others are not."""
    from intertwine.pages.explore_page import MAX_EMBEDDED, draw_embedding, draw_landscape

    if not embedding:
        return draw_landscape(landscape, view.epsilon, embedded=0)
    drawing = draw_embedding(landscape, view.epsilon, limit=500 if quick else MAX_EMBEDDED)
    return [drawing] if drawing else []


def measure(
    settings: GenniSettings, view: View, objective: Objective, sample: EquivalenceSample, landscape: Landscape
) -> dict[str, Any]:
    """The numbers of one part."""
    facts: dict[str, Any] = {
        "model": settings.model, "parameters": objective.layout.length, "inputs": objective.size,
        "optimizer": f"{settings.optimizer}, lr {settings.lr}, {settings.starts} starts",
        "steps": sample.facts["steps"], "restarts": sample.facts["restarts"],
        "largest J found": max(sample.losses), "epsilon": view.epsilon,
        "epsilon / variance of outputs": view.epsilon / objective.spread,
        "grid points": landscape.grid.size, "evaluations": landscape.evaluations,
        "inputs a point": landscape.facts["inputs_per_point"], "how": landscape.facts["how"],
    }  # fmt: skip
    if settings.model == "four":
        facts["largest error of the invariants"] = max(
            invariant_error(sample.theta, p) for p in sample.points
        )
    return facts


def invariant_error(theta: Any, point: Any) -> float:
    """phi is p x for x > 0 and n x for x < 0, with p and n the sums of a c over positive and negative a."""
    error = 0.0
    for sign in (1, -1):
        p, q = (float((v[:2] * v[2:])[sign * v[:2] > 0].sum()) for v in (theta, point))
        error = max(error, abs(p - q))
    return error


_PLANE = View(2, 2.0, 100, 0.0025, quick=40)
_SPACE = View(3, 2.0, 50, 0.0025, quick=20)
_FIGURES: tuple[tuple[str, str, tuple[tuple[GenniSettings, View], ...], bool], ...] = (
    ("genni-fig1", "the equivalence class of a four-parameter network in a plane", ((SMALL, _PLANE),), False),
    ("genni-fig2", "the same in three dimensions", ((SMALL, _SPACE),), False),
    (
        "genni-fig3",
        "UMAP of three and four dimensions",
        ((SMALL, View(3, 2.0, 50, 0.005, quick=20)), (SMALL, View(4, 1.0, 20, 0.1, quick=8))),
        True,
    ),
    ("genni-fig4", "LeNet-5 in a plane", ((LENET, View(2, 13.0, 100, 0.0025, quick=16)),), False),
    ("genni-fig5", "LeNet-5 in three dimensions", ((LENET, View(3, 13.0, 35, 0.0025, quick=15)),), False),
    (
        "genni-fig6",
        "UMAP of LeNet-5 in three and four dimensions",
        ((LENET, View(3, 13.0, 35, 0.0025, quick=15)), (LENET_NEAR, View(4, 1.0, 20, 1e-5, quick=6))),
        True,
    ),
)

RECIPES = tuple(
    Reproduction(
        name,
        title,
        f"{SOURCE}, figure {name[-1]}",
        partial(make_figure, name, title, parts, embedding),
        preset="paper",
    )
    for name, title, parts, embedding in _FIGURES
)
