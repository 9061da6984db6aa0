"""The page of a comparison of agents."""

from __future__ import annotations

from pathlib import Path

from intertwine.agents.comparing import AGAINST, AgentComparison
from intertwine.agents.figures import AXES, average_rows, network_name, panel_rows, relation_panels
from intertwine.pages.page import Page
from intertwine.pages.panel_figures import interval_text

_SHORT = {"jsd": "divergence of actions", "spearman": "agreement of actions"}
_CAPTION = "A point is a pair of agents. Rows: where they are tested; columns: where they were trained."
_WHAT = (
    "A point is a pair of agents that were trained in the same environment: linear CKA of the features "
    "before the heads, against how alike their actions are, both on states from rollouts of both policies. "
    "Green: both agents are optimal (mean reward above 0.8 in the environment of training), magenta: optimal "
    "and mediocre, blue: optimal and poor (below 0.2), orange: everything else."
)
_HOW = (
    "rho is Spearman's rank correlation over the pairs of a panel. Intervals: 95 %, seeds resampled (pairs "
    "that share an agent are not independent); none below three seeds."
)


def write_page(comparison: AgentComparison, path: str | Path) -> Path:
    """A grid of panels for each network and measure, averages, and a table of all panels."""
    page = Page("Agents: representation against function")
    page.finding(agents_finding(comparison))
    for bottleneck in comparison.networks:
        for against in AGAINST:
            page.section(f"{network_name(bottleneck)}: CKA against {AXES[against][0]}")
            page.figure(relation_panels(comparison.of(bottleneck), against), _CAPTION)
    page.section("What is related to what", f"{_WHAT}\n\n{_HOW}")
    page.table(average_rows(comparison))
    page.section("Every panel", folded=True)
    page.table(panel_rows(comparison))
    return page.write(path)


def agents_finding(comparison: AgentComparison) -> str:
    """Whether agents that are alike inside act alike, in one sentence."""
    parts = []
    for bottleneck in comparison.networks:
        rhos = (interval_text(comparison.mean_rho(bottleneck, against)) for against in AGAINST)
        said = " and ".join(
            f"{rho} with their {_SHORT[what]}" for rho, what in zip(rhos, AGAINST, strict=True)
        )
        parts.append(f"with {network_name(bottleneck)}, CKA of their features correlates {said}")
    pairs = sum(len(panel.pairs) for panel in comparison.panels)
    return f"Over {pairs:,} pairs of agents {'; '.join(parts)} (mean rank correlation over panels)."
