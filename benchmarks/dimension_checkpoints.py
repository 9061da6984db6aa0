"""The functional dimension of real checkpoints: some axes of each, all else held.

    python benchmarks/dimension_checkpoints.py --data ../shared/data [-o FILE.json] [--only NAME ...]

Random sets of channels of each axis, of 2,000 numbers each, on random inputs like the example; within a set
the answer is exact. The same on weights as they are drawn, beside it. What is in the JSON already is not
measured again.
"""

from __future__ import annotations

import argparse
import glob
import json
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

from intertwine import dimension, trace
from intertwine.zoo import resolve

# name -> (model, file of weights, input, axes and how many sets of channels of each)
CHECKPOINTS: dict[str, tuple[str, str, str | None, dict[str, int]]] = {
    "tiny10": ("zoo:tiny10", "tiny10-cifar10-seed0", "2x3x32x32", {"conv4": 2}),
    "modadd59": (
        "zoo:modadd59", "modadd59-a", None,
        {
            "blocks.0.mlp.W_in": 1, "blocks.0.attn.W_K.1": 1, "blocks.0.attn.W_V.1": 1,
            "blocks.0.attn.W_O": 1,
        },
    ),
    "nanogpt64": (
        "zoo:nanogpt64", "nanogpt64-shakespeare-seed0", None,
        {"h.1.mlp.c_fc": 1, "h.1.attn.c_attn[0:128]": 1, "h.1.attn.c_attn[128:192]": 1, "wte": 1},
    ),
    "resnet20": (
        "zoo:resnet20", "resnet20-cifar10-seed0", "2x3x32x32", {"layer2.1.conv1": 1, "layer3.2.conv1": 1},
    ),
    "vit48": (
        "zoo:vit48", "vit48-cifar10-a", "2x3x32x32",
        {"encoder.blocks.1.mlp.dense_1": 1, "encoder.blocks.1.attention.qkv_projection[0:96]": 1},
    ),
    "vgg16": ("zoo:vgg16", "vgg16-cifar10", "2x3x32x32", {"features.0": 1, "features.40": 1}),
}  # fmt: skip


def measured(spec: str, weights: Path | None, shape: str | None, axis: str, looks: int) -> dict[str, Any]:
    """Numbers and names of one axis."""
    source = resolve(spec, input=shape, weights=weights)
    start = time.process_time()
    symmetry = trace(source.model, source.example, source.kwargs, prove=False)  # `verify` has proved the zoo
    found = dimension(
        source.model, source.example, source.kwargs, symmetry=symmetry, at=glob.escape(axis), looks=looks
    )
    assert found.looked is not None
    return {
        "group": str(symmetry.axis(axis).group), "verdict": found.verdict, **found.looked.to_dict(),
        "parameters": found.parameters, "orbit": found.orbit, "rank": found.rank, "deficit": found.deficit,
        "gap": found.gap, "directions": [[d.kind, d.count, list(d.weights)] for d in found.directions],
        "inputs": found.inputs, "cpu_seconds": round(time.process_time() - start, 1),
    }  # fmt: skip


def main() -> None:
    """Measure what is not there yet."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--data", type=Path, required=True, help="the folder that has checkpoints/")
    parser.add_argument("-o", "--out", type=Path, default=Path("docs/measured/dimension-checkpoints.json"))
    parser.add_argument("--only", nargs="*", default=list(CHECKPOINTS), choices=list(CHECKPOINTS))
    args = parser.parse_args()
    for kind, name in product(("trained", "drawn"), args.only):
        spec, file, shape, axes = CHECKPOINTS[name]
        weights = args.data / "checkpoints" / f"{file}.safetensors" if kind == "trained" else None
        for axis, looks in axes.items():
            known = json.loads(args.out.read_text()) if args.out.exists() else {}
            if kind not in known.setdefault(name, {}).setdefault(axis, {}):
                known[name][axis][kind] = row = measured(spec, weights, shape, axis, looks)
                args.out.write_text(json.dumps(known, indent=1) + "\n")
                print(name, axis, kind, row, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
