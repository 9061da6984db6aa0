"""What a verb costs as the model grows: CPU seconds of one thread, and the largest resident memory so far.

    python benchmarks/scaling.py [--models tiny10 resnet20 resnet56] [--inputs 500] [--batch 64]

For each model, with random weights and random 3x32x32 inputs (costs do not depend on the values):
trace (export and inference), verify in float64, merge (IFM, beta 0.1, independent order), one training step,
forward passes of two networks, their moments for all L x L pairs of layers, pooled and by pixel (measured on
--inputs images and a fifth of them, given for 1,000), and reading CKA and G_ReLU Procrustes off the moments.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from intertwine import trace, verify, zoo
from intertwine.comparing.collecting import Runner
from intertwine.comparing.measures import find_measure
from intertwine.comparing.stream import StreamedMoments
from intertwine.merging import Options, Planner


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    return work(), time.process_time() - start


def step_seconds(name: str, batch: int) -> float:
    """The fastest of five steps of SGD, channels-last."""
    net = zoo.build(name).train().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(batch, 3, 32, 32).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 10, (batch,))

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(net(images), labels).backward()
        optimizer.step()

    step()
    return min(timed(step)[1] for _ in range(5))


def moments_seconds(
    runners: list[Runner], images: torch.Tensor, pixels: str, measure: str
) -> dict[str, float]:
    """Running both networks, adding the moments of all pairs of layers, and reading a measure off them."""
    batches = images.split(100)
    moments = StreamedMoments(pixels=pixels, debiased=False)  # type: ignore[arg-type]
    values, run = timed(lambda: [[runner.run(batch)[0] for runner in runners] for batch in batches])
    _, add = timed(lambda: [moments.update(a, b) for a, b in values])
    layers = list(values[0][0])
    pairs = [(p, q) for p in layers for q in layers]
    _, read = timed(lambda: [find_measure(measure).of_moments(moments.pair(p, q)) for p, q in pairs])
    thousand = 1000 / len(images)
    return {
        "layers": len(layers),
        "two forward passes, 1,000 inputs": run * thousand,
        f"moments of {pixels}, 1,000 inputs": add * thousand,
        f"read {measure}, all pairs of layers": read,
    }


def costs(name: str, inputs: int, batch: int) -> dict[str, Any]:
    """All the numbers of one model."""
    model = zoo.build(name)
    example = torch.randn(2, 3, 32, 32)
    symmetry, tracing = timed(lambda: trace(model, example))
    _, verifying = timed(lambda: verify(model, example, symmetry=symmetry))
    options = Options("ifm", order="independent", repair="none")
    _, merging = timed(lambda: Planner(model, symmetry, options, None, check=False).at_beta(0.1))
    images = torch.randn(inputs, 3, 32, 32)
    runners = [Runner(model), Runner(zoo.build(name))]
    for runner in runners:  # tracing is counted above
        runner.run(images[:100])
    row: dict[str, Any] = {"model": name, "parameters": sum(p.numel() for p in model.parameters())}
    row |= {"trace": tracing, "verify": verifying, "merge": merging}
    row["training images/s"] = batch / step_seconds(name, batch)
    with torch.no_grad():
        row |= moments_seconds(runners, images, "pool", "cka")
        row |= moments_seconds(runners, images[: inputs // 5], "samples", "procrustes-grelu")
    row["largest memory, GB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", default=["tiny10", "resnet20", "resnet56"])
    parser.add_argument("--inputs", type=int, default=500)
    parser.add_argument("--batch", type=int, default=64)
    args = parser.parse_args()
    torch.set_num_threads(1)
    trace(zoo.build("mlp"), torch.randn(2, 1, 28, 28))  # the first trace of a process imports torch.export
    for name in args.models:
        row = costs(name, args.inputs, args.batch)
        print(json.dumps({k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()}), flush=True)


if __name__ == "__main__":
    main()
