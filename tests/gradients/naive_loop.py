"""The truth that private gradients are held to: ordinary autograd on one example at a time, and clipping by hand.

It shares no code with the package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Loss = Callable[..., Tensor]
METHODS = ("tape", "vectorized", "looped")
TIGHT = 1e-9  # the largest relative error of a gradient in double precision


@dataclass(frozen=True)
class Naive:
    """Each example's gradient (batch first), and what follows from them."""

    rows: dict[str, Tensor]

    @property
    def squares(self) -> dict[str, Tensor]:
        return {name: row.abs().square().reshape(len(row), -1).sum(1) for name, row in self.rows.items()}

    @property
    def norms(self) -> Tensor:
        return torch.stack(list(self.squares.values())).sum(0).sqrt()

    def clipped(self, clip_norm: float) -> dict[str, Tensor]:
        """The sum with the factor min(1, clip_norm / norm)."""
        return self.weighted(torch.clamp(clip_norm / self.norms, max=1.0))

    def weighted(self, factors: Tensor) -> dict[str, Tensor]:
        return {name: torch.einsum("b,b...->...", factors.to(row.dtype), row) for name, row in self.rows.items()}

    def grouped(self, groups: Tensor) -> Naive:
        """The gradients of each group added up, in the order of the group's number."""
        numbers = sorted(set(groups.tolist()))
        return Naive({n: torch.stack([row[groups == g].sum(0) for g in numbers]) for n, row in self.rows.items()})


def single(batch: Any, index: int) -> Any:
    """One example of a batch, copied."""
    if isinstance(batch, Tensor):
        return batch[index : index + 1].clone()
    if isinstance(batch, Mapping):
        return {key: single(value, index) for key, value in batch.items()}
    if isinstance(batch, tuple | list):
        return tuple(single(value, index) for value in batch)
    return batch


def losses_of(model: nn.Module, loss_fn: Loss, batch: Any) -> Tensor:
    if isinstance(batch, Tensor):
        return loss_fn(model, batch)
    return loss_fn(model, **batch) if isinstance(batch, Mapping) else loss_fn(model, *batch)


def length(batch: Any) -> int:
    if isinstance(batch, Tensor):
        return len(batch)
    return length(next(iter(batch.values() if isinstance(batch, Mapping) else batch)))


def naive(model: nn.Module, loss_fn: Loss, batch: Any) -> Naive:
    """Each example's gradient of every trainable parameter; zeros where it is not used."""
    named = {name: value for name, value in model.named_parameters() if value.requires_grad}
    found: list[tuple[Tensor, ...]] = []
    for index in range(length(batch)):
        losses = losses_of(model, loss_fn, single(batch, index))
        assert losses.shape == (1,)
        gradients = torch.autograd.grad(losses[0], list(named.values()), allow_unused=True, materialize_grads=True)
        found.append(tuple(value.to_dense() if value.is_sparse else value for value in gradients))
    return Naive({name: torch.stack(rows) for name, rows in zip(named, zip(*found, strict=True), strict=True)})


def relative_error(got: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    """The largest difference of an entry, against the largest entry (or 1, if that is larger)."""
    assert list(got) == list(expected)
    scale = max(1.0, *(float(value.abs().max()) for value in expected.values() if value.numel()))
    errors = [float((got[name] - value).abs().max()) for name, value in expected.items() if value.numel()]
    return max(errors) / scale


def middle(truth: Naive) -> float:
    """A clip norm that clips some examples and leaves others."""
    return float(truth.norms.median()) * 0.999


def assert_equal(got: Any, expected: dict[str, Tensor], norms: Tensor, tolerance: float = TIGHT) -> None:
    assert relative_error(got.gradients, expected) < tolerance
    torch.testing.assert_close(got.norms, norms, rtol=tolerance, atol=tolerance)
