"""The field, side by side: Torch-Pruning, rebasin and intertwine on the same models.

    pip install --no-deps --target OTHERS torch-pruning rebasin torchview graphviz
    PYTHONPATH=OTHERS python benchmarks/race.py [--models A,B] [--limit SECONDS] [-o docs/measured/race.json]

The others never become requirements of intertwine. Each tool meets each model in a process of its own
(forked, so that all is imported once); what is in the JSON already is not run again.

The task, in float64, up to three hidden axes a model, spread over the tool's own list of them:

    intertwine, Torch-Pruning   channel 1 is made a copy of channel 0 (in all weights that the tool says carry
                                it), then the reading weights of 1 are added to those of 0 and 1 is removed.
                                If the tool found the right weights, the model runs and computes what it did
                                before. Axes under a norm over the channels are not asked of either: it sees
                                how many there are. Nor are those that the tool itself says cannot be made
                                smaller (`find_rigid`: sizes are written into the forward; Torch-Pruning:
                                `check_pruning_group`), unless it says so of all.
    rebasin                     the model is aligned to another of the same kind; that must move some weight
                                and must not change what it computes. Running statistics stay at 0 and 1 for
                                it, since it leaves them to be measured again.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import json
import multiprocessing
import os
import re
import resource
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from itertools import zip_longest
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from intertwine.text import first_line

TOOLS = ("intertwine", "torch-pruning", "rebasin")
TORCHVISION = """
    mobilenet_v3_small squeezenet1_1 mnasnet0_5 shufflenet_v2_x0_5 resnet18 mobilenet_v2 efficientnet_b0
    regnet_y_400mf densenet121 googlenet convnext_tiny efficientnet_v2_s mobilenet_v3_large resnext50_32x4d
    regnet_x_400mf resnet50 wide_resnet50_2 alexnet
""".split()
FAMILIES = """
    bert gpt2 llama t5 vit mixtral mamba bart convnext distilbert opt roberta qwen2 gemma swin albert gpt_neox
    phi clip whisper mistral deit segformer olmoe qwen2_moe bloom electra falcon qwen3 dinov2 wav2vec2 siglip
    qwen3_moe gptj codegen stablelm starcoder2 cohere olmo olmo2 granite granitemoe phi3 phimoe gemma2 gpt_neo
    gpt_bigcode mpt mbart pegasus marian hubert beit resnet regnet mobilevit poolformer pvt mpnet xglm deberta
    switch_transformers nllb-moe jetmoe gpt_oss deepseek_v3 mobilebert modernbert
""".split()
TIMM = """
    test_resnet test_vit test_efficientnet test_convnext test_byobnet test_nfnet test_mambaout
    starnet_s050 mobilenetv3_small_050 ghostnet_050 repghostnet_050 dla46x_c edgenext_xx_small
    mobilevit_xxs ese_vovnet19b_slim_dw regnetx_002 efficientvit_m0 iformer_t xcit_nano_12_p8_224
    cs3darknet_focus_s efficientvit_b0 swiftformer_xs efficientformerv2_s0 pvt_v2_b0 fasternet_t0
    fastvit_t8 lcnetv2_small inception_next_atto pit_ti_224 rexnet_100 hardcorenas_b coat_tiny repvit_m1
    convit_tiny deit_tiny_patch16_224 gmlp_ti16_224 hgnetv2_b0 shvit_s1 vit_tiny_r_s16_p8_224
    cpubone_nano efficientvim_m1 crossvit_tiny_240 levit_128s maxvit_pico_rw_256 dpn48b visformer_tiny
    resnest14d resnetv2_18 legacy_seresnet18 skresnet18
