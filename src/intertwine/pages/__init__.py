"""Figures and pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from intertwine.checks import checked
from intertwine.errors import InputError
from intertwine.results import Result

if TYPE_CHECKING:
    from intertwine.pages.page import Page


def page_of(result: Any, **options: Any) -> Page:
    """The page that belongs to a kind of result; tables and remarks where there is no picture."""
    from intertwine.aligning import Alignment, Interpolation
    from intertwine.comparing import Comparison
    from intertwine.exploring import Exploration
    from intertwine.inside import Attribution, Dissection
    from intertwine.merging.merged import MergeCurve, Merged
    from intertwine.pages.align_page import alignment_page, interpolation_page
    from intertwine.pages.attribute_page import attribute_page
    from intertwine.pages.dimension_page import dimension_page
    from intertwine.pages.dissect_page import dissect_page
    from intertwine.pages.explore_page import exploration_page
    from intertwine.pages.merge_page import curve_page, merged_page
    from intertwine.pages.rotate_page import rotate_page
    from intertwine.pages.similarity_page import comparison_page
    from intertwine.pages.stitch_page import stitch_page
    from intertwine.pages.symmetry_page import inspection_page
    from intertwine.pages.train_page import train_page
    from intertwine.pages.verify_page import verify_page
    from intertwine.stitching import Rotation, StitchReport
    from intertwine.symmetry import Inspection, Report
    from intertwine.tangent import Dimension
    from intertwine.training import Run

    pages: dict[type, Callable[..., Page]] = {
        Alignment: alignment_page,
        Attribution: attribute_page,
        Comparison: comparison_page,
        Dimension: dimension_page,
        Dissection: dissect_page,
        Exploration: exploration_page,
        Inspection: inspection_page,
        Interpolation: interpolation_page,
        MergeCurve: curve_page,
        Merged: merged_page,
        Report: verify_page,
        Rotation: rotate_page,
        Run: train_page,
        StitchReport: stitch_page,
    }
    for kind, make in pages.items():
        if isinstance(result, kind):
            return checked(make)(result, **options)
    if isinstance(result, Result):
        return checked(plain_page)(result, **options)
    raise InputError(f"{type(result).__name__} has no page", do="give what a verb returned")


def plain_page(result: Result, facts: Mapping[str, Any] | None = None) -> Page:
    """The tables of a result, and what is known beside it."""
    from intertwine.pages.page import Page

    page = Page(type(result).__name__)
    page.facts(facts or {})
    for table in result.tables():
        page.section(table.title)
        page.table(table)
    for line in result.remarks():
        page.text(line)
    return page
