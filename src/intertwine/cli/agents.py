"""intertwine agents: train policies of many seeds, and compare them in representation and in function."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from intertwine.terminal import types
from intertwine.terminal.declare import Subparsers, out, several, value, verb
from intertwine.terminal.runs import add_backend_arguments, progress_notes


def add_parser(subparsers: Subparsers[Any]) -> None:
    """Declare the verb and its two commands."""
    commands = several(subparsers, "agents", "train policies in grid worlds and compare them")
    _add_train(verb(commands, "train", run_train, "agents of many seeds, with snapshots", text="agents"))
    _add_compare(verb(commands, "compare", run_compare, "every pair of agents of a zoo", text="agents"))


def _add_train(parser: argparse.ArgumentParser) -> None:
    value(parser, "--env", types.any_text, "ENV", "an environment of minigrid", required=True)
    value(parser, "--seeds", types.any_text, "SEEDS", "0-9, 7 or 0-2,5 (default: 0)", default="0")
    value(parser, "--bottleneck", types.positive_int, "N", "features between the network and its heads")
    value(parser, "--steps", types.positive_int, "N", "of training, in all worlds together (default: 40960)")
    value(parser, "--stages", types.positive_int, "N",
        "snapshots on the way, besides the untrained agent (default: 5)")  # fmt: skip
    value(parser, "--learning-rate", types.positive_float, "X", "of Adam (default: 0.001)")
    value(parser, "--episodes", types.positive_int, "N", "for the mean reward of a snapshot (default: 20)")
    out(parser, "ZOO", "the folder of the agents", dest="zoo_out", required=True)
    add_backend_arguments(parser)


def _add_compare(parser: argparse.ArgumentParser) -> None:
    value(parser, "zoo", types.input_path, "ZOO", "a folder that `agents train` wrote")
    value(parser, "--env", types.any_text, "ENV", "environments for the rollouts", nargs="+", required=True)
    value(parser, "--trained", types.any_text, "ENV", "only agents that were trained in these", nargs="+")
    value(parser, "--states", types.positive_int, "N", "states of each policy's rollouts (default: 500)",
        default=500)  # fmt: skip
    value(parser, "--episodes", types.positive_int, "N", "rollouts of each (default: 20)", default=20)
    value(parser, "--seed", types.any_seed, "N", "of the rollouts (default: 0)", default=0)
    out(parser, "PAGE", "write a page")
    add_backend_arguments(parser)


def run_train(args: argparse.Namespace) -> int | None:
    """Train what is not trained yet; exit code 1 if a seed failed."""
    from intertwine.agents import PPOSettings, train
    from intertwine.sweeping import parse_seeds
    from intertwine.terminal.output import print_json, print_table, say

    given = {name: getattr(args, name) for name in ("steps", "stages", "learning_rate", "episodes")}
    settings = PPOSettings(**{name: value for name, value in given.items() if value is not None})
    with progress_notes() as progress:
        done = train(
            args.env, parse_seeds(args.seeds), args.zoo_out, bottleneck=args.bottleneck, settings=settings,
            backend=args.backend, jobs=args.jobs, progress=progress,
        )  # fmt: skip
    if args.json:
        agents = [{**asdict(s), "grade": s.grade, "weights": done.path(s)} for s in done.snapshots]
        print_json({"zoo": done.zoo, "ran": done.ran, "failed": done.failed, "agents": agents})
    else:
        columns = ("seed", "step", "mean reward", "grade", "weights")
        rows = [(s.seed, s.step, s.reward, s.grade, done.path(s)) for s in done.snapshots]
        print_table(args.env, columns, rows, right=columns[:3])
        for label, error in done.failed.items():
            say(f"failed: {label}: {error}")
    return 1 if done.failed else 0


def run_compare(args: argparse.Namespace) -> int | None:
    """Gather rollouts, compare all pairs, print the averages and write the page."""
    from intertwine.agents import compare, write_page
    from intertwine.agents.figures import average_rows, panel_rows
    from intertwine.terminal.output import print_json, print_table, say

    with progress_notes() as progress:
        found = compare(
            args.zoo, args.env, trained=args.trained, states=args.states, episodes=args.episodes,
            seed=args.seed, backend=args.backend, jobs=args.jobs, progress=progress,
        )  # fmt: skip
    page = None if args.out is None else write_page(found, args.out)
    if args.json:
        print_json({**found.to_dict(), "page": page})
        return 0
    for title, rows in (("panels", panel_rows(found)), ("averages", average_rows(found))):
        print_table(title, list(rows[0]), [list(row.values()) for row in rows])
    if page is not None:
        say(f"wrote {page}")
    return 0
