"""`minigrid-agent`: three 2x2 convolutions to 64 features, an actor and a critic (source 003, Figure 3.7).

The source's text says 64 features after the last convolution, then a penultimate and a final linear layer;
the rest is the actor-critic that is usual for MiniGrid: a view of 3x7x7 becomes 16, 32 and 64 channels of one
pixel, and each head has a hidden layer of 64 with tanh. With a bottleneck, a linear map takes the 64 features
to 8 and each head is one linear layer on these (the source names no nonlinearity there).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

FEATURES = 64
VIEW = (3, 7, 7)  # kind, colour and state of the 7x7 cells in front of the agent


class ActorCritic(nn.Module):
    """x -> (action scores, value); `features` is all that comes before the heads.

    >>> scores, value = ActorCritic(bottleneck=8)(torch.zeros(2, 3, 7, 7))
    >>> scores.shape, value.shape
    (torch.Size([2, 7]), torch.Size([2, 1]))
    """

    def __init__(
        self, *, classes: int = 7, in_channels: int = VIEW[0], bottleneck: int | None = None
    ) -> None:
        super().__init__()
        self.bottleneck = bottleneck
        layers: list[nn.Module] = [nn.Conv2d(in_channels, 16, 2), nn.ReLU(), nn.MaxPool2d(2)]
        layers += [nn.Conv2d(16, 32, 2), nn.ReLU(), nn.Conv2d(32, FEATURES, 2), nn.ReLU(), nn.Flatten()]
        if bottleneck is not None:
            layers.append(nn.Linear(FEATURES, bottleneck))
        self.features = nn.Sequential(*layers)
        self.actor, self.critic = (_head(outputs, bottleneck) for outputs in (classes, 1))
        self.apply(_unit_rows)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.features(x)
        return self.actor(features), self.critic(features)


def _head(outputs: int, bottleneck: int | None) -> nn.Sequential:
    if bottleneck is not None:
        return nn.Sequential(nn.Linear(bottleneck, outputs))
    return nn.Sequential(nn.Linear(FEATURES, FEATURES), nn.Tanh(), nn.Linear(FEATURES, outputs))


def _unit_rows(module: nn.Module) -> None:
    """Linear layers start with random rows of norm 1 and no bias, as is the habit for this net."""
    if isinstance(module, nn.Linear):
        with torch.no_grad():
            module.weight.normal_().div_(module.weight.norm(dim=1, keepdim=True))
            module.bias.zero_()
