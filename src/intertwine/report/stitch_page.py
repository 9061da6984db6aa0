"""The page of `intertwine stitch`: penalties over layers, then the table."""

from __future__ import annotations

from intertwine.report.page import Page
from intertwine.report.stitch_figures import penalty_curves
from intertwine.stitching.stitching import StitchReport

COLUMNS = ["cut after", "kind", "in a block", "start", "norms reset", "final", "sparsity", "training"]


def stitch_rows(report: StitchReport) -> list[list[object]]:
    """A row a stitching; penalties in points."""
    return [
        [s.layer, s.kind, s.inside, round(s.start, 2), round(s.reset, 2), round(s.trained, 2),
         round(s.sparsity, 3), s.how]
        for s in report.stitchings
    ]  # fmt: skip


def stitch_page(report: StitchReport, facts: dict[str, object] | None = None) -> Page:
    """A page that says what was stitched, on how many inputs, and what each kind of stitch costs."""
    page = Page("Stitch the first layers of A to the last layers of B")
    page.section("What was stitched")
    rows = {
        **(facts or {}),
        "accuracy of A": f"{report.accuracy_a:.2%}",
        "accuracy of B": f"{report.accuracy_b:.2%}",
        "test inputs": report.test_inputs,
    }
    page.table(["", ""], [[key, value] for key, value in rows.items()])
    page.section(
        "Penalty",
        "The mean accuracy of A and B minus that of the stitched network, in points (eq. 4.3 of Godfrey et "
        "al.). The closed form is computed from one pass over the training inputs; the final stitch is the "
        "trained one, or the closed form where no training was needed.",
    )
    note = "A star: the cut lies inside a residual block, and the skip passes by the stitch (eq. E.54)."
    page.figure(penalty_curves(report), note)
    page.table(COLUMNS, stitch_rows(report))
    groups = {s.layer: s.group for s in report.stitchings}
    page.section("The group of each layer", "Of the activation whose result the layer is (Table 1).")
    page.table(["layer", "group"], list(groups.items()))
    return page
