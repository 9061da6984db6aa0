"""intertwine dissect MODEL: which units of a layer detect a concept, and what a rotation does to them."""

from __future__ import annotations

import argparse
from pathlib import Path

from intertwine.cli.arguments import (
    Checked,
    add_model_arguments,
    any_text,
    fraction,
    load_model,
    most,
    normalization,
    output_path,
    positive_int,
    side,
)
from intertwine.numbers import Several, finite

_EPILOG = """examples:
  intertwine dissect zoo:resnet20 --weights W --at layer3.2.relu_1 --concepts shapes -o page.html
  intertwine dissect zoo:resnet20 --weights W --at layer3.2.relu_1 --concepts shapes:500:32 \\
      --normalize cifar10-legacy --rotate orthogonal --powers 0:1:0.2 --draws 3 --inside --json
  intertwine dissect timm:convnext_atto --at stages.3 --concepts object=camvid.parquet+texture=dtd.parquet \\
      --size 224 --normalize imagenet
  intertwine dissect model.py:net --at conv3 --concepts broden1_224 --size 224 --rotate group

CONCEPTS is shapes[:COUNT[:SIZE]] (made by code, nothing is downloaded); a folder in the Broden layout, or
with images/, masks/ and classes.txt, or with a folder a class (labels of whole images are scenes); or a
parquet file with image and mask, or image and label. KIND=PLACE names the category, "+" joins several.
rotate: orthogonal reads the layer along powers of a random rotation, group by elements of its own inferred
group.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the verb."""
    parser = subparsers.add_parser(
        "dissect",
        help="which units detect a concept, and whether a rotation keeps them",
        description="Network dissection of a layer, in its own basis and in others.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_model_arguments(parser)
    parser.add_argument(
        "--at", type=any_text, required=True, metavar="LAYER", help="the value whose channels are units"
    )
    parser.add_argument(
        "--concepts", type=any_text, default="shapes", metavar="CONCEPTS", help="see below (default: shapes)"
    )
    parser.add_argument(
        "--rotate", choices=["none", "orthogonal", "group"], default="none", help="(default: none)"
    )
    parser.add_argument(
        "--powers", type=Checked(_powers), default=_powers("0:1:0.2"), metavar="A:B:STEP", help="of rotations"
    )
    parser.add_argument(
        "--draws", type=most(10_000), default=1, metavar="N", help="random rotations (default: 1)"
    )
    parser.add_argument(
        "--inside", action="store_true", help="also inside the residual block that LAYER ends"
    )
    parser.add_argument("--quantile", type=fraction, default=0.995, metavar="Q", help="(default: 0.995)")
    parser.add_argument(
        "--iou", type=fraction, default=0.04, metavar="T", help="of a detector (default: 0.04)"
    )
    parser.add_argument(
        "--normalize", type=normalization, default="none", metavar="HOW", help="as for --data"
    )
    parser.add_argument("--size", type=side, metavar="N", help="resize and crop images and masks to NxN")
    parser.add_argument("--limit", type=positive_int, metavar="N", help="use N images of each set only")
    parser.add_argument(
        "--batch", type=positive_int, default=32, metavar="N", help="batch size (default: 32)"
    )
    parser.add_argument(
        "-o",
        "--out",
        type=output_path,
        metavar="FILE",
        help="write the page (.html) or the numbers (.json)",
    )
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int | None:
    """Load, dissect, print."""
    from intertwine.cli.output import print_json, print_table, progress, say
    from intertwine.data.concepts import load_concepts
    from intertwine.inside import dissect
    from intertwine.pages.dissect_page import COLUMNS, dissect_rows

    source = load_model(args)
    concepts = load_concepts(args.concepts, normalize=args.normalize, size=args.size, limit=args.limit)
    with progress("dissecting", len(concepts)) as advance:
        found = dissect(
            source.model, concepts, args.at, rotate=args.rotate, powers=args.powers, draws=args.draws,
            inside=args.inside, quantile=args.quantile, threshold=args.iou, batch=args.batch, seed=args.seed,
            example=source.example, kwargs=source.kwargs, progress=advance,
        )  # fmt: skip
    if args.out:
        weights = Path(args.weights or "random").name
        page = args.out.endswith(".html")
        facts = {"model": source.name, "weights": weights}
        found.page(facts=facts).write(args.out) if page else found.save(args.out)
    if args.json:
        print_json({"model": source.name, **found.to_dict()})
        return 0
    print_table(f"{source.name} on {concepts.name}", COLUMNS, dissect_rows(found))
    if args.out:
        say(f"wrote {args.out}")
    return 0


def _powers(text: str) -> list[float]:
    """0:1:0.2, or numbers separated by commas."""
    try:
        if ":" not in text:
            return list(Several(finite)(text))
        first, last, step = map(finite, text.split(":"))
        count = round((last - first) / step)
        if step <= 0 or not 0 <= count <= 10_000:
            raise ValueError(text)
        return [round(first + k * step, 10) for k in range(count + 1)]
    except (ValueError, ArithmeticError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is neither 0:1:0.2 nor 0,0.5,1") from error
