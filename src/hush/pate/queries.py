"""Which public rows to ask about: a few that stand for many.

Public rows cost nothing, so they are grouped (k-means), and the row nearest to the middle of each group is asked about.
Such rows are typical: the teachers agree on them, so that they bear more noise, and no two are alike.
"""

from __future__ import annotations

from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from hush import _check
from hush.errors import InvalidValue
from hush.pate.makers import as_tensor
from hush.rng import Rng

_ROUNDS = 15


def choose_queries(public_X: Any, number: int, *, rng: Rng | None = None) -> NDArray[numpy.int64]:
    """The numbers of `number` public rows that are spread out over all of them, in random order.

    Only public rows may be given: what is asked is not private. Distances are those of the rows as given.
    """
    rows = as_tensor(public_X).flatten(1)
    number = _check.whole("number", number)
    if number > len(rows):
        raise InvalidValue(f"number must be at most the number of public rows, {len(rows)}; got {number}.")
    stream = (rng or Rng()).torch_stream("queries")
    chosen = _nearest_rows(rows, _middles(rows, number, stream))
    if len(chosen) < number:  # two groups with the same nearest row
        rest = torch.ones(len(rows), dtype=torch.bool)
        rest[chosen] = False
        free = rest.nonzero().squeeze(1)
        more = free[torch.randperm(len(free), generator=stream)[: number - len(chosen)]]
        chosen = torch.cat([chosen, more])
    return chosen[torch.randperm(number, generator=stream)].numpy()


def _middles(rows: Tensor, number: int, stream: torch.Generator) -> Tensor:
    """Lloyd's rounds from random rows."""
    middles = rows[torch.randperm(len(rows), generator=stream)[:number]].clone()
    for _ in range(_ROUNDS):
        nearest = _distances(rows, middles).argmin(dim=1)
        sums = torch.zeros_like(middles).index_add_(0, nearest, rows)
        sizes = torch.bincount(nearest, minlength=number)
        middles = torch.where(sizes[:, None] > 0, sums / sizes.clamp(min=1)[:, None], middles)
    return middles


def _nearest_rows(rows: Tensor, middles: Tensor) -> Tensor:
    nearest: Tensor = _distances(rows, middles).argmin(dim=0)
    found: Tensor = nearest.unique()
    return found


def _distances(rows: Tensor, middles: Tensor) -> Tensor:
    """Squared distances, but for each row's own length."""
    squared: Tensor = rows.square().sum(dim=1, keepdim=True) + middles.square().sum(dim=1) - 2 * rows @ middles.T
    return squared
