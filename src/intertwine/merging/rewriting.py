"""What is done to a model before it is cut, and by which method, where the caller leaves that open.

Only `sequential` cuts heads and axes on which matrices act, so it is the method of what has attention. It
also measures how a folded stream and a table of tokens as a product could be cut; both are rewritings that
may add parameters (a tied head is untied), and are done where they add few.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from torch import nn

from intertwine.errors import Unsupported
from intertwine.merging.contractions import Call
from intertwine.merging.factoring import factored, find_tables
from intertwine.merging.folding import Folding, find_folding
from intertwine.merging.plan import RANK, STREAM
from intertwine.symmetry import Symmetry
from intertwine.text import first_line

MOST_ADDED = 0.05  # of the parameters, by a rewriting that nobody asked for


def has_attention(symmetry: Symmetry) -> bool:
    """Whether values of the model meet in products, or matrices act on blocks of channels, as in heads.

    >>> import torch
    >>> from intertwine import trace
    >>> has_attention(trace(nn.MultiheadAttention(8, 2), (torch.zeros(3, 1, 8),) * 3))
    True
    >>> has_attention(trace(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), torch.zeros(1, 3)))
    False
    """
    roles = symmetry.structure.inference.roles
    for linear in symmetry.structure.linear.values():
        read = any(roles.get(place) == "in" for place in linear.places)
        if not linear.orthogonal and (len(linear.fibres) > 1 or not read):
            return True
    return False


def wanted_rewritings(kinds: str, by_config: bool) -> tuple[bool, bool]:
    """Whether folding and factoring could help: which kinds are cut, and whether a config is to say widths.

    >>> wanted_rewritings("all", False), wanted_rewritings("heads", False), wanted_rewritings("all", True)
    ((True, True), (False, False), (True, False))
    """
    return kinds in ("all", STREAM), not by_config and kinds in ("all", RANK)


def rewrite(
    model: nn.Module, call: Call, fold: bool | None, factor: bool | None, claimed: Symmetry | None = None
) -> tuple[Folding | None, nn.Module, str]:
    """How the model is rewritten, that model (norms folded, tables factored), and why no norm is folded.

    True: done, or `Unsupported`. False: not done. None: done where it can be and adds few parameters.
    claimed: the model's symmetry, proved or not, if it is known.
    """
    folding: Folding | None = None
    base, why = model, ""
    if fold is not False:
        try:
            found, made = find_folding(model, *call, claimed)
        except Unsupported as error:
            if fold:
                raise
            why = first_line(error)
        else:
            if fold or _few(model, made):
                folding, base = found, made
            else:
                why = "folding its norms would add too many parameters (--fold does it all the same)"
    if factor is not False:
        with suppress(*((Unsupported,) if factor is None else ())):
            known = claimed.traced if claimed is not None and base is model else None
            tables = find_tables(base, *call, known)
            made = factored(base, tables)
            if factor or _few(model, made):
                folding, base = replace(folding or Folding(), factored=tables), made
    return folding, base, why


def why_it_stays(symmetry: Symmetry) -> str:
    """Why no rotation acts on the stream of a folded model; "" where they do."""
    if any(linear.orthogonal for linear in symmetry.structure.linear.values()):
        return ""
    gains = [m.param for a in symmetry.axes for m in a.members if m.role == "gain"]
    return f"{gains[0]} scales it channel by channel" if gains else "no rotation of it is a symmetry"


def _few(model: nn.Module, made: nn.Module) -> bool:
    before, after = (sum(p.numel() for p in m.parameters()) for m in (model, made))
    return after <= (1 + MOST_ADDED) * before


__all__ = ["has_attention", "rewrite", "wanted_rewritings", "why_it_stays"]
