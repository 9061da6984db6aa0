"""Data sets from a DATA string: tensors in memory, or streamed from their files.

load_data("digits")                                    scikit-learn's 8x8 digits (nothing to download)
load_data("parquet:test.parquet", normalize="cifar10") Hugging Face image layout
load_data("text:a.txt", context=64)                    windows of tokens; characters without a tokenizer
evaluate(model, dataset)                               accuracy and cross entropy
"""

from __future__ import annotations

from intertwine.data.batches import Batches
from intertwine.data.dataset import Dataset
from intertwine.data.evaluation import Evaluation, evaluate
from intertwine.data.load import load_data
from intertwine.data.normalize import PRESETS, parse_normalize
from intertwine.data.preparation import Preparation
from intertwine.data.sources import DATA_SOURCES, DataSource, Request, data_source
from intertwine.data.streamed import Streamed
from intertwine.data.tokens import Tokens

__all__ = [
    "DATA_SOURCES",
    "PRESETS",
    "Batches",
    "DataSource",
    "Dataset",
    "Evaluation",
    "Preparation",
    "Request",
    "Streamed",
    "Tokens",
    "data_source",
    "evaluate",
    "load_data",
    "parse_normalize",
]
