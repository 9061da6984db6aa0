"""What the inferred symmetry group explains of an equivalence class (what GENNI leaves to the eye).

The group of the model comes from `intertwine.symmetry.trace`. Its elements give the orbit of theta, which
is drawn with the class; one-parameter subgroups give the hyperbolas of the ReLU scaling. To divide the
scalings out, a parameter is moved to the point of least norm on its orbit: |g theta|^2 is convex in the
log-scales (Kempf and Ness), so this representative is unique, and equal for equivalent parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from intertwine.exploring.objective import Objective, scores, squared_distance
from intertwine.exploring.orbit import Explained, Orbit, find_orbit, trace_path
from intertwine.exploring.plane import Plane
from intertwine.exploring.search import EquivalenceSample
from intertwine.graph.copying import copy_model
from intertwine.symmetry import Element, Symmetry, act, trace
from intertwine.symmetry.subgroup import find_subgroup
from intertwine.symmetry.transform import PARTS


class KnownSymmetry:
    """The inferred symmetries of a model, acting on flat parameter vectors of an objective."""

    def __init__(self, model: nn.Module, example: Any, objective: Objective) -> None:
        self.symmetry: Symmetry = trace(model, example)
        self.objective = objective
        # Batch norm that looks at C itself needs no statistics: then the whole group acts.
        stored = objective.batch_norm == "stored"
        self.group = find_subgroup(
            self.symmetry, set(self.symmetry.shapes) - set(objective.layout.names) if stored else ()
        )
        self._module = copy_model(model)

    def act(self, vector: Tensor, element: Element) -> Tensor:
        """g . vector; the buffers that g moves too (batch-norm statistics) are not part of a vector."""
        moved = act(self._load(vector), element)
        return self.objective.layout.flatten(dict(moved.named_parameters()))

    @torch.no_grad()
    def loss(self, element: Element) -> float:
        """J of g . theta with its own buffers: what the arithmetic leaves of zero (footnote 6 of GENNI)."""
        objective, moved = self.objective, act(self._load(self.objective.theta), element).eval()
        total = 0.0
        for start in range(0, objective.size, 1024):
            part = slice(start, start + 1024)
            args, kwargs = objective.arguments(part)
            output = scores(moved(*args, **kwargs))
            total += float(squared_distance(output, objective.outputs[part]).double().sum())
        return total / objective.size

    def sample(self, generator: torch.Generator, *parts: str) -> Tensor:
        """A random equivalent of theta, by some or all parts of the group; buffers stay."""
        seed = int(torch.randint(0, 2**62, (1,), generator=generator))
        return self.act(self.objective.theta, self.group.sample(np.random.default_rng(seed), parts or PARTS))

    def aligned_distance(self, vector: Tensor) -> float:
        """|theta - g vector| / |theta| for the g that `intertwine.align` finds."""
        from intertwine.aligning import align

        # Random restarts of the matching rarely find more, and cost as much each.
        restarts = 3 if self.objective.layout.length <= 100_000 else 0
        theta, other = (self.objective.module(v) for v in (self.objective.theta, vector))
        return align(theta, other, self.symmetry, restarts=restarts).distance_after

    def scaling_paths(self) -> list[Callable[[float], Tensor]]:
        """One path t -> g_t theta for each one-parameter subgroup that rescales one channel by e^t."""
        directions = self.group.log_scales.T.tocsr()

        def at(k: int, t: float) -> Tensor:
            element = replace(self.symmetry.identity(), log_scale=t * directions[[k]].toarray()[0])
            return self.act(self.objective.theta, element)

        return [partial(at, k) for k in range(directions.shape[0])]

    def _load(self, vector: Tensor) -> nn.Module:
        named = dict(self._module.named_parameters())
        with torch.no_grad():
            for name, value in self.objective.layout.unflatten(vector).items():
                named[name].copy_(value)
        return self._module


@dataclass(frozen=True)
class Knowledge:
    """The orbit in the plane, the J of known equivalents, and which found points the group explains."""

    orbit: Orbit
    known_loss: float
    explained: tuple[Explained, ...]
    groups: tuple[str, ...]

    def facts(self) -> dict[str, Any]:
        """Rows for a report."""
        rows: dict[str, Any] = {"J of known equivalents": self.known_loss, "groups": ", ".join(self.groups)}
        for found in self.explained:
            rows[f"theta_{found.index}"] = found.describe()
        for problem in dict.fromkeys(found.problem for found in self.explained if found.problem):
            rows["align failed"] = problem
        return rows


def explain_sample(
    model: nn.Module, example: Any, objective: Objective, sample: EquivalenceSample, plane: Plane, *,
    seed: int = 0,
) -> Knowledge:  # fmt: skip
    """Draw the orbit of theta into the plane and say which found points the inferred group explains."""
    from intertwine.exploring.orbit import check_explained
    from intertwine.exploring.quotient import Quotient

    known = KnownSymmetry(model, example, objective)
    generator = torch.Generator().manual_seed(seed)
    # Each orbit point of a large model costs a copy and a pass over C: a few show where the orbit is.
    copies, paths, ticks = (16, 8, 61) if objective.layout.length <= 100_000 else (4, 2, 13)
    vectors = [("permutation", known.sample(generator, "permutation")) for _ in range(copies)]
    vectors += [("whole group", known.sample(generator)) for _ in range(copies)]
    times = np.linspace(-3, 3, ticks).tolist()
    for path in known.scaling_paths()[:paths]:
        vectors += trace_path(path, times, kind="scaling")
    orbit = find_orbit(plane, objective, vectors)
    quotient = Quotient(known)
    explained = check_explained(
        sample.points, objective.theta, quotient.canonical, align=known.aligned_distance
    )
    groups = tuple(dict.fromkeys(str(axis.group) for axis in known.symmetry.axes))
    known_loss = known.loss(known.symmetry.sample(seed))
    return Knowledge(orbit, known_loss, explained, groups)
