"""Guesses for public rows that were not asked about, from those that were. Public rows and released labels only."""

from __future__ import annotations

import torch
from torch import Tensor

from hush import _check

_AT_ONCE = 2_000


def kernel_scores(looks: Tensor, rows: Tensor, targets: Tensor, *, ridge: float, sharpness: float = 2.0) -> Tensor:
    """Scores of all rows by kernel ridge regression on some of them, which have these targets."""
    own = looks[rows]

    def kernel(part: Tensor) -> Tensor:
        return torch.exp(-sharpness * torch.cdist(part, own).square())

    weights = torch.linalg.solve(kernel(own) + ridge * torch.eye(len(own)), targets)
    return torch.cat([kernel(part) @ weights for part in looks.split(_AT_ONCE)])


def surest(chances: Tensor, share: float, *, keep: Tensor) -> Tensor:
    """The rows whose guess is surest: this share of each guessed class, so that no class is crowded out; and `keep`."""
    _check.probability("share", share)
    sure, guesses = chances.max(dim=1)
    chosen = torch.zeros(len(chances), dtype=torch.bool)
    for kind in range(chances.shape[1]):
        places = (guesses == kind).nonzero().squeeze(1)
        chosen[places[sure[places].topk(int(len(places) * share)).indices]] = True
    chosen[keep] = True
    return chosen.nonzero().squeeze(1)
