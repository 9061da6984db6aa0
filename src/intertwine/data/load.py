"""Turn a DATA string into a Dataset; `data/builtin.py` has the sources, `@data_source` adds others."""

from __future__ import annotations

import numpy as np
import torch

import intertwine.data.builtin  # noqa: F401  registers the sources
from intertwine import numbers
from intertwine.data.dataset import Dataset, Raw, assert_labels, assert_well_formed
from intertwine.data.normalize import normalize_, parse_normalize
from intertwine.data.preparation import Preparation
from intertwine.data.sources import Request, read_source
from intertwine.data.streamed import Encoded, Streamed
from intertwine.errors import DataError
from intertwine.reading import check_memory, memory_bytes

_WINDOW = 512  # tokens, unless a context is asked for: some models take 100,000
_EMBEDDED = 128  # of a window that is embedded, which is a sentence or a paragraph, not a page


def load_data(
    spec: str,
    *,
    normalize: str | None = None,
    limit: int | None = None,
    batch: int = 256,
    split: str = "test",
    size: int | None = None,
    memory: float | None = None,
    context: int | None = None,
    tokenizer: str | None = None,
    objective: str | None = None,
    prepare: Preparation | None = None,
) -> Dataset:
    """The data set of a DATA string, in memory; image files that would take more than `memory` are streamed.

    Bytes become floats in [0, 1], then `normalize` applies. `limit` keeps the first N (of an image folder:
    N spread evenly). `split` is train or test where the source has both. `size` resizes and crops image
    files. `memory` is in bytes, half of the machine's unless given. Of text, `context` is the length of a
    window, `tokenizer` a folder or a tokenizer.json (characters without one), and `objective` what is
    predicted: causal, masked or embedding. What is not given is taken from `prepare`, a model's own.

    >>> data = load_data("digits", limit=5)
    >>> tuple(data.images.shape), len(data.classes)
    ((5, 1, 8, 8), 10)
    """
    for name, value in (("limit", limit), ("batch", batch), ("size", size), ("context", context)):
        if value is not None:
            numbers.count(value, name)
    known = prepare or Preparation()
    statistics = parse_normalize(normalize if normalize is not None else known.normalize or "none")
    words, predicted = tokenizer or known.tokenizer, objective or known.objective
    if objective is None and predicted == "masked" and words is None:
        predicted = "embedding"  # characters have no token that hides one: outputs are compared instead
    most = _EMBEDDED if predicted == "embedding" else _WINDOW
    window = context or min(known.context or most, most)
    request = Request(split, limit, size or known.size, batch, words, window, predicted)
    raw = read_source(spec, request)
    if hasattr(raw, "batches"):  # a data set of its own: text, or what others registered
        result: Dataset = raw
        return result
    if isinstance(raw, Encoded):
        if not len(raw.items):
            raise DataError("the data set is empty", where=spec)
        needed = 4 * len(raw.items) * raw.sample()[0].size
        if needed > (0.5 * memory_bytes() if memory is None else memory):
            assert_labels(raw.labels, raw.classes, spec)
            labels, classes = _labels(raw)
            return Streamed(spec, raw, labels, classes, batch, statistics)
        raw = Raw(raw.decoded(), raw.labels, raw.classes)
    assert_well_formed(raw, spec)
    check_memory(4.0 * raw.images.size, f"the images of {spec}", DataError, "give --limit N")
    # numpy converts what torch does not know: long doubles, the other byte order. The copy is ours to change.
    images = torch.from_numpy(np.array(raw.images, dtype=np.float32, order="C"))
    if raw.images.dtype == np.uint8:
        images.div_(255)
    images = normalize_(images, statistics)
    if not torch.isfinite(images).all():
        raise DataError("normalised, some image values are NaN or infinite", where=spec)
    return Dataset(spec, images, *_labels(raw), batch)


def _labels(raw: Raw | Encoded) -> tuple[torch.Tensor, tuple[str, ...]]:
    labels = torch.from_numpy(raw.labels.astype(np.int64))
    return labels, raw.classes or tuple(map(str, range(int(labels.max()) + 1)))
