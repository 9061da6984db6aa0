"""A figure as a PNG file that can stand alone: its caption is in the picture."""

from __future__ import annotations

import html
import textwrap
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from intertwine.errors import MissingExtra
from intertwine.files import replacing
from intertwine.text import first_line

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


_DO = "PNG needs `pip install kaleido` and a Chrome or Chromium browser; the HTML needs neither"


def write_png(
    figure: Figure,
    path: str | Path,
    caption: str = "",
    *,
    width: int = 900,
    height: int = 700,
    scale: float = 1,
) -> Path:
    """The figure under its caption, written beside and renamed."""
    path = Path(path)
    with replacing(path) as beside:
        try:
            titled(figure, caption).write_image(beside, width=width, height=height, scale=scale)
        except (ValueError, RuntimeError, ImportError) as error:
            reason = first_line(error)
            raise MissingExtra(
                f"cannot write {path.name}: {reason}",
                do=_DO,
            ) from error
    return path


def assert_png() -> None:
    """Raise MissingExtra where plotly's renderer is not installed: known before the work."""
    if find_spec("kaleido") is None:
        raise MissingExtra("kaleido is not installed", do=_DO)


def titled(figure: Figure, caption: str) -> Figure:
    """A copy with the caption as its title, in lines, above whatever the figure has in its top margin."""
    import plotly.graph_objects as go

    if not caption:
        return figure
    lines = [html.escape(line) for line in textwrap.wrap(caption, 110)]
    copy = go.Figure(figure)
    above = (figure.layout.margin.t or 40) + 18 * len(lines) + 6
    # Plotly centres the lines where it would put one.
    place = {"x": 0.02, "y": 0.99, "yanchor": "top", "pad": {"t": 9 * (len(lines) - 1)}}
    title = {"text": "<br>".join(lines), "font": {"size": 13}, **place}
    return copy.update_layout(title=title, margin={"t": above})
