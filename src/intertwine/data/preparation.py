"""What belongs to trained weights: how inputs are made for them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Preparation:
    """How data is made into inputs of a model, as far as its weights say; None where they do not.

    normalize: "M,M,M/S,S,S", as `--normalize` takes it. size: images of size x size. tokenizer: a folder or a
    tokenizer.json. context: tokens of one window. objective: what is predicted of text: causal, masked or
    embedding.
    """

    normalize: str | None = None
    size: int | None = None
    tokenizer: str | None = None
    context: int | None = None
    objective: str | None = None
