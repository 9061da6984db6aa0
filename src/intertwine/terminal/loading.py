"""From the arguments that many verbs share to models and data."""

from __future__ import annotations

import argparse
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from intertwine import numbers
from intertwine.errors import InputError, IntertwineError, NotFound
from intertwine.foreign import user_code
from intertwine.text import first_line, quoted

if TYPE_CHECKING:
    import torch

    from intertwine.data import Dataset
    from intertwine.zoo import Source

_SHIPPED = "shipped:"
_FRAMED = 64  # tokens of an example that stands between a start and an end token


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


def load_model(args: argparse.Namespace, *, weights: str | None = None) -> Source:
    """The Source of MODEL on --device with its weights; `weights` replaces --weights.

    What belongs to its weights (normalisation, size, tokenizer) is left in `args.prepare` for `load_dataset`.
    """

    import torch

    from intertwine import zoo

    chosen = weights if weights is not None else getattr(args, "weights", None)
    shapes_only = args.device == "meta"
    if shapes_only and not getattr(args, "no_proof", False):
        raise InputError("the device meta holds no values", do="use --device cpu, or inspect --no-proof")
    source = zoo.resolve(
        args.model,
        input=args.input,
        seed=args.seed,
        weights=None if chosen is None else _weights_path(chosen, args.model),
        classes=getattr(args, "model_classes", None),
        pretrained=getattr(args, "pretrained", False),
        run_code=getattr(args, "run_code", False),
        shapes_only=shapes_only,
        input_of=lambda found: _input_of_data(args, found),
    )
    args.prepare = source.prepare
    device = torch.device("meta") if shapes_only else parse_device(args.device)
    example = tuple(_to(value, device) for value in source.example)
    kwargs = {name: _to(value, device) for name, value in source.kwargs.items()}
    with user_code(f"{args.model}: to({args.device})"):
        source.model.to(device)
    return replace(source, example=example, kwargs=kwargs)


def framed(source: Source) -> Source:
    """The source with tokens as an encoder is given them: between its start and its end token."""
    import torch

    from intertwine.data.tokens import find_vocabulary

    ids, words = source.example[0] if len(source.example) == 1 else None, None
    if source.prepare.objective in ("masked", "embedding") and source.prepare.tokenizer and not source.kwargs:
        with suppress(IntertwineError):  # a tokenizer that cannot be read is not needed either
            words = find_vocabulary(source.prepare.tokenizer, [])
    if words is None or words.start is None or words.end is None or ids is None or ids.dim() != 2:
        return source
    length = min(_FRAMED, source.prepare.context or _FRAMED)
    some = torch.randint(0, ids.numel(), (2, length), generator=torch.Generator().manual_seed(0))
    drawn = ids.flatten()[some.to(ids.device)]
    drawn[:, 0], drawn[:, -1] = words.start, words.end
    return replace(source, example=(drawn,))


def _input_of_data(args: argparse.Namespace, source: Source) -> str | None:
    """What one input of --data looks like, as --input would say it; it is left there."""
    if getattr(args, "data", None) is None:
        return None
    rows = load_dataset(with_data(args, args.data, limit=1, prepare=source.prepare)).rows(slice(0, 1))
    kind = "" if rows.is_floating_point() else f":{str(rows.dtype).removeprefix('torch.')}"
    args.input = "x".join(map(str, rows.shape)) + kind
    return str(args.input)


def load_side(args: argparse.Namespace, model: str, weights: str | None) -> Source:
    """One of several models with its weights; data is prepared as the first of them wants it."""
    return _side(args, model, weights)[0]


def _side(args: argparse.Namespace, model: str, weights: str | None) -> tuple[Source, str | None]:
    """The model, and what its input looks like where --input or --data had to say so."""
    own = argparse.Namespace(**{**vars(args), "model": model, "weights": weights})
    source = load_model(own)
    args.prepare = getattr(args, "prepare", source.prepare)
    return source, own.input


def load_several(args: argparse.Namespace) -> tuple[list[Source], list[str]]:
    """The models of `add_several_arguments`, and what each is called. What an input looks like is left in
    args.input, as with one model: what is made of them is built again with it."""
    weights = args.weights or [None] * len(args.models)
    if len(weights) != len(args.models):
        raise InputError(
            f"{len(args.models)} models but {len(weights)} --weights",
            do="give --weights once for each; of a folder of ours its weights.safetensors",
        )
    pairs = list(zip(args.models, weights, strict=True))
    loaded = [_side(args, m, w) for m, w in pairs]
    args.input = next((seen for _, seen in loaded if seen is not None), None)
    return [source for source, _ in loaded], [f"{m} ({w})" if w else m for m, w in pairs]


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


def with_data(args: argparse.Namespace, data: str, **other: Any) -> argparse.Namespace:
    """The same command line with another --data."""
    return argparse.Namespace(**{**vars(args), "data": data, **other})


def load_train_split(args: argparse.Namespace) -> Dataset:
    """The training split of --data, or the data itself where it has none."""
    try:
        return load_dataset(args, split="train")
    except InputError:
        return load_dataset(args)


def finetuning(args: argparse.Namespace) -> Any:
    """What --finetune trains a smaller model with, in a folder beside OUT; None without it."""
    if args.finetune is None:
        return None
    if not (args.out and args.data):
        raise InputError("--finetune needs data to train on and a place for the run", do="give --data and -o")
    from intertwine.training import Finetune, load_splits

    known = getattr(args, "prepare", None)
    normalize = args.normalize or (known.normalize if known is not None else None) or "none"
    text = {"context": args.context, "tokenizer": args.tokenizer, "prepare": known}
    splits = load_splits(args.data, normalize=normalize, limit=args.limit, size=args.size, **text)
    batch = min(Finetune.batch, splits.train.batch)
    return Finetune(splits, args.finetune, f"{args.out}.run", batch=batch, seed=args.seed)
