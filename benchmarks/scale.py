"""Seconds and peak memory of inspect, verify, act, align, merge and saving on Llama-shaped models in bf16.

    python benchmarks/scale.py [--billions 0.01 0.1 1.1] [--only align] [--out docs/measured/scale.json]

Each size runs in a process of its own, and the peak of each step is its own, with all that it was given (on
Linux: the kernel forgets the peak before it); sizes that OUT holds already are not run again. The model is
first written to a temporary folder as save_pretrained does, and everything after that starts from the folder,
as a user would: `hf:DIR`, trace with its proof, verify, act, merge to 80 % by `magnitude` (the covariances of
the default method are for widths up to about 4,096), saved in shards and loaded again, align (the moved model
back onto the first: bf16 rounds it, so the distance is that of rounding). What 7 billion would take is
extrapolated from the two largest (`scripts/make_scale_table.py`).

--only align measures that step again in a process that has only loaded, traced without the proof and moved.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

SHAPES = {  # billions of parameters -> hidden size, layers, feed-forward size, heads, tokens
    0.01: (256, 8, 688, 4, 8000),
    0.1: (768, 12, 2048, 12, 32000),
    1.1: (2048, 22, 5632, 32, 32000),
}
OUT = Path(__file__).parent.parent / "docs" / "measured" / "scale.json"


def peak() -> float:
    """Gigabytes that this process has held at most since `forget_peak`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1e6


def forget_peak() -> None:
    """The peak from here on; what earlier steps freed goes back to the system first."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")


def write(billions: float, folder: str) -> None:
    """A random model of that size as a folder of save_pretrained, in bf16."""
    import torch

    from intertwine.vision_shim import import_transformers

    transformers = import_transformers()
    hidden, layers, inner, heads, tokens = SHAPES[billions]
    config = transformers.LlamaConfig(
        hidden_size=hidden, num_hidden_layers=layers, intermediate_size=inner, num_attention_heads=heads,
        num_key_value_heads=max(1, heads // 8), vocab_size=tokens, tie_word_embeddings=False,
    )  # fmt: skip
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    transformers.LlamaForCausalLM(config).save_pretrained(folder, max_shard_size="1GB")


def measure(billions: float, folder: str, only: str | None = None) -> None:
    """Print seconds and gigabytes after each step; only: align alone, after what it needs."""
    from intertwine import act, align, merge, trace, verify
    from intertwine.zoo import resolve
    from intertwine.zoo.saving import save_model

    row: dict[str, float] = {}

    def step(name: str, work: Callable[[], Any]) -> Any:
        forget_peak()
        wall, used = time.perf_counter(), time.process_time()
        result = work()
        row[f"s {name}"], row[f"CPU s {name}"] = time.perf_counter() - wall, time.process_time() - used
        row[f"GB {name}"] = peak()
        print(json.dumps(row), flush=True)  # what was done stays, whatever ends the run
        return result

    if only:
        source = resolve(f"hf:{folder}")
        symmetry = trace(source.model, source.example[0][:1, :8], prove=False)
        found = step("align", partial(align, source.model, act(source.model, symmetry.sample(0)), symmetry))
        row |= {"distance before": found.distance_before, "distance after": found.distance_after}
        print(json.dumps(row), flush=True)
        return
    source = step("load", lambda: resolve(f"hf:{folder}"))
    example = source.example[0][:1, :8]
    row["billions"] = sum(p.numel() for p in source.model.parameters()) / 1e9
    symmetry = step("inspect", lambda: trace(source.model, example))
    assert symmetry.proof is not None and not symmetry.proof.refuted
    row["error"] = symmetry.proof.max_error
    report = step("verify", lambda: verify(source.model, example, symmetry=symmetry))
    row |= {"coverage": report.parameter_coverage, "control": report.control_error}
    moved = step("act", lambda: act(source.model, symmetry.sample(0)))
    small = step("merge", lambda: merge(source.model, example, symmetry=symmetry, target_params=0.8,
                                        method="magnitude", uniform=True, multiple=8))  # fmt: skip
    row["share"] = small.parameters_after / small.parameters_before
    step("save", partial(save_model, small.model, source, f"{folder}-small", small.details()))
    del small
    found = step("align", partial(align, source.model, moved, symmetry))
    row |= {"distance before": found.distance_before, "distance after": found.distance_after}
    print(json.dumps(row), flush=True)


def main() -> None:
    """Measure every size in a process of its own, and keep the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--billions", type=float, nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--only", choices=("align",), help="measure this step again")
    parser.add_argument("--step", choices=("write", "measure"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.step:
        steps = {"write": write, "measure": partial(measure, only=args.only)}
        steps[args.step](args.billions[0], args.folder)
        return
    rows = json.loads(args.out.read_text()) if args.out.exists() else {}
    for billions in args.billions:
        if "distance after" in rows.get(str(billions), {}) and not args.only:
            continue
        with tempfile.TemporaryDirectory() as place:
            for step in ("write", "measure"):
                command = [sys.executable, __file__, "--step", step, "--folder", f"{place}/model"]
                command += ["--billions", str(billions)] + (["--only", args.only] if args.only else [])
                with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                    assert process.stdout is not None
                    for line in filter(lambda text: text.startswith("{"), process.stdout):
                        kept = rows[str(billions)] if args.only else {}
                        rows[str(billions)] = kept | json.loads(line)
                        args.out.write_text(json.dumps(rows, indent=1) + "\n")
                        print(billions, line, flush=True)
                if process.returncode:
                    sys.exit(process.returncode)


if __name__ == "__main__":
    main()
