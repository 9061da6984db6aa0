"""Text as windows of tokens, with what is to be predicted of each.

causal:    the inputs are t_1 .. t_n, the targets t_2 .. t_n+1
masked:    15 % of the tokens are hidden behind the mask token, and are the targets
embedding: nothing is predicted; what an encoder makes of a window is compared with another encoder's
"""

from __future__ import annotations

import hashlib
import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from intertwine.data.dataset import Dataset
from intertwine.data.files import text_column
from intertwine.data.sources import Request
from intertwine.errors import DataError
from intertwine.reading import existing_file, files_below, muted, parsing, user_path
from intertwine.untrusted import assert_tokenizer, assert_tokenizer_file
from intertwine.vision_shim import import_transformers

OBJECTIVES = ("causal", "masked", "embedding")
IGNORED = -100  # a position without a target
MASKED = 0.15
_CONTEXT = 128
_TOKENS = 8192  # of one batch at most
_PIECE = 1 << 20  # characters that are tokenised at a time
_SLICE = re.compile(r"^(?P<path>.*)\[(?P<start>\d{0,3})%?:(?P<stop>\d{0,3})%?\]$")


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer with the tokens that windows need."""

    encode: Any
    start: int | None = None
    end: int | None = None
    mask: int | None = None


class Tokens(Dataset):
    """Windows of `context` tokens; inputs and targets are made when a batch asks for them."""

    ids: Tensor
    context: int
    objective: str
    words: Vocabulary

    def __init__(
        self, name: str, ids: Tensor, context: int, objective: str, words: Vocabulary, batch: int = 16
    ) -> None:
        fields = {"name": name, "ids": ids, "context": context, "objective": objective, "words": words}
        for field, value in {**fields, "batch": batch, "classes": ()}.items():
            object.__setattr__(self, field, value)  # the base class is frozen

    def __repr__(self) -> str:
        return f"Tokens({self.name!r}, {len(self)} windows of {self.context}, {self.objective})"

    def __len__(self) -> int:
        return max(0, len(self.ids) - (self.objective == "causal")) // self._step

    @property
    def _framed(self) -> bool:
        """Whether a window stands between a start and an end token, as encoders are trained."""
        return self.objective != "causal" and None not in (self.words.start, self.words.end)

    @property
    def _step(self) -> int:
        return self.context - 2 if self._framed else self.context

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one window."""
        return (self.context,)

    @property
    def images(self) -> Tensor:
        """All inputs: token ids, (windows, context)."""
        return self.rows(slice(None))

    @property
    def labels(self) -> Tensor:
        """All targets, (windows, context); -100 where nothing is predicted."""
        return self.targets(slice(None))

    def rows(self, chosen: Tensor | slice) -> Tensor:
        """The inputs of the chosen windows."""
        windows, hidden = self._windows(chosen)
        return windows if hidden is None else windows.masked_fill(hidden, int(self.words.mask or 0))

    def targets(self, chosen: Tensor | slice) -> Tensor:
        """What is to be predicted at every position of the chosen windows."""
        if self.objective == "causal":
            return self._cut(chosen, 1)
        windows, hidden = self._windows(chosen)
        return windows.masked_fill(~hidden, IGNORED) if hidden is not None else windows.fill_(IGNORED)

    def batches(self, batch: int | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and targets in their order."""
        step = batch or self.batch
        for first in range(0, len(self), step):
            part = slice(first, min(first + step, len(self)))
            yield self.rows(part), self.targets(part)

    def take(self, count: int) -> Tokens:
        """The first windows."""
        ids = self.ids[: count * self._step + (self.objective == "causal")]
        return Tokens(self.name, ids, self.context, self.objective, self.words, self.batch)

    def drop(self, count: int) -> Tokens:
        """All but the first windows."""
        ids = self.ids[count * self._step :]
        return Tokens(self.name, ids, self.context, self.objective, self.words, self.batch)

    def fingerprint(self) -> bytes:
        """A digest of the tokens and of what is asked about them."""
        asked = repr((self.context, self.objective, self.words.mask)).encode()
        return hashlib.sha256(asked + self.ids.numpy().tobytes()).digest()

    def _numbers(self, chosen: Tensor | slice) -> list[int]:
        return list(range(len(self))[chosen]) if isinstance(chosen, slice) else chosen.tolist()

    def _cut(self, chosen: Tensor | slice, shift: int) -> Tensor:
        first = torch.tensor(self._numbers(chosen), dtype=torch.int64)[:, None] * self._step + shift
        return self.ids[first + torch.arange(self._step)].long()

    def _windows(self, chosen: Tensor | slice) -> tuple[Tensor, Tensor | None]:
        """The windows, and which of their tokens are hidden; that depends on a window's number only."""
        windows = self._cut(chosen, 0)
        hidden = None
        if self.objective == "masked":
            draws = [torch.Generator().manual_seed(number) for number in self._numbers(chosen)]
            rows = [torch.rand(self._step, generator=g) < MASKED for g in draws]
            hidden = torch.stack(rows) if rows else torch.zeros(0, self._step, dtype=torch.bool)
        if self._framed:
            around = (int(self.words.start or 0), int(self.words.end or 0))
            first, last = (windows.new_full((len(windows), 1), token) for token in around)
            windows = torch.cat([first, windows, last], 1)
            if hidden is not None:
                hidden = torch.nn.functional.pad(hidden, (1, 1))
        return windows, hidden


def read_tokens(rest: str, request: Request) -> Tokens:
    """The windows of a text file, a folder of them, or a parquet file with a column of text.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "a.txt").write_text("abcabcabc")
    ...     data = read_tokens(f"{folder}/a.txt", Request(context=4))
    >>> data.images.tolist(), data.labels.tolist()
    ([[0, 1, 2, 0], [1, 2, 0, 1]], [[1, 2, 0, 1], [2, 0, 1, 2]])
    """
    objective = request.objective or "causal"
    if objective not in OBJECTIVES:
        raise DataError(f"no objective {objective!r}", do=f"use one of {', '.join(OBJECTIVES)}")
    found = _SLICE.match(rest)
    path = user_path(found["path"] if found else rest, DataError)
    start, stop = (int(found["start"] or 0), int(found["stop"] or 100)) if found else (0, 100)
    if not 0 <= start < stop <= 100:
        raise DataError(f"no part {rest[len(str(path)) :]!r} of a text", do="write FILE[90%:] or FILE[:90%]")
    files = _files(path)
    context = request.context or _CONTEXT
    batch = max(1, min(request.batch, _TOKENS // context))
    words = find_vocabulary(request.tokenizer, files)
    if objective == "masked" and words.mask is None:
        raise DataError(
            "the tokenizer has no mask token",
            do="give --tokenizer with the folder of a masked language model",
        )
    step = context if objective == "causal" or None in (words.start, words.end) else context - 2
    if step < 1:
        raise DataError(f"a context of {context} has no room for a token", do="give --context 128")
    most = None if request.limit is None else request.limit * step + (objective == "causal")
    ids = _encoded(_part(files, start, stop), words, most)
    data = Tokens(f"text:{rest}", ids, context, objective, words, batch)
    if not len(data):
        raise DataError(f"{path} holds {len(ids)} tokens, fewer than one window of {context}")
    return data


def find_vocabulary(tokenizer: str | None, files: list[Path]) -> Vocabulary:
    """The tokenizer of a folder or a tokenizer.json; without one, the characters of the files, sorted."""
    if tokenizer is None:
        characters = sorted(set(chain.from_iterable(map(set, _pieces(files)))))
        number = {c: i for i, c in enumerate(characters)}
        return Vocabulary(lambda text: [number[c] for c in text])
    transformers = import_transformers()
    place = user_path(tokenizer, DataError)
    do = "give a folder with a tokenizer, or its tokenizer.json"
    with parsing(f"the tokenizer {place}", DataError, do=do), muted():
        if place.is_dir():
            assert_tokenizer(place)
            found = transformers.AutoTokenizer.from_pretrained(
                place, local_files_only=True, trust_remote_code=False
            )
        else:
            assert_tokenizer_file(existing_file(place, "tokenizer", DataError))
            found = transformers.PreTrainedTokenizerFast(tokenizer_file=str(place))

    def encode(text: str) -> list[int]:
        return list(found(text, add_special_tokens=False, verbose=False)["input_ids"])

    return Vocabulary(encode, found.cls_token_id, found.sep_token_id, found.mask_token_id)


def _encoded(pieces: Iterator[str], words: Vocabulary, most: int | None) -> Tensor:
    """The tokens of a text, piece by piece, and no more of them than are wanted."""
    ids = array("i")
    for piece in pieces:
        with parsing("the text", DataError, do="give a tokenizer that knows its characters"), muted():
            ids.extend(words.encode(piece))
        if most is not None and len(ids) >= most:
            break
    if not ids:
        return torch.zeros(0, dtype=torch.int32)
    return torch.frombuffer(ids, dtype=torch.int32)[:most].clone()


def _files(path: Path) -> list[Path]:
    with parsing(f"the folder {path}", DataError):
        if not path.is_dir():
            return [existing_file(path, "text file", DataError)]
        found = [p for p in files_below(path, (".txt", ".md", ".parquet"), DataError) if p.is_file()]
    if not found:
        raise DataError(f"no texts in {path}", do="a folder holds files .txt, .md or .parquet")
    return found


def _pieces(files: list[Path]) -> Iterator[str]:
    """The text of the files, about a megabyte at a time, cut at the ends of lines."""
    for path in files:
        with parsing(path, DataError, do="give a text in UTF-8, or parquet with a column of text"):
            if path.suffix == ".parquet":
                yield from text_column(path)
                continue
            with path.open(encoding="utf-8", newline="") as file:
                while lines := file.readlines(_PIECE):
                    yield "".join(lines)


def _part(files: list[Path], start: int, stop: int) -> Iterator[str]:
    """The characters from start % to stop % of a text."""
    if (start, stop) == (0, 100):
        yield from _pieces(files)
        return
    total = sum(map(len, _pieces(files)))
    first, last, at = total * start // 100, total * stop // 100, 0
    for piece in _pieces(files):
        if at < last and at + len(piece) > first:
            yield piece[max(0, first - at) : last - at]
        at += len(piece)


__all__ = ["IGNORED", "OBJECTIVES", "Tokens", "Vocabulary", "find_vocabulary", "read_tokens"]
