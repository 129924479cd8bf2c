"""Examples that are not finite count as zero, and do not hide or pretend that examples mix."""

from __future__ import annotations

import contextlib
import math

import pytest
import torch
from torch import Tensor, nn

from hush.errors import InvalidValue, NoRule, NotIsolated
from hush.gradients import check_isolation, clipped_sum


def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(x), y, reduction="none")


def network(*, mixes: bool = False) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5) if mixes else nn.Tanh(), nn.Linear(5, 3))


def batch(*broken: int, value: float = math.nan) -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(1)
    x, y = torch.randn(20, 4, generator=stream), torch.randint(0, 3, (20,), generator=stream)
    x[list(broken)] = value
    return x, y


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("broken", [(0,), (1,), (2,), (0, 1, 2, 3), (3, 15), tuple(range(14))], ids=str)
@pytest.mark.parametrize("method", ["auto", "tape", "vectorized", "looped"])
def test_an_isolated_model_passes_with_broken_examples(method: str, broken: tuple[int, ...], value: float) -> None:
    check_isolation(network(), loss_fn, batch(*broken, value=value), method=method)


@pytest.mark.parametrize("broken", [(0,), (1,), (3, 15)], ids=str)
def test_a_model_that_mixes_is_found_beside_broken_examples(broken: tuple[int, ...]) -> None:
    with pytest.raises(NotIsolated, match="BatchNorm1d"):
        check_isolation(network(mixes=True), loss_fn, batch(*broken))
    with pytest.raises(NotIsolated, match=r"calls 0 \(Linear\)"):
        check_isolation(network(), lambda m, x, y: loss_fn(m, x - x.mean(0), y), batch(*broken))


def test_gradients_that_break_on_finite_inputs_are_left_out_too() -> None:
    def root(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return loss_fn(model, x, y) * x.abs().sum(dim=1).sqrt() + model(x * 0).norm(dim=1) * 0 / x.abs().sum(dim=1)

    x, y = batch()
    x[1] = 0  # 0 / 0
    assert clipped_sum(network(), root, (x, y), 1.0).nonfinite == 1
    check_isolation(network(), root, (x, y))


def test_too_few_finite_examples_are_told() -> None:
    with pytest.raises(InvalidValue, match="2 examples with finite gradients"):
        check_isolation(network(), loss_fn, batch(*range(1, 16)))  # of the rows looked at, one is finite


@pytest.mark.parametrize("values", [[0.0, 1.0, 2.0], ["a", "b", "c"], [None, None, None]], ids=str)
@pytest.mark.parametrize("named", [False, True])
def test_a_list_of_plain_values_is_refused(values: list[object], named: bool) -> None:
    x = torch.randn(3, 4)
    given = {"x": x, "weights": values} if named else (x, values)
    with pytest.raises(InvalidValue, match=f"list of {type(values[0]).__name__}.*make it a tensor"):
        clipped_sum(nn.Linear(4, 1), lambda model, x, weights: model(x)[:, 0], given, 1.0, method="looped")


def test_constants_in_a_tuple_are_the_same_for_all_examples() -> None:
    def weighed(model: nn.Module, x: Tensor, weights: tuple[float, float]) -> Tensor:
        return weights[0] * model(x)[:, 0] + weights[1]

    model, x = nn.Linear(4, 1), torch.randn(2, 4)
    found = clipped_sum(model, weighed, (x, (3.0, 1.0)), 1e9)
    assert torch.allclose(found.gradients["weight"], 3 * x.sum(dim=0, keepdim=True))


class Statistics(nn.Module):
    """Keeps means of what it saw by batch_norm, which writes them without raising the buffer's version."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("var", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            nn.functional.batch_norm(x, self.mean, self.var, training=True)
        return self.layer(x)


def test_a_buffer_that_is_written_in_silence_is_found() -> None:
    with pytest.raises(NotIsolated, match="batch_norm in training mode"):
        check_isolation(Statistics(), loss_fn, batch())


@pytest.mark.parametrize("method", ["tape", "vectorized", "looped"])
def test_a_buffer_that_is_written_in_silence_is_put_back(method: str) -> None:
    frozen = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, affine=False), nn.Linear(3, 3))
    for model in (Statistics(), frozen):
        before = {name: value.clone() for name, value in model.named_buffers()}
        with contextlib.suppress(NotIsolated, NoRule, RuntimeError, ValueError):  # some refuse, and leave no trace
            clipped_sum(model, loss_fn, batch(), 1.0, method=method)
        assert all(torch.equal(value, before[name]) for name, value in model.named_buffers())
