"""The table of the sources is whole: every recipe is in it, what it names exists, the docs are made of it."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

from intertwine.recipes import PRESETS, genni, recipes
from intertwine.recipes.claims import Claim, Verdict, holds, verdict_of
from intertwine.recipes.sources import SOURCES, rows

ROOT = Path(__file__).resolve().parents[2]


def _script():
    spec = importlib.util.spec_from_file_location("made", ROOT / "scripts" / "make_reproduce_table.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_every_recipe_is_in_the_table_and_every_name_in_it_is_a_recipe():
    named = {name for row in rows() for name in row.recipes}
    assert named == set(recipes())


def test_every_test_of_the_table_exists():
    for row in rows():
        for test in row.tests:
            file, _, name = test.partition("::")
            text = (ROOT / "tests" / file).read_text()
            assert re.search(rf"def {name}\(", text), test


def test_a_row_without_anything_says_why():
    items = [(row.source, row.item) for row in rows()]
    assert len(items) == len(set(items)) and {source for source, _ in items} == set(SOURCES)
    assert all(row.by or row.note for row in rows())
    assert len(items) >= 112


def test_hyperparameters_of_genni_are_those_of_its_tables():
    """Appendix B of source 004: data points, learning rate, seed, shape of the input, optimizer, batch."""
    tables = {genni.LENET: (8192, 0.001, 0, (1, 28, 28)), genni.SMALL: (16384, 0.015, 10, (1,))}
    for found, said in tables.items():
        assert (found.inputs, found.lr, found.seed, found.shape) == said
        assert found.optimizer == "sgd" and genni.BATCH == 256


def test_recipes_of_a_source_are_rows_of_that_source():
    prefix = {"000": "ifm-", "002": "symmetry-", "003": "functional-", "004": "genni-"}
    for row in rows():
        assert all(name.startswith(prefix[row.source]) for name in row.recipes)
    assert all(set(r.presets) <= set(PRESETS) and r.preset in r.presets for r in recipes().values())


def test_the_docs_say_what_was_measured():
    script = _script()
    page = (ROOT / "docs" / "reproduce.md").read_text()
    assert script.render(page) == page, "run python scripts/make_reproduce_table.py"
    for path in script.MEASURED.glob("*.json"):
        found = json.loads(path.read_text())
        claims = [Claim(**{k: c[k] for k in ("what", "source", "here", "test", "why")},
                        verdict=Verdict(c["verdict"])) for c in found["claims"]]  # fmt: skip
        assert found["verdict"] == str(verdict_of(claims)) and found["differs"]
        assert path.name == f"{found['recipe']}.{found['preset']}.json"
        assert found["preset"] in recipes()[found["recipe"]].presets


def test_a_verdict_is_never_better_than_its_claims():
    good, bad, none = (holds("", "", "", "", passed, why="x") for passed in (True, False, None))
    assert verdict_of([good, none]) == "agrees" and verdict_of([none]) == verdict_of([]) == "not run"
    assert verdict_of([good.in_setting(False), bad]) == "not reproduced" and bad.why and not good.why
    assert good.in_setting(own=False).verdict == "agrees in kind"
    assert holds("", "", "", "", True, anywhere=True).in_setting(own=False).verdict == "agrees"
