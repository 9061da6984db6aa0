"""A text file as windows of tokens: characters, or the tokens of a tokenizer file."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from intertwine.errors import DataError, MissingExtra
from intertwine.reading import check_memory, existing_file, parsing

_PER_CHARACTER = 20  # bytes: the text, a list of its characters, and their numbers


def load_text(
    path: str | Path, length: int, *, tokenizer: str | None = None, limit: int | None = None
) -> tuple[Tensor, list[list[str]]]:
    """(windows, length) token ids, one window after the other, and the tokens as text.

    Without a tokenizer (a `tokenizer.json` of Hugging Face) tokens are characters, numbered as they are
    sorted, which is what character models are trained on.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "a.txt").write_text("abcab")
    ...     ids, tokens = load_text(Path(folder) / "a.txt", 2)
    >>> ids.tolist(), tokens
    ([[0, 1], [2, 0]], [['a', 'b'], ['c', 'a']])
    """
    path = existing_file(path, "text", DataError)
    check_memory(_PER_CHARACTER * path.stat().st_size, f"the text {path}", DataError, "give a part of it")
    with parsing(path, DataError, do="give a text file in UTF-8"):
        text = path.read_text(encoding="utf-8")
    if tokenizer is None:
        number = {c: i for i, c in enumerate(sorted(set(text)))}
        pieces = list(text if limit is None else text[: limit * length])
        ids = [number[c] for c in pieces]
    else:
        pieces, ids = _tokenize(text, tokenizer)
    count = len(ids) // length if limit is None else min(limit, len(ids) // length)
    if not count:
        raise DataError(f"{path} holds {len(ids)} tokens, fewer than one window of {length}")
    windows = torch.tensor(ids[: count * length]).reshape(count, length)
    return windows, [pieces[k * length : (k + 1) * length] for k in range(count)]


def _tokenize(text: str, path: str) -> tuple[list[str], list[int]]:
    try:
        from tokenizers import Tokenizer
    except ModuleNotFoundError as error:
        raise MissingExtra("tokenizers is not installed", do='pip install "intertwine[text]"') from error
    file = existing_file(path, "tokenizer", DataError)
    with parsing(file, DataError, do="give a tokenizer.json"):
        encoding = Tokenizer.from_file(str(file)).encode(text, add_special_tokens=False)
    return [text[a:b] for a, b in encoding.offsets], encoding.ids
