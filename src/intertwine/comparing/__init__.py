"""How alike are two networks: representations (measures), functions, and how sure we are."""

from intertwine.comparing._compare import compare
from intertwine.comparing.collecting import Features, collect
from intertwine.comparing.comparison import Comparison
from intertwine.comparing.function import FunctionalSimilarity, functional_similarity
from intertwine.comparing.measures import MEASURES, Measure, add_measure, measure, measure_for, similarity
from intertwine.comparing.statistics import input_interval, permutation_null, seed_interval
from intertwine.comparing.stream import StreamedMoments

__all__ = [
    "MEASURES",
    "Comparison",
    "Features",
    "FunctionalSimilarity",
    "Measure",
    "StreamedMoments",
    "add_measure",
    "collect",
    "compare",
    "functional_similarity",
    "input_interval",
    "measure",
    "measure_for",
    "permutation_null",
    "seed_interval",
    "similarity",
]