""".split()
ZOO = "mlp lenet5 digits-vgg resnet20 resnet20-pad tiny10 cct6".split()
SMALL = "1x3x64x64"  # pixels of what takes images of any size


def in_turn(*lists: list[tuple[str, str | None]]) -> list[tuple[str, str | None]]:
    """One of each library in turn, so that a run that is stopped has met them all."""
    return [one for each in zip_longest(*lists) for one in each if one is not None]


MODELS = in_turn(
    [(f"zoo:{name}", None) for name in ZOO],
    [(f"torchvision:{name}", None if name == "alexnet" else SMALL) for name in TORCHVISION],
    [(f"hf:{name}", None) for name in FAMILIES],
    [(f"timm:{name}", None if re.search(r"_(224|240|256)$", name) else SMALL) for name in TIMM],
)
TRIES, EXACT = 3, 1e-8


class Refused(Exception):
    """The tool says that it cannot."""


def loaded(
    spec: str, shape: str | None, seed: int = 0, statistics: bool = True
) -> tuple[nn.Module, Any, dict[str, Any]]:
    """A model in float64 without constant weights (and statistics), and its example.

    Where it does not take images of the given shape, those of its own size.
    """
    from intertwine.symmetry.prove import make_generic
    from intertwine.zoo import resolve

    source = resolve(spec, input=shape, seed=seed)
    try:
        ran(source.model.eval(), source.example, source.kwargs or {})
    except Exception:
        source = resolve(spec, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    model = source.model.eval()
    with torch.no_grad():
        stored = [b for n, b in model.named_buffers() if "running_" in n] if statistics else []
        for tensor in [*model.parameters(), *stored]:
            tensor.copy_(make_generic(tensor, generator))
    double = lambda x: x.double() if isinstance(x, Tensor) and x.is_floating_point() else x  # noqa: E731
    kwargs = {k: double(v) for k, v in (source.kwargs or {}).items()}
    return model.double(), tuple(double(x) for x in source.example), kwargs


def ran(model: nn.Module, example: Any, kwargs: dict[str, Any]) -> list[Tensor]:
    """All real outputs."""
    with torch.no_grad():
        leaves = tree_leaves(model(*example, **kwargs))
    return [x for x in leaves if isinstance(x, Tensor) and x.is_floating_point()]


def error(before: Sequence[Tensor], after: Sequence[Tensor]) -> float:
    """The largest relative change of an output."""
    if [x.shape for x in before] != [x.shape for x in after]:
        return float("inf")
    pairs = zip(before, after, strict=True)
    changes = [float((a - b).abs().max() / a.abs().max().clamp_min(1e-30)) for a, b in pairs]
    return max(changes, default=0.0)


def spread(items: Sequence[Any]) -> list[Any]:
    """Up to three of a list: first, middle, last."""
    if len(items) <= TRIES:
        return list(items)
    return [items[0], items[len(items) // 2], items[-1]]


def attempts(names: Sequence[str], one: Callable[[str], float]) -> dict[str, Any]:
    """How the tries ended."""
    tries = []
    for name in names:
        try:
            changed = one(name)
        except Refused:
            continue
        except Exception as problem:
            tries.append({"axis": name, "ran": False, "exact": False, "why": first_line(problem)[:160]})
        else:
            exact = changed <= EXACT
            why = "" if exact else f"the function changed by {changed:.1e}"
            tries.append({"axis": name, "ran": True, "exact": exact, "why": why})
    return {"tries": tries}


# -- intertwine ----------------------------------------------------------------------------------------------


def race_intertwine(spec: str, shape: str | None) -> dict[str, Any]:
    """Plant and merge a duplicate on three mergeable axes."""
    from intertwine import trace
    from intertwine.merging import apply_merge, plan_merge
    from intertwine.merging.places import find_places
    from intertwine.merging.rigid import find_rigid

    model, example, kwargs = loaded(spec, shape)
    symmetry = trace(model, example, kwargs).alike  # experts of one tensor get narrower together
    axes = [a for a in symmetry.axes if a.mergeable]
    while rigid := find_rigid(model, symmetry, spread(axes), (example, kwargs)):
        axes = [a for a in axes if a.name not in rigid]
    if not axes:
        raise Refused("no axis can be merged")

    def one(name: str) -> float:
        planted = copy.deepcopy(model)
        state = {**dict(planted.named_parameters()), **dict(planted.named_buffers())}
        with torch.no_grad():
            for place in find_places(symmetry, symmetry.axis(name)):
                rows = state[place.param].movedim(place.dim, 0)
                rows[torch.from_numpy(place.where[1])] = rows[torch.from_numpy(place.where[0])].clone()
        before = ran(planted, example, kwargs)
        escaped = name.replace("[", "[[]")
        plan = plan_merge(planted, symmetry, method="ifm", beta=1e-12, check=False, axes=[escaped])
        small = apply_merge(planted, plan)
        if sum(p.numel() for p in small.parameters()) >= sum(p.numel() for p in model.parameters()):
            raise RuntimeError("the planted duplicate was not found")
        return error(before, ran(small, example, kwargs))

    return attempts([a.name for a in spread(axes)], one)


# -- Torch-Pruning -------------------------------------------------------------------------------------------


def race_torch_pruning(spec: str, shape: str | None) -> dict[str, Any]:
    """Plant a duplicate by the tool's own groups, add up what reads it, prune it."""
    import torch_pruning as tp

    model, example, kwargs = loaded(spec, shape)
    inputs = {**kwargs} if kwargs and not example else example[0] if len(example) == 1 else example

    def graph(of: nn.Module) -> Any:
        return tp.DependencyGraph().build_dependency(of, example_inputs=inputs)

    def sees_the_number(group: Any) -> bool:
        each = (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)
        modules = [dep.target.module for dep, _ in group]
        return any("Norm" in type(m).__name__ and not isinstance(m, each) for m in modules)

    names = {module: name for name, module in model.named_modules()}
    shapes = [tuple(x.shape) for x in ran(model, example, kwargs)]
    roots = []
    for group in graph(model).get_all_groups():
        root = group[0].dep.target.module
        width = getattr(root, "out_channels", getattr(root, "out_features", 0))
        output = any(width in s[-1:] or width in s[1:2] for s in shapes) and root is _last(model)
        if root in names and width > 1 and not output and not sees_the_number(group):
            roots.append(names[root])
    if not roots:
        raise Refused("no group without a norm over its channels")

    def one(name: str) -> float:
        planted = copy.deepcopy(model)
        dependencies, root = graph(planted), dict(planted.named_modules())[name]
        prune = dependencies.get_pruner_of_module(root).prune_out_channels
        first, second = (dependencies.get_pruning_group(root, prune, [k]) for k in (0, 1))
        reads = []
        with torch.no_grad():
            for (dep, kept), (_, gone) in zip(first, second, strict=True):
                module = dep.target.module
                layer = isinstance(module, (nn.Linear, nn.modules.conv._ConvNd))
                depthwise = getattr(module, "groups", 1) > 1 and module.weight.shape[1] == 1
                if layer and not depthwise and dependencies.is_in_channel_pruning_fn(dep.handler):
                    reads.append((module, list(kept), list(gone)))
                    module.weight[:, gone] = module.weight[:, kept].clone()
                else:
                    _copy_channels(module, list(kept), list(gone))
            before = ran(planted, example, kwargs)
            for module, kept, gone in reads:
                module.weight[:, kept] += module.weight[:, gone]
        if not dependencies.check_pruning_group(second):
            raise Refused("the tool refuses the group")
        second.prune()
        return error(before, ran(planted, example, kwargs))

    return attempts(spread(roots), one)


