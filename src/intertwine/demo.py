"""The demo: every verb on the embedded default (scikit-learn's digits, two small nets in the package)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from intertwine import act, trace, verify
from intertwine.data import evaluate, load_data
from intertwine.report.page import Page
from intertwine.report.symmetry_page import add_symmetry
from intertwine.zoo import checkpoint, load_weights, resolve

MODEL = "digits-vgg"


@dataclass(frozen=True)
class Line:
    """One line of the summary table."""

    step: str
    result: str


def run_demo(out: str | Path, tell: Callable[[str], None] = lambda text: None) -> list[Line]:
    """Inspect the model, prove its symmetries, act with one; write the page and return the summary."""
    source = resolve(f"zoo:{MODEL}")
    model = load_weights(source.model, checkpoint(MODEL, 0))
    data = load_data("digits", split="test")
    page = Page(f"intertwine: the symmetries of {MODEL}")
    lines: list[Line] = []

    tell("inferring and proving the symmetries")
    symmetry = trace(model, source.example)
    report = verify(model, source.example, symmetry=symmetry, samples=3)
    hidden = [a for a in symmetry.axes if a.group.name != "trivial"]
    lines.append(Line("hidden axes found", f"{len(hidden)} with {sum(a.size for a in hidden)} channels"))
    lines.append(Line("output error under a random symmetry", f"{report.max_error:.1e} (float64)"))
    lines.append(Line("the same with one weight left behind", f"{report.control_error:.1e}"))
    lines.append(Line("parameters moved", f"{report.parameter_coverage:.1%}"))

    tell("acting with a random element")
    before, _ = evaluate(model, data)
    after, _ = evaluate(act(model, symmetry.sample(0)), data)
    lines.append(Line("accuracy before and after acting", f"{before:.2%} and {after:.2%}"))

    page.section("Summary", f"{MODEL} on scikit-learn's digits, {len(data.labels)} test images.")
    page.table(["step", "result"], [[line.step, line.result] for line in lines])
    add_symmetry(page, symmetry, report)
    page.write(out)
    return lines
