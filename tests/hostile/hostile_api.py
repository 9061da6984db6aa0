"""Bad arguments for every public function, made from its signature: each ends well, or with an error of ours.

A call with good arguments is known for every function. Then, one at a time, a parameter gets each of the bad
values of its kind (by its annotation): out of range, of another type, models and data that something is wrong
with. What is raised is an IntertwineError, or a TypeError where something of another type was given.
"""

from __future__ import annotations

import inspect
import signal
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from hostile_run import run_forked
from torch import Tensor, nn

import intertwine
from intertwine.errors import IntertwineError

_SECONDS = 30  # of the processor, for one call
_BATCH = 25  # calls for one fork
TEXT = ("nope", "", "\x1b[31m", 3, ["a"])
SEVERAL = (
    (), "nope", (None,), 5, ("",), (float("nan"),), torch.zeros(2, device="meta"), torch.tensor(1.0), [999],
    [-1], [10**30], [0.5], [[0]], [["a"]], {1}, ["0", "0"], {}, {0: 1}, torch.zeros(0),
)  # fmt: skip
_CHOICES = ("by", "group", "at", "at_b", "repair", "kind", "align", "skip")  # aliases of Literals


class Odd:
    """Whatever it is asked, it fails."""

    def __getattr__(self, name: str) -> Any:
        raise ValueError(name)


OTHER = (3, "x", object(), Odd())
WHOLE = (-1, 2.5, "3", float("nan"), 10**30, [1], Odd())
REAL = (float("nan"), float("inf"), -1.0, "x", [0.5], 10**400)


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))


class _Bare(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


class _Fails(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        raise KeyError("inside")


def _models() -> list[Any]:
    spoilt, wide = net(), nn.Sequential(nn.Linear(3, 7), nn.ReLU(), nn.Linear(7, 2))
    with torch.no_grad():
        spoilt[0].weight[0, 0] = float("nan")
    with torch.device("meta"):
        meta = net()
    return [
        None, "zoo:mlp", 5, nn.Linear, _Bare(), _Fails(), spoilt, wide, meta, net().half(), net().bfloat16(),
        nn.Sequential(), nn.LazyLinear(3), nn.Identity(), nn.Linear(4, 2), nn.Conv2d(3, 3, 3), nn.ReLU(),
    ]  # fmt: skip


def _datas() -> list[Any]:
    x, y = torch.randn(6, 3), torch.tensor([0, 1, 0, 1, 0, 1])
    return [
        None, "nope", "digits", 5, [], (), {}, object(), x[:0], (x[:0], y[:0]), x * float("nan"),
        (x * float("nan"), y), (x * float("inf"), y), (x, y - 5), (x, y + 99), (x, y[:3]), (x, y.double()),
        (x, x), x[:1], (x[:1], y[:1]), x.half(), x.long(), torch.randn(6, 4), torch.randn(6),
        torch.tensor(3.0), x.to("meta"), [x, None], [None], {"input": "x"}, {"nope": x}, ["a", "b"],
        x.to_sparse(), iter([]),
    ]  # fmt: skip


@dataclass(frozen=True)
class Call:
    """A function, its good arguments by name, and which one is replaced by what."""

    name: str
    good: Callable[[Path], dict[str, Any]]
    parameter: str = ""
    value: Any = None

    def run(self, folder: Path) -> None:
        arguments = self.good(folder) | ({self.parameter: self.value} if self.parameter else {})
        function, given = getattr(intertwine, self.name), []
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind is parameter.POSITIONAL_ONLY:
                given.append(arguments.pop(name))
        function(*given, **arguments)

    def __str__(self) -> str:
        try:
            text = ascii(self.value).replace("\n", " ")
        except ValueError:  # an integer of too many digits
            text = "a huge number"
        return f"{self.name}({self.parameter}={text[:70]})"


def good_calls() -> dict[str, Callable[[Path], dict[str, Any]]]:
    """A call of every public function that ends well, quickly."""
    a, b = net(), net()
    with torch.no_grad():
        for p in b.parameters():
            p.add_(0.1 * torch.randn(p.shape))
    x = torch.randn(24, 3)
    data = (x, torch.arange(24) % 2)
    symmetry = intertwine.trace(a, x[:2])
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    image = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), *head)

    def concepts() -> Any:
        from intertwine.data.concepts import load_concepts

        return load_concepts("shapes:4:8")

    def plan() -> Any:
        return intertwine.plan_merge(a, symmetry, beta=0.1)

    pair = {"model_a": a, "model_b": b, "symmetry": symmetry}
    found: dict[str, dict[str, Any] | Callable[[Path], dict[str, Any]]] = {
        "act": {"model": a, "element": symmetry.sample(0)},
        "align": {**pair, "data": x},
        "alignment_report": pair,
        "apply_merge": lambda _: {"model": a, "plan": plan()},
        "assert_symmetric": {"model": a, "inputs": x},
        "attribute": {"model": a, "data": data, "axis": "0"},
        "automorphisms": {"model": a, "symmetry": symmetry},
        "collect": {"model": a, "data": x},
        "combine": {"models": [a, b], "data": data},
        "compare": {"model_a": a, "model_b": b, "data": data},
        "coverage": lambda folder: {"library": "zoo", "out": folder / "rows.json", "filter": "no-such-net"},
        "dimension": {"model": a, "inputs": x},
        "dissect": lambda _: {"model": image, "concepts": concepts(), "at": "1"},
        "doctor": {},
        "explore": {"model": a, "inputs": x, "plane": "random", "points": 3, "seconds": 1.0},
        "feature_complexity": {"model": a, "symmetry": symmetry},
        "find_equivalents": {"model": a, "inputs": x, "n": 1, "max_steps": 3, "tolerance": 1e9},
        "find_isomorphism": {**pair, "restarts": 1},
        "fold": {"model": nn.Sequential(nn.LayerNorm(3), a), "example": x},
        "functional_similarity": {"model_a": a, "model_b": b, "data": data},
        "inspect": {"model": a, "inputs": x},
        "interpolate": {"models": [a, b], "data": data, "points": 3},
        "intertwiner": {"sigma": "relu"},
        "load": lambda folder: {"path": folder / "nothing"},
        "merge": {"model": a, "inputs": x, "target_params": 0.8, "data": data},
        "merge_betas": {"model": a, "inputs": x, "betas": (0.1,), "data": data},
        "page": lambda _: {"result": intertwine.inspect(a, x)},
        "plan_merge": {"model": a, "symmetry": symmetry, "beta": 0.1},
        "report": lambda folder: {"pages": [folder / "no-such-page.html"], "title": "t"},
        "reproduce": lambda folder: {"name": "no-such-figure", "out": folder / "figures"},
        "rotate": {"model": a, "train_data": data, "data": data, "at": "1", "epochs": 1},
        "similarity": {"x": x.numpy(), "y": x.numpy()},
        "stitch": {"a": a, "b": b, "train_data": data, "data": data, "at": "1", "kinds": ("least-squares",)},
        "sweep": lambda folder: {"sweep": folder / "nothing.yml", "out": folder / "out"},
        "trace": {"model": a, "example": x},
        "train": lambda folder: {"model": "mlp", "data": "nope", "out": folder / "run", "recipe": "digits"},
        "verify": {"model": a, "inputs": x},
    }
    return {name: (given if callable(given) else _always(given)) for name, given in found.items()}


