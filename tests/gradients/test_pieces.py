"""Large batches of large maps are cut in pieces by themselves: the same sums, in less memory."""

from __future__ import annotations

import pytest
import torch
from naive_loop import TIGHT, naive, relative_error
from torch import Tensor, nn

from hush.errors import InvalidValue
from hush.gradients import clipped, clipped_sum
from hush.gradients.memory import peak_bytes


class Counted:
    """A loss that notes how many examples each call got."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, model: nn.Module, x: Tensor) -> Tensor:
        self.sizes.append(len(x))
        return model(x).flatten(1).square().sum(1)


def maps(count: int) -> Tensor:
    return torch.randn(count, 2, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def conv() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.Tanh(), nn.Conv2d(3, 2, 3)).double()


@pytest.mark.parametrize("groups", [None, torch.arange(150) // 2])
def test_pieces_give_the_sums_of_the_whole(monkeypatch: pytest.MonkeyPatch, groups: Tensor | None) -> None:
    monkeypatch.setattr(clipped, "_MOST_HELD", 1000)
    model, loss, x = conv(), Counted(), maps(150)
    truth = naive(model, Counted(), (x,))
    expected = (truth if groups is None else truth.grouped(groups)).clipped(1.0)
    for _ in range(2):  # before and after it is known what an example takes
        got = clipped_sum(model, loss, (x,), 1.0, groups=groups, method="tape")
        assert relative_error(got.gradients, expected) < TIGHT
        assert len(got.norms) == (150 if groups is None else 75)
    assert len(loss.sizes) > 4
    assert max(loss.sizes[-3:]) < 64


def test_a_new_model_meets_few_examples_first() -> None:
    model, loss = conv(), Counted()
    for _ in range(2):
        clipped_sum(model, loss, (maps(150),), 1.0, method="tape")
    assert loss.sizes == [32, 118, 150]  # and small maps need no pieces


def test_a_given_size_is_kept_and_checked() -> None:
    model, loss = conv(), Counted()
    clipped_sum(model, loss, (maps(150),), 1.0, method="tape", physical_batch_size=100)
    assert loss.sizes == [100, 50]
    with pytest.raises(InvalidValue, match="physical_batch_size"):
        clipped_sum(model, loss, (maps(150),), 1.0, physical_batch_size=0)


def test_large_parameters_are_not_added_up_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clipped, "_MOST_HELD", 1000)
    model, loss = nn.Linear(72, 500).double(), Counted()
    for _ in range(2):
        clipped_sum(model, lambda m, x: loss(m, x.flatten(1)), (maps(100),), 1.0, method="tape")
    assert loss.sizes == [32, 68, 100]


def test_pieces_take_less_memory_from_the_first_call_on(monkeypatch: pytest.MonkeyPatch) -> None:
    x = maps(200)

    def deep() -> nn.Module:
        return nn.Sequential(nn.Conv2d(2, 16, 3, padding=1), nn.Tanh(), nn.Conv2d(16, 16, 3, padding=1)).double()

    def peak(model: nn.Module) -> int:
        return peak_bytes(lambda: clipped_sum(model, Counted(), (x,), 1.0, method="tape"))

    monkeypatch.setattr(clipped, "_LEAST_PIECE", 300)
    whole = peak(deep())
    monkeypatch.setattr(clipped, "_LEAST_PIECE", 32)
    monkeypatch.setattr(clipped, "_MOST_HELD", 2**18)
    model = deep()
    assert max(peak(model), peak(model)) < 0.5 * whole
