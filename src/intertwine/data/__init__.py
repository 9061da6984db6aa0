"""Data sets from a DATA string: tensors in memory, or streamed from their files.

load_data("digits")                                    scikit-learn's 8x8 digits (nothing to download)
load_data("parquet:test.parquet", normalize="cifar10") Hugging Face image layout
evaluate(model, dataset)                               accuracy and cross entropy
"""

from __future__ import annotations

from intertwine.data.batches import Batches
from intertwine.data.dataset import Dataset
from intertwine.data.evaluation import Evaluation, evaluate
from intertwine.data.load import SOURCES, load_data
from intertwine.data.normalize import PRESETS, parse_normalize
from intertwine.data.streamed import Streamed

__all__ = [
    "PRESETS",
    "SOURCES",
    "Batches",
    "Dataset",
    "Evaluation",
    "Streamed",
    "evaluate",
    "load_data",
    "parse_normalize",
]
