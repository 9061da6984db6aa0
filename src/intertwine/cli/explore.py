"""intertwine explore: find and draw the equivalence class of a model's parameters (source 004)."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intertwine import numbers
from intertwine.cli.arguments import (
    Checked,
    add_data_arguments,
    add_model_arguments,
    input_path,
    load_dataset,
    load_model,
    memory,
    momentum,
    output_path,
    positive_float,
    positive_int,
    seconds,
)
from intertwine.cli.showing import bar, show
from intertwine.errors import InputError

if TYPE_CHECKING:
    from intertwine.zoo import Source

_OPTIONS = (
    "limit", "loss", "batch_norm", "dim", "points", "bound", "epsilon", "full", "memory", "seconds",
    "quotient",
)  # fmt: skip
_SEARCH = (
    "optimizer", "learning_rate", "momentum", "steps", "population", "tolerance", "starts", "spread", "batch",
)  # fmt: skip
_EPILOG = """examples:
  intertwine explore zoo:lenet5 --limit 256 -o lenet.html
  intertwine explore net.py:make --dim 3 --points 50 --bound 2 --epsilon 0.0025 -o net.html
  intertwine explore zoo:digits-vgg --weights shipped:0 --starts perturbed --data digits -o digits.html
  intertwine explore zoo:digits-vgg --weights shipped:0 --plane random --loss cross_entropy --data digits
  intertwine explore zoo:tiny10 --plane a.safetensors b.safetensors c.safetensors --data parquet:test.parquet

Starts that never converge end with exit code 1; the best points are kept as *.best.safetensors.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb."""
    parser = subparsers.add_parser(
        "explore",
        help="find and draw the equivalence class of a parameter",
        description="Find parameters that compute the same function from random starts, span their plane,\n"
        "evaluate J on a grid of it and draw it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model_arguments(parser)
    _add_search_arguments(parser)
    _add_picture_arguments(parser)
    add_data_arguments(parser)
    parser.set_defaults(run=run)


def _add_search_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("search").add_argument
    add("--optimizer", choices=("sgd", "adam", "lbfgs"), default="adam", help="default: adam")
    rates = "(default: sgd 0.015, adam 0.01, lbfgs 1)"
    add("--learning-rate", type=positive_float, metavar="RATE", help=rates)
    add("--momentum", type=momentum, default=0.0, metavar="M", help="of sgd (default: 0)")
    add("--steps", type=positive_int, metavar="N", help="most steps (default: by cost)")
    long = "about how long searching, and evaluating, may take by default (default: 60 each)"
    add("--seconds", type=seconds, default=60.0, metavar="S", help=long)
    add("--population", type=positive_int, metavar="N", help="starts that run together")
    found = "J of a found point (default: variance of outputs / 1000)"
    add("--tolerance", type=positive_float, metavar="J", help=found)
    auto = "auto (default): random where affordable, then nearer and nearer to theta"
    add("--starts", choices=("auto", "random", "perturbed"), default="auto", help=auto)
    add("--spread", type=positive_float, metavar="S", help="of perturbed starts (default: 0.5)")
    stored = "statistics of batch norm: those of the model, or of C (default: stored)"
    add("--batch-norm", choices=("stored", "batch"), default="stored", help=stored)


def _add_picture_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("picture").add_argument
    one_to_four = Checked(numbers.Whole(1, 4))
    add("--dim", type=one_to_four, default=2, metavar="N", help="of the plane, 1 to 4 (default: 2)")
    add("--points", type=positive_int, metavar="N", help="grid points along an axis (default: by cost)")
    bound = "the grid goes from -BOUND to BOUND (default: shows the points and the level)"
    add("--bound", type=positive_float, metavar="B", help=bound)
    add("--epsilon", type=positive_float, metavar="J", help="level of the set (default: 10 x tolerance)")
    add("--full", action="store_true", help="evaluate every grid point, not only near the level")
    add("--memory", type=memory, default=2**29, metavar="BYTES", help="such as 2GB (default: 512MB)")
    what = "equivalents (default), random (filter-normalised), or 2 to 5 weights files"
    add("--plane", type=input_path, nargs="+", default=["equivalents"], metavar="WHAT", help=what)
    add("--loss", choices=("J", "cross_entropy"), default="J", help="what is drawn (default: J)")
    add("--quotient", action="store_true", help="divide the known symmetries out of the points first")
    add("--no-orbit", action="store_true", help="do not infer symmetries and draw the orbit")
    add("--png", action="store_true", help="also write each figure as PNG beside the page")
    add("--save", type=output_path, metavar="DIR", help="also keep sample, plane and landscape as files")
    page = "explore.html"
    add("-o", "--out", type=output_path, metavar="FILE", default=page, help="default: explore.html")
    add("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int | None:
    """Load, explore, draw, print."""
    from intertwine.cli.output import say
    from intertwine.exploring import NotConverged, explore
    from intertwine.exploring.storage import assert_ours
    from intertwine.pages.explore_page import draw
    from intertwine.pages.png import write_png

    out = Path(args.out)
    if not out.absolute().parent.is_dir():
        raise InputError(f"the folder of {args.out} does not exist", do="make it, or choose another -o")
    for name in ("sample", "plane", "landscape") if args.save is not None else ():
        assert_ours(Path(args.save) / f"{name}.safetensors")  # known before the work
    source = load_model(args)
    if args.data is None and source.kwargs:
        raise InputError(
            f"{source.name} takes keyword inputs", so="explore calls a model with tensors only",
            do="wrap it in a module with tensor arguments and one tensor output",
        )  # fmt: skip
    search = {name: getattr(args, name) for name in _SEARCH} if args.plane == ["equivalents"] else {}
    try:
        with bar() as progress:
            found = explore(
                source.model, source.example, data=load_dataset(args) if args.data is not None else None,
                plane=_plane(args, source), orbit=not args.no_orbit, seed=args.seed, progress=progress,
                **{name: getattr(args, name) for name in _OPTIONS}, **search,
            )  # fmt: skip
    except NotConverged as error:
        kept = error.best.save(out.with_suffix(".best.safetensors"))
        error.where = f"the best points so far are in {kept.name}"
        raise
    found.page(facts={"model": args.model}).write(out)
    files = [out]
    for drawing in draw(found) if args.png else ():
        path = out.with_name(f"{out.stem}-{drawing.name}.png")
        files.append(write_png(drawing.figure, path, drawing.caption))
    if args.save is not None:
        found.save(args.save)
    names = [str(file) for file in files]
    show(args, found, {"model": args.model, "files": names})
    if not args.json:
        say(f"wrote {', '.join(names)}")
    return 0


def _plane(args: argparse.Namespace, source: Source) -> Any:
    """equivalents, random, or the models of the weights files, checked against MODEL."""
    import copy

    from intertwine.zoo import load_weights

    if args.plane in (["equivalents"], ["random"]):
        return args.plane[0]
    return {
        Path(path).stem: load_weights(copy.deepcopy(source.model), path, ignore=source.idle)
        for path in args.plane
    }
