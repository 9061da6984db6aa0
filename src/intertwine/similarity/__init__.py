"""How alike are two networks: representations (measures), functions, and how sure we are."""

from intertwine.similarity.collect import Features, collect
from intertwine.similarity.compare import Comparison, compare
from intertwine.similarity.function import FunctionalSimilarity, functional_similarity
from intertwine.similarity.measures import MEASURES, Measure, add_measure, measure, measure_for, similarity
from intertwine.similarity.statistics import input_interval, permutation_null, seed_interval
from intertwine.similarity.stream import Moments

__all__ = [
    "MEASURES",
    "Comparison",
    "Features",
    "FunctionalSimilarity",
    "Measure",
    "Moments",
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
