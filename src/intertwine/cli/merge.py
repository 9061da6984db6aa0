"""intertwine merge: a smaller model by merging channels, and what it costs."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from intertwine.cli.arguments import (
    add_data_arguments,
    add_model_arguments,
    any_text,
    fraction,
    fractions,
    load_dataset,
    load_model,
    output_path,
    share,
)
from intertwine.cli.output import log, print_json, print_table, progress, say, write_text
from intertwine.errors import InputError
from intertwine.merging.decide import REPAIRS
from intertwine.merging.registry import METHODS, all_parameters, find_method

if TYPE_CHECKING:
    from torch import nn

    from intertwine.data import Dataset
    from intertwine.merging import MergePlan, Planner
    from intertwine.zoo import Source

_EPILOG = """examples:
  intertwine merge zoo:digits-vgg --weights shipped:0 --target-params 0.5 --data digits -o small
  intertwine merge zoo:vgg16 --weights vgg16.safetensors --paper --beta 0.1 -o small
  intertwine merge zoo:vgg16 --weights vgg16.safetensors --paper --betas
  intertwine merge torchvision:resnet18 --weights r18.pth --axes 'layer[34].*' --target-flops 0.7 -o small
  intertwine merge zoo:tiny10 --weights t.safetensors --max-drop 0.01 --data parquet:test.parquet \\
      --normalize cifar10-legacy -o small

