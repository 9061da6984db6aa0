"""Arguments that many verbs share: MODEL with weights and input, DATA with normalisation, the device."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from intertwine import numbers
from intertwine.cli.registered import registered
from intertwine.errors import InputError, NotFound
from intertwine.reading import user_path
from intertwine.text import first_line, quoted

if TYPE_CHECKING:
    import torch

    from intertwine.data import Dataset
    from intertwine.zoo import Source

T = TypeVar("T")

_SHIPPED = "shipped:"
_LONGEST_NAME = 200  # bytes; file systems allow 255, and temporary names beside the file are longer


@dataclass(frozen=True)
class Checked(Generic[T]):
    """An argparse type whose own message reaches the user; argparse hides that of a ValueError.

    Every option that takes a value has one, so that `parse` says what kind of value it is.
    """

    parse: Callable[[str], T]

    def __call__(self, text: str) -> T:
        try:
            return self.parse(text)
        except InputError as error:
            raise argparse.ArgumentTypeError(error.what + (f" ({error.do})" if error.do else "")) from error


def _shape(text: str) -> str:
    from intertwine.zoo.sources import parse_input

    parse_input(text)
    return text


def _normalize(text: str) -> str:
    from intertwine.data.normalize import parse_normalize

    parse_normalize(text)
    return text


def _spec(text: str) -> str:
    """A MODEL or DATA string: what it names is looked at when it is loaded."""
    user_path(text)
    return text


def read_path(text: str) -> str:
    """A path to read from."""
    return str(user_path(text))


def write_path(text: str) -> str:
    """A path to write to; its folder is looked at when it is written."""
    if len(os.fsencode(os.path.basename(text))) > _LONGEST_NAME:
        raise InputError(f"{quoted(text)} is longer than a file's name may be")
    return str(user_path(text))


def text(value: str) -> str:
    """Any text: a name or a pattern that the verb looks up."""
    return value


# The `type` of every option; tests/hostile makes bad values from what each of them parses.
input_shape = Checked(_shape)
normalization = Checked(_normalize)
model_spec = Checked(_spec)
data_spec = Checked(_spec)
input_path = Checked(read_path)
tokenizer_path = Checked(read_path)  # a file or a folder, read only where there is text
output_path = Checked(write_path)
any_text = Checked(text)
positive_int = Checked(numbers.count)
any_seed = Checked(numbers.seed)
side = Checked(numbers.pixels)
processes = Checked(numbers.processes)
positive_float = Checked(numbers.positive)
nonnegative_float = Checked(numbers.nonnegative)
fraction = Checked(numbers.fraction)
fractions = Checked(numbers.Several(numbers.fraction))
share = Checked(numbers.share)
momentum = Checked(numbers.below_one)
seconds = Checked(numbers.seconds)
memory = Checked(numbers.memory)


def most(high: int, low: int = 1) -> Checked[int]:
    """Whole numbers up to `high`: repetitions that would never end are a slip of the finger."""
    return Checked(numbers.Whole(low, high))


def parse_device(text: str) -> torch.device:
    """A device that exists here.

    >>> parse_device("cpu")
    device(type='cpu')
    """
    import torch

    try:
        device = torch.device(text)
        (torch.ones(1, device=device) + 1).item()  # meta tensors, for one, hold nothing
    except Exception as error:  # each backend fails in its own way
        raise InputError(
            f"the device {quoted(text)} cannot be used: {first_line(error)}", do="use --device cpu"
        ) from error
    return device


def add_device_arguments(parser: argparse.ArgumentParser) -> None:
    """--device and --seed."""
    parser.add_argument(
        "--device", type=any_text, default="cpu", metavar="DEV", help="cpu, cuda, cuda:1, mps (default: cpu)"
    )
    parser.add_argument(
        "--seed", type=any_seed, default=0, metavar="N", help="fixes everything random (default: 0)"
    )


def add_model_arguments(
    parser: argparse.ArgumentParser, *, weights: bool = True, classes: bool = True
) -> None:
    """MODEL, --weights, --input, --device, --seed; verbs with two sets of weights declare their own."""
    parser.add_argument(
        "model",
        type=model_spec,
        metavar="MODEL",
        help=f"{registered()['model_forms']}; see below",
    )
    if weights:
        parser.add_argument(
            "--weights",
            type=input_path,
            metavar="FILE",
            help=".safetensors or .pt/.pth/.th/.bin (never runs code); shipped:SEED for those in the package",
        )
    parser.add_argument(
        "--input",
        type=input_shape,
        metavar="SHAPE",
        help="1x3x32x32; 2x16:int64 for token ids; commas separate inputs",
    )
    add_source_arguments(parser, classes=classes)
    add_device_arguments(parser)
    parser.epilog = "\n".join(filter(None, [parser.epilog, registered()["model_help"]]))


def add_source_arguments(parser: argparse.ArgumentParser, *, classes: bool = True) -> None:
    """--classes, --pretrained, --run-code: what is asked of a MODEL beside its name."""
    if classes:
        parser.add_argument(
            "--classes",
            dest="model_classes",
            type=positive_int,
            metavar="N",
            help="of the model's head (default: its own, or those of the last layer in --weights)",
        )
    parser.add_argument("--pretrained", action="store_true", help="the library's trained weights")
    parser.add_argument(
        "--run-code", action="store_true", help="run Python code that comes with a model's weights"
    )


def add_pair_arguments(parser: argparse.ArgumentParser, a: str, b: str) -> None:
    """A, B and their weights; `a` and `b` say what each is for."""
    parser.add_argument("a", type=model_spec, metavar="A", help=a)
    parser.add_argument("b", type=model_spec, metavar="B", help=b)
    for which in "ab":
        parser.add_argument(
            f"--weights-{which}", type=input_path, metavar="FILE", help=f"weights of {which.upper()}"
        )
    add_source_arguments(parser)
    parser.epilog = "\n".join(filter(None, [parser.epilog, registered()["model_help"]]))


def add_data_arguments(
    parser: argparse.ArgumentParser, *, required: bool = False, default: str | None = None
) -> None:
    """--data, --normalize, --limit, --batch, --split, --size."""
    parser.add_argument(
        "--data",
        type=data_spec,
        metavar="DATA",
        required=required,
        default=default,
        help="the data set, see below",
    )
    parser.add_argument(
        "--normalize",
        type=normalization,
        metavar="HOW",
        help="cifar10, cifar10-legacy, imagenet, none, or M,M,M/S,S,S (default: that of the model's weights)",
    )
    parser.add_argument("--limit", type=positive_int, metavar="N", help="use N examples only")
    parser.add_argument(
        "--batch", type=positive_int, default=256, metavar="N", help="batch size (default: 256)"
    )
    parser.add_argument(
        "--split",
        type=any_text,
        default="test",
        metavar="NAME",
        help="train or test, where the data has both (default: test)",
    )
    parser.add_argument("--size", type=side, metavar="N", help="resize and crop image files to NxN")
    parser.add_argument("--context", type=positive_int, metavar="N", help="tokens of one window of text")
    parser.add_argument(
        "--tokenizer",
        type=tokenizer_path,
        metavar="PATH",
        help="folder or tokenizer.json (default: the model's; characters without one)",
    )
    parser.epilog = "\n".join(filter(None, [parser.epilog, registered()["data_help"]]))


def load_model(args: argparse.Namespace, *, weights: str | None = None) -> Source:
    """The Source of MODEL on --device with its weights; `weights` replaces --weights.

    What belongs to its weights (normalisation, size, tokenizer) is left in `args.prepare` for `load_dataset`.
    """
    from dataclasses import replace

    from intertwine import zoo

    chosen = weights if weights is not None else getattr(args, "weights", None)
    source = zoo.resolve(
        args.model,
        input=args.input,
        seed=args.seed,
        weights=None if chosen is None else _weights_path(chosen, args.model),
        classes=getattr(args, "model_classes", None),
        pretrained=getattr(args, "pretrained", False),
        run_code=getattr(args, "run_code", False),
    )
    args.prepare = source.prepare
    device = parse_device(args.device)
    example = tuple(_to(value, device) for value in source.example)
    kwargs = {name: _to(value, device) for name, value in source.kwargs.items()}
    return replace(source, model=source.model.to(device), example=example, kwargs=kwargs)


def load_side(args: argparse.Namespace, model: str, weights: str | None) -> Source:
    """One of several models with its weights; data is prepared as the first of them wants it."""
    own = argparse.Namespace(**{**vars(args), "model": model, "weights": weights})
    source = load_model(own)
    args.prepare = getattr(args, "prepare", source.prepare)
    return source


def load_pair(args: argparse.Namespace) -> tuple[Source, Source]:
    """A and B of `add_pair_arguments`."""
    return load_side(args, args.a, args.weights_a), load_side(args, args.b, args.weights_b)


def _to(value: Any, device: torch.device) -> Any:
    return value.to(device) if hasattr(value, "to") else value


def _weights_path(weights: str, model: str) -> str:
    if not weights.startswith(_SHIPPED):
        return weights
    from intertwine import zoo

    try:
        seed = numbers.seed(weights.removeprefix(_SHIPPED))
    except InputError:
        seed = -1
    if not model.startswith("zoo:") or seed < 0:
        raise NotFound(
            f"no weights {quoted(weights)} for {model}", do="zoo:digits-vgg has shipped:0 and shipped:1"
        )
    return str(zoo.checkpoint(model.removeprefix("zoo:"), seed))


def chosen_normalize(args: argparse.Namespace) -> str:
    """--normalize, or that of the model's weights, or none."""
    return str(args.normalize or getattr(getattr(args, "prepare", None), "normalize", None) or "none")


def load_dataset(args: argparse.Namespace, *, split: str | None = None) -> Dataset:
    """The Dataset of --data; `split` replaces --split."""
    from intertwine.data import load_data

    if args.data is None:
        raise InputError("this needs data", do="give --data, for example --data digits")
    return load_data(
        args.data,
        normalize=args.normalize,
        limit=args.limit,
        batch=args.batch,
        split=split or args.split,
        size=args.size,
        context=getattr(args, "context", None),
        tokenizer=getattr(args, "tokenizer", None),
        prepare=getattr(args, "prepare", None),
    )


def load_train_split(args: argparse.Namespace) -> Dataset:
    """The training split of --data, or the data itself where it has none."""
    try:
        return load_dataset(args, split="train")
    except InputError:
        return load_dataset(args)
