"""Tables in the docs are those that the committed scripts make of the committed measurements."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ["make_dimension_table"]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_table_is_up_to_date_and_a_changed_number_shows(name: str) -> None:
    made = script(name)
    page = made.PAGE.read_text(encoding="utf-8")
    assert made.render(page) == page, f"run python scripts/{name}.py"
    start = page.index(made.START)
    broken = page[:start] + page[start:].replace("| 1", "| 9", 1)
    assert broken != page and made.render(broken) == page
