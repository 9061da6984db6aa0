"""intertwine explore: find and draw the equivalence class of a model's parameters (source 004)."""

from __future__ import annotations

import argparse
from contextlib import contextmanager
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
    momentum,
    output_path,
    positive_float,
    positive_int,
    seconds,
)
from intertwine.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from intertwine.exploring import EquivalenceSample, EvaluationPlan, Landscape, Objective, Plane
    from intertwine.exploring.budget import Attempt
    from intertwine.exploring.search import Progress
    from intertwine.zoo import Source

_EPILOG = """examples:
  intertwine explore zoo:lenet5 --inputs 256 -o lenet.html
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
    search = parser.add_argument_group("search")
    search.add_argument(
        "--inputs", type=positive_int, metavar="N", help="size of C (default: by cost, 8 to 1024)"
    )
    search.add_argument("--optimizer", choices=("sgd", "adam", "lbfgs"), default="adam", help="default: adam")
    search.add_argument(
        "--lr",
        type=positive_float,
        metavar="RATE",
        help="learning rate (default: sgd 0.015, adam 0.01, lbfgs 1)",
    )
    search.add_argument("--momentum", type=momentum, default=0.0, metavar="M", help="of sgd (default: 0)")
    search.add_argument("--steps", type=positive_int, metavar="N", help="most steps (default: by cost)")
    search.add_argument(
        "--seconds", type=seconds, default=60.0, metavar="S",
        help="about how long searching, and evaluating, may take by default (default: 60 each)",
    )  # fmt: skip
    search.add_argument("--population", type=positive_int, metavar="N", help="starts that run together")
    search.add_argument(
        "--tolerance",
        type=positive_float,
        metavar="J",
        help="J of a found point (default: variance of outputs / 1000)",
    )
    search.add_argument(
        "--starts", choices=("auto", "random", "perturbed"), default="auto",
        help="auto (default): random where affordable, then nearer and nearer to theta",
    )  # fmt: skip
    search.add_argument(
        "--spread", type=positive_float, metavar="S", help="of perturbed starts (default: 0.5)"
    )
    search.add_argument(
        "--batch-norm", choices=("stored", "batch"), default="stored",
        help="statistics of batch norm: those of the model, or of C (default: stored)",
    )  # fmt: skip


def _add_picture_arguments(parser: argparse.ArgumentParser) -> None:
    picture = parser.add_argument_group("picture")
    picture.add_argument(
        "--dim",
        type=Checked(numbers.Whole(1, 4)),
        default=2,
        metavar="N",
        help="dimension of the plane, 1 to 4 (default: 2)",
    )
    picture.add_argument(
        "--points", type=positive_int, metavar="N", help="grid points along an axis (default: by cost)"
    )
    picture.add_argument(
        "--bound",
        type=positive_float,
        metavar="B",
        help="the grid goes from -BOUND to BOUND (default: shows the points and the level)",
    )
    picture.add_argument(
        "--epsilon", type=positive_float, metavar="J", help="level of the set (default: 10 x tolerance)"
    )
    picture.add_argument(
        "--full", action="store_true", help="evaluate every grid point, not only near the level"
    )
    picture.add_argument(
        "--memory", type=positive_int, default=512, metavar="MB", help="bound (default: 512)"
    )
    picture.add_argument(
        "--plane", type=input_path, nargs="+", default=["equivalents"], metavar="WHAT",
        help="equivalents (default), random (filter-normalised), or 2 to 5 weights files",
    )  # fmt: skip
    picture.add_argument(
        "--loss", choices=("J", "cross_entropy"), default="J", help="what is drawn (default: J)"
    )
    picture.add_argument(
        "--quotient", action="store_true", help="divide the known symmetries out of the points before drawing"
    )
    picture.add_argument("--no-orbit", action="store_true", help="do not infer symmetries and draw the orbit")
    picture.add_argument("--png", action="store_true", help="also write each figure as PNG beside the page")
    picture.add_argument(
        "--save", type=output_path, metavar="DIR", help="also keep sample, plane and landscape as files"
    )
    picture.add_argument(
        "-o",
        "--output",
        type=output_path,
        metavar="FILE",
        default="explore.html",
        help="default: explore.html",
    )
    picture.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int | None:
    """Search, span, evaluate, draw."""
    from intertwine.exploring import find_topology, plan_evaluation
    from intertwine.exploring.budget import plan_points
    from intertwine.exploring.grid import Grid

    _check_folder(args)
    source = load_model(args)
    objective = _objective(args, source)
    sample, plane = _plane(args, objective, source)
    if args.quotient and sample is not None:
        sample, plane = _divide(args, source, objective, sample)
    epsilon = args.epsilon or 10 * (sample.tolerance if sample else 1e-3 * objective.spread)
    plan = plan_evaluation(objective, memory=args.memory * 2**20)
    points = args.points or plan_points(plan.seconds_per_point, plane.dim, args.seconds)
    grid = Grid.cube(plane.dim, args.bound or _bound(objective, plane, epsilon), points)
    landscape = _landscape(args, plane, grid, objective, epsilon, plan)
    topologies = find_topology(landscape, [epsilon * 10.0**k for k in (-1, -0.5, 0, 0.5, 1)])
    known = None if args.no_orbit or sample is None else _known(args, source, objective, sample, plane)
    facts = _facts(args, objective, sample, landscape, epsilon, known)
    files = _write(args, landscape, epsilon, topologies, known, facts)
    _keep(args, sample, plane, landscape)
    _print(args, facts, landscape, topologies, files)
    return 0


def _check_folder(args: argparse.Namespace) -> None:
    folder = Path(args.output).absolute().parent
    if not folder.is_dir():
        raise InputError(f"the folder of {args.output} does not exist", do="make it, or choose another -o")


def _objective(args: argparse.Namespace, source: Source) -> Objective:
    from intertwine.exploring import data_loss, function_distance

    if args.data is not None:
        data = load_dataset(args)
        images = data.images.to(args.device)
        if args.inputs:
            images = images[: args.inputs]
        if args.loss == "cross_entropy":
            labels = data.labels[: len(images)].to(args.device)
            return data_loss(source.model, images, labels, batch_norm=args.batch_norm)
        return function_distance(source.model, images, batch_norm=args.batch_norm)
    if args.loss != "J":
        raise InputError("a data loss needs data", do="give --data, for example --data digits")
    if source.kwargs or not source.example:
        raise InputError(
            f"{source.name} takes keyword inputs", so="explore calls a model with tensors only",
            do="wrap it in a module with tensor arguments and one tensor output",
        )  # fmt: skip
    inputs = _draw_inputs(source, args.inputs or _affordable(source, args.batch_norm), args.seed)
    return function_distance(source.model, inputs, batch_norm=args.batch_norm)


def _affordable(source: Source, batch_norm: str) -> int:
    """How many inputs take a quarter of a second and write at most 512 MB in a forward pass."""
    from intertwine.exploring import function_distance
    from intertwine.exploring.budget import plan_inputs

    few = function_distance(source.model, _draw_inputs(source, 8, 0), batch_norm=batch_norm)
    return max(8, min(plan_inputs(few), 2**29 // few.bytes_per_example()))


def _draw_inputs(source: Source, count: int, seed: int) -> list[Any]:
    """Gaussian inputs in the shape of the example; whole numbers are drawn from the example's range."""
    import math

    import torch

    from intertwine.reading import check_memory

    generator = torch.Generator().manual_seed(seed)
    inputs = []
    for example in source.example:
        shape = (count, *example.shape[1:])
        check_memory(math.prod(shape) * example.element_size(), f"{count:,} inputs", do="give fewer --inputs")
        if example.is_floating_point():
            drawn = torch.randn(shape, generator=generator)
        else:
            drawn = torch.randint(0, int(example.max()) + 1, shape, generator=generator)
        inputs.append(drawn.to(example))
    return inputs


