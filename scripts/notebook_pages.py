"""A hook of mkdocs: every notebook of docs/ is a page of the site, with what it printed and showed.

The notebook stays the one source. As Markdown it goes through the same links, search and theme as every other
page, and nothing is loaded from elsewhere.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

_LINK = re.compile(r"\]\(([\w./-]+)\.ipynb(#[\w-]+)?\)")


def to_markdown(notebook: dict[str, Any]) -> str:
    """The cells one after the other.

    >>> code = {"cell_type": "code", "source": ["1 + 1"], "outputs": [{"data": {"text/plain": ["2"]}}]}
    >>> print(to_markdown({"cells": [{"cell_type": "markdown", "source": ["# Sum"]}, code]}))
    # Sum
    <BLANKLINE>
    ```python
    1 + 1
    ```
    <BLANKLINE>
    ```text
    2
    ```
    """
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif source:
            parts += [_fenced(source, "python"), *map(_shown, cell["outputs"])]
    return "\n\n".join(filter(None, parts))


def _shown(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        picture = "".join(data["image/png"]).replace("\n", "")
        return f"![the page that this cell shows](data:image/png;base64,{picture})"
    if "text/html" in data:
        return "".join(data["text/html"])
    return _fenced("".join(data.get("text/plain", output.get("text", ""))).rstrip(), "text")


def _fenced(text: str, kind: str) -> str:
    return f"```{kind}\n{text}\n```" if text else ""


def on_files(files: Any, config: Any) -> Any:
    """Notebooks become Markdown pages of the same name."""
    from mkdocs.structure.files import File

    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            text = to_markdown(json.loads(Path(file.abs_src_path).read_text(encoding="utf-8")))
            files.remove(file)
            files.append(File.generated(config, file.src_uri.removesuffix(".ipynb") + ".md", content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links to notebooks lead to their pages."""
    return _LINK.sub(lambda found: f"]({found[1]}.md{found[2] or ''})", markdown)
