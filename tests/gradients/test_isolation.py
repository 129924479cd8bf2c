"""Examples that mix are found, and the layer is named; the model stays as it was."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hush.errors import InvalidValue, NoRule, NotIsolated, Unreachable
from hush.gradients import check_isolation, clipped_sum, physical_batch_size_for
from hush.gradients.clipped import clipped_sum_and_rows
from hush.gradients.memory import peak_bytes


def cross_entropy(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y, reduction="none")


def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(8, 12, generator=generator), torch.randint(0, 3, (8,), generator=generator)


class Centred(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x - x.mean(0))


class Learning(nn.Module):
    """Its buffer keeps what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(12, 3)
        self.register_buffer("seen", torch.zeros(12))

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add_(x.detach().mean(0))
        return self.layer(x)


def normalised(**options: Any) -> nn.Module:
    return nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8, **options), nn.Linear(8, 3))


def frozen() -> nn.Module:
    model = normalised()
    model[1].requires_grad_(False)
    return model


MIXING: list[tuple[str, Callable[[], nn.Module], str]] = [
    ("batch norm", normalised, r"1 \(BatchNorm1d\).*GroupNorm"),
    ("batch norm without parameters", lambda: normalised(affine=False, track_running_stats=False), "BatchNorm1d"),
    ("frozen batch norm in training mode", frozen, "BatchNorm1d"),
    ("centred over the batch", Centred, r"calls layer \(Linear\)"),
    ("a buffer that learns", Learning, "buffer seen"),
]


@pytest.mark.parametrize(("make", "words"), [row[1:] for row in MIXING], ids=[row[0] for row in MIXING])
def test_mixing_is_refused_by_name(make: Callable[[], nn.Module], words: str) -> None:
    model = make()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(NotIsolated, match=words):
        check_isolation(model, cross_entropy, batch())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    "model",
    [nn.Sequential(nn.Linear(12, 8), nn.Dropout(0.5), nn.Linear(8, 3)), normalised().eval()],
    ids=["dropout", "batch norm in eval mode"],
)
def test_what_does_not_mix_passes(model: nn.Module) -> None:
    state = torch.random.get_rng_state()
    check_isolation(model, cross_entropy, batch())
    assert torch.equal(state, torch.random.get_rng_state())


def token_mean(model: nn.Module, index: Tensor, mask: Tensor) -> Tensor:
    losses = F.cross_entropy(model(index).transpose(1, 2), index, reduction="none") * mask
    return losses.sum(1) / mask.sum() * len(index)


def own_token_mean(model: nn.Module, index: Tensor, mask: Tensor) -> Tensor:
    losses = F.cross_entropy(model(index).transpose(1, 2), index, reduction="none") * mask
    return losses.sum(1) / mask.sum(1).clamp(min=1)


def test_a_mean_over_the_tokens_of_the_batch_is_refused() -> None:
    model = nn.Sequential(nn.Embedding(20, 6), nn.Linear(6, 20))
    tokens = torch.randint(0, 20, (8, 6)), torch.ones(8, 6, dtype=torch.long)
    with pytest.raises(NotIsolated, match="loss_fn"):
        check_isolation(model, token_mean, tokens)
    check_isolation(model, own_token_mean, tokens)