def _plane(
    args: argparse.Namespace, objective: Objective, source: Source
) -> tuple[EquivalenceSample | None, Plane]:
    from intertwine.exploring import plane_through, random_plane, span

    if args.plane == ["random"]:
        return None, random_plane(objective, args.dim, seed=args.seed)
    if args.plane != ["equivalents"]:
        return None, plane_through(
            objective, _read_all(args.plane, source), [Path(f).stem for f in args.plane]
        )
    if objective.name != "J":
        raise InputError("equivalents are found by J", do="use --plane random or weights files with --loss")
    sample = _search(args, objective)
    return sample, span(sample, args.dim)


def _search(args: argparse.Namespace, objective: Objective) -> EquivalenceSample:
    """The attempts one after the other; when all fail, the best of their points are kept."""
    from intertwine.cli.output import log
    from intertwine.exploring import NotConverged, find_equivalents

    failed: list[NotConverged] = []
    for attempt in _attempts(args, objective):
        try:
            with _bar(f"searching, {attempt.describe()}", attempt.steps) as progress:
                return find_equivalents(
                    objective, n=args.dim + 1, tolerance=args.tolerance, optimizer=args.optimizer,
                    lr=args.lr or attempt.lr, momentum=args.momentum, batch=args.batch,
                    max_steps=attempt.steps, max_seconds=_deadline(args),
                    population=args.population or attempt.population, starts=attempt.starts,
                    spread=attempt.spread, seed=args.seed, progress=progress,
                )  # fmt: skip
        except NotConverged as error:
            failed.append(error)
            log().print(f"{attempt.describe()}: {error.what}", markup=False, highlight=False)
    best = min(failed, key=lambda error: max(error.best.losses, default=float("inf")))
    kept = best.best.save(Path(args.output).with_suffix(".best.safetensors"))
    best.where = f"the best points so far are in {kept.name}"
    raise best


