"""intertwine merge: a smaller model by merging channels, and what it costs."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from typing import Any

from intertwine.cli.merge_options import (
    add_goal,
    add_results,
    add_ways,
    assert_sensible,
    in_words,
    methods,
)
from intertwine.terminal.arguments import add_data_arguments, add_model_arguments
from intertwine.terminal.declare import Subparsers, json, verb
from intertwine.terminal.loading import finetuning, framed, load_dataset, load_model, load_train_split
from intertwine.terminal.output import say, write_text
from intertwine.terminal.registered import registered
from intertwine.terminal.showing import bar, show

_GOALS = ("beta", "target_params", "target_flops", "max_drop")
_OPTIONS = ("method", "paper", "repair", "max_ratio", "axes", "ignore", "ratio", "uniform", "multiple")
_MEASURES = (None, "sequential")  # methods that measure where there is data, and do without it otherwise


def add_parser(subparsers: Subparsers[Any]) -> None:
    """Declare the verb."""
    parser = verb(subparsers, "merge", run, "merge channels that are equal or nearly so into a smaller model",
        "Merge channels on every axis that the symmetry allows, and write a smaller model.",
        more=methods())  # fmt: skip
    add_model_arguments(parser)
    add_goal(parser.add_mutually_exclusive_group())
    add_ways(parser)
    add_results(parser)
    add_data_arguments(parser)
    json(parser, "print JSON")


def run(args: argparse.Namespace) -> int:
    """Load, merge, save, print."""
    from intertwine.files import write_into
    from intertwine.merging import PAPER_BETAS, merge, merge_betas
    from intertwine.merging.deploy import exporting, latencies
    from intertwine.zoo import save_model
    from intertwine.zoo.saving import assert_savable

    assert_sensible(args)
    source, train = load_model(args), finetuning(args)
    source = framed(source) if args.data is None and args.method in _MEASURES else source
    if args.out:
        assert_savable(source)
    call = (source.example, source.kwargs)
    args.ratio = dict(args.ratio)
    options = {name: getattr(args, name) for name in (*_OPTIONS, *registered()["parameters"])}
    options |= {"kwargs": source.kwargs, "data": None if args.data is None else _measured(args, train)}
    if args.repair == "data" or (args.method in _MEASURES and args.data is not None and not args.paper):
        options["train_data"] = load_train_split(args) if train is None else train.data.train
    with bar() as progress:
        if args.betas is not None:
            curve = merge_betas(source.model, source.example, args.betas or PAPER_BETAS,
                                progress=progress, **options)  # fmt: skip
            if args.page:
                curve.page(facts=_facts(args)).write(args.page)
            show(args, curve)
            return 0
        goals = {name: getattr(args, name) for name in _GOALS}
        options |= {"fold": args.fold, "factor": args.factor, "finetune": train}
        result = merge(source.model, source.example, progress=progress, **goals, **options)
    more: dict[str, Any] = {"out": args.out} if args.out else {}
    with ExitStack() as written:  # files take their places once all of them, and the folder, are there
        if args.export:  # first: it may turn out not to be possible
            export = exporting(result.model, *call, args.out, args.export)
            more["export"] = written.enter_context(export).to_dict()
        if args.plan:
            write_into(written, args.plan, lambda path: write_text(path, result.plan.to_json()))
        if args.page:
            write_into(written, args.page, result.page(facts=_facts(args)).write)
        if args.out:
            save_model(result.model, source, args.out, result.details(args.input))
    if args.latency:
        times = latencies([source.model, result.model], *call)
        more |= dict(zip(("latency_before", "latency_after"), times, strict=True))
    show(args, result, more)
    if not args.json:
        for line in in_words(more):
            say(line)
        if args.page:
            say(f"wrote {args.page}")
    return 0


def _measured(args: argparse.Namespace, train: Any) -> Any:
    """The data of --data that nothing is trained on."""
    if train is None:
        return load_dataset(args)
    return train.data.test if args.limit is None else train.data.test.take(args.limit)


def _facts(args: argparse.Namespace) -> dict[str, Any]:
    return {"model": args.model, "weights": args.weights, "data": args.data, "seed": args.seed}
