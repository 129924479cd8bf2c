"""Gradients read off torch's graph: equal to the loop's where the graph is plain, and refused wherever it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from gradient_models import BATCH, BY_NAME, CLASSES, WIDTH, ZOO, Example, cross_entropy
from naive_loop import assert_equal, middle, naive
from torch import Tensor, nn

from hush.errors import HushError
from hush.gradients import clipped_sum, correlation, graph
from hush.gradients.correlation import Settings


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: value for name, value in model.named_parameters() if value.requires_grad}


def reads(model: nn.Module, loss_fn: Any, batch: Any) -> bool:
    """Return whether the graph can be read."""
    try:
        graph.uses(model, trainable(model), loss_fn, batch)
    except graph.Unreadable:
        return False
    return True


@pytest.mark.parametrize("example", ZOO, ids=lambda example: example.name)
def test_a_second_batch_is_served_as_well_as_the_first(example: Example) -> None:
    model = example.model()
    for count in (BATCH, BATCH + 3, BATCH - 2):
        batch = example.batch(count)
        truth = naive(model, cross_entropy, batch)
        got = clipped_sum(model, cross_entropy, batch, middle(truth), method="tape")
        assert_equal(got, truth.clipped(middle(truth)), truth.norms)


def test_plain_networks_are_read_and_others_are_not() -> None:
    def is_read(example: Example) -> bool:
        model, batch = example.model(), example.batch()
        clipped_sum(model, cross_entropy, batch, 1.0, method="tape")
        return graph.may_serve(model, cross_entropy) and reads(model, cross_entropy, batch)

    read = {example.name for example in ZOO if is_read(example)}
    assert {"mlp", "keyword calls"} <= read
    assert not read & {name for name in BY_NAME if "norm" in name or "attention" in name or "dropout" in name}


KINDS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear layers": (
        lambda: nn.Sequential(nn.Linear(WIDTH, 9), nn.Tanh(), nn.Linear(9, CLASSES, bias=False)),
        (WIDTH,),
    ),
    "more inputs than outputs": (
        lambda: nn.Sequential(nn.Linear(WIDTH, 4), nn.ReLU(), nn.Linear(4, CLASSES)),
        (WIDTH,),
    ),
    "flattened": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(24, CLASSES)), (2, 3, 4)),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(4, 5, 2, bias=False),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(20, CLASSES),
        ),
        (3, 5, 5),
    ),
    "groups and dilation": (
        lambda: nn.Sequential(
            nn.Conv1d(4, 6, 3, groups=2, dilation=2), nn.SiLU(), nn.Flatten(), nn.Linear(18, CLASSES)
        ),
        (4, 7),
    ),
    "a shared weight": (lambda: Twice(), (WIDTH,)),
}


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.inner(torch.tanh(self.inner(x)))))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_read_is_what_the_loop_gives(kind: str, dtype: torch.dtype) -> None:
    make, shape = KINDS[kind]
    model = make().to(dtype)
    for count in (6, 40):
        batch = torch.randn(count, *shape, dtype=dtype), torch.randint(CLASSES, (count,))
        truth = naive(model, cross_entropy, batch)
        clipped_sum(model, cross_entropy, batch, 1.0, method="tape")
        assert graph.may_serve(model, cross_entropy)
        got = clipped_sum(model, cross_entropy, batch, middle(truth), method="tape")
        assert graph.may_serve(model, cross_entropy)
        torch.testing.assert_close(got.norms, truth.norms.to(dtype), rtol=1e-4, atol=1e-5)
        for name, value in truth.clipped(middle(truth)).items():
            torch.testing.assert_close(got.gradients[name], value.to(dtype), rtol=1e-3, atol=1e-5)


class Changing(nn.Module):
    """A plain network until `then` is set: what a model that changes its mind may do to examples."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, 8), nn.Linear(8, width)
        self.then: Callable[[Changing, Tensor], Tensor] | None = None

    def plain(self, x: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(x)))

    def forward(self, x: Tensor) -> Tensor:
        return self.plain(x) if self.then is None else self.then(self, x)


def whitened(x: Tensor) -> Tensor:
    return x.sub_(x.mean(0))


def quietly(h: Tensor) -> Tensor:
    with torch.no_grad():
        h /= h.norm()
    return h


def by_data(h: Tensor) -> Tensor:
    h.data = h.data - h.data.mean(0)
    return h


def detached(h: Tensor) -> Tensor:
    part = h.detach()
    part -= part.mean(0)
    return h


def by_numpy(h: Tensor) -> Tensor:
    h.detach().numpy()[:] += 1.0
    return h


