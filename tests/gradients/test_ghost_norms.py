"""Norms by products of places or by the gradients themselves: the same numbers, and each where it pays."""

from __future__ import annotations

import pytest
import torch
from naive_loop import assert_equal, naive
from torch import Tensor, nn

from hush.gradients import clipped_sum, norms
from hush.gradients.uses import Outer

PLACES, WIDTH, OUTPUTS = 12, 24, 80  # 12 * (24 + 80) is above half of 24 * 80, and below it


def batch(count: int) -> Tensor:
    return torch.randn(count, PLACES, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def loss_fn(model: nn.Module, x: Tensor) -> Tensor:
    return model(x).tanh().square().sum((1, 2))


def near() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(WIDTH, OUTPUTS).double()


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often norms were taken from products of places."""
    seen: list[int] = []
    real = Outer.measure

    def measure(use: Outer, shared: norms.Shared) -> tuple[Tensor, Tensor | None]:
        seen.append(len(use.inputs))
        return real(use, shared)

    monkeypatch.setattr(Outer, "measure", measure)
    return seen


@pytest.mark.parametrize("room", [0, 1 << 27])
def test_both_ways_give_the_naive_loops_sums(monkeypatch: pytest.MonkeyPatch, products: list[int], room: int) -> None:
    monkeypatch.setattr(norms, "_ROOM", room)
    model, x = near(), batch(5)
    truth = naive(model, loss_fn, (x,))
    clip_norm = float(truth.norms.median())
    got = clipped_sum(model, loss_fn, (x,), clip_norm, method="tape")
    assert_equal(got, truth.clipped(clip_norm), truth.norms)
    assert len(products) == (0 if room else 1)


def test_gradients_that_have_no_room_are_not_written_out(monkeypatch: pytest.MonkeyPatch, products: list[int]) -> None:
    monkeypatch.setattr(norms, "_ROOM", 5 * WIDTH * OUTPUTS * 8)  # five examples in float64
    for count in (5, 6):
        clipped_sum(near(), loss_fn, (batch(count),), 1.0, method="tape")
    assert products == [6]


def test_a_few_places_of_a_wide_layer_stay_products(products: list[int]) -> None:
    model = nn.Linear(WIDTH, 40 * WIDTH).double()
    clipped_sum(model, loss_fn, (batch(3)[:, :4],), 1.0, method="tape")
    assert products == [3]
