"""Seconds and peak memory of trace with its proof, and of act, on Llama-shaped models in bf16.

    python benchmarks/scale.py [--billions 0.01 0.1 1.1]

Each size runs in a process of its own, so that its peak is its own; what 7 billion would take is
extrapolated from the two largest. The peak holds the model itself, torch and the library.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

SHAPES = {  # billions of parameters -> hidden size, layers, feed-forward size, heads
    0.01: (256, 8, 688, 4),
    0.1: (768, 12, 2048, 12),
    1.1: (2048, 22, 5632, 32),
}


def peak() -> float:
    """Gigabytes that this process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def measure(billions: float) -> dict[str, float]:
    """Build, trace with the proof, act; seconds and gigabytes after each step."""
    import torch

    from intertwine import act, trace
    from intertwine.vision_shim import prepare

    prepare()  # transformers imports torchvision
    from transformers import LlamaConfig, LlamaForCausalLM

    hidden, layers, inner, heads = SHAPES[billions]
    config = LlamaConfig(
        hidden_size=hidden,
        num_hidden_layers=layers,
        intermediate_size=inner,
        num_attention_heads=heads,
        num_key_value_heads=max(1, heads // 8),
        vocab_size=32_000,
    )
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    model = LlamaForCausalLM(config).eval()
    torch.set_default_dtype(torch.float32)
    row = {"billions": sum(p.numel() for p in model.parameters()) / 1e9, "GB of the model": peak()}
    start = time.perf_counter()
    symmetry = trace(model, torch.randint(0, 1000, (1, 8)))
    assert symmetry.proof is not None and not symmetry.proof.refuted
    row |= {f"s {step}": seconds for step, seconds in symmetry.seconds.items()}
    row |= {"s trace": time.perf_counter() - start, "error": symmetry.proof.max_error, "GB trace": peak()}
    start = time.perf_counter()
    act(model, symmetry.sample(0))
    return row | {"s act": time.perf_counter() - start, "GB act": peak()}


def main() -> None:
    """Measure every size in a process of its own and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--billions", type=float, nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--one", type=float, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one is not None:
        print(json.dumps(measure(args.one)))
        return
    rows = []
    for billions in args.billions:
        command = [sys.executable, __file__, "--one", str(billions)]
        rows.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))
        print("  ".join(f"{name} {value:.3g}" for name, value in rows[-1].items()), flush=True)
    if len(rows) > 1:
        (a, b), grown = rows[-2:], 7.0
        for name in ("s trace", "GB trace", "s act", "GB act"):
            slope = (b[name] - a[name]) / (b["billions"] - a["billions"])
            print(f"7 billion, extrapolated: {name} {b[name] + slope * (grown - b['billions']):.0f}")


if __name__ == "__main__":
    main()
