"""docs/tutorials: every notebook is run in a kernel of its own and written with what it prints and shows.

    python scripts/run_tutorials.py [NAME ...]    (extras dev, vision, text, train, distributed; chromium)

Pages become pictures, as chromium shows them: a page is a file of its own, and a notebook has to stay small.
"""

from __future__ import annotations

import base64
import html
import io
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from browser import shoot  # noqa: E402

FOLDER = ROOT / "docs/tutorials"
_FRAMED = re.compile(r'srcdoc="([^"]*)"')
_WIDTH, _HEIGHT, _COLOURS = 900, 760, 64


def run(path: Path, folder: Path) -> None:
    """Run one notebook in `folder` and write it back."""
    notebook = nbformat.read(path, as_version=4)
    os.environ["PYTHONPATH"] = str(ROOT / "src")
    NotebookClient(notebook, timeout=None, resources={"metadata": {"path": str(folder)}}).execute()
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [_kept(each, folder) for each in cell.outputs if each.get("name") != "stderr"]
    notebook.metadata = {"kernelspec": notebook.metadata.kernelspec, "language_info": {"name": "python"}}
    nbformat.validate(notebook)
    nbformat.write(notebook, path)


def _kept(output: Any, folder: Path) -> Any:
    """An output as it is written: a page as its picture."""
    output.get("metadata", {}).clear()
    framed = _FRAMED.search(output.get("data", {}).get("text/html", ""))
    if framed:
        page = folder / "page.html"
        page.write_text(html.unescape(framed[1]), encoding="utf-8")
        shoot(page, folder / "page.png", folder, width=_WIDTH, height=_HEIGHT)
        output.data = {"image/png": base64.b64encode(_fewer_colours(folder / "page.png")).decode()}
    return output


def _fewer_colours(png: Path) -> bytes:
    from PIL import Image

    packed = io.BytesIO()
    Image.open(png).convert("RGB").quantize(_COLOURS).save(packed, "png", optimize=True)
    return packed.getvalue()


def main(names: list[str]) -> None:
    """Run those that are named, or all."""
    for path in [FOLDER / f"{name}.ipynb" for name in names] or sorted(FOLDER.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as folder:
            run(path, Path(folder))
        print(path.relative_to(ROOT), f"{path.stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
