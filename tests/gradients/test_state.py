"""What `clipped_sum` itself refuses or computes apart, without any spot check behind it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.gradients.naive_loop import naive, relative_error
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from hush.errors import NoRule, NotIsolated
from hush.gradients import clipped_sum
from hush.training import TrainingPlan


def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y, reduction="none")


def batch(rows: int = 8) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(rows, 6, generator=generator), torch.randint(0, 3, (rows,), generator=generator)


class Own(nn.Module):
    """A linear layer whose input goes through a function."""

    def __init__(self, function: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self._function = nn.Linear(6, 3), function
        self.register_buffer("kept", torch.zeros(6))
        self.number: Any = 0.0

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self._function(self, x))


def into_buffer(model: Any, x: Tensor) -> Tensor:
    with torch._C.DisableTorchFunction():  # as compiled code does: no mode sees it
        model.kept.copy_(x.detach().mean(0))
    return x


def buffer_replaced(model: Any, x: Tensor) -> Tensor:
    model.kept = x.detach()[0].clone()
    return x


def into_weights(model: Any, x: Tensor) -> Tensor:
    model.layer.bias.data.add_(x.detach().sum() * 1e-3)
    return x


def into_attribute(model: Any, x: Tensor) -> Tensor:
    with torch._C.DisableTorchFunction():
        model.number = float(x.detach().sum())
    return x


def raw_gradient(model: Any, x: Tensor) -> Tensor:
    with torch._C.DisableTorchFunction():
        model.layer.weight.grad = x.detach()[:3].clone()
    return x


@pytest.mark.parametrize("method", ["tape", "vectorized", "looped"])
@pytest.mark.parametrize("write", [into_buffer, buffer_replaced, into_weights, into_attribute, raw_gradient])
def test_a_pass_that_keeps_something_of_the_batch_is_refused_and_undone(write: Any, method: Any) -> None:
    model = Own(write)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    is_undone = write is buffer_replaced and method == "vectorized"  # by torch, which puts its own buffers back
    with nullcontext() if is_undone else pytest.raises((NotIsolated, RuntimeError)):  # vmap refuses some of it
        clipped_sum(model, loss_fn, batch(), 1.0, method=method)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.number == 0.0
    assert model.layer.weight.grad is None


def test_an_embedding_that_rewrites_its_rows_is_refused() -> None:
    model = nn.Sequential(nn.Embedding(5, 6, max_norm=0.1), nn.Flatten(), nn.Linear(12, 3))
    before = model[0].weight.detach().clone()
    with pytest.raises(NotIsolated, match="max_norm"):
        clipped_sum(model, loss_fn, (torch.randint(0, 5, (8, 2)), batch()[1]), 1.0)
    assert torch.equal(model[0].weight, before)


def centred(x: Tensor) -> Tensor:
    return x - x.mean(0)


class ByAll(torch.autograd.Function):
    """The identity, whose gradient is divided by that of all rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] / gradients[0].norm()


def item(x: Tensor) -> Tensor:
    return x * x.abs().mean().item()


def round_trip(x: Tensor) -> Tensor:
    return x + torch.tensor(x.mean(0).tolist())


def own_backward(x: Tensor) -> Tensor:
    return x + ByAll.apply(x)  # type: ignore[no-untyped-call]


def hidden(x: Tensor) -> Tensor:
    return x + torch.jit.script(centred)(x)  # type: ignore[no-any-return]


def ranks(x: Tensor) -> Tensor:
    return x * x.argsort(0).argsort(0)


def view_multiplied(x: Tensor) -> Tensor:
    x = x.clone()
    x[:-1].mul_(x[-1:].clone())
    return x


def view_assigned(x: Tensor) -> Tensor:
    x = x.clone()
    x[:-1][:] = x[1:].clone()
    return x


def row_added(x: Tensor) -> Tensor:
    x = x.clone()
    x[0].add_(x[1].clone())
    return x


def rows_summed(x: Tensor) -> Tensor:
    x = x.clone()
    x[:-1].cumsum_(0)
    return x


