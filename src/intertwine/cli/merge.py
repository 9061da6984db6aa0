"""intertwine merge: a smaller model by merging channels, and what it costs."""

from __future__ import annotations

import argparse
from typing import Any

from intertwine import numbers
from intertwine.cli.arguments import (
    Checked,
    add_data_arguments,
    add_model_arguments,
    any_text,
    fraction,
    fractions,
    load_dataset,
    load_model,
    load_train_split,
    most,
    output_path,
    share,
)
from intertwine.cli.output import say, write_text
from intertwine.cli.registered import registered
from intertwine.cli.showing import bar, show
from intertwine.errors import InputError

_EPILOG = """examples:
  intertwine merge zoo:digits-vgg --weights shipped:0 --target-params 0.5 --data digits -o small --page p.html
  intertwine merge zoo:vgg16 --weights vgg16.safetensors --paper --beta 0.1 -o small
  intertwine merge zoo:vgg16 --weights vgg16.safetensors --paper --betas
  intertwine merge torchvision:resnet18 --weights r18.pth --axes 'layer[34].*' --target-flops 0.7 -o small
  intertwine merge zoo:tiny10 --weights t.safetensors --max-drop 0.01 --data parquet:test.parquet \\
      --normalize cifar10-legacy -o small
  intertwine merge hf:DIR --target-params 0.8 --uniform --multiple 8 --data text:a.txt --context 64 -o small
  intertwine merge hf:DIR --ratio 'mlp.*=0.5' --ignore 'layers.0.*' -o small

  intertwine merge zoo:nanogpt64 --weights gpt.safetensors --method sequential --fold \\
      --target-params 0.7 -o small
  intertwine merge hf:DIR --method sequential --factor --target-params 0.8 --data text:a.txt -o small

With moments, beta is the relative error that each axis may reach; the moments are propagated through the
graph without data.
--paper is Iterative Feature Merging as released (ifm, interleaved, batch-norm parameters summed).
OUT is written in the form that the model came in: of hf:DIR, a folder that from_pretrained reads without
intertwine (--uniform lets config.json say the widths; without it a small modeling_narrow.py does, and loading
needs trust_remote_code); of any other, weights.safetensors and recipe.json. intertwine.load(OUT) reads both.
"""
_GOALS = ("beta", "target_params", "target_flops", "max_drop")
_OPTIONS = ("method", "paper", "repair", "max_ratio", "axes", "ignore", "ratio", "uniform", "multiple")
_DATA_FOR = "sequential"  # the method that measures where there is data, and does without it otherwise


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb."""
    parser = subparsers.add_parser(
        "merge",
        help="merge channels that are equal or nearly so into a smaller model",
        description="Merge channels on every axis that the symmetry allows, and write a smaller model.",
        epilog=_EPILOG + _methods(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model_arguments(parser)
    goal = parser.add_mutually_exclusive_group()
    goal.add_argument("--beta", type=fraction, metavar="B", help="threshold from 0 to 1 (default: 0.1)")
    goal.add_argument("--betas", type=fractions, nargs="?", const=(), metavar="B,B,...",
                      help="sweep thresholds (default: the paper's grid)")  # fmt: skip
    goal.add_argument("--target-params", type=share, metavar="SHARE", help="share of parameters to keep")
    goal.add_argument("--target-flops", type=share, metavar="SHARE", help="share of FLOPs to keep")
    goal.add_argument(
        "--max-drop", type=fraction, metavar="DROP", help="accuracy that may be lost; needs --data"
    )
    methods = registered()["methods"]
    parser.add_argument("--method", choices=list(methods), help=f"({next(iter(methods))}); see below")
    parser.add_argument("--paper", action="store_true", help="the source's method, as released")
    for name, (method, choices, text) in registered()["parameters"].items():
        parser.add_argument(f"--{name}", choices=choices, help=f"of {method}: {text} ({choices[0]})")
    parser.add_argument("--repair", choices=registered()["repairs"], help="refit what reads merged channels")
    parser.add_argument(
        "--fold", action="store_true", help="fold the norms of a pre-norm network, so that its stream is cut"
    )
    parser.add_argument("--factor", action="store_true",
                        help="make products of tables of tokens, so that their rank is cut")  # fmt: skip
    parser.add_argument("--max-ratio", type=fraction, default=1.0, metavar="SHARE",
                        help="largest share of an axis to merge (1.0)")  # fmt: skip
    parser.add_argument("--axes", type=any_text, action="append", metavar="PATTERN",
                        help="only axes that match, 'layer[34].*'")  # fmt: skip
    parser.add_argument("--ignore", type=any_text, action="append", default=[], metavar="PATTERN",
                        help="leave matching axes alone")  # fmt: skip
    parser.add_argument("--ratio", type=pattern_shares, action="append", default=[], metavar="PATTERN=SHARE",
                        help="merge away this share of matching axes, 'mlp.*=0.5'")  # fmt: skip
    parser.add_argument(
        "--uniform", action="store_true", help="one width for all layers that share a number of the config"
    )
    parser.add_argument("--multiple", type=most(4096), default=1, metavar="N", help="of which widths are (1)")
    parser.add_argument("-o", "--out", type=output_path, metavar="OUT", help="folder for the smaller model")
    parser.add_argument(
        "--export", choices=("torch", "onnx"), help="also OUT.pt2 or OUT.onnx, if it computes the same"
    )
    parser.add_argument("--latency", action="store_true", help="time a call before and after, here")
    parser.add_argument("--plan", type=output_path, metavar="FILE", help="write the plan as JSON")
    parser.add_argument("--page", type=output_path, metavar="FILE.html", help="write a page: what was lost")
    add_data_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Load, merge, save, print."""
    from intertwine.files import assert_folder_replaceable
    from intertwine.merging import PAPER_BETAS, merge, merge_betas
    from intertwine.merging.deploy import export_model, latency
    from intertwine.merging.storage import why_not_replace
    from intertwine.zoo import save_model

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
    source = load_model(args)
    call = (source.example, source.kwargs)
    args.ratio = dict(args.ratio)
    options = {name: getattr(args, name) for name in (*_OPTIONS, *registered()["parameters"])}
    options |= {"kwargs": source.kwargs, "data": load_dataset(args) if args.data is not None else None}
    if args.repair == "data" or (args.method == _DATA_FOR and args.data is not None):
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
        options |= {"fold": args.fold, "factor": args.factor}
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
        for name, value in more.items():
            say(f"{name}: {value}")
    return 0


def _pattern_share(text: str) -> tuple[str, float]:
    """PATTERN=SHARE."""
    pattern, _, share = text.rpartition("=")
    if not pattern:
        raise InputError(f"{text!r} is not PATTERN=SHARE", do="write 'mlp.*=0.5'")
    return pattern, numbers.below_one(share)


pattern_shares = Checked(_pattern_share)


def _facts(args: argparse.Namespace) -> dict[str, Any]:
    return {"model": args.model, "weights": args.weights, "data": args.data, "seed": args.seed}


def _methods() -> str:
    """The registered methods, a line each."""
    lines = (f"  {name:<10} {text}" for name, text in registered()["methods"].items())
    return "\nmethods:\n" + "\n".join(lines)
