"""What every method of private gradients promises, on every model of the zoo, against a naive loop written here."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from gradient_models import (
    BATCH,
    BY_NAME,
    CLASSES,
    FEW,
    TOKENS,
    WIDTH,
    WORDS,
    ZOO,
    Example,
    Language,
    Reused,
    cross_entropy,
    mlp,
)
from naive_loop import METHODS, TIGHT, Naive, assert_equal, middle, naive, relative_error
from torch import Tensor, nn

from hush.errors import InvalidValue
from hush.gradients import ClippedSum, clipped_sum, physical_batch_size_for

pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")  # said by vmap

GROUPS = torch.tensor([5, 1, 5, 2, 1, 5])


def names(example: Example) -> str:
    return example.name


def serves(example: Example, method: str) -> bool:
    return method != "vectorized" or example.vectorized


PAIRS = [pytest.param(example, method, id=f"{example.name}, {method}")
         for example in ZOO for method in METHODS if serves(example, method)]  # fmt: skip


# Equal to the loop ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("example", "method"), PAIRS)
def test_gradients_and_norms_are_those_of_the_loop(example: Example, method: str) -> None:
    model, batch = example.model(), example.batch()
    truth = naive(model, cross_entropy, batch)
    got = clipped_sum(model, cross_entropy, batch, middle(truth), method=method)
    assert got.method == method
    assert_equal(got, truth.clipped(middle(truth)), truth.norms)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("example", ZOO, ids=names)
def test_small_batches_on_the_tape(example: Example, count: int) -> None:
    model, batch = example.model(), example.batch(count)
    truth = naive(model, cross_entropy, batch)
    got = clipped_sum(model, cross_entropy, batch, middle(truth), method="tape")
    assert_equal(got, truth.clipped(middle(truth)), truth.norms)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "example",
    [pytest.param(e, id=e.name) for e in FEW],
)
def test_groups_are_added_before_they_are_clipped(example: Example, method: str) -> None:
    model, batch = example.model(), example.batch()
    truth = naive(model, cross_entropy, batch).grouped(GROUPS)
    got = clipped_sum(model, cross_entropy, batch, middle(truth), method=method, groups=GROUPS)
    assert_equal(got, truth.clipped(middle(truth)), truth.norms)


@pytest.mark.parametrize("size", [1, 2, 4, 6, 100])
@pytest.mark.parametrize("groups", [None, GROUPS], ids=["examples", "groups"])
@pytest.mark.parametrize("method", METHODS)
def test_physical_batches_change_nothing(method: str, groups: Tensor | None, size: int) -> None:
    example = BY_NAME["Embedding, tied"]
    model, batch = example.model(), example.batch()
    truth = naive(model, cross_entropy, batch)
    truth = truth if groups is None else truth.grouped(groups)
    got = clipped_sum(
        model, cross_entropy, batch, middle(truth), method=method, groups=groups, physical_batch_size=size
    )
    assert_equal(got, truth.clipped(middle(truth)), truth.norms)


def test_a_physical_batch_is_found_from_a_memory_limit() -> None:
    model, batch = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10)), (torch.randn(8, 64),)

    def loss(model: nn.Module, x: Tensor) -> Tensor:
        return model(x).square().sum(1)

    sizes = [physical_batch_size_for(model, loss, batch, 1.0, memory_limit=limit) for limit in (2_000_000, 20_000_000)]
    assert 1 <= sizes[0] < sizes[1]


# Clipping ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("example", FEW, ids=names)
def test_the_factor_is_exactly_clip_norm_over_norm(example: Example, method: str) -> None:
    """One example alone: its clipped gradient has norm clip_norm, or is the gradient itself."""
    model, batch = example.model(), example.batch(1)
    truth = naive(model, cross_entropy, batch)
    norm = float(truth.norms[0])
    for clip_norm in (norm / 3, norm * 0.9999, norm * 1.0001, norm * 10):
        got = clipped_sum(model, cross_entropy, batch, clip_norm, method=method)
        size = math.sqrt(sum(float(value.square().sum()) for value in got.gradients.values()))
        assert size == pytest.approx(min(norm, clip_norm), rel=1e-12)
        assert_equal(got, truth.clipped(clip_norm), truth.norms, 1e-12)


def layer_of(name: str) -> str:
    return name.rpartition(".")[0]


@pytest.mark.parametrize("method", METHODS)
def test_per_layer_gives_each_layer_its_share(method: str) -> None:
    example, clip_norm = BY_NAME["mlp"], 0.3
    model, batch = example.model(), example.batch()
    truth = naive(model, cross_entropy, batch)
    layers = sorted({layer_of(name) for name in truth.rows})
    expected = {}
    for layer in layers:
        part = Naive({name: row for name, row in truth.rows.items() if layer_of(name) == layer})
        expected.update(part.clipped(clip_norm / math.sqrt(len(layers))))
    got = clipped_sum(model, cross_entropy, batch, clip_norm, method=method, clipping="per_layer")
    assert_equal(got, {name: expected[name] for name in truth.rows}, truth.norms)


@pytest.mark.parametrize("method", METHODS)
def test_automatic_is_clip_norm_over_norm_and_a_little(method: str) -> None:
    example = BY_NAME["mlp"]
    model, batch = example.model(), example.batch()
    truth = naive(model, cross_entropy, batch)
    got = clipped_sum(model, cross_entropy, batch, 0.7, method=method, clipping="automatic")
    assert_equal(got, truth.weighted(0.7 / (truth.norms + 0.01)), truth.norms)


@pytest.mark.parametrize("clipping", ["flat", "per_layer", "automatic"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("example", FEW, ids=names)
def test_no_example_gives_more_than_clip_norm(example: Example, method: str, clipping: str) -> None:
    model, batch = example.model(), example.batch()
    for index in range(3):
        one = tuple(value[index : index + 1] for value in batch)
        got = clipped_sum(model, cross_entropy, one, 0.05, method=method, clipping=clipping)
        size = math.sqrt(sum(float(value.square().sum()) for value in got.gradients.values()))
        assert 0.0 < size <= 0.05 * (1 + 1e-12)


@pytest.mark.parametrize("clipping", ["flat", "per_layer", "automatic"])
@pytest.mark.parametrize("method", METHODS)
def test_leaving_one_example_out_moves_the_sum_by_at_most_clip_norm(method: str, clipping: str) -> None:
    example = BY_NAME["Embedding, tied"]
    model, batch = example.model(), example.batch()
    whole = clipped_sum(model, cross_entropy, batch, 0.2, method=method, clipping=clipping).gradients
    for index in range(BATCH):
        rest = tuple(torch.cat([value[:index], value[index + 1 :]]) for value in batch)
        less = clipped_sum(model, cross_entropy, rest, 0.2, method=method, clipping=clipping).gradients
        moved = math.sqrt(sum(float((whole[name] - less[name]).square().sum()) for name in whole))
        assert moved <= 0.2 * (1 + 1e-9)


def test_methods_agree_on_the_share_of_a_layer_that_is_not_used() -> None:
    model, batch = BY_NAME["reused, unused and frozen"].model(), BY_NAME["mlp"].batch()
    found = [
        clipped_sum(model, cross_entropy, batch, 0.1, method=method, clipping="per_layer").gradients
        for method in ("tape", "looped")
    ]
    assert relative_error(*found) < TIGHT


# Edge cases ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["auto", *METHODS])
@pytest.mark.parametrize("groups", [None, torch.zeros(0, dtype=torch.long)], ids=["examples", "groups"])
def test_an_empty_batch_gives_zeros_for_every_trainable_parameter(method: str, groups: Tensor | None) -> None:
    model = Reused().double()
    batch = torch.zeros(0, WIDTH, dtype=torch.float64), torch.zeros(0, dtype=torch.long)
    got = clipped_sum(model, cross_entropy, batch, 1.0, method=method, groups=groups)
    trainable = {name: value for name, value in model.named_parameters() if value.requires_grad}
    assert list(got.gradients) == list(trainable)
    assert all(torch.equal(got.gradients[name], torch.zeros_like(value)) for name, value in trainable.items())
    assert got.norms.shape == (0,)
    assert got.nonfinite == 0


@pytest.mark.parametrize("method", METHODS)
def test_unused_parameters_get_zeros_and_frozen_ones_nothing(method: str) -> None:
    example = BY_NAME["reused, unused and frozen"]
    model, batch = example.model(), example.batch()
    got = clipped_sum(model, cross_entropy, batch, 1.0, method=method)
    assert not got.gradients["unused.weight"].any()
    assert not [name for name in got.gradients if name.startswith("frozen")]


@pytest.mark.parametrize(
    "method",
    ["tape", "vectorized", "looped"],
)
def test_a_model_of_which_nothing_is_used_gets_zeros(method: str) -> None:
    def constant(model: nn.Module, x: Tensor) -> Tensor:
        return x.sum(1) + 0 * model(x).detach().sum(1)

    got = clipped_sum(mlp().double(), constant, (torch.randn(4, WIDTH, dtype=torch.float64),), 1.0, method=method)
    assert not any(value.any() for value in got.gradients.values())
    assert torch.equal(got.norms, torch.zeros(4, dtype=got.norms.dtype))


def broken_batch() -> tuple[tuple[Tensor, Tensor], Tensor]:
    x, y = BY_NAME["mlp"].batch()
    x = x.clone()
    x[1, 3], x[4, 0] = math.nan, math.inf
    return (x, y), torch.tensor([0, 2, 3, 5])


def normalised() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(WIDTH, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, CLASSES)).double()


@pytest.mark.parametrize("clipping", ["flat", "per_layer", "automatic"])
@pytest.mark.parametrize("method", METHODS)
def test_examples_that_are_not_finite_count_as_zero_and_are_counted(method: str, clipping: str) -> None:
    model, (batch, good) = normalised(), broken_batch()
    got = clipped_sum(model, cross_entropy, batch, 0.3, method=method, clipping=clipping)
    alone = clipped_sum(model, cross_entropy, tuple(v[good] for v in batch), 0.3, method="looped", clipping=clipping)
    assert got.nonfinite == 2
    assert not torch.isfinite(got.norms[[1, 4]]).any()
    assert_equal(ClippedSum(got.gradients, got.norms[good], 0, method), alone.gradients, alone.norms)


@pytest.mark.parametrize("method", METHODS)
def test_a_group_with_one_broken_example_counts_as_zero(method: str) -> None:
    model, (batch, _) = normalised(), broken_batch()
    got = clipped_sum(model, cross_entropy, batch, 0.3, method=method, groups=GROUPS)  # only group 2 is whole: row 3
    alone = clipped_sum(model, cross_entropy, tuple(v[[0, 2, 3, 5]] for v in batch), 0.3, method="looped",
                        groups=GROUPS[[0, 2, 3, 5]])  # fmt: skip
    assert got.nonfinite == 1  # rows 1 and 4 are both of group 1
    assert relative_error(got.gradients, alone.gradients) < TIGHT


@pytest.mark.parametrize("method", METHODS)
def test_an_infinite_loss_is_counted_too(method: str) -> None:
    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(model, x, y) / (y != 0)

    model, batch = mlp().double(), BY_NAME["mlp"].batch()
    got = clipped_sum(model, loss, batch, 1.0, method=method)
    assert got.nonfinite == int((batch[1] == 0).sum()) > 0
    assert all(torch.isfinite(value).all() for value in got.gradients.values())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("wrong", ["mean", "tokens", "number", "whole"])
def test_losses_of_the_wrong_shape_are_refused(method: str, wrong: str) -> None:
    def loss(model: nn.Module, x: Tensor, y: Tensor) -> object:
        losses = cross_entropy(model, x, y)
        return {"mean": losses.mean(), "tokens": losses[:, None].expand(-1, 2), "number": 0.5,
                "whole": losses.long()}[wrong]  # fmt: skip

    with pytest.raises(InvalidValue, match="loss_fn must return"):
        clipped_sum(mlp().double(), loss, BY_NAME["mlp"].batch(), 1.0, method=method)  # type: ignore[arg-type]


@pytest.mark.parametrize("clip_norm", [0.0, -1.0, math.nan, math.inf])
def test_a_clip_norm_must_be_positive_and_finite(clip_norm: float) -> None:
    with pytest.raises(InvalidValue, match="clip_norm"):
        clipped_sum(mlp().double(), cross_entropy, BY_NAME["mlp"].batch(), clip_norm)


def test_a_model_without_trainable_parameters_is_refused() -> None:
    with pytest.raises(InvalidValue, match="no trainable parameter"):
        clipped_sum(mlp().double().requires_grad_(False), cross_entropy, BY_NAME["mlp"].batch(), 1.0)


@pytest.mark.parametrize("groups", [torch.zeros(5, dtype=torch.long), torch.zeros(6), [0] * 6])
def test_groups_must_be_one_whole_number_for_each_example(groups: object) -> None:
    with pytest.raises(InvalidValue, match="groups"):
        clipped_sum(mlp().double(), cross_entropy, BY_NAME["mlp"].batch(), 1.0, groups=groups)  # type: ignore[arg-type]


# Batches -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_batches_are_tuples_lists_mappings_or_a_tensor(method: str) -> None:
    model, (x, y) = mlp().double(), BY_NAME["mlp"].batch()
    expected = naive(model, cross_entropy, (x, y)).clipped(0.4)

    def named(model: nn.Module, *, pixels: Tensor, label: dict[str, Tensor], scale: float) -> Tensor:
        return scale * cross_entropy(model, pixels, label["digit"])

    def packed(model: nn.Module, both: Tensor) -> Tensor:
        return cross_entropy(model, both[:, :-1], both[:, -1].long())

    packed_batch = torch.cat([x, y[:, None].double()], 1)
    for loss, batch in [
        (cross_entropy, (x, y)),
        (cross_entropy, [x, y]),
        (named, {"pixels": x, "label": {"digit": y}, "scale": 1.0}),
        (packed, packed_batch),
    ]:
        assert relative_error(clipped_sum(model, loss, batch, 0.4, method=method).gradients, expected) < TIGHT


@contextmanager
def nothing_changes(model: nn.Module, batch: tuple[Tensor, ...]) -> Iterator[None]:
    for value in model.parameters():
        value.grad = torch.full_like(value, 0.25)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    flags = [(module.training) for module in model.modules()]
    learns = [value.requires_grad for value in model.parameters()]
    copies, generator = [value.clone() for value in batch], torch.is_grad_enabled()
    yield
    assert [module.training for module in model.modules()] == flags
    assert [value.requires_grad for value in model.parameters()] == learns
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert all(torch.equal(value.grad, torch.full_like(value, 0.25)) for value in model.parameters())
    assert all(torch.equal(value, copy) for value, copy in zip(batch, copies, strict=True))
    assert torch.is_grad_enabled() == generator
    assert not any(hook for value in model.parameters() for hook in (value._backward_hooks or {}))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


class Counting(nn.Module):
    """Writes into a buffer, and into its input."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))
        self.layer, self.rest = nn.Linear(WIDTH, CLASSES), nn.Dropout(0.0)
        self.rest.eval()

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add_(1.0)
        return self.layer(self.rest(x.mul_(2.0)))


