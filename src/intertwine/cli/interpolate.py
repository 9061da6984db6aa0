"""intertwine interpolate A B [C ...]: loss and accuracy along the line between models."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from intertwine.cli.align import check_same_graph
from intertwine.cli.arguments import (
    add_data_arguments,
    add_device_arguments,
    add_source_arguments,
    input_path,
    input_shape,
    load_dataset,
    load_side,
    model_spec,
    most,
    output_path,
    positive_int,
)
from intertwine.cli.registered import registered
from intertwine.errors import InputError

if TYPE_CHECKING:
    from intertwine.aligning import InterpolationCurve, LayerConnectivity
    from intertwine.zoo import Source

_EPILOG = """examples:
  intertwine interpolate zoo:digits-vgg zoo:digits-vgg --weights shipped:0 --weights shipped:1 \\
      --data digits --align --repair -o lmc.html
  intertwine interpolate zoo:tiny10 zoo:tiny10 zoo:tiny10 --weights a.safetensors --weights b.safetensors \\
      --weights c.safetensors --data parquet:test.parquet --normalize cifar10-legacy --repair reset --json

repair: none interpolates batch-norm statistics, reset recomputes them on the data, repair sets the mean and
deviation of every layer to those interpolated between the end points (Jordan et al. 2022)
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb."""
    parser = subparsers.add_parser(
        "interpolate",
        help="loss, accuracy and barrier along the line between models, aligned or not",
        description="Walk the line from A to B (and to C, ...) and say how high the loss rises.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "models", type=model_spec, metavar="MODEL", nargs="+", help="two or more models of one architecture"
    )
    parser.add_argument(
        "--weights",
        type=input_path,
        metavar="FILE",
        action="append",
        default=[],
        help="weights, once for each MODEL in order",
    )
    parser.add_argument("--input", type=input_shape, metavar="SHAPE", help="example input, such as 1x3x32x32")
    parser.add_argument(
        "--align", action="store_true", help="also after aligning by permutations and by the whole group"
    )
    parser.add_argument(
        "--by", choices=("weights", "activations", "both"), default="activations",
        help="what channels are compared by (default: activations on the data)",
    )  # fmt: skip
    parser.add_argument(
        "--repair", nargs="?", const="repair", default="none", choices=("none", "reset", "repair"),
        help="what is done about statistics, see below (alone: repair; default: none)",
    )  # fmt: skip
    parser.add_argument("--points", type=most(10_000), default=11, metavar="N", help="points (default: 11)")
    parser.add_argument(
        "--calibrate", type=positive_int, default=1000, metavar="N",
        help="inputs for statistics and activations (default: 1000)",
    )  # fmt: skip
    parser.add_argument("-o", "--output", type=output_path, metavar="FILE", help="write the page here")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    add_device_arguments(parser)
    add_source_arguments(parser)
    add_data_arguments(parser, required=True)
    parser.epilog = "\n".join(filter(None, [parser.epilog, registered()["model_help"]]))
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int | None:
    """Load, align, walk, write the page, print."""
    if len(args.models) < 2:
        raise InputError("one model makes no line", do="give two or more models")
    if args.weights and len(args.weights) != len(args.models):
        raise InputError(
            f"{len(args.models)} models but {len(args.weights)} --weights", do="give --weights once for each"
        )
    weights = args.weights or [None] * len(args.models)
    sources = [load_side(args, m, w) for m, w in zip(args.models, weights, strict=True)]
    check_same_graph(args.models, sources)
    data = load_dataset(args)
    calibration = data.take(args.calibrate)
    curves, middles = _curves(args, sources, data, calibration)
    layers = _llfc(args, middles, calibration)
    names = [f"{m} ({w})" if w else m for m, w in zip(args.models, weights, strict=True)]
    facts = {"models": ", ".join(names), "data": args.data, "inputs": len(data), "aligned by": args.by}
    if args.output:
        from intertwine.report.align_page import interpolation_page

        interpolation_page(curves, layers, facts).write(args.output)
    _print(args, curves, layers, facts)
    return 0


def _curves(
    args: argparse.Namespace, sources: list[Source], data: Any, calibration: Any
) -> tuple[list[InterpolationCurve], dict[str, list[Any]]]:
    """One curve for each way of aligning, and the aligned models."""
    from intertwine.aligning import align, interpolate
    from intertwine.cli.output import progress
    from intertwine.symmetry import act, trace

    first = sources[0]
    ts = [k / max(args.points - 1, 1) for k in range(args.points)]
    ways: tuple[Any, ...] = ("none", "permutation", "full") if args.align else ("none",)
    symmetry = trace(first.model, first.example, first.kwargs) if args.align else None
    curves, moved = [], {}
    with progress("points", len(ways) * args.points * (len(sources) - 1)) as advance:
        for way in ways:
            models = [s.model for s in sources]
            if symmetry is not None and way != "none":
                models[1:] = [
                    act(m, align(
                        first.model, m, symmetry, by=args.by, group=way, data=calibration, seed=args.seed
                    ).element)
                    for m in models[1:]
                ]  # fmt: skip
            curves.append(
                interpolate(
                    models, data, ts, repair=args.repair, statistics=calibration, label=way, progress=advance
                )
            )
            moved[way] = models
    return curves, moved


def _llfc(
    args: argparse.Namespace, moved: dict[str, list[Any]], data: Any
) -> dict[str, tuple[LayerConnectivity, ...]]:
    from intertwine.aligning import Mixer, check_llfc

    found = {}
    for way, models in moved.items():
        middle = Mixer(models[:2], args.repair, data).mixed([0.5, 0.5])
        found[way] = check_llfc(models[0], models[1], data, middle=middle, limit=200)
    return found


def _print(
    args: argparse.Namespace,
    curves: list[InterpolationCurve],
    layers: dict[str, tuple[LayerConnectivity, ...]],
    facts: dict[str, Any],
) -> None:
    from intertwine.cli.output import print_json, print_table, say
    from intertwine.report.align_page import curve_rows, layer_rows

    if args.json:
        found = {
            **facts, "curves": [c.to_dict() for c in curves], "llfc": layers, "page": args.output,
        }  # fmt: skip
        print_json(found)
        return
    columns, rows = curve_rows(curves)
    print_table(f"along the line; {curves[0].statistics}", columns, rows, right=columns[2:])
    columns, rows = layer_rows(layers)
    print_table(
        "cosine between features of the mean and mean of features (LLFC)", columns, rows, right=columns[1:]
    )
    if args.output:
        say(f"wrote {args.output}")
