"""Models that are trained together are those that would have been trained alone."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from hush.ensembles import Recipe, row_orders, train_ensemble
from hush.errors import InvalidValue
from hush.rng import Rng

PARTS = [torch.arange(0, 90), torch.arange(50, 150), torch.arange(120, 200)]


class WithNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(20, 8), nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(functional.relu(self.norm(self.first(x.flatten(1)))))


def layered() -> nn.Module:
    shared = nn.Tanh()  # one object in two places
    layers = (nn.Linear(20, 8), shared, nn.Linear(8, 8, bias=False), shared, nn.Linear(8, 3))
    return nn.Sequential(nn.Flatten(), *layers)


def partly_frozen() -> nn.Module:
    model = layered()
    model[1].weight.requires_grad_(False)  # type: ignore[index, union-attr]
    return model


def convolution() -> nn.Module:
    return nn.Sequential(nn.Unflatten(1, (1, 5)), nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 3))


def many_functions() -> nn.Module:
    """Functions before the first product, after one another, and at the end; some of them in place."""
    first = (nn.Flatten(), nn.ELU(), nn.Linear(20, 8), nn.Tanh(), nn.ReLU(), nn.Identity())
    return nn.Sequential(
        *first, nn.Linear(8, 8), nn.ELU(inplace=True), nn.Linear(8, 3), nn.ReLU(inplace=True), nn.GELU()
    )


def tied() -> nn.Module:
    twice = nn.Linear(8, 8)
    return nn.Sequential(nn.Flatten(), nn.Linear(20, 8), nn.ReLU(), twice, nn.Tanh(), twice, nn.Linear(8, 3))


def alone(model: nn.Module, x: Tensor, y: Tensor, steps: list[Tensor], recipe: Recipe) -> nn.Module:
    learning = [value for value in model.parameters() if value.requires_grad]
    optimizer: torch.optim.Optimizer
    if recipe.optimizer == "adam":
        optimizer = torch.optim.Adam(learning, recipe.learning_rate)
    else:
        optimizer = torch.optim.SGD(learning, recipe.learning_rate, momentum=0.9, weight_decay=recipe.weight_decay)
    for rows in steps:
        optimizer.zero_grad()
        functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
    return model


@pytest.mark.parametrize(
    "make", [layered, many_functions, WithNorm, partly_frozen, convolution], ids=lambda make: make.__name__
)
@pytest.mark.parametrize(
    "recipe",
    [Recipe(epochs=3), Recipe(epochs=3, optimizer="sgd", learning_rate=0.05, weight_decay=0.01)],
    ids=["adam", "sgd"],
)
def test_together_is_as_alone(make: Callable[[], nn.Module], recipe: Recipe) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(200, 5, 4), torch.randint(0, 3, (200,))
    starts = [make() for _ in PARTS]
    given = iter(copy.deepcopy(starts))
    ensemble = train_ensemble(lambda: next(given), x, y, PARTS, recipe=recipe, rng=Rng.from_seed(3))
    orders = row_orders(PARTS, recipe, Rng.from_seed(3))
    together = ensemble.outputs(x, rows_at_once=64)
    for number, start in enumerate(starts):
        expected = alone(start, x, y, [rows[number] for rows in orders], recipe)(x)
        assert torch.allclose(together[number], expected, atol=2e-3)
        assert torch.allclose(ensemble.member(number)(x), together[number], atol=1e-5)
    assert not torch.allclose(together[0], together[1], atol=0.05)  # the tolerance tells models apart


def test_more_models_than_one_block_keep_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hush.ensembles._MODELS_AT_ONCE", 5)
    torch.manual_seed(0)
    x, y = torch.randn(200, 5, 4), torch.randint(0, 3, (200,))
    kept = x.clone()
    parts = [torch.arange(10 * number, 10 * number + 60 + number) for number in range(13)]
    starts = [layered() for _ in parts]
    given, recipe = iter(copy.deepcopy(starts)), Recipe(epochs=2)
    together = train_ensemble(lambda: next(given), x, y, parts, recipe=recipe, rng=Rng.from_seed(3)).outputs(x)
    orders = row_orders(parts, recipe, Rng.from_seed(3))
    for number, start in enumerate(starts):
        expected = alone(start, x, y, [rows[number] for rows in orders], recipe)(x)
        assert torch.allclose(together[number], expected, atol=2e-3)
    assert torch.equal(x, kept)


def test_each_model_sees_its_rows_once_a_pass() -> None:
    recipe = Recipe(epochs=2, rows_per_step=10)
    seen = torch.cat(row_orders([torch.arange(40), torch.arange(40, 60)], recipe, Rng.from_seed(1)), dim=1)
    assert seen.shape == (2, 80)
    assert torch.bincount(seen[0]).tolist() == [2] * 40
    assert torch.bincount(seen[1])[40:].tolist() == [4] * 20  # fewer rows: more passes in the same steps
    assert not torch.equal(seen[0, :40], seen[0, 40:])


def test_dropout_rests_when_asked() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(60, 6), torch.randint(0, 2, (60,))
    make = lambda: nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.5), nn.Linear(16, 2))  # noqa: E731
    ensemble = train_ensemble(make, x, y, [torch.arange(60)] * 2, recipe=Recipe(epochs=1))
    assert torch.equal(ensemble.outputs(x), ensemble.outputs(x))


def test_what_cannot_be_trained_together_is_refused() -> None:
    x, y = torch.randn(20, 4), torch.randint(0, 2, (20,))
    with pytest.raises(InvalidValue, match="batch normalisation"):
        train_ensemble(lambda: nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 2)), x, y, [torch.arange(20)])
    with pytest.raises(InvalidValue, match="two places"):
        train_ensemble(tied, torch.randn(20, 20), y, [torch.arange(20)])
    with pytest.raises(InvalidValue, match="at least one row"):
        train_ensemble(lambda: nn.Linear(4, 2), x, y, [torch.arange(0)])
    with pytest.raises(InvalidValue, match="optimizer"):
        Recipe(optimizer="lion")
