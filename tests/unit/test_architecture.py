"""The direction of imports, what `import intertwine` loads, and the public names."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

import intertwine

PACKAGE = Path(intertwine.__file__).parent

# A folder may import from its own level's folder itself and from lower levels only.
ALGORITHMS = {"merging", "aligning", "stitching", "comparing", "exploring", "inside", "tangent"}
LEVELS = [
    {"text"},
    {"errors"},
    {"files", "numbers", "reading", "interrupts", "vision_shim", "cells", "plain", "progress"},
    {"untrusted", "checks", "foreign"},
    {"results"},
    {"data", "checkup"},
    {"ir"},
    {"activations", "graph"},
    {"rules"},
    {"symmetry"},
    {"orbit"},
    ALGORITHMS,
    {"zoo"},
    {"training"},
    {"pages"},
    {"combining"},
    {"sweeping"},
    {"agents"},
    {"recipes", "surveying", "demo"},
    {"terminal"},
    {"cli"},
]
LEVEL = {name: height for height, names in enumerate(LEVELS) for name in names}
HEAVY = (
    "torch",
    "numpy",
    "rich",
    "torchvision",
    "timm",
    "transformers",
    "plotly",
    "sklearn",
    "ray",
    "pyarrow",
    "umap",
    "gymnasium",
    "minigrid",
    "stable_baselines3",
)

FILES = sorted(p for p in PACKAGE.rglob("*.py") if p.parent != PACKAGE or p.stem in LEVEL)


def part(path: Path) -> str:
    """The part of the package that a file belongs to: `rules` for rules/conv.py."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The parts of the package that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative imports hide the direction"
            names = [node.module or ""]
            if node.module == "intertwine":
                names = [f"intertwine.{alias.name}" for alias in node.names]
        found |= {n.split(".")[1] for n in names if n.startswith("intertwine.")}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_one_way(path: Path) -> None:
    own = part(path)
    assert own in LEVEL, f"say in LEVELS where {own} belongs"
    for other in imported(path) - {own}:
        # A public name of the package (`from intertwine import trace`) rests on all up to the symmetry.
        lower = LEVEL.get(other, LEVEL["symmetry"]) < LEVEL[own]
        if other not in LEVEL:
            assert other in intertwine.__all__, f"say in LEVELS where {other} belongs"
        beside = LEVEL.get(other) == LEVEL[own] and own in ALGORITHMS
        assert lower or beside, f"{own} may not import {other}"


def test_the_reader_of_imports_sees_them(tmp_path: Path) -> None:
    source = (
        "import intertwine.cli\nfrom intertwine.zoo import x\ndef f():\n    from intertwine import pages\n"
    )
    (tmp_path / "some.py").write_text(source)
    assert imported(tmp_path / "some.py") == {"cli", "zoo", "pages"}


def test_import_loads_nothing_heavy() -> None:
    code = f"import intertwine, sys; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_only_the_graph_uses_torch_export() -> None:
    users = [p for p in FILES if "torch.export." in p.read_text(encoding="utf-8")]
    assert {part(p) for p in users} <= {"graph", "rules"}
    assert [p.name for p in users if part(p) == "graph"] == ["export.py", "functional.py", "program.py"]


def test_no_public_name_shadows_a_module() -> None:
    """`import intertwine.x.y as y` gives the module, or what is hidden is private (`_y.py`)."""
    names = [p.relative_to(PACKAGE).with_suffix("").parts for p in PACKAGE.rglob("*.py")]
    modules = {".".join(parts[:-1] if parts[-1] == "__init__" else parts) for parts in names}
    shadowed = set()
    for name in sorted(modules - {"", "__main__"}):
        inside = [other for other in modules if other.startswith(f"{name}.")]
        hidden = inside and all(other.rpartition(".")[2].startswith("_") for other in inside)
        if not hidden and not any(part.startswith("_") for part in name.split(".")):
            parent, _, leaf = f"intertwine.{name}".rpartition(".")
            held = getattr(importlib.import_module(parent), leaf, None)
            if held is not None and not isinstance(held, ModuleType):
                shadowed.add(name)
    assert not shadowed


def test_no_public_class_name_stands_twice() -> None:
    counted = Counter(
        node.name
        for path in PACKAGE.rglob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert not {name for name, count in counted.items() if count > 1}


def test_the_version_is_that_of_the_distribution() -> None:
    assert intertwine.__version__ == importlib.metadata.version("intertwine")


def test_every_public_name_exists() -> None:
    assert sorted(intertwine.__all__) == sorted(set(intertwine.__all__))
    for name in intertwine.__all__:
        assert getattr(intertwine, name) is not None


def test_what_mypy_reads_is_what_is_imported_late() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    read = {
        alias.name: (node.module or "").removeprefix("intertwine.")
        for node in block.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("intertwine")
        for alias in node.names
    }
    assert read.pop("Page") == "pages.page"  # the type of a result, not a public name
    assert read == intertwine._WHERE
    assert set(read) == set(intertwine.__all__) - {"load", "page"}


def test_the_core_names_stay() -> None:
    core = """
        Axis Element Group IntertwineError Member Report Symmetry act assert_symmetric intertwiner
        trace verify
    """
    assert set(core.split()) <= set(intertwine.__all__)


def test_no_verb_is_long() -> None:
    """A verb parses, calls one function and prints; what is longer belongs below."""
    lines = {p.name: len(p.read_text().splitlines()) for p in (PACKAGE / "cli").glob("*.py")}
    assert {name: count for name, count in lines.items() if count > 120} == {}