@pytest.mark.filterwarnings("ignore:.*jit")
@pytest.mark.parametrize("is_first", [False, True], ids=["behind the layer", "before the layer"])
@pytest.mark.parametrize(
    "mix", [item, round_trip, own_backward, hidden, ranks, view_multiplied, view_assigned, row_added, rows_summed]
)
def test_the_tape_does_not_follow_what_mixes(mix: Callable[[Tensor], Tensor], is_first: bool) -> None:
    class Mixed(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(mix(x)) if is_first else mix(super().forward(x))

    if mix is not own_backward or not is_first:  # the gradient of an input that is no parameter is not asked for
        with pytest.raises(NoRule):
            clipped_sum(Mixed(6, 3), loss_fn, batch(), 1.0, method="tape")


def mixed_losses(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    losses = loss_fn(model, x, y)
    return losses * losses.detach().argsort()


def test_a_loss_whose_batch_axis_is_not_proven_is_not_used() -> None:
    with pytest.raises(NoRule, match="told apart after argsort"):
        clipped_sum(nn.Linear(6, 3), mixed_losses, batch(), 1.0, method="tape")


def halved(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    losses = loss_fn(model, x, y)
    return losses * 0.5 if bool((x[:, 0] > 0).all()) else losses


def test_rows_that_answer_a_question_differently_are_computed_apart() -> None:
    model, given = nn.Linear(6, 3), batch()
    given[0][0, 0], given[0][1, 0] = 1.0, -1.0
    truth = naive(model, halved, given)
    assert (
        relative_error(clipped_sum(model, halved, given, 100.0, method="tape").gradients, truth.clipped(100.0)) < 1e-5
    )


def test_full_batches_are_copies_of_the_data_set() -> None:
    rows = torch.randn(12, 3)
    plan = TrainingPlan(
        noise_multiplier=1.0,
        sampling_prob=1.0,
        sampling="full_batch",
        expected_batch_size=12,
        steps=1,
        clip_norm=1.0,
        delta=1e-5,
    )
    before = rows.clone()
    for (x,) in plan.batches(TensorDataset(rows)):
        x.zero_()
    assert torch.equal(rows, before)


HIDDEN: dict[str, Callable[[Tensor], Any]] = {
    "size of a selection": lambda x: x[x > 3].shape[0],
    "length of nonzero": lambda x: len(torch.nonzero(x > 3)),
    "bound of a slice": lambda x: torch.ones(99)[: (x > 3).sum()].sum(),
    "parameter of a part": lambda x: nn.Parameter((x > 3).sum().float(), requires_grad=False),
    "legacy constructor": lambda x: torch.Tensor((x > 3).float()).max(),
    "deque": lambda x: torch.tensor(deque([(x > 3).sum()])).sum(),
    "set_": lambda x: torch.empty(0).set_((x > 3).float()).max(),
    "vmap inside": lambda x: torch.func.vmap(lambda column: (column > 3).any(), in_dims=1)(x).max(),
}


@pytest.mark.filterwarnings("ignore:.*is not served by")
@pytest.mark.parametrize("name", HIDDEN)
def test_one_rare_example_turns_no_other_over(name: str) -> None:
    def turned(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return loss_fn(model, x, y) * (1 - 2 * HIDDEN[name](x))

    model, (x, y) = nn.Linear(6, 3), batch(12)
    x = x.clamp(-2, 2)
    without = clipped_sum(model, turned, (x, y), 0.1).gradients
    rows = torch.cat([x, torch.full((1, 6), 5.0)]), torch.cat([y, y[:1]])
    found = clipped_sum(model, turned, rows, 0.1).gradients
    moved = sum(float((found[key] - without[key]).square().sum()) for key in found) ** 0.5
    assert moved <= 0.1 * 1.001


def submodule(model: Any, x: Tensor) -> Tensor:
    model.stats = nn.Module()
    model.stats.register_buffer("mean", x.detach().mean(0))
    return x


def note_on_weight(model: Any, x: Tensor) -> Tensor:
    model.layer.weight.seen = x.detach().mean(0)
    return x


def state_dict_hook(model: Any, x: Tensor) -> Tensor:
    kept = x.detach().mean(0)
    model._register_state_dict_hook(lambda *_: kept)
    return x


def escaped(model: Any, x: Tensor) -> Tensor:
    """Keep a row as vmap shows it, which has no values outside."""

    def one(row: Tensor) -> Tensor:
        model.number = row
        return row

    return torch.func.vmap(one)(x)


@pytest.mark.filterwarnings("ignore:.* is not served by")
@pytest.mark.parametrize("method", ["auto", "looped"])
def test_a_tensor_that_escapes_from_a_transformation_is_refused(method: Any) -> None:
    model = Own(escaped)
    for _ in range(2):  # what one pass left must not confuse the next
        with pytest.raises(NotIsolated, match="number"):
            clipped_sum(model, loss_fn, batch(), 1.0, method=method)


@pytest.mark.parametrize("rows", [2, 7])
@pytest.mark.parametrize("method", ["tape", "looped"])
def test_a_count_of_calls_does_not_tell_how_many_examples_there_were(method: Any, rows: int) -> None:
    def counted(model: Any, x: Tensor) -> Tensor:
        model.number += 1
        return x

    model = Own(counted)
    clipped_sum(model, loss_fn, batch(rows), 1.0, method=method)
    assert model.number == 1


@pytest.mark.parametrize("write", [submodule, note_on_weight, state_dict_hook])
def test_a_pass_that_keeps_something_beside_the_tables_is_refused(write: Any) -> None:
    model = Own(write)
    with pytest.raises(NotIsolated):
        clipped_sum(model, loss_fn, batch(), 1.0, method="tape")
    assert set(model.state_dict()) == {"layer.weight", "layer.bias", "kept"}
    assert not hasattr(model.layer.weight, "seen")