def _last(model: nn.Module) -> nn.Module | None:
    layers = [m for m in model.modules() if isinstance(m, (nn.Linear, nn.Conv2d))]
    return layers[-1] if layers else None


def _copy_channels(module: Any, kept: list[int], gone: list[int]) -> None:
    """channel gone := channel kept, in all that a module has of it."""
    if isinstance(module, nn.Parameter):
        dim = next(d for d in range(module.dim()) if module.shape[d] > max(gone))
        module.movedim(dim, 0)[gone] = module.movedim(dim, 0)[kept].clone()
        return
    if not isinstance(module, nn.Module):
        return
    for tensor in [*module.parameters(recurse=False), *module.buffers(recurse=False)]:
        if tensor.dim() and tensor.shape[0] > max(gone):
            tensor[gone] = tensor[kept].clone()


# -- rebasin -------------------------------------------------------------------------------------------------


def race_rebasin(spec: str, shape: str | None) -> dict[str, Any]:
    """Align to another model of the same kind: something moves, and the function stays."""
    from rebasin import PermutationCoordinateDescent

    target, example, kwargs = loaded(spec, shape, seed=1, statistics=False)
    model, _, _ = loaded(spec, shape, statistics=False)
    before, old = ran(model, example, kwargs), {n: p.clone() for n, p in model.named_parameters()}
    given = kwargs if kwargs and not example else example[0] if len(example) == 1 else list(example)

    def one(_: str) -> float:
        PermutationCoordinateDescent(target, model, given).rebasin(max_iterations=3)
        if all(torch.equal(p, old[n]) for n, p in model.named_parameters()):
            raise RuntimeError("nothing was moved")
        return error(before, ran(model, example, kwargs))

    return attempts(["all"], one)


RACES = {"intertwine": race_intertwine, "torch-pruning": race_torch_pruning, "rebasin": race_rebasin}


def race(tool: str, spec: str, shape: str | None) -> dict[str, Any]:
    """One tool on one model, in this process."""
    start = time.process_time()
    try:
        found = RACES[tool](spec, shape)
    except Exception as problem:
        found = {"tries": [], "why": f"{type(problem).__name__}: {first_line(problem)}"[:200]}
    return {**found, "cpu_seconds": round(time.process_time() - start, 1)}


def apart(tool: str, spec: str, shape: str | None, limit: float) -> dict[str, Any]:
    """The same in a process of its own, which has so many seconds of its own CPU time."""
    here, there = multiprocessing.get_context("fork").Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_child, args=(there, tool, spec, shape, limit))
    child.start()
    there.close()
    try:
        return dict(here.recv())
    except EOFError:
        return {"tries": [], "why": f"not done after {limit:.0f} s, or the process died"}
    finally:
        child.join()


def _child(answer: Connection, tool: str, spec: str, shape: str | None, limit: float) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit)))
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        answer.send(race(tool, spec, shape))


def main() -> None:
    """Every tool on every model that the JSON does not have yet."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--models", help="only these, between commas")
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--limit", type=float, default=120, help="CPU seconds for one tool on one model")
    parser.add_argument("-o", "--out", type=Path, default=Path("docs/measured/race.json"))
    args = parser.parse_args()
    found = json.loads(args.out.read_text()) if args.out.exists() else {}
    chosen = set(args.models.split(",")) if args.models else {spec for spec, _ in MODELS}
    for module in ("torch_pruning", "rebasin", "torch._dynamo", "torchvision", "timm", "transformers"):
        importlib.import_module(module)
    for spec, shape in MODELS:
        for tool in args.tools.split(","):
            if spec not in chosen or spec in found.setdefault(tool, {}):
                continue
            found[tool][spec] = result = apart(tool, spec, shape, args.limit)
            args.out.parent.mkdir(parents=True, exist_ok=True)
            args.out.write_text(json.dumps(found, indent=1) + "\n")
            exact = sum(t["exact"] for t in result["tries"])
            said = f"{tool} {spec}: {exact} of {len(result['tries'])} {result.get('why', '')}"
            print(said, result.get("cpu_seconds"), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
