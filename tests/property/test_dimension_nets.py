"""parameters = orbit + rank on random nets of the grammar, or every missing direction has a name.

`python tests/property/test_dimension_nets.py 200` runs as many nets by hand and lists what is open.
"""

from __future__ import annotations

import sys

import torch
from grammar import Net, nets
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from intertwine import Dimension, dimension
from repeats import examples

MOST = 500  # weights: the time goes with the cube
# What is known to be missed: general linear groups of grouped linear chains, and scales of single channels
# that a split leaves alone; a common scale before a norm whose eps is that of the machine, which holds up to
# rounding; channels of which only a mean is read. A net without these must have a name for every direction.
KNOWN = ("groups=", "split(", "eps=None", "row means")


def measured(net: Net, most: int = MOST) -> Dimension | None:
    """The dimension of a net that is small enough."""
    if sum(p.numel() for p in net.model.parameters()) > most:
        return None
    return dimension(net.model, net.inputs)


@settings(
    max_examples=examples(2, 12), derandomize=True, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(nets(most=2))
def test_every_missing_direction_has_a_name(net: Net) -> None:
    found = measured(net)
    assume(found is not None)
    assert found is not None and found.error < 1e-6
    known = any(part in repr(net) for part in KNOWN)
    assert known or found.verdict != "open", [str(d) for d in found.directions]


def survey(count: int, most: int) -> None:
    """Verdicts of many nets, and all that is open."""
    seen: dict[str, int] = {}

    @settings(max_examples=20 * count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(nets(most=2), st.just(None))
    def look(net: Net, _: None) -> None:
        if sum(seen.values()) >= count:
            return
        torch.manual_seed(sum(seen.values()))
        found = measured(net, most)
        if found is None:
            return
        seen[found.verdict] = seen.get(found.verdict, 0) + 1
        if found.verdict in ("open", "unsure"):
            print(f"{found!r} error {found.error:.0e} settled {found.settled}\n  {net!r}", flush=True)
            for direction in found.directions:
                print("   ", direction.kind, direction, flush=True)

    look()
    print(seen)


if __name__ == "__main__":
    survey(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else MOST)
