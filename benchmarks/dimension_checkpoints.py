"""The functional dimension of real checkpoints: one axis of each, all else held.

    python benchmarks/dimension_checkpoints.py --data ../shared/data [-o FILE.json]

As many channels of the axis as have 2,000 numbers, on random inputs like the example; within that the answer
is exact. The same on weights as they are drawn, beside it. What is in the JSON already is not measured again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from intertwine import dimension, trace
from intertwine.zoo import resolve

# name -> (model, file of weights, input, axis)
CHECKPOINTS = {
    "tiny10": ("zoo:tiny10", "tiny10-cifar10-seed0", "2x3x32x32", "conv4"),
    "resnet20": ("zoo:resnet20", "resnet20-cifar10-seed0", "2x3x32x32", "layer2.1.conv1"),
    "modadd59": ("zoo:modadd59", "modadd59-a", None, "mlp.W_in"),
    "nanogpt64": ("zoo:nanogpt64", "nanogpt64-shakespeare-seed0", None, "h.1.mlp.c_fc"),
}


def measured(spec: str, weights: Path | None, shape: str | None, axis: str) -> dict[str, Any]:
    """Numbers and names of one axis."""
    source = resolve(spec, input=shape, weights=weights)
    start = time.process_time()
    symmetry = trace(source.model, source.example, source.kwargs, prove=False)  # `verify` has proved the zoo
    found = dimension(source.model, source.example, source.kwargs, symmetry=symmetry, at=axis)
    return {
        "verdict": found.verdict, "channels": found.channels, "parameters": found.parameters,
        "orbit": found.orbit, "rank": found.rank, "deficit": found.deficit, "gap": found.gap,
        "directions": [[d.kind, d.count] for d in found.directions], "inputs": found.inputs,
        "cpu_seconds": round(time.process_time() - start, 1),
    }  # fmt: skip


def main() -> None:
    """Measure what is not there yet."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--data", type=Path, required=True, help="the folder that has checkpoints/")
    parser.add_argument("-o", "--out", type=Path, default=Path("docs/measured/dimension-checkpoints.json"))
    args = parser.parse_args()
    known = json.loads(args.out.read_text()) if args.out.exists() else {}
    for name, (spec, file, shape, axis) in CHECKPOINTS.items():
        for kind in ("trained", "drawn"):
            if kind in known.setdefault(name, {"axis": axis}):
                continue
            weights = args.data / "checkpoints" / f"{file}.safetensors" if kind == "trained" else None
            known[name][kind] = row = measured(spec, weights, shape, axis)
            args.out.write_text(json.dumps(known, indent=1) + "\n")
            print(name, kind, row, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
