"""`intertwine inspect`: the table of a model's hidden axes and their groups."""

from __future__ import annotations

import argparse
from typing import Any

EXAMPLES = """\
examples:
  intertwine inspect zoo:resnet20
  intertwine inspect torchvision:vit_b_16 --json
  intertwine inspect zoo:vgg16 --explain features.0
  intertwine inspect hf:llama --no-proof
  intertwine inspect zoo:resnet20 --spec git-re-basin -o spec.json

What is printed was proved: the model was acted on and run in float64, at the example's size and at others.
"""


def add_parser(subparsers: Any) -> None:
    """Declare the arguments."""
    from intertwine.cli.arguments import add_model_arguments, any_text, output_path

    parser = subparsers.add_parser(
        "inspect",
        help="infer the symmetry group of every hidden axis",
        description="Infer which weights carry the same hidden axis, and which group acts on it; prove it.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model_arguments(parser)
    parser.add_argument(
        "--explain", type=any_text, metavar="AXIS", help="why the channels of one axis are together"
    )
    parser.add_argument("--no-proof", action="store_true", help="infer only; faster on large models")
    parser.add_argument(
        "--spec",
        choices=("git-re-basin", "unf", "folding", "mergekit", "networkx"),
        help="instead, the permutations in the file format of another tool (with -o: written there)",
    )
    parser.add_argument(
        "-o", "--out", type=output_path, metavar="FILE", help="also write a page (FILE.html), or the spec"
    )
    parser.add_argument("--json", action="store_true", help="print plain data")
    parser.set_defaults(run=run)


def _write_spec(args: argparse.Namespace, found: Any) -> None:
    """The file on stdout or in --out; what it has no words for on stderr."""
    from intertwine.cli.output import log, print_json, say

    spec = found.symmetry.to_spec(args.spec, found.model)
    for axis, reason in spec.left_out.items():
        log().print(f"left out {axis}: {reason}", markup=False)
    if not args.out:
        print_json(spec.content)
        return
    spec.save(args.out)
    facts = {"spec": args.out, "permutations": len(spec.permutations), "left_out": dict(spec.left_out)}
    print_json(facts) if args.json else say(f"wrote {args.out}: {spec!r}")


def run(args: argparse.Namespace) -> int:
    """Inspect and print."""
    from intertwine.cli.arguments import load_model
    from intertwine.cli.output import log, print_json, say
    from intertwine.cli.showing import show
    from intertwine.symmetry import inspect

    source = load_model(args)
    proof = not args.no_proof
    found = inspect(source.model, source.example, kwargs=source.kwargs, proof=proof, seed=args.seed)
    if args.explain:
        text = found.explain(args.explain)
        print_json({"explanation": text.splitlines()}) if args.json else say(text)
        return 0
    if args.spec:
        _write_spec(args, found)
        return 0
    if args.out:
        page = found.page(facts={"model": source.name})
        log().print(f"wrote {page.write(args.out)}", markup=False)
    show(args, found)
    return 0
