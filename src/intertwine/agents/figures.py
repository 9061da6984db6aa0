"""Figures 3.6, 3.8, A1 and A2 of source 003 (panels of pairs), 3.7 (the two networks), and tables of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from intertwine.agents.comparing import AGAINST, GROUPS, Against, AgentComparison, Panel
from intertwine.pages.panel_figures import Cell, interval_text, panel_figure
from intertwine.zoo.agent import VIEW, ActorCritic

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

COLOURS = dict(zip(GROUPS, ("#ff8c1a", "#2255dd", "#d627c8", "#2a9d3a"), strict=True))
_ROOM = 1.5  # above the highest point, for what is written in a panel
AXES: dict[Against, tuple[str, tuple[float, float]]] = {
    "jsd": ("Jensen-Shannon divergence of actions", (-0.02, 0.71)),
    "spearman": ("Spearman correlation of actions", (-1.05, 1.05)),
}


def short(environment: str) -> str:
    """An environment's name without what all of them have in common.

    >>> short("MiniGrid-Empty-5x5-v0")
    'Empty-5x5'
    """
    return environment.removeprefix("MiniGrid-").rpartition("-v")[0] or environment


def relation_panels(panels: Sequence[Panel], against: Against) -> Figure:
    """Rows: test environments; columns: environments of training."""
    cells = {
        (f"tested on {short(p.tested)}", f"trained on {short(p.trained)}"): Cell(
            p.points(against), p.trend(against)
        )
        for p in panels
    }
    title, (low, high) = AXES[against]
    found = [point[1] for cell in cells.values() for points in cell.points.values() for point in points]
    if against == "jsd":  # agents that have hardly learned act nearly alike; one scale for all panels
        high = min(high, _ROOM * max(*found, 0.05, 0.05))
        low = -0.03 * high
    x_title = "linear CKA of features"
    return panel_figure(cells, COLOURS, x_title=x_title, y_title=title, y_range=(low, high))


def panel_rows(comparison: AgentComparison) -> list[dict[str, Any]]:
    """A row for each panel: how many agents of which grade, slope and rho of both relations."""
    rows = []
    for panel in comparison.panels:
        row: dict[str, Any] = {
            "network": network_name(panel.bottleneck), "trained on": short(panel.trained),
            "tested on": short(panel.tested), "seeds": len({a.seed for a in panel.agents}),
            "optimal, mediocre, poor": ", ".join(map(str, panel.grades.values())),
            "pairs": len(panel.pairs),
        }  # fmt: skip
        for against in AGAINST:
            trend = panel.trend(against)
            row[f"slope, {against}"] = None if trend is None else trend.slope.value
            row[f"rho, {against}"] = interval_text(None if trend is None else trend.rho)
        rows.append(row)
    return rows


def average_rows(comparison: AgentComparison) -> list[dict[str, Any]]:
    """Table 3.1's rows of agents: rho averaged over all panels of a network."""
    return [
        {
            "network": network_name(bottleneck), "panels": len(comparison.of(bottleneck)),
            **{f"rho of CKA and {against}{text}":
               interval_text(comparison.mean_rho(bottleneck, against, between=between))
               for between, text in ((False, ""), (True, ", different seeds only")) for against in AGAINST},
        }
        for bottleneck in comparison.networks
    ]  # fmt: skip


def network_name(bottleneck: int | None) -> str:
    """What a network is called on a page."""
    return "64 features" if bottleneck is None else f"bottleneck of {bottleneck}"


def architecture_figure(bottleneck: int = 8) -> Figure:
    """Figure 3.7: the layers of both networks, as the modules say; where CKA is measured is marked."""
    from plotly.graph_objects import Figure

    figure = Figure()
    for column, (title, width) in enumerate((("original", None), ("bottleneck", bottleneck))):
        net = ActorCritic(bottleneck=width)
        trunk = [("view", "x".join(map(str, VIEW)), "#eef2f6"), *_boxes(net.features, torch.zeros(1, *VIEW))]
        trunk[-1] = (trunk[-1][0], trunk[-1][1] + " · CKA is measured here", "#ffe08a")
        left = 5.0 * column
        _column(figure, trunk, left + 2, 0)
        figure.add_annotation(x=left + 2, y=1.1, text=f"<b>{title}</b>", showarrow=False, font={"size": 15})
        features = net.features(torch.zeros(1, *VIEW))
        for name, head, x in (("actor", net.actor, left + 1), ("critic", net.critic, left + 3)):
            _arrow(figure, (left + 2, -len(trunk) + 0.65), (x, -len(trunk) - 0.35))
            boxes = _boxes(head, features)
            boxes[-1] = (boxes[-1][0], f"{boxes[-1][1]} · {name}", "#d7efdc")
            _column(figure, boxes, x, -len(trunk) - 0.7)
    figure.update_xaxes(visible=False, range=[-0.2, 9.2])
    figure.update_yaxes(visible=False, range=[-11.4, 1.6])
    figure.update_layout(
        template="plotly_white", height=680, width=980, margin={"l": 10, "r": 10, "t": 30, "b": 10}
    )
    return figure


def _boxes(layers: nn.Sequential, x: torch.Tensor) -> list[tuple[str, str, str]]:
    """(layer, shape of its output, colour) down a stack; flattening is not worth a box."""
    found = []
    with torch.no_grad():
        for layer in layers:
            x = layer(x)
            if isinstance(layer, nn.Flatten):
                continue
            name = type(layer).__name__
            if isinstance(layer, nn.Conv2d):
                name = f"convolution {layer.kernel_size[0]}x{layer.kernel_size[1]}"
            elif isinstance(layer, nn.Linear):
                name = "linear"
            elif isinstance(layer, nn.MaxPool2d):
                name = f"max pool {layer.kernel_size}x{layer.kernel_size}"
            weighty = any(True for _ in layer.parameters())
            found.append((name, "x".join(map(str, x.shape[1:])), "#cfe3f5" if weighty else "#f4f6f8"))
    return found


def _column(figure: Figure, boxes: Sequence[tuple[str, str, str]], x: float, top: float) -> None:
    for i, (name, shape, colour) in enumerate(boxes):
        y = top - i
        figure.add_shape(
            type="rect", x0=x - 0.95, x1=x + 0.95, y0=y - 0.33, y1=y + 0.33, fillcolor=colour,
            line={"color": "#8a97a6", "width": 1},
        )  # fmt: skip
        figure.add_annotation(
            x=x, y=y, text=f"{name}<br><span style='font-size:10px'>{shape}</span>", showarrow=False
        )
        if i:
            _arrow(figure, (x, y + 0.67), (x, y + 0.33))


def _arrow(figure: Figure, start: tuple[float, float], end: tuple[float, float]) -> None:
    figure.add_annotation(
        x=end[0], y=end[1], ax=start[0], ay=start[1], xref="x", yref="y", axref="x", ayref="y", text="",
        showarrow=True, arrowhead=2, arrowsize=1, arrowwidth=1.2, arrowcolor="#5b6675",
    )  # fmt: skip
