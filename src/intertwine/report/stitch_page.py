"""The page of `intertwine stitch`: penalties over layers, then the table."""

from __future__ import annotations

from collections.abc import Mapping

from intertwine.report.page import Page
from intertwine.report.stitch_figures import penalty_curves
from intertwine.stitching.stitching import StitchReport


def stitch_page(report: StitchReport, facts: Mapping[str, object] | None = None) -> Page:
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
    page.table(*report.tables()[0][1:3])
    groups = {s.layer: s.group for s in report.stitchings}
    page.section("The group of each layer", "Of the activation whose result the layer is (Table 1).")
    page.table(["layer", "group"], list(groups.items()))
    return page