def _always(given: dict[str, Any]) -> Callable[[Path], dict[str, Any]]:
    return lambda _: dict(given)


def calls() -> Iterator[Call]:
    """Every case, the same ones in the same order every time."""
    good = good_calls()
    models, datas = _models(), _datas()
    for name, given in good.items():
        yield Call(name, given)
        for parameter in inspect.signature(getattr(intertwine, name)).parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                continue
            for value in _bad(parameter, models, datas):
                yield Call(name, given, parameter.name, value)
    for name in ("merge", "stitch", "similarity", "explore"):
        yield Call(name, good[name], "no_such_option", 3)


def _bad(parameter: inspect.Parameter, models: list[Any], datas: list[Any]) -> Iterator[Any]:
    kind, name = str(parameter.annotation), parameter.name
    if name == "models":
        yield from ([], None, 5, [None, None], [net()], [net(), _Bare()], [net(), nn.Linear(3, 2)], "ab")
        yield from ([net(), model] for model in models)
    elif kind.startswith("nn.Module"):
        yield from models
    elif name in ("data", "train_data", "inputs", "example", "x", "y", "data_b") or kind == "Any":
        yield from datas
    elif "Mapping" in kind:
        yield from (3, "x", [1], {"nope": torch.zeros(1)}, {1: 2})
    elif "Sequence" in kind or "tuple" in kind:
        yield from SEVERAL
        yield from WHOLE if kind.startswith("int") else ()
    elif kind.startswith("int"):
        yield from WHOLE
    elif kind.startswith("float"):
        yield from REAL
    elif "str" in kind or "Literal" in kind or name in _CHOICES:
        yield from TEXT
    elif "bool" not in kind:
        yield from OTHER


def try_all(cases: list[Call], folder: Path) -> list[str]:
    """Make the calls, in forks; what was wrong."""
    found: list[str] = []
    place, first = folder / "number", 0
    while first < len(cases):
        last = min(first + _BATCH, len(cases))
        outcome = run_forked(partial(_try, cases[first:last], folder, place), folder, _SECONDS * _BATCH)
        found += [line.partition(" ")[2] for line in outcome.out.splitlines() if line.startswith("wrong ")]
        if outcome.code == 0:
            first = last
        else:  # this one ended the process
            number = first + int(place.read_text())
            found.append(f"{cases[number]}: ended by {outcome.code} {outcome.err[-300:]}")
            first = number + 1
    return found


def _try(cases: list[Call], folder: Path, place: Path) -> int:
    warnings.simplefilter("ignore")
    for number, case in enumerate(cases):
        place.write_text(str(number))
        signal.setitimer(signal.ITIMER_PROF, _SECONDS)  # of work, so that a busy machine changes nothing
        try:
            case.run(folder)
        except IntertwineError:
            pass
        except TypeError as error:
            if _last(error) not in ("", "checks.py"):  # of Python itself, which has looked at the names
                print(f"wrong {case}: TypeError: {error!s:.150} [{_last(error)}]".replace("\n", " "))
        except BaseException as error:
            print(f"wrong {case}: {type(error).__name__}: {error!s:.150} [{_last(error)}]".replace("\n", " "))
        signal.setitimer(signal.ITIMER_PROF, 0)
    return 0


def _last(error: BaseException) -> str:
    """The last line of ours that an error passed through."""
    place, trace = "", error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if f"{Path(intertwine.__file__).parent}" in file:
            place = f"{Path(file).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place