@pytest.mark.parametrize("method", ["tape", "looped"])
def test_model_buffers_flags_gradients_and_batch_come_back_as_they_were(method: str) -> None:
    model, batch = Counting().double(), BY_NAME["mlp"].batch()
    doubled = naive(model, cross_entropy, batch)
    model.seen.zero_()
    for _ in range(2):
        with nothing_changes(model, batch), torch.no_grad():
            got = clipped_sum(model, cross_entropy, batch, 0.3, method=method)
        assert_equal(got, doubled.clipped(0.3), doubled.norms)


@pytest.mark.parametrize(("example", "method"), PAIRS[:: max(1, len(PAIRS) // 40)])
def test_the_zoo_comes_back_as_it_was(example: Example, method: str) -> None:
    model, batch = example.model(), example.batch()
    with nothing_changes(model, batch):
        clipped_sum(model, cross_entropy, batch, 0.3, method=method)


def test_what_comes_back_is_the_callers_own() -> None:
    """The result shares no memory with the model, and carries no graph."""
    model, batch = mlp().double(), BY_NAME["mlp"].batch()
    for method in METHODS:
        got = clipped_sum(model, cross_entropy, batch, 0.3, method=method)
        before = {name: value.clone() for name, value in model.named_parameters()}
        for value in got.gradients.values():
            assert not value.requires_grad
            value.zero_()
        assert all(torch.equal(value, before[name]) for name, value in model.named_parameters())


def test_language_models_of_one_word() -> None:
    """One token, one example, one word: every axis has size 1."""
    torch.manual_seed(0)
    model, batch = Language(tied=True).double(), (torch.tensor([[3]]), torch.tensor([2]))
    truth = naive(model, cross_entropy, batch)
    for method in METHODS:
        assert_equal(clipped_sum(model, cross_entropy, batch, 0.1, method=method), truth.clipped(0.1), truth.norms)


def test_the_zoo_is_what_the_tests_think() -> None:
    assert len({example.name for example in ZOO}) == len(ZOO) >= 45
    assert BATCH != TOKENS
    assert WORDS > WIDTH
