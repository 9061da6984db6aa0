"""Tables in the docs are those that the committed scripts make of the committed measurements."""

from __future__ import annotations

import importlib

import pytest

NAMES = ["align", "combine", "dimension", "quality", "race", "scale", "similarity", "transformers"]


@pytest.mark.parametrize("name", NAMES)
def test_a_table_is_up_to_date_and_a_changed_number_shows(name: str) -> None:
    made = importlib.import_module(f"make_{name}_table")
    page = made.PAGE.read_text(encoding="utf-8")
    assert made.render(page) == page, f"run python scripts/make_{name}_table.py"
    start = page.index(made.START)
    broken = page[:start] + page[start:].replace("| 1", "| 9", 1)
    assert broken != page and made.render(broken) == page
