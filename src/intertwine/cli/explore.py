"""intertwine explore: find and draw the equivalence class of a model's parameters (source 004)."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intertwine.cli.explore_options import add_picture, add_search
from intertwine.errors import InputError
from intertwine.terminal.arguments import add_data_arguments, add_model_arguments
from intertwine.terminal.declare import Subparsers, verb
from intertwine.terminal.loading import load_dataset, load_model
from intertwine.terminal.showing import bar, show

if TYPE_CHECKING:
    from intertwine.zoo import Source

_OPTIONS = (
    "limit", "loss", "batch_norm", "dim", "points", "bound", "epsilon", "full", "memory", "seconds",
    "quotient",
)  # fmt: skip
_SEARCH = (
    "optimizer", "learning_rate", "momentum", "steps", "population", "tolerance", "starts", "spread", "batch",
)  # fmt: skip


def add_parser(subparsers: Subparsers[Any]) -> None:
    """Declare the verb."""
    parser = verb(subparsers, "explore", run, "find and draw the equivalence class of a parameter",
        "Find parameters that compute the same function from random starts, span their plane,\n"
        "evaluate J on a grid of it and draw it.")  # fmt: skip
    add_model_arguments(parser)
    add_search(parser.add_argument_group("search"))
    add_picture(parser.add_argument_group("picture"))
    add_data_arguments(parser)


def run(args: argparse.Namespace) -> int | None:
    """Load, explore, draw, print."""
    from intertwine.exploring import NotConverged, explore
    from intertwine.exploring.storage import assert_ours
    from intertwine.pages.explore_page import draw
    from intertwine.pages.png import assert_png, write_png
    from intertwine.terminal.output import say

    out = Path(args.out)
    if not out.absolute().parent.is_dir():
        raise InputError(f"the folder of {args.out} does not exist", do="make it, or choose another -o")
    if args.png:
        assert_png()
    for name in ("sample", "plane", "landscape") if args.save is not None else ():
        assert_ours(Path(args.save) / f"{name}.safetensors")  # known before the work
    source = load_model(args)
    if source.kwargs and source.example:
        raise InputError(
            f"{source.name} takes inputs by place and by name",
            so="explore calls a model in one of these ways",
            do="wrap it in a module whose inputs have places",
        )  # fmt: skip
    search = {name: getattr(args, name) for name in _SEARCH} if args.plane == ["equivalents"] else {}
    try:
        with bar() as progress:
            found = explore(
                source.model, source.kwargs or source.example,
                data=load_dataset(args) if args.data is not None else None,
                plane=_plane(args, source), orbit=not args.no_orbit, seed=args.seed, progress=progress,
                **{name: getattr(args, name) for name in _OPTIONS}, **search,
            )  # fmt: skip
    except NotConverged as error:
        kept = error.best.save(out.with_suffix(".best.safetensors"))
        error.where = f"the best points so far are in {kept.name}"
        raise
    found.page(facts={"model": args.model}).write(out)
    names = [str(out)]
    for drawing in draw(found) if args.png else ():
        path = out.with_name(f"{out.stem}-{drawing.name}.png")
        names.append(str(write_png(drawing.figure, path, drawing.caption)))
    if args.save is not None:
        found.save(args.save)
    show(args, found, {"model": args.model, "files": names})
    if not args.json:
        say(f"wrote {', '.join(names)}")
    return 0


def _plane(args: argparse.Namespace, source: Source) -> Any:
    """equivalents, random, or the models of the weights files, checked against MODEL."""
    from intertwine.exploring.plane import MAX_DIM
    from intertwine.graph.copying import copy_model
    from intertwine.zoo import load_weights

    if args.plane in (["equivalents"], ["random"]):
        return args.plane[0]
    if not 2 <= len(args.plane) <= MAX_DIM + 1 or len(set(args.plane)) < len(args.plane):
        raise InputError(
            f"a plane goes through 2 to {MAX_DIM + 1} different checkpoints, not {', '.join(args.plane)}",
            do="give --plane so many weights files, or equivalents, or random",
        )
    stems = [Path(path).stem for path in args.plane]
    names = stems if len(set(stems)) == len(stems) else args.plane  # runs/1/model, runs/2/model
    return {
        name: load_weights(copy_model(source.model), path, ignore=source.idle)
        for name, path in zip(names, args.plane, strict=True)
    }
