"""Speed of similarity against torch-cka, ckatorch and G_ReLU-CKA row by row, with equal results checked.

    pip install torch-cka ckatorch
    python benchmarks/similarity.py [--inputs 10000] [--theirs 1024] [--whole] [--threads 2] [--out FILE]
    python benchmarks/similarity.py --theirs 256 --threads 1 --out docs/measured/similarity.json
    python scripts/make_similarity_table.py

1. Linear CKA between the 20 weight layers of two ResNet20. The floor is two bare forward passes over the same
   batches. torch-cka runs on --theirs inputs; its time above the floor is scaled up to --inputs.
2. The max kernel of G_ReLU-CKA (N = 1,500, C = 64, 16 x 16) against appendix D.7.2 taken literally, a product
   and a sum for each row, and against one einsum for each row.
3. --whole: the max kernel over 10,000 x 64 x 32 x 32, in a process of its own, with its peak memory.

Seconds are of CPU time, which other work on the machine disturbs least; "wall" is said where it is meant.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from intertwine import zoo
from intertwine.comparing import compare
from intertwine.comparing.kernels import max_kernel
from intertwine.data import load_data

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
BATCH = 256


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """The result and the CPU seconds of all threads."""
    start = time.process_time()
    return function(), time.process_time() - start


def load(inputs: int) -> tuple[list[nn.Module], Tensor]:
    """Two trained ResNet20 and CIFAR-10 images; random ones where the shared data is absent."""
    models = [zoo.resolve("zoo:resnet20", seed=seed).model for seed in (0, 1)]
    if not SHARED.exists():
        return models, torch.randn(inputs, 3, 32, 32)
    for seed, model in enumerate(models):
        zoo.load_weights(model, SHARED / "checkpoints" / f"resnet20-cifar10-seed{seed}.safetensors")
    path = SHARED / "cifar10" / "test.parquet"
    return models, load_data(f"parquet:{path}", normalize="cifar10-legacy", limit=inputs).images


def forward(models: list[nn.Module], images: Tensor) -> None:
    with torch.no_grad():
        for batch in images.split(BATCH):
            for model in models:
                model(batch)


def torch_cka(models: list[nn.Module], images: Tensor, layers: list[str], batch: int) -> np.ndarray:
    from torch_cka import CKA

    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images), batch_size=batch)
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()), torch.no_grad():
        warnings.simplefilter("ignore")
        cka = CKA(*models, model1_name="a", model2_name="b", model1_layers=layers, model2_layers=layers)
        cka.compare(loader)
    return cka.export()["CKA"].numpy()


def linear_cka(inputs: int, theirs: int) -> dict[str, Any]:
    models, images = load(inputs)
    modules = dict(models[0].named_modules())
    layers = [
        n for n, m in modules.items() if isinstance(m, (nn.Conv2d, nn.Linear)) and "downsample" not in n
    ]
    forward(models, images[:BATCH])
    _, floor = timed(lambda: forward(models, images))
    ours, seconds = timed(lambda: compare(*models, images, "cka", at=layers, function=False, intervals=False))
    _, with_intervals = timed(lambda: compare(*models, images, "cka", at=layers, function=False))
    _, export = timed(
        lambda: compare(*models, images[:BATCH], "cka", at=layers, function=False, intervals=False)
    )
    result: dict[str, Any] = {
        "layers": len(ours.layers_a), "inputs": len(images), "floor_seconds": floor, "seconds": seconds,
        "of_which_export_and_one_batch": export, "ratio_to_floor": seconds / floor,
        "seconds_with_intervals": with_intervals, "ratio_with_intervals": with_intervals / floor,
    }  # fmt: skip
    few = images[:theirs]
    _, their_floor = timed(lambda: forward(models, few))
    many_batches, their_seconds = timed(lambda: torch_cka(models, few, layers, BATCH))
    above = (their_seconds - their_floor) * len(images) / len(few)
    result |= {
        "torch_cka_inputs": len(few), "torch_cka_seconds": their_seconds,
        "torch_cka_above_floor_scaled": above, "ours_above_floor": seconds - floor,
        "ratio_above_floor": above / max(seconds - floor, 1e-9),
    }  # fmt: skip
    small = images[:BATCH]
    one_batch = torch_cka(models, small, layers, BATCH)
    same = compare(*models, small, "cka-debiased", at=layers, pixels="flatten", function=False)
    exact = compare(
        *models, few, "cka-debiased", at=layers, pixels="flatten", kernel_inputs=len(few), function=False
    )
    result |= {
        "difference_on_one_batch": float(np.abs(one_batch - same.values["cka-debiased"]).max()),
        "torch_cka_error_over_batches": float(np.abs(many_batches - exact.values["cka-debiased"]).max()),
        "ckatorch": against_ckatorch(models, small, layers, same.values["cka-debiased"]),
    }
    return result


def against_ckatorch(
    models: list[nn.Module], images: Tensor, layers: list[str], ours: np.ndarray
) -> dict[str, Any]:
    """ckatorch's function on the same features, pair by pair; its class keeps only the last batch."""
    from ckatorch.core import cka_base

    from intertwine.comparing import collect, similarity

    a, b = (collect(model, images, at=layers) for model in models)
    theirs, seconds = timed(
        lambda: np.array(
            [
                [float(cka_base(a[p].flatten(1), b[q].flatten(1), unbiased=True)) for q in layers[:5]]
                for p in layers[:5]
            ]
        )
    )
    _, mine = timed(
        lambda: [[similarity(a[p], b[q], "cka-debiased") for q in layers[:5]] for p in layers[:5]]
    )
    return {
        "difference": float(np.abs(theirs - ours[:5, :5]).max()), "seconds_for_25_pairs": seconds,
        "our_similarity_seconds_for_25_pairs": mine,
    }  # fmt: skip


