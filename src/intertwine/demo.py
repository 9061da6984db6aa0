"""The demo: every verb on the embedded default (scikit-learn's digits, two small nets in the package)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from intertwine import Report, Symmetry, act, trace, verify
from intertwine.comparing import compare
from intertwine.data import evaluate, load_data
from intertwine.merging.decide import Options, Planner
from intertwine.merging.experiments import merge_curve
from intertwine.report.merge_figures import curve_figure
from intertwine.report.page import Page
from intertwine.report.similarity_figures import comparison_heat_map
from intertwine.report.symmetry_page import add_symmetry
from intertwine.zoo import checkpoint, load_weights, resolve

MODEL = "digits-vgg"
SHARES = (0.75, 0.5, 0.35, 0.25)


@dataclass(frozen=True)
class Statement:
    """One line of the summary table."""

    step: str
    result: str


def run_demo(out: str | Path, tell: Callable[[str], None] = lambda text: None) -> list[Statement]:
    """Inspect, prove, act, merge, compare; write the page and return the summary."""
    page = Page(f"intertwine: {MODEL} on scikit-learn's digits")
    data = load_data("digits", split="test")
    model, twin = _trained(0), _trained(1)
    example = data.images[:2]

    tell("inferring and proving the symmetries")
    symmetry = trace(model, example)
    report = verify(model, example, symmetry=symmetry, samples=3)
    lines = _symmetry_lines(symmetry, report)

    tell("acting with a random element")
    before = evaluate(model, data).accuracy
    after = evaluate(act(model, symmetry.sample(0)), data).accuracy
    lines.append(Statement("accuracy before and after acting", f"{before:.2%} and {after:.2%}"))

    tell("merging channels, without data")
    planner = Planner(model, symmetry, Options())
    points = merge_curve(planner, lambda m: evaluate(m, data).accuracy, shares=SHARES)
    lines += [Statement(f"accuracy with {p.kept:.0%} of the parameters", f"{p.score:.2%}") for p in points]

    tell("comparing two seeds")
    comparison = compare(model, twin, data.images, ["cka", "procrustes-grelu"])
    diagonal = [value for _, _, value in comparison.matched("cka")]
    shown = ", ".join(f"{v:.2f}" for v in diagonal)
    lines.append(Statement("linear CKA of two seeds, layer by layer", shown))
    if comparison.function is not None:
        disagreement = comparison.function.disagreement.value
        lines.append(Statement("test images on which they disagree", f"{disagreement:.1%}"))

    page.section("Summary", f"{len(data.labels)} test images; nothing was downloaded.")
    page.table(["step", "result"], [[line.step, line.result] for line in lines])
    add_symmetry(page, symmetry, report)
    page.section("Merged without data", "Accuracy of smaller models, made from the weights alone.")
    page.figure(curve_figure({MODEL: points}), "Accuracy against the share of parameters that is kept.")
    page.section(
        "Two seeds compared", "The same net trained twice: every layer of one against every one of the other."
    )
    page.figure(comparison_heat_map(comparison, "cka", "seed 0", "seed 1"), "Linear CKA.")
    page.write(out)
    return lines


def _trained(seed: int) -> nn.Module:
    return load_weights(resolve(f"zoo:{MODEL}").model, checkpoint(MODEL, seed))


def _symmetry_lines(symmetry: Symmetry, report: Report) -> list[Statement]:
    hidden = [a for a in symmetry.axes if a.group.name != "trivial"]
    return [
        Statement("hidden axes found", f"{len(hidden)} with {sum(a.size for a in hidden)} channels"),
        Statement("output error under a random symmetry", f"{report.max_error:.1e} (float64)"),
        Statement("the same with one weight left behind", f"{report.control_error:.1e}"),
        Statement("parameters moved", f"{report.parameter_coverage:.1%}"),
    ]