def _deadline(args: argparse.Namespace) -> float | None:
    """The clock ends a search whose steps the user did not count."""
    return args.seconds if args.steps is None else None


def _attempts(args: argparse.Namespace, objective: Objective) -> tuple[Attempt, ...]:
    """What --starts, --steps and --seconds ask for."""
    from intertwine.exploring.budget import Attempt, plan_attempts

    if args.starts == "perturbed" or args.spread is not None:
        return (Attempt("perturbed", args.spread or 0.5, args.steps or 5000),)
    if args.starts == "random":
        return (Attempt("random", 0.0, args.steps or 5000),)
    return plan_attempts(
        objective, args.tolerance or 1e-3 * objective.spread,
        n=args.dim + 1, batch=args.batch, seconds=args.seconds,
        optimizer=args.optimizer, steps=args.steps, seed=args.seed,
    )  # fmt: skip


def _divide(
    args: argparse.Namespace, source: Source, objective: Objective, sample: EquivalenceSample
) -> tuple[EquivalenceSample, Plane]:
    """The sample and its plane in the quotient by the known symmetries."""
    from intertwine.exploring import span
    from intertwine.exploring.known import KnownSymmetry
    from intertwine.exploring.quotient import Quotient

    divided = Quotient(KnownSymmetry(source.model, source.example, objective)).sample(sample)
    try:
        return divided, span(divided, args.dim)
    except InputError as error:
        raise InputError(
            "in the quotient the points found do not span a plane",
            so="known symmetries explain them, all or but for fewer dimensions",
            do="draw without --quotient, or with a smaller --dim",
        ) from error


def _read_all(paths: list[str], source: Source) -> list[Any]:
    """The parameters of each weights file, checked against the model."""
    import copy

    from intertwine.zoo import load_weights

    loaded = [load_weights(copy.deepcopy(source.model), path, ignore=source.idle) for path in paths]
    return [dict(model.named_parameters()) for model in loaded]


def _bound(objective: Objective, plane: Plane, epsilon: float) -> float:
    """Half as much again as the marks need, and for J until the level is left.

    A random plane has no second point: one length of theta's filters, as Li et al. draw.
    """
    from intertwine.exploring.budget import plan_bound

    reach = plane.reach() if len(plane.names) > 1 else float(objective.theta.norm())
    return plan_bound(plane, objective, epsilon, 1.5 * reach) if objective.name == "J" else 1.5 * reach


def _landscape(
    args: argparse.Namespace, plane: Plane, grid: Any, objective: Objective, epsilon: float,
    plan: EvaluationPlan,
) -> Landscape:  # fmt: skip
    from intertwine.exploring import evaluate

    # A data loss is a picture of all heights, not of one level.
    levels = None if args.full or objective.name != "J" else epsilon
    with _bar("evaluating", grid.size) as progress:
        return evaluate(plane, grid, objective, epsilon=levels, plan=plan, progress=progress)


