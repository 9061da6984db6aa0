"""The tutorials are notebooks that run as they stand, show pictures, and stay small."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="needs nbformat: pip install 'intertwine[dev]'")
nbclient = pytest.importorskip("nbclient", reason="needs nbclient: pip install 'intertwine[dev]'")
manager = pytest.importorskip("jupyter_client.manager")

pytestmark = pytest.mark.filterwarnings(  # sockets of jupyter_client that are closed when they are collected
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "docs/tutorials").glob("*.ipynb"))
EXTRAS = {"huggingface": "transformers", "sweep": "ray"}
NIGHTLY = ("sweep",)  # it starts Ray, as test_sweep_ray.py does by day


@pytest.fixture(scope="module")
def kernel() -> Iterator[object]:
    """One for all: a kernel of its own would import torch nine times. run_tutorials.py starts anew."""
    running, client = manager.start_new_kernel(
        kernel_name="python3", env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "RAY_worker_niceness": "0"}
    )
    client.stop_channels()
    yield running
    running.shutdown_kernel(now=True)


@pytest.mark.parametrize(
    "path",
    [pytest.param(p, id=p.stem, marks=pytest.mark.nightly if p.stem in NIGHTLY else ()) for p in NOTEBOOKS],
)
def test_it_runs_and_shows_what_it_showed(path: Path, kernel: object, tmp_path: Path) -> None:
    pytest.importorskip(EXTRAS.get(path.stem, "torch"))
    notebook = nbformat.read(path, as_version=4)
    shown = [kinds(cell) for cell in notebook.cells]
    fresh = nbformat.v4.new_code_cell(f"%reset -f\n%cd -q {tmp_path}")
    notebook.cells.insert(0, fresh)
    client = nbclient.NotebookClient(notebook, km=kernel, timeout=None)
    try:
        client.execute()
    finally:
        if client.kc is not None:  # it leaves its sockets open where the kernel is not its own
            client.kc.stop_channels()
    assert [kinds(cell) for cell in notebook.cells[1:]] == shown


def kinds(cell: object) -> list[str]:
    """What a cell shows: text, a table, a page (or its picture, in the file); text may come in pieces."""
    found = (kind_of(output) for output in cell.get("outputs", []))  # type: ignore[attr-defined]
    return [kind for kind in dict.fromkeys(found) if kind]


def kind_of(output: dict) -> str:
    data = output.get("data", {})
    if "image/png" in data or 'class="finding"' in data.get("text/html", "").replace("&quot;", '"'):
        return "page"
    if "text/html" in data:
        return "table"
    return "text" if data or output.get("name") == "stdout" else ""


def test_there_is_one_for_every_task() -> None:
    asked = "explore features huggingface measure rule same shrink stitch sweep"
    assert [path.stem for path in NOTEBOOKS] == asked.split()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_small_shows_a_picture_and_names_no_place_of_this_machine(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert path.stat().st_size < 400_000
    assert any("page" in kinds(cell) for cell in notebook.cells)
    text = path.read_text()
    assert not re.search(r"/(?:home|root|work|tmp|Users)/", text), "a path of the machine that ran it"
    assert '"output_type": "error"' not in text and '"name": "stderr"' not in text
