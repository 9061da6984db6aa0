"""Inside a network: what classes of equivalent features see, and whether units are interpretable."""

from intertwine.data.concept_set import Annotation, ConceptSet
from intertwine.inside.attributing import attribute
from intertwine.inside.attribution import Attribution, ClassView
from intertwine.inside.dissecting import dissect
from intertwine.inside.dissection import Dissection, LayerReading
from intertwine.inside.methods import METHODS

__all__ = [
    "METHODS",
    "Annotation",
    "Attribution",
    "ClassView",
    "ConceptSet",
    "Dissection",
    "LayerReading",
    "attribute",
    "dissect",
]