With moments, beta is the relative error that each axis may reach; the moments are propagated through the
graph without data.
--paper is Iterative Feature Merging as released (ifm, interleaved, batch-norm parameters summed).
OUT holds weights.safetensors and recipe.json; intertwine.load(OUT) gives the model back.
"""
_MAX_DROP_STEPS = 7


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
    goal.add_argument(
        "--betas",
        type=fractions,
        nargs="?",
        const=(),
        metavar="B,B,...",
        help="sweep thresholds (default: the paper's grid)",
    )
    goal.add_argument("--target-params", type=share, metavar="SHARE", help="share of parameters to keep")
    goal.add_argument("--target-flops", type=share, metavar="SHARE", help="share of FLOPs to keep")
    goal.add_argument(
        "--max-drop", type=fraction, metavar="DROP", help="accuracy that may be lost; needs --data"
    )
    parser.add_argument("--method", choices=list(METHODS), help=f"({next(iter(METHODS))}); see below")
    parser.add_argument("--paper", action="store_true", help="the source's method, as released")
    for name, (parameter, method) in all_parameters().items():
        text = f"of {method}: {parameter.help} ({parameter.default})"
        parser.add_argument(f"--{name}", choices=parameter.choices, help=text)
    parser.add_argument("--repair", choices=REPAIRS, help="refit what reads merged channels")
    parser.add_argument(
        "--max-ratio",
        type=fraction,
        default=1.0,
        metavar="SHARE",
        help="largest share of an axis to merge (1.0)",
    )
    parser.add_argument(
        "--axes",
        type=any_text,
        action="append",
        metavar="PATTERN",
        help="only axes that match, 'layer[34].*'",
    )
    parser.add_argument("-o", "--out", type=output_path, metavar="OUT", help="folder for the smaller model")
    parser.add_argument("--plan", type=output_path, metavar="FILE", help="write the plan as JSON")
    add_data_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def _methods() -> str:
    """The registered methods, a line each."""
    return "\nmethods:\n" + "\n".join(f"  {m.name:<10} {m.help}" for m in METHODS.values())


def run(args: argparse.Namespace) -> int:
    """Plan, merge, measure, print, save."""
    from intertwine.files import assert_folder_replaceable
    from intertwine.merging.storage import why_not_replace

    betas = _betas(args)
    if args.max_drop is not None and args.data is None:
        raise InputError("--max-drop needs data to measure accuracy on", do="give --data")
    if args.repair == "data" and args.data is None:
        raise InputError("--repair data needs data", do="give --data")
    if betas and args.out:
        raise InputError("--betas makes many models, OUT holds one", do="leave out -o, or choose one --beta")
    if args.out:
        assert_folder_replaceable(args.out, why_not_replace)
    source = load_model(args)
    data = load_dataset(args) if args.data is not None else None
    start = time.perf_counter()
    job = Job(args, source, data)
    if betas:
        return job.sweep(betas)
    plan = job.plan()
    result, small = job.measure(plan)
    result["seconds"] = time.perf_counter() - start
    if args.plan:
        write_text(args.plan, plan.to_json())
    if args.out:
        _save(args, source, small, plan, result)
    job.show(plan, result)
    return 0


def _betas(args: argparse.Namespace) -> list[float] | None:
    from intertwine.merging import PAPER_BETAS

    return None if args.betas is None else list(args.betas or PAPER_BETAS)


def _save(
    args: argparse.Namespace, source: Source, small: nn.Module, plan: MergePlan, result: dict[str, Any]
) -> None:
    from intertwine.merging.storage import save_merged

    details = {"input": args.input, "method": plan.method, "widths": plan.complexity}
    save_merged(small, args.out, source.name, {**details, "left_alone": dict(plan.left_alone)})
    result["out"] = str(args.out)


class Job:
    """One model with its planner and its data."""

    def __init__(self, args: argparse.Namespace, source: Source, data: Dataset | None) -> None:
        from intertwine import trace
        from intertwine.merging import Options, Planner

        self.args, self.source, self.data = args, source, data
        method = find_method("ifm" if args.paper and not args.method else args.method)
        given = {name: getattr(args, name) for name in all_parameters() if getattr(args, name) is not None}
        given = {**({"order": "interleaved", "norm": "sum"} if args.paper else {}), **given}
        own = {name: given.pop(name) for name in list(given) if name not in Options.__dataclass_fields__}
        options = Options(
            method.name, repair=args.repair or method.repair, max_ratio=args.max_ratio, parameters=own,
            **given,
        ).checked()
        self.batches = self._unlabelled() if options.repair == "data" else None
        log().print(f"tracing {source.name}", markup=False, highlight=False)
        symmetry = trace(source.model, source.example, source.kwargs)
        log().print("finding out which axes the forward can narrow", markup=False)
        inputs = (source.example, source.kwargs)
        self.planner: Planner = Planner(
            source.model, symmetry, options, args.axes, self.batches, True, inputs
        )
        self.accuracy = self._accuracy(source.model)

    def _unlabelled(self) -> list[Any]:
        """Training images where the data has them; labels are not used."""
        assert self.data is not None
        try:
            data = load_dataset(self.args, split="train")
        except InputError:
            data = self.data
        return [images for images, _ in data.take(2000).batches(100)]

    def _accuracy(self, model: nn.Module) -> float | None:
        from intertwine.data import evaluate

        if self.data is None:
            return None
        with progress("evaluating", len(self.data)) as advance:
            return evaluate(model, self.data, progress=advance).accuracy

    def plan(self) -> MergePlan:
        """The plan for the goal on the command line."""
        args = self.args
        total = sum(a.size for a in self.planner.axes)
        with progress("merging", total) as advance:
            if args.target_params is not None:
                return self.planner.at_share(args.target_params, "parameters", advance)
            if args.target_flops is not None:
                return self.planner.at_share(args.target_flops, "flops", advance)
            if args.max_drop is not None:
                return self._within_drop(args.max_drop)
            return self.planner.at_beta(0.1 if args.beta is None else args.beta, advance)

    def _within_drop(self, drop: float) -> MergePlan:
        """The fewest parameters, by bisection, whose accuracy is within `drop` of the original's."""
        assert self.accuracy is not None
        low, high, best = 0.0, 1.0, self.planner.at_share(1.0, "parameters")
        for _ in range(_MAX_DROP_STEPS):
            middle = (low + high) / 2
            try:
                plan = self.planner.at_share(middle, "parameters")
            except InputError:  # cannot be reached
                low = middle
                continue
            accuracy = self._accuracy(self.build(plan)) or 0.0
            log().print(
                f"{middle:.1%} of the parameters: accuracy {accuracy:.2%}", markup=False, highlight=False
            )
            if accuracy >= self.accuracy - drop:
                high, best = middle, plan
            else:
                low = middle
        return best

    def build(self, plan: MergePlan) -> nn.Module:
        """The smaller model, with statistics measured again if repair is data."""
        from intertwine.merging import apply_merge, reestimate_norms

        small = apply_merge(self.source.model, plan)
        if self.batches is None:
            return small
        return reestimate_norms(small, self.batches, self.source.model, plan)

    def measure(self, plan: MergePlan) -> tuple[dict[str, Any], nn.Module]:
        """The numbers of the JSON report, from the smaller model that really runs."""
        from intertwine.merging.storage import flops_of

        small = self.build(plan)
        call = (self.source.example, self.source.kwargs)
        result = {
            "parameters_before": sum(p.numel() for p in self.source.model.parameters()),
            "parameters_after": sum(p.numel() for p in small.parameters()),
            "flops_before": flops_of(self.source.model, *call),
            "flops_after": flops_of(small, *call),
            "complexity": plan.complexity,
            "merges": plan.merges,
            "accuracy_before": self.accuracy,
            "accuracy_after": self._accuracy(small),
            "method": plan.method,
            "repair": plan.repair,
            "left_alone": dict(plan.left_alone),
        }
        return result, small

    def sweep(self, betas: list[float]) -> int:
        """One row a beta."""
        rows = []
        for beta in betas:
            plan = self.planner.at_beta(beta)
            result, _ = self.measure(plan)
            rows.append({"beta": beta, **result})
            log().print(f"beta {beta}: {plan.merges} merges", markup=False, highlight=False)
        if self.args.json:
            print_json({"sweep": rows})
            return 0
        keys = ("beta", "merges", "parameters_after", "flops_after", "accuracy_after")
        print_table(f"merge {self.source.name}", keys, [[r[k] for k in keys] for r in rows], right=keys)
        return 0

    def show(self, plan: MergePlan, result: dict[str, Any]) -> None:
        """The result, as a table or as JSON."""
        if self.args.json:
            print_json(result)
            return
        rows = [[a.name, a.size, a.width, a.costs[-1] if a.costs else 0.0] for a in plan.axes]
        print_table(
            f"merge {self.source.name}",
            ["axis", "width", "complexity", "relative error"],
            rows,
            right=["width", "complexity", "relative error"],
        )
        for name, reason in plan.left_alone.items():
            say(f"left alone: {name}: {reason}")
        for what in ("parameters", "flops"):
            before, after = result[f"{what}_before"], result[f"{what}_after"]
            say(
                f"{what}: {before:,} -> {after:,} ({after / before:.1%})"
                if before
                else f"{what}: none counted"
            )
        if self.accuracy is not None:
            say(f"accuracy: {self.accuracy:.2%} -> {result['accuracy_after']:.2%}")