N = 6  # as many examples as columns: no size tells one from the other
CHANGES: dict[str, Callable[[Changing, Tensor], Tensor]] = {
    "the order of the rows": lambda model, x: model.plain(x.flip(0)),
    "some rows": lambda model, x: model.plain(x[[1, 0, 2, 3, 4, 5]]),
    "rows for columns": lambda model, x: model.plain(x.t()),
    "columns of the result": lambda model, x: model.plain(x).t(),
    "the mean of the batch": lambda model, x: model.plain(x - x.mean(0)),
    "the mean, in place": lambda model, x: model.plain(whitened(x)),
    "a constant of the batch": lambda model, x: model.plain(x) + x.mean(),
    "a bias of the batch": lambda model, x: torch.addmm(x.mean(0), torch.tanh(model.first(x)), model.second.weight.t()),
    "a factor of the batch": lambda model, x: model.plain(x) * x.norm(),
    "the other rows": lambda model, x: model.plain(x) @ x,
    "softmax over the rows": lambda model, x: model.plain(x).log_softmax(0),
    "rows cut in two": lambda model, x: model.plain(x.reshape(2, 3, N).reshape(3, 2, N).reshape(N, N).flip(1).t()),
    "a view with other rows": lambda model, x: model.second(model.first(x).view(12, 4).t().reshape(N, 8)),
    "more rows, and as many again": lambda model, x: model.second(model.first(x).view(12, 4).view(N, 8)),
    "a weight of nobody": lambda model, x: F.linear(model.first(x), x.new_ones(N, 8, requires_grad=True)),
    "a frozen weight": lambda model, x: F.linear(torch.tanh(model.first(x)), model.second.weight.detach(), x.mean(0)),
    "a result, without a node": lambda model, x: model.second(torch.tanh(quietly(model.first(x)))),
    "a result, by its data": lambda model, x: model.second(torch.tanh(by_data(model.first(x)))),
    "a result, detached": lambda model, x: model.second(torch.tanh(detached(model.first(x)))),
    "a result, by numpy": lambda model, x: model.second(torch.tanh(by_numpy(model.first(x)))),
    "a scaled product": lambda model, x: torch.addmm(
        model.second.bias, model.first(x), model.second.weight.t(), alpha=2
    ),
    "a bias for each row": lambda model, x: torch.addmm(
        model.first.weight[:N, :N], model.first(x), model.second.weight.t()
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_model_that_changes_is_not_read(change: str) -> None:
    model, batch = Changing(N).double(), (torch.randn(N, N, dtype=torch.float64), torch.arange(N))
    clipped_sum(model, cross_entropy, batch, 1.0, method="tape")
    assert reads(model, cross_entropy, batch)
    model.then = CHANGES[change]
    assert not reads(model, cross_entropy, tuple(tensor.clone() for tensor in batch))
    assert not graph.may_serve(model, cross_entropy)


LOSSES: dict[str, Callable[[nn.Module, Tensor, Tensor], Tensor]] = {
    "labels of others": lambda model, x, y: F.cross_entropy(model(x), y.flip(0), reduction="none"),
    "weights of the batch": lambda model, x, y: F.cross_entropy(model(x), y, weight=x.mean(0), reduction="none"),
    "smoothed": lambda model, x, y: F.cross_entropy(model(x), y, label_smoothing=0.1, reduction="none"),
    "a penalty": lambda model, x, y: cross_entropy(model, x, y) + model.first.weight.square().sum(),  # type: ignore[union-attr, operator]
    "shared by all": lambda model, x, y: cross_entropy(model, x, y).mean().expand(len(y)),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_that_changes_is_not_read(loss: str) -> None:
    model, batch = Changing(N).double(), (torch.randn(N, N, dtype=torch.float64), torch.arange(N))
    clipped_sum(model, cross_entropy, batch, 1.0, method="tape")
    assert not reads(model, LOSSES[loss], batch)


def test_a_model_that_is_read_no_more_is_still_served() -> None:
    model, batch = Changing(N).double(), (torch.randn(N, N, dtype=torch.float64), torch.arange(N))
    clipped_sum(model, cross_entropy, batch, 1.0)
    model.then = lambda model, x: model.plain(x / x.norm(dim=1, keepdim=True))
    truth = naive(model, cross_entropy, batch)
    assert_equal(clipped_sum(model, cross_entropy, batch, middle(truth)), truth.clipped(middle(truth)), truth.norms)
    model.then = CHANGES["the order of the rows"]
    with pytest.raises(HushError, match=r"no rule|followed"):
        clipped_sum(model, cross_entropy, batch, 1.0, method="tape")


def test_frozen_parameters_and_half_precision_are_left_to_the_tape() -> None:
    model, batch = Changing(N), (torch.randn(N, N), torch.arange(N))
    clipped_sum(model, cross_entropy, batch, 1.0, method="tape")
    model.first.weight.requires_grad_(False)
    assert not reads(model, cross_entropy, batch)
    half = Changing(N).bfloat16()
    assert not reads(half, cross_entropy, (batch[0].bfloat16(), batch[1]))


def test_a_forward_hook_that_mixes_examples_later_is_refused() -> None:
    model, batch = Changing(N).double(), (torch.randn(N, N, dtype=torch.float64), torch.arange(N))
    clipped_sum(model, cross_entropy, batch, 1.0, method="tape")
    model.first.register_forward_hook(lambda module, args, result: quietly(result))
    with pytest.raises(HushError, match=r"no rule|order"):
        clipped_sum(model, cross_entropy, batch, 1.0, method="tape")


def test_losses_that_pass_through_no_axis_are_left_to_the_tape() -> None:
    model, x = nn.Sequential(nn.Linear(5, 1), nn.Softplus()), torch.randn(1, 5)

    def loss(model: nn.Module, x: Tensor) -> Tensor:
        return model(x).reshape(()).reshape(1)

    first, second = (clipped_sum(model, loss, (x,), 1.0, method="tape") for _ in range(2))
    torch.testing.assert_close(first.norms, second.norms)


@pytest.mark.parametrize("way", ["windows", "grouped", "pairs"])
def test_a_convolutions_use_is_made_once_a_batch(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    settings = Settings.plain((8, 4, 3, 3), (1, 1), (1, 1), (1, 1), 1, False, (0, 0))
    real = correlation._ways(torch.Size((4, 5, 5)), torch.Size((8, 5, 5)), settings)[way]

    def counted(*given: Any) -> Any:
        made.append(way)
        return real(*given)

    monkeypatch.setattr(correlation, "_ways", lambda *shapes: {way: counted})
    model = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(200, 3))
    for turn in range(4):
        made.clear()
        clipped_sum(model, cross_entropy, (torch.randn(6, 4, 5, 5), torch.randint(3, (6,))), 1.0, method="tape")
        assert graph.may_serve(model, cross_entropy), turn
        assert made == [way] * (2 if turn == 1 else 1)  # the first reading is compared with the tape
