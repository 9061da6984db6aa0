"""`compare`: the agents of a zoo with each other, in representation and in function.

Section 3.5 of source 003. A *panel* holds all pairs of the agents that were trained in one environment with
one kind of network, on states of one test environment: Figure 3.6 is a grid of panels, and Table 3.1 the
mean of their rhos.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from intertwine.agents.environments import make_environment
from intertwine.agents.pairs import PolicyPair
from intertwine.agents.snapshots import GRADES, Snapshot, digest, read_zoo
from intertwine.agents.tasks import read_found
from intertwine.comparing.statistics import Interval
from intertwine.comparing.trend import Trend, fit_trend, mean_rho
from intertwine.errors import DataError, InputError, Unsupported
from intertwine.progress import Progress
from intertwine.sweeping.run import run_tasks
from intertwine.sweeping.store import ResultStore
from intertwine.sweeping.task import Task

Against = Literal["jsd", "spearman"]
AGAINST: tuple[Against, ...] = ("jsd", "spearman")
# The colours of Figure 3.6, by the grades of a pair; the order in which they are drawn.
GROUPS = ("others", "optimal and poor", "optimal and mediocre", "both optimal")


@dataclass(frozen=True)
class Panel:
    """All pairs of agents of one kind on one test environment."""

    trained: str
    tested: str
    bottleneck: int | None
    agents: tuple[Snapshot, ...]
    rewards: tuple[float, ...]  # mean rewards in the test environment
    pairs: tuple[PolicyPair, ...]  # named by the agents' files

    @property
    def grades(self) -> dict[str, int]:
        """How many agents are optimal, mediocre and poor."""
        return {grade: sum(a.grade == grade for a in self.agents) for grade in GRADES}

    def points(self, against: Against, *, between: bool = False) -> dict[str, list[tuple[float, float, str]]]:
        """(CKA, other measure, label) of every pair for which both are defined, by group.

        between: only pairs of different seeds.
        """
        known = {agent.file: agent for agent in self.agents}
        found: dict[str, list[tuple[float, float, str]]] = {name: [] for name in GROUPS}
        for pair in self.defined(against, between):
            a, b = known[pair.a], known[pair.b]
            assert pair.cka is not None
            found[group_of(a, b)].append((pair.cka, float(getattr(pair, against)), f"{a} with {b}"))
        return found

    def defined(self, against: Against, between: bool) -> list[PolicyPair]:
        """The pairs for which CKA and the other measure are defined."""
        seeds = {agent.file: agent.seed for agent in self.agents}
        return [
            pair
            for pair in self.pairs
            if pair.cka is not None
            and getattr(pair, against) is not None
            and (not between or seeds[pair.a] != seeds[pair.b])
        ]

    def trend(self, against: Against, *, between: bool = False) -> Trend | None:
        """The line and rho of this panel; seeds are resampled, the same ones in every test environment."""
        return _trend(self, against, between)


@lru_cache(maxsize=256)  # a page, a table and an average ask for the same one
def _trend(panel: Panel, against: Against, between: bool) -> Trend | None:
    seeds = {agent.file: agent.seed for agent in panel.agents}
    chosen = panel.defined(against, between)
    return fit_trend(
        [float(pair.cka) for pair in chosen if pair.cka is not None],
        [float(getattr(pair, against)) for pair in chosen],
        [(seeds[pair.a], seeds[pair.b]) for pair in chosen],
        seed=sum(map(ord, panel.agents[0].kind)),
    )


def group_of(a: Snapshot, b: Snapshot) -> str:
    """Which colour a pair has.

    >>> good, bad = (Snapshot("", 0, 0, None, 7, reward) for reward in (0.9, 0.1))
    >>> group_of(good, good), group_of(bad, good), group_of(bad, bad)
    ('both optimal', 'optimal and poor', 'others')
    """
    grades = {a.grade, b.grade}
    if grades == {"optimal"}:
        return "both optimal"
    if "optimal" in grades:
        return f"optimal and {(grades - {'optimal'}).pop()}"
    return "others"


@dataclass(frozen=True)
class AgentComparison:
    """The panels of a zoo; `networks` are the bottlenecks that occur (None: the network without one)."""

    panels: tuple[Panel, ...]

    @property
    def networks(self) -> list[int | None]:
        return list(dict.fromkeys(panel.bottleneck for panel in self.panels))

    def of(self, bottleneck: int | None) -> tuple[Panel, ...]:
        """The panels of one kind of network."""
        return tuple(panel for panel in self.panels if panel.bottleneck == bottleneck)

    def mean_rho(self, bottleneck: int | None, against: Against, *, between: bool = False) -> Interval | None:
        """Mean of rho over all panels of one kind of network (a row of Table 3.1)."""
        trends = [panel.trend(against, between=between) for panel in self.of(bottleneck)]
        known = [trend for trend in trends if trend is not None]
        return mean_rho(known) if known else None

    def to_dict(self) -> dict[str, Any]:
        """Plain data: panels with their trends, agents and rewards, and the averages."""
        panels = []
        for panel in self.panels:
            row: dict[str, Any] = {
                "trained": panel.trained, "tested": panel.tested, "bottleneck": panel.bottleneck,
                "agents": len(panel.agents), "seeds": len({a.seed for a in panel.agents}),
                "pairs": len(panel.pairs),
                "grades": panel.grades,
            }  # fmt: skip
            for against in AGAINST:
                for between, name in ((False, against), (True, f"{against}, different seeds")):
                    trend = panel.trend(against, between=between)
                    row[name] = None if trend is None else asdict(replace(trend, draws=()))
            panels.append(row)
        averages = [
            {"bottleneck": b, "against": against, "different seeds only": between,
             "rho": self.mean_rho(b, against, between=between)}
            for b in self.networks for against in AGAINST for between in (False, True)
        ]  # fmt: skip
        return {"panels": panels, "averages": averages}


def compare(
    zoo: str | Path,
    environments: str | Sequence[str],
    *,
    bottleneck: int | Literal["all"] | None = "all",
    trained: Sequence[str] | None = None,
    states: int = 500,
    episodes: int = 20,
    seed: int = 0,
    backend: str = "joblib",
    jobs: int | None = None,
    progress: Progress | None = None,
) -> AgentComparison:
    """Every pair of agents that share environment of training and network, in each test environment.

    states: how many of each policy's rollouts are used; episodes: how many rollouts they are drawn from.
    `trained` and `bottleneck` choose among the agents of the zoo. Finished parts are kept in the zoo.
    """
    tests = [environments] if isinstance(environments, str) else list(environments)
    if not tests:
        raise InputError("no environment to compare in", do="give at least one")
    if states < 4 or episodes < 1:
        raise InputError(f"{states} states of {episodes} episodes", do="take at least 4 states of 1 episode")
    for name in tests:
        make_environment(name).close()
    folder, store = Path(zoo), ResultStore(Path(zoo))
    kinds = {kind: list(found) for kind, found in groupby(_chosen(folder, bottleneck, trained), _kind)}
    options = {"states": states, "episodes": episodes, "seed": seed}
    plan: list[tuple[str, list[Snapshot], list[Task], Task]] = []
    for kind, agents in kinds.items():
        for test in tests:
            rollouts = [
                _task("agent-rollouts", folder, list(own), {**options, "environment": test},
                      label=f"rollouts in {test}: {kind} seed {number}")
                for number, own in groupby(agents, lambda agent: agent.seed)
            ]  # fmt: skip
            pairs = Task.of("agent-pairs", {}, rollouts, f"pairs in {test}: {kind}")
            plan.append((test, agents, rollouts, pairs))
    waves = [[task for row in plan for task in row[2]], [row[3] for row in plan]]
    tally = run_tasks(waves, store, backend=backend, jobs=jobs, progress=progress)
    if tally.failed:
        first, reason = next(iter(tally.failed.items()))
        raise Unsupported(f"{len(tally.failed)} of {tally.tasks} parts failed", where=first, so=reason)
    return AgentComparison(tuple(_panel(store, *row) for row in plan))


def _kind(agent: Snapshot) -> str:
    return agent.kind


def _chosen(
    folder: Path, bottleneck: int | Literal["all"] | None, trained: Sequence[str] | None
) -> list[Snapshot]:
    everything = read_zoo(folder)
    chosen = [
        agent
        for agent in everything
        if bottleneck in ("all", agent.bottleneck) and (trained is None or agent.environment in trained)
    ]
    counts = {kind: len(list(found)) for kind, found in groupby(chosen, _kind)}
    if not counts or min(counts.values()) < 2:
        raise DataError(
            f"too few agents to compare: {counts or 'none'}",
            where=str(folder),
            do=f"it holds {', '.join(dict.fromkeys(agent.kind for agent in everything))}; train more seeds",
        )
    return chosen


def _task(kind: str, folder: Path, agents: list[Snapshot], inputs: dict[str, Any], label: str) -> Task:
    files = {agent.file: digest(folder / agent.file) for agent in agents}
    return Task.of(kind, {**inputs, "files": files}, label=label)


def _panel(store: ResultStore, test: str, agents: list[Snapshot], rollouts: list[Task], pairs: Task) -> Panel:
    rewards = {row["file"]: row["reward"] for task in rollouts for row in read_found(store, task)}
    return Panel(
        agents[0].environment, test, agents[0].bottleneck, tuple(agents),
        tuple(rewards[agent.file] for agent in agents),
        tuple(PolicyPair(**row) for row in read_found(store, pairs)),
    )  # fmt: skip
