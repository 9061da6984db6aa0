"""Figures and pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from intertwine.errors import InputError

if TYPE_CHECKING:
    from intertwine.report.page import Page


def page_of(result: Any, **options: Any) -> Page:
    """The page that belongs to a kind of result."""
    from intertwine.inside import Attribution, Dissection
    from intertwine.report.attribute_page import attribute_page
    from intertwine.report.dimension_page import dimension_page
    from intertwine.report.dissect_page import dissect_page
    from intertwine.tangent import Dimension

    pages: dict[type, Callable[..., Page]] = {
        Attribution: attribute_page,
        Dimension: dimension_page,
        Dissection: dissect_page,
    }
    for kind, make in pages.items():
        if isinstance(result, kind):
            return make(result, **options)
    known = ", ".join(kind.__name__ for kind in pages)
    raise InputError(f"{type(result).__name__} has no page", do=f"these have one: {known}")
