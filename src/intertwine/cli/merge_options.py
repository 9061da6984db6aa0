"""The options of `intertwine merge`, what they ask of each other, and what it says at the end."""

from __future__ import annotations

import argparse
from typing import Any

from intertwine.errors import InputError
from intertwine.terminal import types
from intertwine.terminal.declare import Options, choice, either, flag, out, value
from intertwine.terminal.registered import registered


def add_goal(goal: Options) -> None:
    """How small, or how equal: one of them."""
    value(goal, "--beta", types.fraction, "B", "threshold from 0 to 1 (default: 0.1)")
    value(goal, "--betas", types.fractions, "B,B,...", "sweep thresholds (default: the paper's grid)",
        nargs="?", const=())  # fmt: skip
    value(goal, "--target-params", types.share, "SHARE", "share of parameters to keep")
    value(goal, "--target-flops", types.share, "SHARE", "share of FLOPs to keep")
    value(goal, "--max-drop", types.fraction, "DROP", "accuracy that may be lost; needs --data")


def add_ways(parser: Options) -> None:
    """What is merged, and how."""
    known = registered()["methods"]
    usual = next(iter(known))
    choice(parser, "--method", list(known),
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


def add_results(parser: Options) -> None:
    """What is done with the smaller model, and what is written."""
    value(parser, "--finetune", types.most(10_000), "EPOCHS", "then train it by --data; OUT.run resumes")
    out(parser, "OUT", "folder for the smaller model")
    choice(parser, "--export", ("torch", "onnx"), "also OUT.pt2 or OUT.onnx, if it computes the same")
    flag(parser, "--latency", "time a call before and after, here")
    value(parser, "--plan", types.output_path, "FILE", "write the plan as JSON")
    value(parser, "--page", types.output_path, "FILE.html", "write a page: what was lost")


def methods() -> str:
    """The registered methods, a line each."""
    lines = (f"  {name:<10} {text}" for name, text in registered()["methods"].items())
    return "\nmethods:\n" + "\n".join(lines)


def assert_sensible(args: argparse.Namespace) -> None:
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


def in_words(more: dict[str, Any]) -> list[str]:
    """What was written and timed, in words."""
    from intertwine.zoo.saving import how_to_load

    lines = []
    if "out" in more:
        lines.append(f"out: {more['out']}{how_to_load(more['out'])}")
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
