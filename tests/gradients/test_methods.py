"""Promises of the methods, each with the smallest model that could break it."""

from __future__ import annotations

import pytest
import torch
from naive_loop import TIGHT, naive, relative_error
from torch import Tensor, nn

from hush.errors import NotIsolated
from hush.gradients import clipped_sum


def squares(model: nn.Module, x: Tensor) -> Tensor:
    return model(x).flatten(1).square().sum(1)


def vectors() -> tuple[Tensor]:
    return (torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)),)


def test_vectorized_serves_a_loss_that_calls_submodules() -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({"body": nn.Linear(4, 4), "head": nn.Linear(4, 2)}).double()

    def loss(model: nn.Module, x: Tensor) -> Tensor:
        return model.head(torch.tanh(model.body(x))).square().sum(1)

    expected = naive(model, loss, vectors()).clipped(0.5)
    got = clipped_sum(model, loss, vectors(), 0.5, method="vectorized")
    assert relative_error(got.gradients, expected) < TIGHT


def test_vectorized_serves_a_loss_that_holds_the_model() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 2).double()

    def loss(_: nn.Module, x: Tensor) -> Tensor:
        return model(x).square().sum(1)

    expected = naive(model, loss, vectors()).clipped(0.5)
    assert relative_error(clipped_sum(model, loss, vectors(), 0.5, method="vectorized").gradients, expected) < TIGHT


class Writes(nn.Module):
    """Doubles its input in place, then does what the tape has no rule for."""

    def __init__(self) -> None:
        super().__init__()
        self.points = nn.Parameter(torch.randn(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cdist(x.mul_(2.0), self.points)


@pytest.mark.filterwarnings("ignore:Writes is not served")
def test_a_method_that_gives_up_leaves_the_batch_for_the_next() -> None:
    torch.manual_seed(0)
    model = Writes().double()
    expected = naive(model, squares, vectors()).clipped(0.5)
    assert relative_error(clipped_sum(model, squares, vectors(), 0.5).gradients, expected) < TIGHT


class Rebinds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))
        self.layer = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        self.seen = self.seen + x.detach().sum(0)
        return self.layer(x)


@pytest.mark.parametrize("method", ["tape", "vectorized",
                                    "looped"])  # fmt: skip
def test_a_buffer_that_is_replaced_comes_back(method: str) -> None:
    model = Rebinds().double()
    if method == "vectorized":  # where the model sees a copy of its buffers
        clipped_sum(model, squares, vectors(), 1.0, method=method)
    else:
        with pytest.raises(NotIsolated, match="changes buffer seen"):
            clipped_sum(model, squares, vectors(), 1.0, method=method)
    assert not model.seen.any()


def test_flags_that_the_loss_changes_come_back() -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 2)).double()

    def loss(model: nn.Module, x: Tensor) -> Tensor:
        return squares(model.eval(), x)

    clipped_sum(model, loss, vectors(), 1.0)
    assert model.training


@pytest.mark.parametrize("method", ["tape", "looped"])
def test_a_table_with_max_norm_is_refused(method: str) -> None:
    model = nn.Embedding(5, 4, max_norm=0.5).double()
    before = model.weight.detach().clone()
    with pytest.raises(NotIsolated, match="max_norm"):
        clipped_sum(model, squares, (torch.randint(0, 5, (4, 3)),), 1.0, method=method)
    assert torch.equal(model.weight, before)


def test_the_loop_serves_a_sparse_table() -> None:
    model = nn.Embedding(5, 4, sparse=True).double()
    got = clipped_sum(model, squares, (torch.tensor([[0, 1], [2, 2]]),), 1.0, method="looped")
    assert got.gradients["weight"].shape == (5, 4)


class Gate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.layer = nn.Parameter(torch.tensor(0.5)), nn.Linear(4, 2).to(torch.float16)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x * self.gate).float()


def test_a_number_in_single_precision_does_not_widen_half_precision() -> None:
    assert clipped_sum(Gate(), squares, (torch.randn(4, 4).half(),), 1.0, method="tape").method == "tape"


class OnlyBias(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(4))

    def forward(self, x: Tensor) -> Tensor:
        x = x * 1
        hidden = nn.functional.linear(x, torch.eye(4, dtype=x.dtype), self.bias)
        return hidden * x.add_(1)


def test_a_bias_alone_does_not_need_the_input() -> None:
    assert clipped_sum(OnlyBias().double(), squares, vectors(), 1.0).norms.shape == (4,)


def test_a_loss_that_broadcasts_stays_on_the_tape() -> None:
    model, x = nn.Linear(4, 2).double(), torch.randn(5, 4, dtype=torch.float64)

    def mean_squares(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.mse_loss(model(x), y, reduction="none").mean(1)

    batch = x, torch.randn(5, 2, dtype=torch.float64)
    tape, loop = (clipped_sum(model, mean_squares, batch, 1.0, method=method) for method in ("tape", "looped"))
    assert torch.allclose(tape.gradients["weight"], loop.gradients["weight"], rtol=1e-9)


class Shared(nn.Module):
    """The same input meets one weight by `@` and another by a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Parameter(torch.randn(4, 3)), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.first).tanh() + self.second(x)


@pytest.mark.parametrize("places", [(), (6,)], ids=["vectors", "sequences"])
def test_an_input_that_two_weights_share_stays_as_it_is(places: tuple[int, ...]) -> None:
    torch.manual_seed(2)
    model, x = Shared().double(), torch.randn(5, *places, 4, dtype=torch.float64)
    before = x.clone()
    for _ in range(3):  # from the second on, the batch is no longer copied
        tape = clipped_sum(model, squares, (x,), 0.1, method="tape")
    assert torch.equal(x, before)
    loop = clipped_sum(model, squares, (x,), 0.1, method="looped")
    for name, value in loop.gradients.items():
        assert torch.allclose(tape.gradients[name], value, rtol=1e-9, atol=1e-12), name
