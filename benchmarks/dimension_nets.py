"""parameters = orbit + rank on random nets of the test grammar, or a name for every missing direction.

    python benchmarks/dimension_nets.py 200 [--most 500] [-o docs/measured/dimension-nets.json]

Net k is the same in every run; nets that are in the JSON already are not measured again (`--again A,B` does
it for those with a direction of one of these kinds, of such a verdict, or of these numbers).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from hypothesis import HealthCheck, Phase, given, seed, settings

from intertwine import dimension

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "property"))
from grammar import Net, nets


def drawn(number: int, most: int) -> Net:
    """Net `number`: the last of a few drawn with this seed that has few weights (the first are trivial)."""
    found: list[Net] = []

    @seed(number)
    @settings(
        max_examples=24, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(nets(most=2))
    def look(net: Net) -> None:
        if sum(p.numel() for p in net.model.parameters()) <= most:
            found.append(net)

    look()
    return found[-1]


def measured(number: int, most: int) -> dict[str, Any]:
    """Verdict, counts, and the directions of net `number`."""
    net = drawn(number, most)
    torch.manual_seed(number)
    found = dimension(net.model, net.inputs)
    return {
        "net": repr(net), "verdict": found.verdict, "parameters": found.parameters, "orbit": found.orbit,
        "rank": found.rank, "deficit": found.deficit, "error": found.error, "gap": found.gap,
        "directions": [[d.kind, d.count, d.axis or ", ".join(d.weights)] for d in found.directions],
    }  # fmt: skip


def main() -> None:
    """Measure what is not there yet, and count."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("count", type=int)
    parser.add_argument("--most", type=int, default=500, help="weights of a net")
    parser.add_argument("--again", help="measure nets of these verdicts, kinds or numbers again: A,B")
    parser.add_argument("-o", "--out", type=Path, default=Path("docs/measured/dimension-nets.json"))
    args = parser.parse_args()
    known = json.loads(args.out.read_text()) if args.out.exists() else {"nets": {}}
    again = set(args.again.split(",")) if args.again else set()
    for number in range(args.count):
        old = known["nets"].get(str(number))
        kinds = [str(number), old["verdict"], *(d[0] for d in old["directions"])] if old else []
        if old and not again.intersection(kinds):
            continue
        known["nets"][str(number)] = new = measured(number, args.most)
        known["verdicts"] = Counter(n["verdict"] for n in known["nets"].values())
        known["kinds"] = Counter(k for n in known["nets"].values() for k in {d[0] for d in n["directions"]})
        args.out.write_text(json.dumps(known, indent=1) + "\n")
        print(number, new["verdict"], new["directions"], new["net"], file=sys.stderr, flush=True)
    print(json.dumps(known["verdicts"]))


if __name__ == "__main__":
    main()
