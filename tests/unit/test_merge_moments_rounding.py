"""Features that never change, or hardly beside their mean, neither stop a merge nor are taken for others."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from intertwine.merging import merge
from intertwine.merging.measured import measure
from intertwine.merging.positive import regular


def test_covariances_keep_their_precision_beside_a_large_mean() -> None:
    x = torch.randn(500, 4, generator=torch.Generator().manual_seed(0)) + 1000.0
    x[:, 3] = 0.1
    seen = measure(nn.Linear(4, 2), [x])["weight"]
    wanted = torch.from_numpy(np.cov(x.double().numpy().T, bias=True))
    torch.testing.assert_close(seen.cov, wanted, rtol=0, atol=1e-5)
    assert float(seen.cov[3].abs().max()) < 1e-12


def test_a_matrix_that_rounding_made_indefinite_gets_as_much_ridge_as_it_needs() -> None:
    made = regular(np.diag([1.0, -1e-8, 0.0]), 1e-12)
    assert 0 < np.linalg.eigvalsh(made).min() < 1e-5
    np.testing.assert_array_equal(regular(np.eye(3), 0.5), 1.5 * np.eye(3))  # no more than asked for


def test_inputs_that_are_all_the_same_can_be_merged_on() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 16), nn.GELU(), nn.Linear(16, 2))
    same = torch.full((300, 3), 0.7)
    result = merge(net, same[:2], method="sequential", target_params=0.6, train_data=[same])
    torch.testing.assert_close(result.model(same[:5]), net(same[:5]), rtol=1e-3, atol=1e-3)
