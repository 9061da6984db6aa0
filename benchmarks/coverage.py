"""Seconds of one model in a survey: export, inference, verification.

    python benchmarks/coverage.py                        twelve models of every kind
    python benchmarks/coverage.py --rows docs/coverage/timm.json   from a survey that was run

The target: a median below 10 s, of which the inference takes less than 5 %. Every model must be exact.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import median

from intertwine.surveying import Row, survey
from intertwine.surveying.surveys import read_rows

MODELS = """
    torchvision:resnet50 torchvision:densenet121 torchvision:mobilenet_v3_large torchvision:convnext_tiny
    torchvision:swin_t torchvision:vit_b_16 timm:regnetx_002 timm:efficientnet_b0 timm:mixer_s32_224
    timm:deit_tiny_patch16_224 hf:gpt2 hf:llama
""".split()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=Path, help="read the rows of a survey")
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_args()
    if args.rows is not None:
        rows = read_rows(args.rows)
    else:
        with tempfile.TemporaryDirectory() as folder:
            rows = survey(MODELS, Path(folder) / "rows.json", jobs=args.jobs)
    timed = [row for row in rows if row.seconds]
    print("| model | parameters | export, s | inference, s | verification, s |\n|---|---|---|---|---|")
    for row in timed:
        print(f"| {row.model} | {row.parameters:,} | " + " | ".join(f"{s:.2f}" for s in seconds(row)) + " |")
    total = [sum(seconds(row)) for row in timed]
    share = [seconds(row)[1] / max(sum(seconds(row)), 1e-9) for row in timed]
    exact = sum(row.status == "exact" for row in rows)
    print(f"\n{exact} of {len(rows)} exact; median {median(total):.1f} s, inference {median(share):.1%}")
    if any(row.status == "wrong" for row in rows):
        raise SystemExit("a claimed symmetry does not hold")


def seconds(row: Row) -> list[float]:
    return [row.seconds.get(part, 0.0) for part in ("export", "infer", "verify")]


if __name__ == "__main__":
    main()