def test_mixing_through_labels_alone_is_refused() -> None:
    def weighted(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(model(x), y, reduction="none") / (y > 0).sum()

    with pytest.raises(NotIsolated, match="loss_fn"):
        check_isolation(nn.Linear(12, 3), weighted, batch())


class Spread(torch.autograd.Function):
    """The identity; on the way back every row gets the mean over the rows."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0].mean(0).expand_as(gradients[0])


class Scaled(torch.autograd.Function):
    """The identity; on the way back every row is multiplied by the first one's size."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] * ctx.saved_tensors[0][0].norm()


def straight_through(x: Tensor) -> Tensor:
    """The values of x, to the last bit, with the gradient of x plus its mean over the batch."""
    mean = x.mean(0)
    return x + (mean - mean.detach())


class OnlyBackward(nn.Module):
    """Its results are those of single examples, to the last bit."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.last, self.function = nn.Linear(12, 8), nn.Linear(8, 3), function

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.function(self.first(x))))


@pytest.mark.parametrize("method", ["auto", "looped"])
@pytest.mark.parametrize("function", [Spread.apply, Scaled.apply, straight_through],
                         ids=["mean of rows", "another row's size", "straight through"])  # fmt: skip
def test_mixing_on_the_way_back_alone_is_refused(function: Callable[[Tensor], Tensor], method: str) -> None:
    model, (x, y) = OnlyBackward(function), batch()
    other = x.clone()
    other[0] += 1
    assert torch.equal(cross_entropy(model, x, y)[1:], cross_entropy(model, other, y)[1:])  # nothing shows in losses
    with pytest.raises(NotIsolated, match="lets one example change"):
        check_isolation(model, cross_entropy, (x, y), method=method)
    check_isolation(OnlyBackward(torch.clone), cross_entropy, (x, y), method=method)


def by_all_rows(x: Tensor) -> Tensor:
    """The values of x; the gradient is divided by its norm over all rows that were asked for at once."""
    x = x.clone()
    x.register_hook(lambda gradient: gradient / gradient.norm())
    return x


def test_norms_that_are_not_those_of_single_examples_are_refused() -> None:
    """A backward pass in Python is not followed by the tape, and sees one example at a time by the loop."""
    model = OnlyBackward(by_all_rows)
    with pytest.raises(NoRule, match="a backward pass of its own"):
        check_isolation(model, cross_entropy, batch(), method="tape")
    check_isolation(model, cross_entropy, batch(), method="looped")


@pytest.mark.parametrize("row", [1, 2])
def test_one_gradient_that_is_off_is_seen(monkeypatch: pytest.MonkeyPatch, row: int) -> None:
    def check(factor: float) -> None:
        def off(*args: Any, rows: Any, **options: Any) -> Any:
            total, found = clipped_sum_and_rows(*args, rows=rows, **options)
            return total, [
                {name: value * factor if at == row else value for name, value in gradient.items()}
                for at, gradient in zip(rows, found, strict=True)
            ]

        monkeypatch.setattr("hush.gradients.isolation.clipped_sum_and_rows", off)
        check_isolation(nn.Linear(12, 3), cross_entropy, batch())

    check(1.0)
    for factor in (0.99, 1.01):
        with pytest.raises(NotIsolated, match="is not its gradient alone"):
            check(factor)


@pytest.mark.parametrize("limit", [2 * 10**6, 10**7, 10**8])
@pytest.mark.parametrize("inside", [12, 60, 1000])
def test_a_physical_batch_fits_where_gradients_are_large(inside: int, limit: int) -> None:
    """Of few examples the gradients take most of the memory, which tells nothing of many."""
    model = nn.Sequential(nn.Linear(inside, 1000 if inside < 100 else 30), nn.ReLU(), nn.LazyLinear(10))
    few = torch.randn(8, inside), torch.randint(10, (8,))
    model(few[0])
    size = physical_batch_size_for(model, cross_entropy, few, 1.0, memory_limit=limit)
    piece = tuple(tensor[torch.arange(size) % 8] for tensor in few)
    used = peak_bytes(lambda: clipped_sum(model, cross_entropy, piece, 1.0, physical_batch_size=size))
    assert 0.6 * limit < used <= limit


def test_one_example_cannot_be_checked() -> None:
    x, y = batch()
    with pytest.raises(InvalidValue, match="at least 2"):
        check_isolation(nn.Linear(12, 3), cross_entropy, (x[:1], y[:1]))


def test_memory_is_counted_and_a_physical_batch_is_found() -> None:
    model = nn.Sequential(nn.Linear(12, 800), nn.Tanh(), nn.Linear(800, 3))
    assert peak_bytes(lambda: torch.ones(1000, dtype=torch.float64)) == 8000
    size = physical_batch_size_for(model, cross_entropy, batch(), 1.0, memory_limit=10**7)
    index = torch.arange(size) % 8
    piece = tuple(tensor[index] for tensor in batch())
    used = peak_bytes(lambda: clipped_sum(model, cross_entropy, piece, 1.0))
    assert 0.6 * 10**7 < used <= 10**7
    with pytest.raises(Unreachable, match="over the limit"):
        physical_batch_size_for(model, cross_entropy, batch(), 1.0, memory_limit=1000)


def test_nothing_stays_alive_after_a_gradient() -> None:
    model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 3))
    clipped_sum(model, cross_entropy, batch(), 1.0)

    gc.collect()
    gc.disable()
    try:
        before = sum(type(value) is Tensor for value in gc.get_objects())
        for _ in range(5):
            clipped_sum(model, cross_entropy, batch(), 1.0, method="tape")
        assert sum(type(value) is Tensor for value in gc.get_objects()) <= before + 2
    finally:
        gc.enable()
