"""The page of `intertwine stitch`: penalties over layers, then the table."""

from __future__ import annotations

import math
from collections.abc import Mapping

from intertwine.data.evaluation import SIGMAS
from intertwine.pages.page import Page
from intertwine.pages.stitch_figures import penalty_curves
from intertwine.stitching.stitching import StitchReport


def stitch_page(report: StitchReport, facts: Mapping[str, object] | None = None) -> Page:
    """A page that says what was stitched, on how many inputs, and what each kind of stitch costs."""
    page = Page("Stitch the first layers of A to the last layers of B")
    page.finding(stitch_finding(report))
    page.facts({**(facts or {}), "test inputs": report.test_inputs})
    page.section(
        "Penalty",
        "The mean accuracy of A and B minus that of the stitched network, in points (eq. 4.3 of Godfrey et "
        "al.). The closed form is computed from one pass over the training inputs; in the final stitch batch "
        "norms of B are measured again where that helps, and the map is trained where that was needed and "
        "asked for.",
    )
    note = "A star: the cut lies inside a residual block, and the skip passes by the stitch (eq. E.54)."
    page.figure(penalty_curves(report), note)
    page.section("Every cut", folded=True)
    page.table(report.tables()[0])
    groups = {s.layer: s.group for s in report.stitchings}
    about = "Of the activation whose result the layer is (Table 1)."
    page.section("The group of each layer", about, folded=True)
    page.table(["layer", "group"], list(groups.items()))
    return page


def stitch_finding(report: StitchReport) -> str:
    """One sentence: what the cuts (outside of blocks, where there are such) cost with each kind."""
    parts = []
    for kind in report.kinds:
        cuts = [s for s in report.stitchings if s.kind == kind]
        lost = [s.trained for s in ([s for s in cuts if not s.inside] or cuts)]
        if lost:
            parts.append(f"{min(lost):.1f} to {max(lost):.1f} points with {kind}")
    share = (report.accuracy_a + report.accuracy_b) / 2
    error = SIGMAS * math.sqrt(share * (1 - share) / max(report.test_inputs, 1))
    ends = f"A has {report.accuracy_a:.1%} accuracy and B {report.accuracy_b:.1%} (± {error:.1%})"
    return f"{ends}; joining them costs {', '.join(parts)}, by where they are cut." if parts else f"{ends}."
