"""Speed of Iterative Feature Merging against a direct transcription, as ratios measured in one run.

    python benchmarks/merge.py                             a VGG16 with random weights, all axes
    python benchmarks/merge.py --weights vgg16.safetensors --max-ratio 0.3 --axes 'features.3*'

Both sides must merge the same pairs, or it fails. The naive side does what Algorithm 1 and the released code
do: one matrix product for each weight of the axis at every merge. Growth: time of one axis of width 256 to
4096. Large: the 4096 x 25088 layer of an ImageNet VGG16, all its merges, and the memory that it takes.
"""

from __future__ import annotations

import argparse
import resource
import time

import torch
from torch import Tensor, nn

from intertwine import trace, zoo
from intertwine.merging.ifm import merge_axis, merge_interleaved, merge_layerwise
from intertwine.merging.places import Place, find_axes, find_places, float64_weights
from intertwine.merging.working import Target

Pairs = list[tuple[int, int]]


def naive_step(
    params: dict[str, Tensor], target: Target, held: Tensor, names: list[int], beta: float
) -> tuple[int, int] | None:
    """Distances from scratch, one merge in place (eq. 6, 7, 9 and 10)."""
    if len(names) < 2:
        return None
    matrices = [p for p in target.places if params[p.param].dim() > 1]
    gram = torch.zeros(len(names), len(names), dtype=torch.float64)
    for place in matrices:
        rows = params[place.param].movedim(place.dim, 0).flatten(1)
        gram += rows @ rows.T
    table = gram.diag()[:, None] + gram.diag()[None, :] - 2 * gram
    largest = table.max()
    table.fill_diagonal_(float("inf"))
    if table.min() > beta * largest:
        return None
    m, n = divmod(int(table.argmin()), len(names))
    keep = [c for c in range(len(names)) if c != n]
    for place in matrices:
        w = params[place.param].movedim(place.dim, 0).clone()
        if place.consumes:
            w[m] = (held[m] * w[m] + held[n] * w[n]) / (held[m] + held[n])
        else:
            w[m] += w[n]
        params[place.param] = w[keep].movedim(0, place.dim)
    held[m] += held[n]
    held[n:-1] = held[n + 1 :].clone()
    pair = (names[m], names[n])
    del names[n]
    return pair


def naive(
    targets: list[Target], weights: dict[str, Tensor], beta: float, ratio: float, interleaved: bool
) -> list[Pairs]:
    params = dict(weights)
    held = [torch.ones(t.size, dtype=torch.float64) for t in targets]
    names = [list(range(t.size)) for t in targets]
    merges: list[Pairs] = [[] for _ in targets]

    def step(k: int) -> bool:
        pair = naive_step(params, targets[k], held[k], names[k], beta)
        if pair is not None:
            merges[k].append(pair)
        return pair is not None

    if not interleaved:
        for k, target in enumerate(targets):
            while len(merges[k]) < ratio * target.size and step(k):
                pass
        return merges
    rounds, moving = 0, True
    while moving:
        moved = [
            step(k) for k, t in enumerate(targets) if rounds < ratio * t.size
        ]  # all of them, no shortcut
        moving = any(moved)
        rounds += 1
    return merges


def compare(
    targets: list[Target], weights: dict[str, Tensor], beta: float, ratio: float, interleaved: bool
) -> None:
    fast = merge_interleaved if interleaved else merge_layerwise
    start = time.perf_counter()
    found = fast(targets, weights, beta, ratio)
    ours = time.perf_counter() - start
    start = time.perf_counter()
    expected = naive(targets, weights, beta, ratio, interleaved)
    theirs = time.perf_counter() - start
    same = [[(m.keep, m.drop) for m in ms] for ms in found] == expected
    order = "interleaved" if interleaved else "layerwise"
    merges = sum(map(len, expected))
    agree = "yes" if same else "NO"
    print(f"| {order} | {merges} | {theirs:.2f} | {ours:.3f} | {theirs / ours:.0f} | {agree} |", flush=True)
    if not same:
        raise SystemExit("the two sides merged different pairs")


def growth(widths: list[int], fan: int) -> None:
    print("\n| width | product, s | all merges, s | merges / width^2, ns |\n|---|---|---|---|")
    for width in widths:
        torch.manual_seed(0)
        weights = {
            "w": torch.randn(width, fan, dtype=torch.float64),
            "v": torch.randn(fan, width, dtype=torch.float64),
        }
        where = torch.arange(width).numpy()[:, None]
        target = Target("a", width, (Place("w", 0, "out", where), Place("v", 1, "in", where)), True)
        start = time.perf_counter()
        _ = weights["w"] @ weights["w"].T, weights["v"].T @ weights["v"]
        product = time.perf_counter() - start
        start = time.perf_counter()
        merge_axis(target, weights, 1.0, 1.0)
        seconds = time.perf_counter() - start
        rest = max(seconds - product, 0.0)
        print(f"| {width} | {product:.3f} | {seconds:.2f} | {rest / width**2 * 1e9:.0f} |", flush=True)


def large(width: int, fan_in: int, fan_out: int) -> None:
    """All merges of one float32 layer and its reader; peak memory above the weights, in units of them."""
    torch.manual_seed(0)
    weights = {"w": torch.randn(width, fan_in), "v": torch.randn(fan_out, width)}
    held = sum(w.numel() * w.element_size() for w in weights.values())
    where = torch.arange(width).numpy()[:, None]
    target = Target("a", width, (Place("w", 0, "out", where), Place("v", 1, "in", where)), True)
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, time.perf_counter()
    merges = merge_axis(target, weights, 1.0, 1.0)
    seconds = time.perf_counter() - start
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    square = width * width * 8
    print("\n| layer | merges | seconds | memory above the weights | the same in d x d float64 matrices |")
    print("|---|---|---|---|---|")
    size = f"{width} x {fan_in}"
    print(f"| {size} | {len(merges)} | {seconds:.0f} | {more / held:.2f} x | {more / square:.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--weights")
    parser.add_argument("--axes", action="append")
    parser.add_argument("--beta", type=float, default=1.0)
    parser.add_argument("--max-ratio", type=float, default=0.5)
    parser.add_argument("--orders", default="layerwise,interleaved")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--widths", default="256,512,1024,2048,4096")
    parser.add_argument("--large", default="4096,25088,4096", help="width, fan-in, fan-out; empty to skip")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model: nn.Module = zoo.build("vgg16")
    if args.weights:
        zoo.load_weights(model, args.weights)
    symmetry = trace(model, torch.zeros(1, 3, 32, 32))
    weights = float64_weights(symmetry, model)
    targets = [Target(a.name, a.size, find_places(symmetry, a), True) for a in find_axes(symmetry, args.axes)]
    print("| order | merges | naive, s | ours, s | ratio | same pairs |\n|---|---|---|---|---|---|")
    for order in filter(None, args.orders.split(",")):
        compare(targets, weights, args.beta, args.max_ratio, order == "interleaved")
    if args.widths:
        growth([int(w) for w in args.widths.split(",")], 1024)
    if args.large:
        large(*(int(n) for n in args.large.split(",")))


if __name__ == "__main__":
    main()
