"""factor(model): a table of tokens as a product of two matrices, so that its rank can be cut.

    E[token] = T[token] A^T + b,      at first T = E, A = I, b = 0

An axis has come in between on which GL(n) acts, like that of a bottleneck: `sequential` finds the basis in
which cutting it loses least of what tokens mean, weighted by how often they occur. A table is half of a small
encoder, and a network whose norms come after its sums (BERT) has no other way to make it narrower. A table
that is also read as a matrix (a tied head) is left alone, and so is one with too few rows to be worth it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from intertwine.errors import Unsupported
from intertwine.graph.example import Example
from intertwine.graph.export import Traced, eval_copy, export
from intertwine.rules.registry import facts

LEAST = 4  # rows for each column of a table that is worth it


class FactoredEmbedding(nn.Module):
    """Rows of `table`, times a matrix.

    >>> import torch
    >>> whole = nn.Embedding(9, 2)
    >>> ids = torch.tensor([3, 5])
    >>> torch.equal(FactoredEmbedding(whole.weight)(ids), whole(ids))
    True
    """

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.table = nn.Parameter(weight.detach().clone())
        self.turn = nn.Linear(weight.shape[1], weight.shape[1], device=weight.device, dtype=weight.dtype)
        nn.init.eye_(self.turn.weight)
        nn.init.zeros_(self.turn.bias)

    def forward(self, ids: Tensor) -> Tensor:
        out: Tensor = self.turn(F.embedding(ids, self.table))
        return out


def factor(model: nn.Module, example: Any, kwargs: Mapping[str, Any] | None = None) -> nn.Module:
    """The same function with its tables of tokens as products; `Unsupported` where there are none.

    >>> import torch
    >>> net = nn.Sequential(nn.Embedding(20, 3), nn.Linear(3, 2))
    >>> factor(net, torch.zeros(1, 2, dtype=torch.long))[0].turn
    Linear(in_features=3, out_features=3, bias=True)
    """
    return factored(model, find_tables(model, example, kwargs))


def find_tables(
    model: nn.Module, example: Any, kwargs: Mapping[str, Any] | None = None, traced: Traced | None = None
) -> tuple[str, ...]:
    """Paths of the embeddings that are only looked up, and have many more rows than columns.

    traced: the model's graph, if it is known.
    """
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    tables = [
        path
        for path, module in model.named_modules()
        if type(module) is nn.Embedding
        and module.num_embeddings >= LEAST * module.embedding_dim
        and len(names[id(module.weight)]) == 1
    ]
    if tables and traced is None:  # a graph takes long, and most models have none
        given = Example.of(example, kwargs)
        traced = export(model, given.args, given.kwargs)
    found = [path for path in tables if traced is not None and _only_looked_up(f"{path}.weight", traced)]
    if not found:
        raise Unsupported(
            "no table of tokens is only looked up and has many more rows than columns", so="nothing to factor"
        )
    return tuple(found)


def _only_looked_up(weight: str, traced: Traced) -> bool:
    own = [node for node in traced.graph.nodes if traced.weights.get(node.name) == weight]
    users = [user for node in own for user in node.users]
    return bool(users) and all(facts(user).looks_up for user in users)


def factored(model: nn.Module, paths: tuple[str, ...]) -> nn.Module:
    """A copy of the model with these embeddings as products."""
    copied = eval_copy(model)
    for path in paths:
        table: Any = copied.get_submodule(path).weight
        parent, _, leaf = path.rpartition(".")
        setattr(
            copied.get_submodule(parent), leaf, FactoredEmbedding(table).requires_grad_(table.requires_grad)
        )
    return copied.train(model.training)


__all__ = ["FactoredEmbedding", "factor", "factored", "find_tables"]
