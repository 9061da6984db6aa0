"""What dissection costs beside the bare forward pass, and what a rotation of a wide layer costs.

    python benchmarks/dissect.py pass --data ../shared/data    # resnet20, a layer of 64 units, one rotation
    python benchmarks/dissect.py width                         # up to 2,048 units; writes the docs' table
    python benchmarks/dissect.py table                         # the table again, from docs/measured

pass: CPU seconds of dissecting `shapes` along one rotation against those of the forward pass alone on the
same batches; both are the median of --rounds. width: CPU seconds of drawing Q, of its Schur form, of one
power, and of thresholds and overlaps for one basis of random activations of 7x7. One thread.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from intertwine import dissect, zoo
from intertwine.data.shapes import shapes
from intertwine.inside.overlap import Overlap
from intertwine.inside.quantile import Quantile
from intertwine.inside.rotations import Geodesic, random_rotation

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE, MEASURED = DOCS / "dissect.md", DOCS / "measured" / "dissect.json"
START, END = "<!-- table: made by benchmarks/dissect.py -->", "<!-- end of table -->"


def seconds(work: Callable[[], object], rounds: int) -> float:
    taken = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return statistics.median(taken)


def one_pass(args: argparse.Namespace) -> None:
    model = zoo.build("resnet20")
    if args.data is not None:
        zoo.load_weights(model, args.data / "checkpoints" / "resnet20-cifar10-seed0.safetensors")
    model.eval()
    data = shapes(args.images, 32)
    batches = [data.rows(range(i, min(i + 32, len(data)))) for i in range(0, len(data), 32)]

    def forward() -> None:
        with torch.no_grad():
            for batch in batches:
                model(batch)

    def whole() -> None:
        dissect(model, data, "layer3.2.relu_1", rotate="orthogonal", powers=(1.0,), examples=0)

    forward(), whole()
    bare, full = seconds(forward, args.rounds), seconds(whole, args.rounds)
    print(
        f"forward {bare:.2f} s, dissection with export and one rotation {full:.2f} s: {full / bare:.2f} times"
    )


def widths(args: argparse.Namespace) -> None:
    rng, data, found = np.random.default_rng(0), shapes(args.images, 112), []
    for units in map(int, args.units.split(",")):
        start = time.process_time()
        q = random_rotation(units)
        drawn = time.process_time() - start
        start = time.process_time()
        path = Geodesic(q)
        schur = time.process_time() - start
        power = seconds(lambda p=path: p.power(0.5), 1)
        rows = torch.from_numpy(rng.standard_normal((args.images * 49, units), np.float32)).relu()
        turn = torch.from_numpy(path.power(0.5)).float()

        def read(rows: torch.Tensor = rows, turn: torch.Tensor = turn, units: int = units) -> None:
            turned = rows @ turn
            running = Quantile(0.995, len(turned))
            running.add(turned)
            level, count = running.value(), Overlap(units, data.categories)
            for i in range(args.images):
                maps = turned[49 * i : 49 * (i + 1)].T.reshape(units, 7, 7)
                count.add(maps, level, data.annotation(i), (112, 112))

        row = {"units": units, "draw": drawn, "Schur form": schur, "a power": power,
               "a basis, per 1,000 images": 1000 / args.images * seconds(read, 1)}  # fmt: skip
        found.append({key: round(value, 3) for key, value in row.items()})
        print(", ".join(f"{key} {value:g}" for key, value in found[-1].items()), flush=True)
    kept = {"unit": "CPU seconds, one thread", "images measured": args.images, "map": "7x7", "rows": found}
    MEASURED.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    write_table()


def write_table() -> None:
    """The numbers of docs/measured/dissect.json into docs/dissect.md."""
    kept = json.loads(MEASURED.read_text(encoding="utf-8"))
    lines = [f"| {' | '.join(kept['rows'][0])} |", "|---" * len(kept["rows"][0]) + "|"]
    lines += [f"| {' | '.join(f'{value:g}' for value in row.values())} |" for row in kept["rows"]]
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
    _, _, after = rest.partition(END)
    PAGE.write_text(before + "\n".join([START, *lines, END]) + after, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["pass", "width", "table"])
    parser.add_argument("--data", type=Path, help="../shared/data for trained weights")
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--units", default="64,256,1024,2048")
    torch.set_num_threads(1)
    chosen = parser.parse_args()
    {"pass": one_pass, "width": widths, "table": lambda args: write_table()}[chosen.what](chosen)
