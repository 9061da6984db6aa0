"""The table of bad inputs, made from the parser: a new verb or option is in it without being named here.

For every command a line of good arguments is made from the types of what it requires. Then, one at a time, an
option gets each of the bad values of its type, a required one is left out, a flag is given a value.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from hostile_code import RIGHT, STORABLE, UNSTORABLE, WRONG, factories, write_code
from hostile_data import data_specs, grey_png
from hostile_files import make_files
from hostile_odd import odd_lines
from hostile_onnx import files as onnx_files
from hostile_pretrained import make_concepts, make_pretrained, make_tokenizers
from hostile_run import SECONDS, run_command

from intertwine import numbers
from intertwine.cli.parser import build_parser, commands
from intertwine.terminal import types

REFUSED = (2, 3)
FINE = (0, 1, 2, 3)  # text that may be a name after all
NUMBERS = ("nan", "inf", "-inf", "1e400", "", "abc", "9" * 5000, "٣", "0x10", "1_0", "1,5", "--1")
SHAPES = (
    "",
    "x",
    "0x3",
    "1x-3",
    "1x3x9999999x9999999",
    "1" * 5000,
    "1x3:float7",
    "1x3,,",
    "1x3.5",
    "nan",
    "2" + "x1" * 20,
    "1x" + "9" * 30,
    "1x3:int64:x",
)
NORMALIZATIONS = ("nope", "0.5", "0.5/0", "nan/1", "1/inf", "1,2/1", "1/1/1", "", "/", "1/-1", "1e400/1")
TEXTS = (
    "",
    "\x1b[31mred\x1b[0m",
    "\udcff",
    "A" * 10000,
    "../../../etc/passwd",
    "*[",
    "(",
    ",,,",
    "\n",
    "nan",
    "-",
)
SPECS = (
    "",
    "nope",
    "zoo:",
    "zoo:nope",
    "zoo:\x1b[2J",
    "x:y",
    "timm:../../etc",
    "torchvision:",
    "hf:nope",
    ":",
    "é" * 300,
)
DATAS = (
    "",
    "nope",
    "npz:",
    "parquet:",
    "torchvision:LSUN:.",
    "torchvision:CIFAR10:.",
    "imagefolder:",
    "digits:x",
    ":",
)
# where a bad value turns out to be a good one, it should not take long
QUICK = {
    "plane": "random",
    "points": "5",
    "limit": "10",
    "seconds": "1",
    "epochs": "0",
    "steps": "3",
    "filter": "mlp",
    "train_limit": "10",
    "inputs": "8",
}


@dataclass(frozen=True)
class Case:
    """A command line, why it is bad, and the exit codes that are right."""

    argv: tuple[str, ...]
    allowed: tuple[int, ...] = REFUSED

    def trouble(self, seconds: float = SECONDS) -> str:
        """Run it; what was wrong, or nothing."""
        return run_command(self.argv, seconds).wrong(self.allowed, as_json="--json" in self.argv)

    def __str__(self) -> str:
        return " ".join(ascii(word)[1:-1][:60] for word in self.argv)


@dataclass(frozen=True)
class Table:
    """All cases; `folder` gets the files that they name."""

    folder: Path

    @cached_property
    def files(self) -> dict[str, list[Path]]:
        return make_files(self.folder)

    @cached_property
    def data(self) -> list[str]:
        return data_specs(self.folder)

    @cached_property
    def pretrained(self) -> list[Path]:
        return make_pretrained(self.folder / "pretrained")

    @cached_property
    def tokenizers(self) -> list[Path]:
        return make_tokenizers(self.folder / "tokenizers")

    @cached_property
    def graphs(self) -> list[Path]:
        return list(onnx_files(self.folder / "onnx"))

    @cached_property
    def concepts(self) -> list[str]:
        return make_concepts(self.folder / "concepts", grey_png(8))

    def cases(self) -> Iterator[Case]:
        """Every case, the same ones in the same order every time."""
        assert self.files and self.data
        yield from (Case(("no-such-verb",)), Case(()), Case(("zoo",)))
        for words, parser in commands(build_parser()).items():
            yield from self._usage(words, parser)
            for action in parser._actions:
                if action.dest not in ("help", "debug"):
                    yield from self._values(words, parser, action)
        yield from self._read()
        yield from self._folders()
        yield from self._code()

    def odd_cases(self) -> list[Case]:
        """Rare models by every verb: a table of its own, since each of them works for a second."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return [Case(line, FINE) for line in odd_lines(self.folder)]

    def _usage(self, words: tuple[str, ...], parser: argparse.ArgumentParser) -> Iterator[Case]:
        good = self.good(words, parser)
        yield Case((*words, *good, "--no-such-option"))
        yield Case((*words, *good, "--no-such-option=\x1b[31m"))
        for action in [each for each in parser._actions if each.option_strings and each.nargs != 0][:2]:
            yield Case((*words, *self.good(words, parser, without=action), f"{action.option_strings[-1]}=--"))
        for action in parser._actions:
            if action.required and action.nargs not in ("*", "?"):
                yield Case((*words, *self.good(words, parser, without=action)))

    def _values(
        self, words: tuple[str, ...], parser: argparse.ArgumentParser, action: argparse.Action
    ) -> Iterator[Case]:
        good = self.good(words, parser, without=action)
        flag = action.option_strings[-1] if action.option_strings else ""
        if flag and action.nargs == 0:
            yield Case((*words, *good, f"{flag}=1"))
            return
        for value, allowed in self.bad(action):
            # the form with "=" lets a value start with a dash
            given = (f"{flag}={value}",) if flag else ("--", value)
            if not flag and action.nargs not in ("*", "+", "?"):  # positionals keep their order
                given = ("--", *self._positionals(parser, action, value))
                plain = self.good(words, parser, options=True)
                yield Case((*words, *plain, *given), allowed)
            else:
                yield Case((*words, *good, *given), allowed)

    def good(
        self,
        words: tuple[str, ...],
        parser: argparse.ArgumentParser,
        without: argparse.Action | None = None,
        options: bool = False,
    ) -> list[str]:
        """Good values for all that a command requires (only its options), but for one action."""
        line: list[str] = []
        for action in parser._actions:
            if action.required and action.nargs not in ("*", "?") and action is not without:
                if action.option_strings:
                    line += [action.option_strings[-1], self.good_value(action)]
                elif not options:
                    line += [self.good_value(action)] * (2 if action.nargs == "+" else 1)
        for action in parser._actions:
            if action.dest in QUICK and not action.required and action is not without:
                line += [action.option_strings[-1], QUICK[action.dest]]
        if words[-1] == "dimension":  # whose work grows with the cube of the weights
            line = [f"{self.folder}/net.py:good" if word == "zoo:digits-vgg" else word for word in line]
        if words[-1] == "train" and getattr(without, "dest", "") != "recipe":
            line += ["--recipe", str(self.folder / "missing.yml")]
        return line

    def _positionals(self, parser: argparse.ArgumentParser, bad: argparse.Action, value: str) -> list[str]:
        wanted = [a for a in parser._actions if not a.option_strings and a.required]
        return [value if action is bad else self.good_value(action) for action in wanted]

    def good_value(self, action: argparse.Action) -> str:
        if action.choices:
            return str(next(iter(action.choices)))
        kind = action.type
        if kind is types.model_spec:
            return "zoo:digits-vgg"
        if kind is types.data_spec:
            return "digits"
        if kind is types.input_path:
            return str(self.folder / "missing.yml")
        return "out"

    def bad(self, action: argparse.Action) -> Iterator[tuple[str, tuple[int, ...]]]:
        """The bad values of an option, by its type, and how each may end."""
        kind = action.type
        assert isinstance(kind, types.Checked) or action.choices, f"{action.dest} has no checked type"
        parse = kind.parse if isinstance(kind, types.Checked) else None
        if action.choices:
            values = ["", "nope", "\x1b[31m"]
        elif isinstance(parse, numbers.Several):
            values = [*(number for number in NUMBERS if "," not in number), *self._outside(parse.each)]
        elif isinstance(parse, numbers.Real | numbers.Whole):
            values = [*NUMBERS, *self._outside(parse)]
        elif kind is types.input_shape:
            values = [*SHAPES]
        elif kind is types.normalization:
            values = [*NORMALIZATIONS]
        elif kind is types.model_spec:
            values = [*SPECS, *(f"{path}.py:f" for path in self.files["path"]), f"{self.folder}/net.py:empty"]
        elif kind is types.data_spec:
            values = [*DATAS, *(f"npz:{path}" for path in self.files["path"])]
        elif kind is types.input_path:
            values = ["", *map(str, self.files["path"]), "shipped:" + "9" * 5000, "/dev/zero", "/dev/stdin"]
        elif kind is types.output_path:
            values = ["", "a\0b", "n" * 300, "~nobody-here/x"]
        else:  # names and patterns, and types that a verb has for itself
            yield from ((value, FINE) for value in TEXTS)
            return
        yield from ((value, REFUSED) for value in values)

    @staticmethod
    def _outside(span: numbers.Real | numbers.Whole) -> Iterator[str]:
        """Numbers just outside a range, and what is no whole number."""
        if span.low > -math.inf:
            yield f"{span.low if span.above else span.low - 1:.0f}"
        if span.high < math.inf:
            yield f"{span.high if span.below else 2 * span.high + 1:.0f}"
        if isinstance(span, numbers.Whole):
            yield from ("1.5", "1e3")

    def _code(self) -> Iterator[Case]:
        """Models whose code misbehaves."""
        path = write_code(self.folder)
        for text, allowed in ((WRONG, REFUSED), (RIGHT, (0,))):
            yield from (Case(("inspect", f"{path}:{name}", "--json"), allowed) for name in factories(text))
        for text, allowed in ((UNSTORABLE, REFUSED), (STORABLE, (0,))):
            for name in factories(text):
                net = f"{path}:{name}"
                yield Case(("merge", net, "--target-params", "0.8", "--json", "-o", "small"), allowed)
                yield Case(("combine", net, net, "--align", "weights", "-o", "both"), allowed)
        yield Case(("merge", f"{path}:computed", "--target-params", "0.8", "--json"), (0,))

    def _folders(self) -> Iterator[Case]:
        """Folders of Hugging Face, graphs of ONNX, tokenizers and concepts."""
        for path in self.pretrained:
            yield Case(("inspect", f"hf:{path}"))
        yield from (Case(("inspect", str(path))) for path in self.graphs)
        text = self.folder / "a.txt"
        text.write_text("abc " * 400)
        look = ("compare", "zoo:nanogpt64", "zoo:nanogpt64", "--data", f"text:{text}", "--limit", "2")
        net = f"{self.folder}/net.py:good"
        yield Case(("stitch", net, net, "--data", f"text:{text}", "--limit", "2", "--train-limit", "2"))
        for path in self.tokenizers:
            yield Case((*look, "--tokenizer", str(path)))
        cut = ("dissect", f"{self.folder}/net.py:pictures", "--at", "1", "--limit", "2", "--concepts")
        for spec in self.concepts:
            yield Case((*cut, spec))
        for size in ("layers=2147483647", "width=2147483647", "num_labels=2147483647", "heads=0", "layers=x"):
            yield Case(("inspect", f"hf:bert?{size}"))

    def _read(self) -> Iterator[Case]:
        """Every malformed file by a verb that reads it."""
        net = f"{self.folder}/net.py"
        for factory in (
            "leaves leaves_quietly fails odd deep nothing empty number many text bad_kwargs meta "
            "meta_example lazy nan no_input wrong_input needs exits_later raises_later no_tensor "
            "value absent __init__"
        ).split():
            yield Case(("inspect", f"{net}:{factory}"))
        yield Case(("verify", f"{net}:no_weights"), FINE)
        yield from (Case(("inspect", f"{path}:f")) for path in self.files["python"])
        for path in self.files["weights"]:
            yield Case(("inspect", f"{net}:good", "--weights", str(path)))
        evaluate = ("merge", "zoo:digits-vgg", "--max-drop", "0.1", "--data")
        yield from (Case((*evaluate, spec)) for spec in self.data)
        yield Case((*evaluate, f"imagefolder:{self.folder}/png-sizes", "--size", "8192"))
        tune = ("merge", f"{net}:untrained", "--target-params", "0.8", "--finetune", "1", "--data", "digits")
        for beside in ((), ("--plan", "small.run/run.json"), ("--page", "small.run")):
            yield Case((*tune, "--limit", "32", "-o", "small", *beside))
        for path in self.files["recipe"]:
            yield Case(("train", "mlp", "--data", "digits", "-o", "out", "--recipe", str(path)))
        yield Case(("train", "mlp", "--data", "digits", "-o", "out", "--recipe", "digits", "--classes", "2"))
        for option in ("--data", "--weights"):
            yield Case(("reproduce", "ifm-fig3a", "-o", "out", option, "n" * 300))
        yield Case(("reproduce", "genni-fig1", "-o", "out", "--preset", "cifar"))
        yield Case(("reproduce", "ifm-fig3a", "-o", "out", "--preset", "paper"))  # needs CIFAR-10
        for path in self.files["sweep"]:
            yield Case(("sweep", str(path), "-o", "out"))
        yield Case(("inspect", f"{net}:good", "--input", "1x3x40000x40000"))
        yield Case(("inspect", "zoo:mlp", "--input", "1x3"))
        yield from (Case(("explore", f"{net}:good", "-o", out)) for out in (".", "/", ".."))
        yield Case(("inspect", f"{net}:good", "-o", "\udcff.html"), (0,))  # a name that is no UTF-8
        yield Case(("compare", "zoo:mlp", "zoo:mlp", "--data", "digits"))
        yield Case(("rotate", "zoo:digits-vgg", "--data", "digits", "--at", "classifier", "--epochs", "0"))
        for device in ("meta", "warp", "cuda:99", "cpu:-1", "", "\x1b", "cpu:" + "9" * 50):
            yield Case(("inspect", "zoo:mlp", f"--device={device}"))
        for names in ("x**" + "9" * 5000, "x**1/" + "9" * 5000, "x**1/0", "x**-0", "x**1e5", "relu\x1b[0m"):
            yield Case(("activations", names), FINE)
        for shard in ("0/1", "2/1", "a/b", "1/" + "9" * 5000, "1", "", "1/2/3"):
            yield Case(
                ("coverage", "--library", "zoo", "-o", "out.json", "--filter", "mlp", f"--shard={shard}")
            )
        for seeds in ("", "a", "-1", "3-1", "0-" + "9" * 30, "9" * 5000, "0,0", "0-99999999"):
            yield Case(("zoo", "train", "mlp", "--data", "digits", "-o", "out", f"--seeds={seeds}"))