def per_row_kernel(x: Tensor, *, einsum: bool) -> Tensor:
    """D.7.2 row by row: U[n, c] = sum_hw x[m] x[n], then the maximum over c."""
    x = x - x.mean((0, 2, 3), keepdim=True)
    x = x / x.square().sum((0, 2, 3), keepdim=True).sqrt()
    if einsum:
        return torch.stack([torch.einsum("chw,nchw->nc", row, x).amax(1) for row in x])
    return torch.stack([(row * x).sum((2, 3)).amax(1) for row in x])


def grelu_kernel(n: int = 1500, channels: int = 64, size: int = 16) -> dict[str, Any]:
    x = torch.randn(n, channels, size, size, generator=torch.Generator().manual_seed(0)).relu_()
    max_kernel(x[:100])
    ours, seconds = timed(lambda: max_kernel(x))
    literal, literal_seconds = timed(lambda: per_row_kernel(x, einsum=False))
    _, einsum_seconds = timed(lambda: per_row_kernel(x, einsum=True))
    return {
        "n": n, "channels": channels, "size": size, "seconds": seconds,
        "per_row_seconds": literal_seconds, "ratio": literal_seconds / seconds,
        "per_row_einsum_seconds": einsum_seconds, "ratio_einsum": einsum_seconds / seconds,
        "relative_difference": float((ours - literal).abs().max() / literal.abs().max()),
    }  # fmt: skip


def whole_test_set(n: int = 10_000, channels: int = 64, size: int = 32) -> dict[str, Any]:
    x = torch.empty(n, channels, size, size)
    for i, band in enumerate(
        x.split(500)
    ):  # in bands: a random tensor and its ReLU at once would double the memory
        band.normal_(generator=torch.Generator().manual_seed(i)).relu_()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20

    def show(done: int, total: int) -> None:
        print(f"tile {done} of {total}", file=sys.stderr, end="\r")

    start = time.perf_counter()
    kernel, seconds = timed(lambda: max_kernel(x, progress=show))
    wall = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {
        "n": n,
        "seconds": seconds,
        "wall_seconds": wall,
        "features_gb": before,
        "peak_gb": peak,
        "mean": float(kernel.mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--theirs", type=int, default=1024, help="inputs on which torch-cka runs")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--parts", default="kernel,cka", help="what to measure (default: kernel,cka)")
    parser.add_argument("--whole", action="store_true", help="also the kernel of the whole CIFAR-10 test set")
    parser.add_argument("--out", type=Path, help="also put the numbers into this file")
    parser.add_argument("--only-whole", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if args.only_whole:
        print(json.dumps(whole_test_set()))
        return
    report: dict[str, Any] = {"threads": args.threads}
    if "kernel" in args.parts.split(","):
        report["grelu_kernel"] = grelu_kernel()
    if "cka" in args.parts.split(","):
        report["linear_cka"] = linear_cka(args.inputs, args.theirs)
    report["peak_gb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    if args.whole:
        command = [sys.executable, __file__, "--only-whole", "--threads", str(args.threads)]
        report["whole_test_set"] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    print(json.dumps(report, indent=2))
    if args.out:
        known = json.loads(args.out.read_text(encoding="utf-8")) if args.out.exists() else {}
        args.out.write_text(json.dumps({**known, **report}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
