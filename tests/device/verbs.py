"""Every verb on models that live elsewhere, or are in another precision, with data there and on the CPU.

    python -m tests.device.verbs LIBRARY|cpu float32|bfloat16|float16 [WORD ...]

Prints one line of JSON: name of the case (of those that hold a word) -> what went wrong, or "".
"""

from __future__ import annotations

import json
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from tests.device.elsewhere import install
from torch import Tensor, nn

import intertwine as it
from intertwine.data.concepts import load_concepts


class Words(nn.Module):
    """A pre-norm transformer on tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(20, 16), nn.Parameter(torch.randn(8, 16))
        self.block = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True, dropout=0.0)
        self.norm, self.out = nn.LayerNorm(16), nn.Linear(16, 20)

    def forward(self, x: Tensor) -> Tensor:
        h = self.table(x) + self.places[: x.shape[1]]
        out: Tensor = self.out(self.norm(self.block(h)))[:, -1]
        return out


def images(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 12, 3, padding=1),
        nn.BatchNorm2d(12), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 4),
    ).eval()  # fmt: skip


def words(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return Words().eval()


class Cases:
    """What is tried; each case returns models that must have stayed where they were."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device, self.dtype = device, dtype
        self.close = 1e-4 if dtype == torch.float32 else 0.1
        torch.manual_seed(0)
        x, tokens = torch.randn(96, 3, 8, 8), torch.randint(0, 20, (64, 8))
        y, next_tokens = images(0)(x).argmax(1), words(0)(tokens).argmax(1)
        self.a, self.b, self.c = (images(seed).to(device, dtype) for seed in range(3))
        self.v, self.w = (words(seed).to(device, dtype) for seed in range(2))
        self.images = {"there": (x.to(device, dtype), y.to(device)), "cpu": (x, y)}
        self.tokens = {"there": (tokens.to(device), next_tokens.to(device)), "cpu": (tokens, next_tokens)}
        self.example, self.text = x[:2].to(device, dtype), tokens[:2].to(device)

    def all(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        for name, case in self.of_one_model():
            yield f"{name}, alone", case
        for where in ("there", "cpu") if self.device.type != "cpu" else ("there",):
            for name, case in (*self.of_images(where), *self.of_text(where)):
                yield f"{name}, data {where}", case

    def of_one_model(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        a, example = self.a, self.example
        symmetry = it.trace(a, example)
        spoken = it.trace(self.v, self.text)
        yield "verify", lambda: self.exact(it.verify(a, example).max_error)
        yield "verify text", lambda: self.exact(it.verify(self.v, self.text).max_error)
        yield "act", lambda: it.act(a, symmetry.sample(0))
        yield "act text", lambda: it.act(self.v, spoken.sample(0))
        yield "fold", lambda: self.same(it.fold(self.v, self.text), self.v, self.text)
        yield "align", lambda: it.align(a, it.act(a, symmetry.sample(1)), symmetry) and None
        yield "align two", lambda: it.act(self.b, it.align(a, self.b, symmetry).element)
        yield "align text", lambda: it.act(self.w, it.align(self.v, self.w, spoken).element)
        yield (
            "find_isomorphism",
            lambda: self.found(it.find_isomorphism(a, it.act(a, symmetry.sample(2)), symmetry)),
        )
        yield (
            "find_isomorphism text",
            lambda: self.found(it.find_isomorphism(self.v, it.act(self.v, spoken.sample(2)), spoken)),
        )
        for method in ("ifm", "ward", "magnitude", "moments"):
            yield f"merge {method}", lambda m=method: self.as_on_cpu(a, example, target_params=0.6, method=m)
        yield "merge text", lambda: it.merge(self.v, self.text, target_params=0.8).model
        yield "dimension", lambda: it.dimension(a, example) and None
        yield "dimension text", lambda: it.dimension(self.v, self.text, dense=100) and None
        small = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)).to(self.device)
        yield (
            "explore random",
            lambda: it.explore(small, torch.randn(16, 2, device=self.device), plane="random") and None,
        )
        yield "explore", lambda: it.explore(small, torch.randn(16, 2, device=self.device), points=5) and None

    def of_images(self, where: str) -> Iterator[tuple[str, Callable[[], Any]]]:
        a, b, data = self.a, self.b, self.images[where]
        x = data[0]
        both: dict[str, Any] = {"data": data, "train_data": x}
        yield "merge", lambda: it.merge(a, self.example, target_params=0.6, **both).model
        yield "merge max_drop", lambda: it.merge(a, self.example, max_drop=0.2, data=data).model
        yield (
            "merge repair",
            lambda: it.merge(a, self.example, target_params=0.6, repair="data", **both).model,
        )
        measures = (
            "cka cka-debiased cka-rbf cca cca-squared svcca pwcca procrustes procrustes-permutation".split()
        )
        more = "procrustes-grelu cka-grelu cka-grelu-laplace rsa knn auto".split()
        yield "compare", lambda: it.compare(a, b, data, [*measures, *more]) and None
        yield (
            "interpolate",
            lambda: it.interpolate([a, b], data, train_data=x, align=True, repair="reset") and None,
        )
        yield "interpolate stages", lambda: it.interpolate([a, b], data, train_data=x, stages=True) and None
        kinds = ["identity", "group", "full"]
        yield "stitch", lambda: it.stitch(a, b, data, data, at="2", kinds=kinds, epochs=1) and None
        yield "rotate", lambda: it.rotate(a, data, data, at="2", by="group", epochs=1) and None
        yield "attribute", lambda: it.attribute(a, data, "0", channel=[0, 1]) and None
        yield (
            "dissect",
            lambda: it.dissect(a, load_concepts("shapes", limit=24), "2", rotate="orthogonal") and None,
        )
        for how in ("layerwise", "average", "zip", "slerp", "fisher", "soup"):
            train = data if how == "soup" else x
            yield f"combine {how}", lambda h=how, t=train: it.combine([a, b], data, train_data=t, how=h).model
        for how in ("task", "ties"):
            yield (
                f"combine {how}",
                lambda h=how: it.combine([a, b], data, train_data=x, how=h, base=self.c).model,
            )
        ways: dict[str, dict[str, Any]] = {
            "learned alignment": {"align": "loss", "steps": 3},
            "learned": {"epochs": 2, "hidden": 1.0, "augment": True},
            "together": {"together": 3, "flip": True, "sweeps": 2},
            "rescaled": {"how": "average", "repair": "rescale"},
            "reset": {"how": "average", "repair": "reset"},
            "calibrated": {"calibrate": True},
        }
        for name, options in ways.items():
            yield f"combine {name}", lambda o=options: it.combine([a, b], data, train_data=x, **o).model
        narrow = it.merge(b, self.example, target_params=0.5).model
        yield "combine widths", lambda: it.combine([a, narrow], data, train_data=x).model
        yield "combine zip widths", lambda: it.combine([a, narrow], data, train_data=x, how="zip").model
        yield "dimension", lambda: it.dimension(a, self.example, data=x, limit=32) and None

    def of_text(self, where: str) -> Iterator[tuple[str, Callable[[], Any]]]:
        v, w, data = self.v, self.w, self.tokens[where]
        x = data[0]
        yield "merge text", lambda: it.merge(v, self.text, target_params=0.8, data=data, train_data=x).model
        yield "compare text", lambda: it.compare(v, w, data, "auto", at="all") and None
        yield "combine text", lambda: it.combine([v, w], data, train_data=x).model
        yield (
            "combine text learned",
            lambda: it.combine([v, w], data, train_data=x, align="loss", steps=3).model,
        )

    def exact(self, error: float) -> None:
        assert error < 1e-10, error

    def found(self, answer: Any) -> None:
        assert answer, "said no"

    def same(self, model: nn.Module, other: nn.Module, x: Tensor) -> nn.Module:
        error = (model(x) - other(x)).abs().max().item()
        assert error < self.close, error
        return model

    def as_on_cpu(self, model: nn.Module, example: Tensor, **options: Any) -> nn.Module:
        here = it.merge(images(0).to(self.dtype), example.cpu(), **options).model
        there = it.merge(model, example, **options).model
        error = (there(example).cpu() - here(example.cpu())).abs().max().item()
        assert error < 10 * self.close, error
        return there


def main(library: str, dtype: str, *words: str) -> None:
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    device = torch.device("cpu") if library == "cpu" else install(Path(library))
    cases = Cases(device, getattr(torch, dtype))
    found: dict[str, str] = {}
    for name, case in cases.all():
        if not words or any(word in name for word in words):
            found[name] = tried(case, cases)
    print(json.dumps(found))


def tried(case: Callable[[], Any], cases: Cases) -> str:
    """What went wrong, or nothing."""
    try:
        model = case()
        if isinstance(model, nn.Module):
            state = model.state_dict().items()
            moved = [n for n, t in state if t.device != cases.device]
            assert not moved, f"{moved[0]} left the device"
            moved = [n for n, t in state if t.is_floating_point() and t.dtype != cases.dtype]
            assert not moved, f"{moved[0]} is in another precision"
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        last = ([f for f in frames if "intertwine" in f.filename] or frames)[-1]
        text = " ".join(str(error).split())[:300]
        return f"{type(error).__name__}: {text} ({Path(last.filename).name}:{last.lineno})"
    return ""


if __name__ == "__main__":
    main(*sys.argv[1:])
