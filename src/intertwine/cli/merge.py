"""intertwine merge: a smaller model by merging channels, and what it costs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from intertwine.errors import InputError
from intertwine.terminal import types
from intertwine.terminal.arguments import add_data_arguments, add_model_arguments
from intertwine.terminal.declare import Subparsers, choice, either, flag, json, out, value, verb
from intertwine.terminal.loading import finetuning, load_dataset, load_model, load_train_split
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
        more=_methods())  # fmt: skip
    add_model_arguments(parser)
    goal = parser.add_mutually_exclusive_group()
    value(goal, "--beta", types.fraction, "B", "threshold from 0 to 1 (default: 0.1)")
    value(goal, "--betas", types.fractions, "B,B,...", "sweep thresholds (default: the paper's grid)",
        nargs="?", const=())  # fmt: skip
    value(goal, "--target-params", types.share, "SHARE", "share of parameters to keep")
    value(goal, "--target-flops", types.share, "SHARE", "share of FLOPs to keep")
    value(goal, "--max-drop", types.fraction, "DROP", "accuracy that may be lost; needs --data")
    methods = registered()["methods"]
    usual = next(iter(methods))
    choice(parser, "--method", list(methods),
        f"({usual}; sequential where there is attention and a target); see below")  # fmt: skip
    flag(parser, "--paper", "the source's method, as released")
    for name, (method, choices, text) in registered()["parameters"].items():
        choice(parser, f"--{name}", choices, f"of {method}: {text} ({choices[0]})")
    choice(parser, "--repair", registered()["repairs"], "refit what reads merged channels")
    either(parser, "--fold", "fold the norms of a pre-norm network, so that its stream is cut"
        " (sequential does where that adds few parameters)")  # fmt: skip
    either(parser, "--factor", "make products of tables of tokens, so that their rank is cut (the same)")
    value(parser, "--max-ratio", types.fraction, "SHARE", "largest share of an axis to merge (1.0)",
        default=1.0)  # fmt: skip
    value(parser, "--axes", types.any_text, "PATTERN", "only axes that match, 'layer[34].*'", action="append")
    value(parser, "--ignore", types.any_text, "PATTERN", "leave matching axes alone", default=[],
        action="append")  # fmt: skip
    value(parser, "--ratio", types.pattern_share, "PATTERN=SHARE",
        "merge away this share of matching axes, 'mlp.*=0.5'", default=[], action="append")  # fmt: skip
    flag(parser, "--uniform", "one width for all layers that share a number of the config")
    value(parser, "--multiple", types.most(4096), "N", "of which widths are (1)", default=1)
    value(parser, "--finetune", types.most(10_000), "EPOCHS", "then train it by --data; OUT.run resumes")
    out(parser, "OUT", "folder for the smaller model")
    choice(parser, "--export", ("torch", "onnx"), "also OUT.pt2 or OUT.onnx, if it computes the same")
    flag(parser, "--latency", "time a call before and after, here")
    value(parser, "--plan", types.output_path, "FILE", "write the plan as JSON")
    value(parser, "--page", types.output_path, "FILE.html", "write a page: what was lost")
    add_data_arguments(parser)
    json(parser, "print JSON")


def run(args: argparse.Namespace) -> int:
    """Load, merge, save, print."""
    from intertwine.merging import PAPER_BETAS, merge, merge_betas
    from intertwine.merging.deploy import export_model, latency
    from intertwine.zoo import save_model
    from intertwine.zoo.saving import assert_savable

    _assert_sensible(args)
    source, train = load_model(args), finetuning(args)
    if args.out:
        assert_savable(source)
    call = (source.example, source.kwargs)
    args.ratio = dict(args.ratio)
    options = {name: getattr(args, name) for name in (*_OPTIONS, *registered()["parameters"])}
    options |= {"kwargs": source.kwargs, "data": load_dataset(args) if args.data is not None else None}
    if args.repair == "data" or (args.method in _MEASURES and args.data is not None and not args.paper):
        options["train_data"] = load_train_split(args)
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
    if args.plan:
        write_text(args.plan, result.plan.to_json())
    if args.page:
        result.page(facts=_facts(args)).write(args.page)
    if args.out:
        save_model(result.model, source, args.out, result.details(args.input))
    more: dict[str, Any] = {"out": args.out} if args.out else {}
    if args.export:
        more["export"] = export_model(result.model, *call, args.out, args.export).to_dict()
    if args.latency:
        more["latency_before"] = latency(source.model, *call)
        more["latency_after"] = latency(result.model, *call)
    show(args, result, more)
    if not args.json:
        for line in _written(more):
            say(line)
        if args.page:
            say(f"wrote {args.page}")
    return 0


def _assert_sensible(args: argparse.Namespace) -> None:
    """What options ask of each other, before any work."""
    from intertwine.files import assert_folder_replaceable
    from intertwine.merging.storage import why_not_replace

    if args.max_drop is not None and args.data is None:
        raise InputError("--max-drop needs data to measure accuracy on", do="give --data")
    if args.repair == "data" and args.data is None:
        raise InputError("--repair data needs data", do="give --data")
    if args.betas is not None and args.out:
        raise InputError("--betas makes many models, OUT holds one", do="leave out -o, or choose one --beta")
    if args.out:
        assert_folder_replaceable(args.out, why_not_replace)
    if args.export and not args.out:
        raise InputError("--export writes beside OUT", do="give -o OUT")


def _written(more: dict[str, Any]) -> list[str]:
    """What was written and timed, in words."""
    from intertwine.zoo.saving import CODE

    lines = []
    if "out" in more:
        code = (Path(more["out"]) / CODE).is_file()
        needs = f", with {CODE}: from_pretrained needs trust_remote_code=True" if code else ""
        lines.append(f"out: {more['out']}{needs}")
    if "export" in more:
        found = more["export"]
        batches = ", ".join(map(str, found["batches"]))
        lines.append(
            f"export: {found['path']}, off by {found['max_error']:.1e} of the outputs at batches of {batches}"
        )
    if "latency_before" in more:
        before, after = more["latency_before"], more["latency_after"]
        lines.append(f"latency: {1e3 * before:.3g} -> {1e3 * after:.3g} ms a call ({after / before:.1%})")
    return lines


def _facts(args: argparse.Namespace) -> dict[str, Any]:
    return {"model": args.model, "weights": args.weights, "data": args.data, "seed": args.seed}


def _methods() -> str:
    """The registered methods, a line each."""
    lines = (f"  {name:<10} {text}" for name, text in registered()["methods"].items())
    return "\nmethods:\n" + "\n".join(lines)
