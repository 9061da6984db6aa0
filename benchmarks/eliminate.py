"""CPU seconds of eliminating all channels of a wide axis, by width: one cube, not a cube a channel.

    python benchmarks/eliminate.py [--widths 512,1024,2048,4096]

Writes docs/measured/eliminate.json. Features of a decaying spectrum, one reader of a quarter of the width.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch

from intertwine.files import write_bytes
from intertwine.merging.eliminate import eliminate
from intertwine.merging.places import Place
from intertwine.merging.readers import Reading

MEASURED = Path(__file__).resolve().parents[1] / "docs" / "measured" / "eliminate.json"


def seconds(width: int) -> float:
    """Of one elimination down to one channel."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(2 * width, width, generator=generator, dtype=torch.float64)
    rows = rows * torch.linspace(1.0, 0.1, width, dtype=torch.float64)
    reader = torch.randn(width // 4, width, generator=generator, dtype=torch.float64)
    place = Place("w", 1, "in", np.arange(width)[:, None])
    reading = Reading(place, rows.mean(0), rows.T @ rows / len(rows), None, "bias", 1.0)
    start = time.process_time()
    assert len(eliminate([reading], {"w": reader})) == width - 1
    return time.process_time() - start


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--widths", default="512,1024,2048,4096")
    args = parser.parse_args()
    found = []
    for width in map(int, args.widths.split(",")):
        took = seconds(width)
        found.append(
            {"width": width, "seconds": round(took, 2), "ns_per_cube": round(1e9 * took / width**3, 3)}
        )
        print(json.dumps(found[-1]), flush=True)
        document = {"threads": torch.get_num_threads(), "rows": found}
        write_bytes(MEASURED, (json.dumps(document, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
