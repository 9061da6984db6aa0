"""The page of `intertwine combine`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from intertwine.pages.page import Page

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from intertwine.combining._result import Combination, CombineStage


def combine_page(result: Combination, facts: Mapping[str, Any]) -> Page:
    """What every stage is worth as a picture and a table, what each element moved, what was done."""
    page = Page("Several networks into one")
    page.finding(finding(result))
    page.facts(
        {
            **facts, "how": result.how, "aligned by": result.align, "repair": result.repair,
            "shares": ", ".join(f"{s:g}" for s in result.shares), "unlabelled inputs": result.inputs,
            "seconds": result.seconds, **({"note": "; ".join(result.notes)} if result.notes else {}),
        }
    )  # fmt: skip
    page.section("What it is worth", "The networks that were given, then the combined one as it came about.")
    table = result.tables()[0]
    if result.after.accuracy is not None:
        page.figure(stage_figure(result), "Accuracy of every stage, with 95 % intervals.")
    page.table(list(table.columns), [list(row) for row in table.rows])
    page.section("What was moved", "Symmetries of the networks: they change no function, only the average.")
    page.table(
        ["network", "element"],
        [
            [s.name, repr(e) if e is not None else "-"]
            for s, e in zip(result.before, result.elements, strict=True)
        ],
    )
    return page


def finding(result: Combination) -> str:
    """What came out, in one sentence."""
    if result.after.cosine is not None:
        ends = ", ".join(f"{stage.cosine:.4f}" for stage in result.before)
        return (
            f"The combined network's embeddings have a cosine of {result.after.cosine:.4f} with the mean of "
            f"the networks', those of the networks themselves {ends}."
        )
    if result.after.accuracy is None:
        return f"{len(result.shares)} networks are one; without labelled data nobody knows what it is worth."
    ends = ", ".join(_accuracy(stage) for stage in result.before)
    return f"The combined network has an accuracy of {_accuracy(result.after)}, those it was made of {ends}."


def _accuracy(stage: CombineStage) -> str:
    within = "" if stage.error is None else f" ± {stage.error:.2%}"
    return f"{stage.accuracy:.2%}{within}"


def stage_figure(result: Combination) -> Figure:
    """Bars: grey for what was given, blue for what was made of it."""
    import plotly.graph_objects as go

    given = len(result.before)
    colours = ["#8a94a3" if k < given else "#2f6fde" for k in range(len(result.stages))]
    names, values = [s.name for s in result.stages], [s.accuracy for s in result.stages]
    errors = {"type": "data", "array": [s.error or 0.0 for s in result.stages], "color": "#8a94a3"}
    figure = go.Figure(go.Bar(x=names, y=values, marker={"color": colours}, error_y=errors))
    frame = {"template": "plotly_white", "height": 380, "margin": {"l": 60, "r": 20, "t": 30, "b": 60}}
    return figure.update_layout(yaxis_title="accuracy", yaxis_range=[0, 1.02], **frame)
