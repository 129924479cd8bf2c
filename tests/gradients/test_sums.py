"""Sums of clipped gradients: a bias with its weight, and what may be overwritten on the way."""

from __future__ import annotations

import pytest
import torch
from gradient_models import FEW, Example, cross_entropy
from naive_loop import assert_equal, middle, naive
from torch import Tensor, nn

from hush.gradients import clipped_sum, sums
from hush.gradients.layers import Dense
from hush.gradients.uses import Outer, Rows


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("scratch", [False, True])
@pytest.mark.parametrize(("inside", "outside"), [(1, 1), (3, 50), (15, 40), (16, 40), (31, 64), (20, 30), (50, 3)])
def test_a_weight_and_its_bias_at_once_are_the_two_alone(
    inside: int, outside: int, scratch: bool, transposed: bool
) -> None:
    inputs, outputs = torch.randn(9, 1, inside, dtype=torch.float64), torch.randn(9, 1, outside, dtype=torch.float64)
    factors = torch.rand(9, dtype=torch.float64)
    use = Outer(inputs, outputs, transposed)
    expected = use.weighted(factors), Rows(outputs[:, 0]).weighted(factors)
    got = Dense(inputs[:, 0], outputs[:, 0].clone(), transposed, "bias").weighted_both(factors, scratch=scratch)
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other)
        assert one.is_contiguous()


@pytest.mark.parametrize("example", FEW, ids=lambda example: example.name)
def test_nothing_is_overwritten_that_is_needed_again(example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every tensor taken for a large one."""
    monkeypatch.setattr(sums, "_LARGE", 0)
    model, batch = example.model(), example.batch()
    truth, before = naive(model, cross_entropy, batch), [tensor.clone() for tensor in batch]
    for _ in range(2):
        got = clipped_sum(model, cross_entropy, batch, middle(truth), method="tape")
        assert_equal(got, truth.clipped(middle(truth)), truth.norms)
    assert all(torch.equal(*pair) for pair in zip(batch, before, strict=True))


def test_an_output_gradient_that_is_the_batchs_own_is_not_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "_LARGE", 0)
    model, x, y = nn.Linear(5, 3), torch.randn(4, 5), torch.randn(4, 3)

    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return (model(x) * y).sum(1)

    before = y.clone()
    clipped_sum(model, loss, (x, y), 1e-3, method="tape")
    assert torch.equal(y, before)


def test_a_bias_of_another_layer_keeps_its_own_factors() -> None:
    """Clipped layer by layer, a weight and a bias that share their output gradients may have two factors."""

    class Apart(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.product = nn.Linear(5, 3, bias=False)
            self.shift = nn.Module()
            self.shift.bias = nn.Parameter(torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.linear(x, self.product.weight, self.shift.bias)

    model, batch = Apart(), (torch.randn(6, 5), torch.randint(3, (6,)))
    one, other = (
        clipped_sum(model, cross_entropy, batch, 0.3, method=method, clipping="per_layer")  # type: ignore[arg-type]
        for method in ("tape", "looped")
    )
    for name, value in other.gradients.items():
        torch.testing.assert_close(one.gradients[name], value)


def test_a_small_part_of_a_large_gradient_is_not_scaled_twice() -> None:
    """The gradient of a concatenation is one tensor, of which each layer holds a part."""

    class Joined(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide, self.part, self.head = nn.Linear(512, 1024), nn.Linear(32, 64), nn.Linear(1024, 5)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.wide(x) + torch.cat([self.part(x[:, :32]), x, x[:, :448]], -1))

    model, batch = Joined(), (torch.randn(512, 512), torch.randint(5, (512,)))
    clip_norm = float(clipped_sum(model, cross_entropy, batch, 1.0, method="tape").norms.median())
    truth, got = (clipped_sum(model, cross_entropy, batch, clip_norm, method=way) for way in ("looped", "tape"))  # type: ignore[arg-type]
    for name, value in truth.gradients.items():
        torch.testing.assert_close(got.gradients[name], value, rtol=1e-3, atol=1e-3 * float(value.abs().max()))
