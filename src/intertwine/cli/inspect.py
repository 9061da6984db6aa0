"""`intertwine inspect`: the table of a model's hidden axes and their groups."""

from __future__ import annotations

import argparse
from typing import Any

from intertwine.terminal.declare import choice, flag, json, out, value, verb


def add_parser(subparsers: Any) -> None:
    """Declare the arguments."""
    from intertwine.terminal import types
    from intertwine.terminal.arguments import add_model_arguments

    parser = verb(subparsers, "inspect", run, "infer the symmetry group of every hidden axis",
        "Infer which weights carry the same hidden axis, and which group acts on it; prove it.")  # fmt: skip
    add_model_arguments(parser)
    value(parser, "--explain", types.any_text, "AXIS", "why the channels of one axis are together")
    flag(parser, "--no-proof", "infer only; faster on large models")
    choice(parser, "--spec", ("git-re-basin", "unf", "folding", "mergekit", "networkx"),
        "instead, the permutations in the file format of another tool (with -o: written there)")  # fmt: skip
    out(parser, "FILE", "also write a page (FILE.html), or the spec")
    json(parser, "print plain data")


def _write_spec(args: argparse.Namespace, found: Any) -> None:
    """The file on stdout or in --out; what it has no words for on stderr."""
    from intertwine.terminal.output import log, print_json, say

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
    from intertwine.symmetry import inspect
    from intertwine.terminal.loading import load_model
    from intertwine.terminal.output import log, print_json, say
    from intertwine.terminal.showing import show

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
