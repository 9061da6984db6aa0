"""The page of `intertwine rotate`: accuracy before, right after and after fine-tuning."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from intertwine.pages.page import Page
from intertwine.stitching import Rotation

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def rotate_page(found: Rotation, facts: Mapping[str, Any] | None = None) -> Page:
    """What the change of basis costs, as bars, then the numbers."""
    page = Page(f"A change of basis at {found.layer}")
    page.finding(rotate_finding(found))
    page.section(
        "What later layers lose",
        "The channels of the layer are acted on, everything up to it is frozen, and the rest is fine-tuned. "
        "Later layers can undo an element of the layer's own group exactly; a rotation they cannot.",
    )
    page.figure(accuracy_figure(found), f"Accuracy on {found.inputs:,} inputs, with 95 % intervals.")
    page.section("Every number", folded=True)
    page.table(found.tables()[0])
    page.facts(facts or {})
    return page


def rotate_finding(found: Rotation) -> str:
    """The penalty in one sentence, with its uncertainty."""
    error = 100 * math.hypot(found.error(found.before), found.error(found.tuned))
    way = {"group": "an element of its own group", "orthogonal": "a random rotation"}.get(found.by, "nothing")
    return (
        f"Acting on {found.layer} by {way} costs {found.penalty:.1f} ± {error:.1f} points after fine-tuning "
        f"({found.before:.1%} before, {found.broken:.1%} right after, {found.tuned:.1%} fine-tuned)."
    )


def accuracy_figure(found: Rotation) -> Figure:
    """Three bars."""
    import plotly.graph_objects as go

    bars = {"before": found.before, "right after": found.broken, "fine-tuned": found.tuned}
    errors = {"type": "data", "array": [found.error(v) for v in bars.values()], "color": "#8a94a3"}
    colours = ["#8a94a3", "#d1495b", "#2f6fde"]
    figure = go.Figure(go.Bar(x=list(bars), y=list(bars.values()), marker={"color": colours}, error_y=errors))
    frame = {"template": "plotly_white", "height": 360, "margin": {"l": 60, "r": 20, "t": 30, "b": 40}}
    return figure.update_layout(yaxis_title="accuracy", yaxis_range=[0, 1.02], **frame)