def _known(
    args: argparse.Namespace, source: Source, objective: Objective, sample: EquivalenceSample, plane: Plane
) -> Any:
    """What the inferred symmetries explain; None, with a word, where the model cannot be traced."""
    from intertwine.cli.output import log
    from intertwine.errors import Unsupported
    from intertwine.exploring.known import explain_sample

    try:
        return explain_sample(source.model, source.example, objective, sample, plane, seed=args.seed)
    except Unsupported as error:
        log().print(f"no orbit: {error.what}", markup=False, highlight=False)
        return None


def _facts(
    args: argparse.Namespace, objective: Objective, sample: EquivalenceSample | None, landscape: Landscape,
    epsilon: float, known: Any,
) -> dict[str, Any]:  # fmt: skip
    facts: dict[str, Any] = {
        "model": args.model, "parameters": objective.layout.length, "inputs": objective.size,
        "drawn": objective.name, "epsilon": epsilon, "variance of the outputs": objective.spread,
        "grid points": landscape.grid.size, "evaluations": landscape.evaluations,
        "how": landscape.facts["how"], "audited": landscape.facts.get("audited"),
        "wrong in the audit": landscape.facts.get("audit_wrong"),
        "wrong of the others at most (95 %)": landscape.facts.get("wrong_share_at_most"),
    }  # fmt: skip
    if sample is not None:
        facts |= {"losses": [f"{loss:.3g}" for loss in sample.losses], "tolerance": sample.tolerance}
        facts |= {
            key: sample.facts[key] for key in ("started", "optimizer", "lr", "steps", "starts", "restarts")
        }
    if known is not None:
        facts |= known.facts()
    for number, note in enumerate(landscape.notes, 1):
        facts[f"note {number}"] = note
    return facts


def _write(
    args: argparse.Namespace, landscape: Landscape, epsilon: float, topologies: Any, known: Any,
    facts: dict[str, Any],
) -> list[Path]:  # fmt: skip
    from intertwine.report.explore_page import draw_landscape, fill_page
    from intertwine.report.page import Page
    from intertwine.report.png import write_png

    orbit = known.orbit if known is not None else None
    drawings = draw_landscape(landscape, epsilon, orbit=orbit, seed=args.seed)
    page = Page(f"The equivalence class of {args.model}")
    fill_page(page, drawings, landscape, topologies, facts)
    output = Path(args.output)
    page.write(output)
    files = [output]
    if args.png:
        for drawing in drawings:
            path = output.with_name(f"{output.stem}-{drawing.name}.png")
            files.append(write_png(drawing.figure, path, drawing.caption))
    return files


def _keep(
    args: argparse.Namespace, sample: EquivalenceSample | None, plane: Plane, landscape: Landscape
) -> None:
    if args.save is None:
        return
    folder = Path(args.save)
    if sample is not None:
        sample.save(folder / "sample.safetensors")
    plane.save(folder / "plane.safetensors")
    landscape.save(folder / "landscape.safetensors")


def _print(
    args: argparse.Namespace, facts: dict[str, Any], landscape: Landscape, topologies: Any, files: list[Path]
) -> None:
    from intertwine.cli.output import print_json, print_table, say
    from intertwine.report.explore_page import TOPOLOGY_COLUMNS, topology_row

    if args.json:
        marks = [
            {"name": name, "coordinates": at, "value": value}
            for name, at, value in zip(
                landscape.mark_names, landscape.marks, landscape.mark_values, strict=True
            )
        ]
        print_json({**facts, "marks": marks, "topology": topologies, "files": [str(f) for f in files]})
        return
    print_table("explore", ["", ""], list(facts.items()))
    print_table("topology", TOPOLOGY_COLUMNS, [topology_row(t) for t in topologies])
    say(f"wrote {', '.join(str(f) for f in files)}")


@contextmanager
def _bar(label: str, total: int) -> Iterator[Progress]:
    """The progress callback of explore as a bar on stderr."""
    from intertwine.cli.output import progress

    with progress(label, total) as advance:
        done = 0

        def update(now: int, _total: int, _message: str) -> None:
            nonlocal done
            advance(now - done)
            done = now

        yield update
