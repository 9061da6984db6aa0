"""intertwine agents: train policies of many seeds, and compare them in representation and in function."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from intertwine.cli.arguments import any_seed, any_text, input_path, output_path, positive_float, positive_int
from intertwine.cli.runs import add_backend_arguments, progress_notes

_EPILOG = """examples:
  intertwine agents train --env MiniGrid-Empty-5x5-v0 --seeds 0-9 -o zoo
  intertwine agents train --env MiniGrid-Empty-5x5-v0 --seeds 0-9 --bottleneck 8 -o zoo
  intertwine agents compare zoo --env MiniGrid-Empty-6x6-v0 -o page.html
  intertwine agents compare zoo --env MiniGrid-Empty-5x5-v0 MiniGrid-Empty-6x6-v0 --json

ZOO gets ENV/seedN-stepT.safetensors for every seed and stage of training, and results/. The same command
goes on after an interruption. Any of these files works with the other verbs:
  intertwine verify zoo:minigrid-agent --weights zoo/MiniGrid-Empty-5x5-v0/seed0-step40960.safetensors
  (zoo:minigrid-agent-bottleneck for those with --bottleneck 8)

Needs the extra "rl": gymnasium, minigrid, stable-baselines3.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb and its two commands."""
    form = argparse.RawDescriptionHelpFormatter
    parser = subparsers.add_parser(
        "agents", help="train policies in grid worlds and compare them", epilog=_EPILOG, formatter_class=form
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_train(commands, form)
    _add_compare(commands, form)


def _add_train(commands: Any, form: type[argparse.HelpFormatter]) -> None:
    parser = commands.add_parser(
        "train", help="agents of many seeds, with snapshots", epilog=_EPILOG, formatter_class=form
    )
    parser.add_argument(
        "--env", type=any_text, metavar="ENV", required=True, help="an environment of minigrid"
    )
    parser.add_argument(
        "--seeds", type=any_text, default="0", metavar="SEEDS", help="0-9, 7 or 0-2,5 (default: 0)"
    )
    parser.add_argument(
        "--bottleneck", type=positive_int, metavar="N", help="features between the network and its heads"
    )
    parser.add_argument(
        "--steps", type=positive_int, metavar="N",
        help="of training, in all worlds together (default: 40960)",
    )  # fmt: skip
    parser.add_argument(
        "--stages", type=positive_int, metavar="N",
        help="snapshots on the way, besides the untrained agent (default: 5)",
    )  # fmt: skip
    parser.add_argument("--learning-rate", type=positive_float, metavar="X", help="of Adam (default: 0.001)")
    parser.add_argument(
        "--episodes", type=positive_int, metavar="N", help="for the mean reward of a snapshot (default: 20)"
    )
    parser.add_argument(
        "-o",
        "--out",
        dest="zoo_out",
        type=output_path,
        metavar="ZOO",
        required=True,
        help="the folder of the agents",
    )
    add_backend_arguments(parser)
    parser.set_defaults(run=run_train)


def _add_compare(commands: Any, form: type[argparse.HelpFormatter]) -> None:
    parser = commands.add_parser(
        "compare", help="every pair of agents of a zoo", epilog=_EPILOG, formatter_class=form
    )
    parser.add_argument("zoo", type=input_path, metavar="ZOO", help="a folder that `agents train` wrote")
    parser.add_argument(
        "--env", type=any_text, metavar="ENV", nargs="+", required=True, help="environments for the rollouts"
    )
    parser.add_argument(
        "--trained", type=any_text, metavar="ENV", nargs="+", help="only agents that were trained in these"
    )
    parser.add_argument(
        "--states", type=positive_int, default=500, metavar="N",
        help="states of each policy's rollouts (default: 500)",
    )  # fmt: skip
    parser.add_argument(
        "--episodes", type=positive_int, default=20, metavar="N", help="rollouts of each (default: 20)"
    )
    parser.add_argument("--seed", type=any_seed, default=0, metavar="N", help="of the rollouts (default: 0)")
    parser.add_argument("-o", "--out", type=output_path, metavar="PAGE", help="write a page")
    add_backend_arguments(parser)
    parser.set_defaults(run=run_compare)


def run_train(args: argparse.Namespace) -> int | None:
    """Train what is not trained yet; exit code 1 if a seed failed."""
    from intertwine.agents import Settings, train
    from intertwine.cli.output import print_json, print_table, say
    from intertwine.sweeping import parse_seeds

    given = {name: getattr(args, name) for name in ("steps", "stages", "learning_rate", "episodes")}
    settings = Settings(**{name: value for name, value in given.items() if value is not None})
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
    from intertwine.cli.output import print_json, print_table, say

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
