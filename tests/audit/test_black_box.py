"""The black-box audit: where canaries come from, what is scored, what a model that memorises gives away."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset

import hush
from hush import Rng, audit, events
from hush.audit.black_box import correct_guesses
from hush.errors import InvalidValue


def points(rows: int = 40) -> TensorDataset:
    stream = torch.Generator().manual_seed(5)
    return TensorDataset(torch.randn(rows, 4, generator=stream), torch.arange(rows) % 3)


def telltale(dataset: Dataset[Any]) -> Any:
    """A training that remembers every row: members score 1."""
    inside = {(*tuple(x.tolist()), int(y)) for x, y in dataset}  # type: ignore[attr-defined]
    return lambda rows: [float((*tuple(x.tolist()), int(y)) in inside) for x, y in rows]


def constant(dataset: Dataset[Any]) -> Any:
    return lambda rows: numpy.zeros(len(rows))


@pytest.mark.parametrize("method", ["one_run", "one_run_fdp", "clopper_pearson", "gdp"])
@pytest.mark.parametrize("canaries", ["mislabelled", "blank", "own"])
def test_a_training_that_tells_all_is_found_by_every_method(method: Any, canaries: Any) -> None:
    own = TensorDataset(100 + torch.arange(80.0).reshape(20, 4), torch.zeros(20, dtype=torch.long))
    number = {"mislabelled": 20, "blank": 4, "own": 20}[canaries]
    data = TensorDataset(points().tensors[0].repeat(1, 10), points().tensors[1]) if canaries == "blank" else points()
    number = 30 if canaries == "blank" else number
    kind = own if canaries == "own" else canaries
    found = audit.audit(
        telltale,
        data,
        delta=1e-5,
        canaries=kind,
        method=method,
        num_canaries=number if method.startswith("one") else None,
        num_guesses=20 if method.startswith("one") else None,
        num_runs=60,
        rng=Rng.from_seed(1),
    )
    assert found.epsilon_at_least > 1.2, found
    assert (found.method, found.delta, found.significance) == (method, 1e-5, 0.05)
    assert ("Gaussian" in " ".join(found.notes)) == (method in ("one_run_fdp", "gdp"))


@pytest.mark.parametrize("method", ["one_run", "clopper_pearson"])
def test_a_training_that_tells_nothing_is_not_accused(method: Any) -> None:
    """20 repetitions at 95 %: the bounds are above 0 in more than 7 of them with chance below 1e-5."""
    found = [
        audit.audit(constant, points(), delta=1e-5, method=method, num_runs=40, rng=Rng.from_seed(seed))
        for seed in range(20)
    ]
    assert sum(evidence.epsilon_at_least > 0 for evidence in found) <= 7


def test_randomised_answers_stay_below_their_epsilon() -> None:
    """Scores that are true with odds e : 1 are epsilon 1; the bound is above it with chance 0.05, in 40 seeds at most
    11 times but for chance 1e-6."""

    def responding(seed: int) -> Any:
        stream = numpy.random.default_rng(seed)

        def train(dataset: Dataset[Any]) -> Any:
            truth = telltale(dataset)

            def score(rows: Any) -> Any:
                kept = stream.random(len(rows)) < numpy.e / (1 + numpy.e)
                return numpy.where(kept, truth(rows), 1 - numpy.array(truth(rows)))

            return score

        return train

    data = points(500)
    found = [
        audit.audit(responding(seed), data, delta=0.0, num_canaries=120, num_guesses=120, rng=Rng.from_seed(seed))
        for seed in range(40)
    ]
    assert sum(evidence.epsilon_at_least > 1 for evidence in found) <= 11
    assert numpy.median([evidence.epsilon_at_least for evidence in found]) > 0.3


def test_a_model_without_privacy_is_found_at_epsilon_three() -> None:
    """Digits, a network that learns wrong labels by heart: 200 guesses on 400 mislabelled canaries."""
    digits = hush.data.load("digits").train
    assert isinstance(digits, TensorDataset)
    inputs, labels = (tensor[:800] for tensor in digits.tensors)

    def train(dataset: Dataset[Any]) -> nn.Module:
        assert isinstance(dataset, TensorDataset)
        x, y = dataset.tensors
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for _ in range(150):
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        return model

    found = audit.audit(
        train, TensorDataset(inputs, labels), delta=1e-5, num_canaries=400, num_guesses=200, rng=Rng.from_seed(1)
    )
    assert found.epsilon_at_least >= 3, found.notes
    claim = hush.accounting.guarantee(events.Gaussian(4.0), delta=1e-5)
    assert found.contradicts(claim)


def seen_by(canaries: Any, **more: Any) -> tuple[TensorDataset, TensorDataset]:
    """What an audit trains on, and its canaries."""
    kept: list[Any] = []

    def train(dataset: Dataset[Any]) -> Any:
        kept.append(dataset)
        return lambda rows: kept.append(rows) or numpy.zeros(len(rows))  # type: ignore[func-returns-value]

    audit.audit(train, points(), delta=1e-5, canaries=canaries, rng=Rng.from_seed(3), **more)
    return kept[0], kept[1]


def test_mislabelled_rows_leave_the_data_and_have_another_label() -> None:
    data, canaries = seen_by("mislabelled", num_canaries=15)
    truth = {tuple(x.tolist()): int(y) for x, y in points()}
    for x, y in canaries:
        assert truth[tuple(x.tolist())] != int(y)
    clean = [row for row in data if truth[tuple(row[0].tolist())] == int(row[1])]
    assert len(clean) == 25  # the other 15 rows are canaries, in or not
    assert 25 < len(data) < 40


def test_blank_rows_have_one_feature_each() -> None:
    data, canaries = seen_by("blank", num_canaries=4)
    assert (canaries.tensors[0].sum(1) == 1).all()
    assert len({tuple(row.tolist()) for row in canaries.tensors[0]}) == 4
    assert len(data) <= 44


def test_guesses_are_the_ends_of_the_scores() -> None:
    scores, coins = numpy.array([5.0, 4.0, 3.0, 2.0, 1.0]), numpy.array([True, False, True, False, True])
    assert correct_guesses(scores, coins, 1) == 1
    assert correct_guesses(scores, coins, 2) == 1
    assert correct_guesses(scores, coins, 5) == 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"method": "best"}, "method"),
        ({"canaries": "yellow"}, "canaries"),
        ({"num_canaries": 40}, "below the number of rows"),
        ({"canaries": "blank", "num_canaries": 5}, "one per feature"),
        ({"num_canaries": 10, "num_guesses": 11}, "num_guesses"),
        ({"delta": 1.0}, "delta"),
        ({"significance": 0.0}, "significance"),
        ({"method": "gdp", "num_runs": 2}, "num_runs"),
        ({"canaries": []}, "data set"),
        ({"canaries": points(3), "num_canaries": 4}, "at most 3"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_bad_settings_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidValue, match=words):
        audit.audit(constant, points(), **{"delta": 1e-5, **change})


@pytest.mark.parametrize(
    "train",
    [lambda data: 3, lambda data: lambda rows: [0.0], lambda data: lambda rows: numpy.full(len(rows), numpy.nan)],
    ids=["a number", "too few scores", "NaN"],
)
def test_bad_scores_are_refused(train: Any) -> None:
    with pytest.raises(InvalidValue):
        audit.audit(train, points(), delta=1e-5, num_canaries=10)


def test_made_canaries_need_inputs_and_labels() -> None:
    with pytest.raises(InvalidValue, match="canaries of your own"):
        audit.audit(constant, TensorDataset(torch.zeros(9, 2)), delta=1e-5)
