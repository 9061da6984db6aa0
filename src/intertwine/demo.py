"""The demo: a story of the verbs on the embedded default (scikit-learn's digits, two nets in the package)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from intertwine import (
    Symmetry,
    act,
    align,
    attribute,
    compare,
    dissect,
    interpolate,
    intertwiner,
    stitch,
    trace,
    verify,
)
from intertwine.data import Dataset, evaluate, load_data
from intertwine.data.shapes import shapes
from intertwine.exploring import evaluate as draw
from intertwine.exploring import function_distance, plane_through
from intertwine.exploring.grid import Grid
from intertwine.merging.decide import Options, Planner
from intertwine.merging.experiments import merge_curve
from intertwine.pages import demo_figures as figures
from intertwine.pages.align_page import equal_lines, line_figure, line_finding
from intertwine.pages.attribute_page import STYLE, class_cells
from intertwine.pages.dissect_page import example_cells
from intertwine.pages.explore_figures import contour_figure
from intertwine.pages.merge_figures import curve_figure
from intertwine.pages.page import Html, Page
from intertwine.pages.similarity_figures import comparison_heat_map, matched_curves
from intertwine.pages.stitch_figures import penalty_curves
from intertwine.pages.symmetry_page import add_symmetry
from intertwine.stitching import Training
from intertwine.zoo import checkpoint, load_weights, resolve

MODEL = "digits-vgg"
SHARES = (0.75, 0.5, 0.35, 0.25)
_ACTIVATIONS = ("relu", "gelu", "tanh", "identity")
_OWN = """\
intertwine inspect net.py:make -o map.html
intertwine merge net.py:make --weights net.safetensors --target-params 0.5 --data npz:test.npz -o small
intertwine compare net.py:make net.py:make --weights-a a.pt --weights-b b.pt --data npz:test.npz -o c.html"""


@dataclass(frozen=True)
class Statement:
    """One line of the summary table."""

    step: str
    result: str


@dataclass
class Story:
    """The page as it grows, what is told on the way, and what stays the same from chapter to chapter."""

    tell: Callable[[str], None]
    page: Page
    data: Dataset
    model: nn.Module
    twin: nn.Module
    symmetry: Symmetry
    lines: list[Statement] = field(default_factory=list)

    @property
    def example(self) -> Tensor:
        """Two test images."""
        return self.data.images[:2]

    def note(self, step: str, result: str) -> None:
        """A line of the summary."""
        self.lines.append(Statement(step, result))


def run_demo(out: str | Path, tell: Callable[[str], None] = lambda text: None) -> list[Statement]:
    """A chapter a verb, from inspecting to exploring; write the page; the summary."""
    tell("inferring and proving the symmetries")
    data = load_data("digits", split="test")
    model, twin = _trained(0), _trained(1)
    page = Page(f"intertwine: what {MODEL} is, up to what does not matter")
    story = Story(tell, page, data, model, twin, trace(model, data.images[:2]))
    chapters = (_inspect, _act, _merge, _compare, _align, _walk, _stitch, _attribute, _dissect, _explore,
                _activate)  # fmt: skip
    for chapter in chapters:
        chapter(story)
    page.section("With your own model", "The same on the command line; net.py has a function make().")
    page.table(["command"], [[line] for line in _OWN.splitlines()])
    page.section("Every number", folded=True)
    page.table(["step", "result"], [[line.step, line.result] for line in story.lines])
    page.facts({"data": f"scikit-learn's digits, {len(data.labels)} test images", "model": MODEL,
                "weights": "seeds 0 and 1, in the package", "seed": 0, "downloaded": "nothing"})  # fmt: skip
    page.write(out)
    return story.lines


def _inspect(story: Story) -> None:
    report = verify(story.model, story.example, symmetry=story.symmetry, samples=3)
    free = [a for a in story.symmetry.axes if a.group.moves]
    story.note("hidden axes found", f"{len(free)} with {sum(a.size for a in free)} channels")
    story.note("output error under a random symmetry", f"{report.max_error:.1e} (float64)")
    story.note("the same with one weight left behind", f"{report.control_error:.1e}")
    story.note("parameters moved", f"{report.parameter_coverage:.1%}")
    add_symmetry(story.page, story.symmetry, report)


def _act(story: Story) -> None:
    story.tell("acting with a random element")
    moved = act(story.model, story.symmetry.sample(0))
    before = evaluate(story.model, story.data).accuracy
    after = evaluate(moved, story.data).accuracy
    story.note("accuracy before and after acting", f"{before:.2%} and {after:.2%}")
    story.page.section(
        "Other weights, the same function",
        "A random element of the group shuffled and rescaled the channels of every hidden axis. Hardly a "
        f"weight is where it was; every output is. Accuracy: {before:.2%} before, {after:.2%} after.",
    )
    with torch.no_grad():
        outputs = story.model(story.data.images[:64]), moved(story.data.images[:64])
    weights = [torch.cat([p.flatten() for p in each.parameters()]).detach() for each in (story.model, moved)]
    story.page.figure(
        figures.before_and_after((weights[0], weights[1]), outputs),
        "Left: weights before and after; on the diagonal nothing would have changed. Right: outputs.",
    )


def _merge(story: Story) -> None:
    story.tell("merging channels, without data")
    planner = Planner(story.model, story.symmetry, Options())
    points = merge_curve(planner, lambda m: evaluate(m, story.data).accuracy, shares=SHARES)
    for point in points:
        story.note(f"accuracy with {point.kept:.0%} of the parameters", f"{point.score:.2%}")
    whole = evaluate(story.model, story.data).accuracy
    free = [axis for axis in story.symmetry.axes if not axis.group.is_trivial]
    half = min(points, key=lambda p: abs(p.kept - 0.5))
    story.page.finding(
        f"With {half.kept:.0%} of its parameters, chosen without data, this network still reads "
        f"{half.score:.1%} of the digits right (of {whole:.1%}); and the channels of its {len(free)} hidden "
        "axes can be reordered and rescaled at will without changing an output."
    )
    story.page.section(
        "Smaller, without data",
        "Channels that are equal up to the group, or nearly so, become one, and what reads them is adapted. "
        f"{len(story.data.labels)} test images measure what that costs.",
    )
    figure = curve_figure({MODEL: points})
    figures.add_point(figure, 100.0, whole, "as it was")
    story.page.figure(figure, "Accuracy against the share of parameters kept; the cross is the model.")


def _compare(story: Story) -> None:
    story.tell("comparing two seeds")
    found = compare(story.model, story.twin, story.data.images, ["cka", "procrustes-grelu"])
    shown = ", ".join(f"{value:.2f}" for _, _, value in found.matched("cka"))
    story.note("linear CKA of two seeds, layer by layer", shown)
    text = "The same network was trained twice, from other random weights."
    if found.function is not None:
        differ = found.function.disagreement
        story.note("test images on which they disagree", f"{differ.value:.1%}")
        text += (
            f" They disagree on {differ.value:.1%} of the test images (95 % interval {differ.low:.1%} to "
            f"{differ.high:.1%}). How alike are they inside?"
        )
    story.page.section("Two seeds compared", text)
    caption = "Each layer with its namesake; one measure ignores rotations, the other what ReLU lets pass."
    story.page.figure(matched_curves(found), caption)
    pairs = comparison_heat_map(found, "cka", "seed 0", "seed 1")
    story.page.figure(pairs, "Linear CKA of all pairs of layers.")


def _align(story: Story) -> None:
    story.tell("aligning one seed with the other")
    found = align(story.model, story.twin, story.symmetry)
    story.note("distance of the seeds before and after aligning",
               f"{found.distance_before:.3f} and {found.distance_after:.3f}")  # fmt: skip
    story.page.section(
        "One brought onto the other",
        "The element of the group that brings the second seed as near to the first as it gets changes no "
        f"output of it, and takes the distance between the weights from {found.distance_before:.3f} to "
        f"{found.distance_after:.3f} (relative to the first).",
    )
    story.page.figure(figures.cosines(found), "How alike the channels of each axis are, before and after.")


def _walk(story: Story) -> None:
    story.tell("walking the line between the seeds")
    found = interpolate([story.model, story.twin], story.data, align=True, repair="reset", points=7,
                        symmetry=story.symmetry)  # fmt: skip
    for curve in found.curves:
        worst = max(line.barrier for line in curve.lines)
        story.note(f"barrier of the loss between the seeds, {curve.label}", f"{worst:.3f}")
    story.page.section("The line between them", line_finding(found.curves))
    caption = f"Loss on the way from one seed to the other. {equal_lines(found.curves)}".strip()
    story.page.figure(line_figure(found.curves, "loss"), caption)


def _stitch(story: Story) -> None:
    story.tell("stitching the first layers of one to the last layers of the other")
    train = load_data("digits", split="train")
    given = (train.images, train.labels), (story.data.images, story.data.labels)
    found = stitch(story.model, story.twin, *given, kinds=["identity", "group", "full"],
                   training=Training(epochs=0))  # fmt: skip
    for kind in found.kinds:
        worst = max(s.trained for s in found.stitchings if s.kind == kind)
        story.note(f"largest loss of a stitched network, {kind}", f"{worst:.1f} points")
    story.page.section(
        "Half of one, half of the other",
        "The first layers of one seed, a map, the last layers of the other: none at all, one that may only "
        "reorder and rescale, and any 1x1 map. What is lost says how much of the features is shared.",
    )
    story.page.figure(penalty_curves(found), "Points of accuracy that are lost by a cut after each layer.")


def _attribute(story: Story) -> None:
    story.tell("asking what alike features see")
    found = attribute(story.model, story.data.take(256), "features.3", by="ward", beta=0.5, classes=1)
    (view,) = found.classes
    story.note("attributions of alike features, and of random ones: correlation",
               f"{view.heat.members:.2f} and {view.heat.random:.2f}")  # fmt: skip
    story.page.section(
        "What alike features see",
        f"{len(view.members)} features of one axis that merging would take for one, the digits that excite "
        "them most, and what in these does (guided backpropagation). Their attributions correlate by "
        f"{view.heat.members:.2f}; those of random features of the axis by {view.heat.random:.2f} ± "
        f"{view.heat.spread:.2f}.",
    )
    story.page.text(Html(STYLE + class_cells(found, view, None)))


def _dissect(story: Story) -> None:
    story.tell("looking for units that detect a concept")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 30 * 30, 2))
    concepts = shapes(60, 32)
    by_group = dissect(net, concepts, "1", rotate="group", examples=1)
    turned = dissect(net, concepts, "1", rotate="orthogonal", powers=(1.0,), examples=0)
    own, moved = by_group.readings
    same = sorted(own.iou) == sorted(moved.iou)
    counts = [len(reading.detectors) for reading in (own, moved, *turned.readings)]
    story.note("units that detect a concept: own basis, its group, a rotation", ", ".join(map(str, counts)))
    story.page.section(
        "Which basis is special",
        "Sixteen random filters and a ReLU look at generated pictures of which every colour, part and object "
        f"is known. {counts[0]} of them detect a concept. Moved by the layer's own group, {counts[1]} do, "
        f"{'with the same overlaps to the last bit' if same else 'with other overlaps'}; read along rotated "
        f"directions, {counts[2]}: a rotation does not pass through a ReLU.",
    )
    story.page.text(Html(example_cells(own)))


def _explore(story: Story) -> None:
    story.tell("drawing the equivalents of a small network")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    inputs = torch.randn(128, 2)
    objective = function_distance(net, inputs)
    symmetry = trace(net, inputs[:2])
    twins = [dict(act(net, symmetry.sample(seed)).named_parameters()) for seed in (1, 2)]
    plane = plane_through(objective, [objective.theta, *twins], ["theta", "a twin", "another twin"])
    grid = Grid.cube(2, 1.6 * float(plane.marks.abs().max()), 61)
    landscape = draw(plane, grid, objective)
    story.note("evaluated parameters of a small network", f"{landscape.evaluations:,}")
    story.page.section(
        "The class of a small network",
        "Three parameters of one function, and the plane through them: each lies in a valley of its own.",
    )
    caption = "log10 of the distance of outputs; dark is the same function."
    story.page.figure(contour_figure(landscape), caption)


def _activate(story: Story) -> None:
    story.tell("deciding what passes through activations")
    decided = [(name, intertwiner(name)) for name in _ACTIVATIONS]
    rows: list[list[Any]] = [[name, found.group, found.phi_text] for name, found in decided]
    story.page.section(
        "Why: what passes through a nonlinearity",
        "The group of a layer is what its nonlinearity lets pass: sigma(A x) = phi(A) sigma(x).",
    )
    story.page.table(["activation", "A may be", "phi(A)"], rows)


def _trained(seed: int) -> nn.Module:
    return load_weights(resolve(f"zoo:{MODEL}").model, checkpoint(MODEL, seed))
