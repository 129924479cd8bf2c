"""The server's arithmetic: what one client can change, who takes part, what is charged and when."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy
import pytest

from hush import Budget, Ledger, Rng, TrainingPlan, accounting, events
from hush.errors import BudgetExceeded, InvalidValue
from hush.federated import PrivateRounds
from hush.ledger import store
from hush.training import AdaptiveClipping

SHAPES = {"weight": (3, 4), "bias": (4,)}
ZEROS = {name: numpy.zeros(shape, dtype=numpy.float32) for name, shape in SHAPES.items()}


def plan(**more: Any) -> TrainingPlan:
    usual: dict[str, Any] = {
        "noise_multiplier": 1.0, "sampling_prob": 1.0, "sampling": "full_batch", "expected_batch_size": 5, "steps": 20,
        "clip_norm": 2.0, "delta": 1e-5,
    }  # fmt: skip
    return TrainingPlan(**{**usual, **more})


def answer(scale: float) -> dict[str, Any]:
    return {name: numpy.full(shape, scale) for name, shape in SHAPES.items()}


def released(answers: dict[Any, Any], *, clients: Any = range(8), **more: Any) -> numpy.ndarray[Any, Any]:
    rounds = PrivateRounds(plan(**more), ZEROS, rng=Rng.from_seed(4))
    rounds.choose(clients)
    rounds.finish(answers)
    return numpy.concatenate([value.ravel() for value in rounds.arrays.values()]).astype(float)


@pytest.mark.parametrize(
    "one", [answer(1e-3), answer(1.0), answer(1e30), answer(-7.0), {"weight": numpy.eye(3, 4) * 1e140, "bias": [0] * 4}]
)
def test_one_client_moves_the_model_by_the_clip_norm_at_most(one: dict[str, Any]) -> None:
    others = {client: answer(0.1 * client) for client in range(5)}
    with_one, without = released({**others, 7: one}), released(others)
    bound = 2.0 / 5  # clip norm over the constant divisor
    moved = float(numpy.linalg.norm(with_one - without))
    assert moved <= bound * (1 + 1e-5)
    if numpy.abs(one["weight"]).max() >= 1.0:
        assert moved >= 0.99 * bound  # it is clipped, not dropped


def test_small_updates_are_averaged_with_the_constant_divisor() -> None:
    noise = released({})
    found = released({client: answer(0.1) for client in range(3)}) - noise
    assert found == pytest.approx(numpy.full(16, 3 * 0.1 / 5), abs=1e-6)  # three answered, five were expected


@pytest.mark.parametrize(
    "bad",
    [
        answer(math.nan),
        answer(math.inf),
        answer(1e308),
        {"weight": numpy.ones((3, 4))},
        {"weight": numpy.ones((3, 4)), "bias": numpy.ones(5)},
        {"weight": numpy.ones((4, 3)), "bias": numpy.ones(4)},
        {**answer(1.0), "more": numpy.ones(2)},
        {"weight": "x", "bias": None},
        {},
    ],
)
def test_an_answer_that_is_no_finite_update_adds_nothing(bad: dict[str, Any]) -> None:
    good = {1: answer(0.1), 2: answer(0.2)}
    assert (released({**good, 3: bad}) == released(good)).all()


def test_the_noise_has_the_plans_size_also_without_a_single_answer() -> None:
    wide = {"weight": numpy.zeros(40_000)}
    for sampling in ("full_batch", "poisson"):
        chosen = plan(noise_multiplier=1.5, clip_norm=3.0, sampling=sampling, sampling_prob=1.0)
        rounds = PrivateRounds(chosen, wide, rng=Rng.from_seed(1))
        rounds.choose([])
        report = rounds.finish({})
        # The standard deviation of the estimate is 1/sqrt(2 n): 8 of them, a false alarm in 1e15 of other seeds.
        assert rounds.arrays["weight"].std() == pytest.approx(1.5 * 3.0 / 5, rel=8 / math.sqrt(80_000))
        assert (report.asked, report.answered) == (0, 0)


def test_two_rounds_have_independent_noise() -> None:
    rounds = PrivateRounds(plan(), {"weight": numpy.zeros(40_000)}, rng=Rng.from_seed(1))
    steps = []
    for _ in range(2):
        before = rounds.arrays["weight"].copy()
        rounds.choose([])
        rounds.finish({})
        steps.append(rounds.arrays["weight"] - before)
    assert abs(numpy.corrcoef(*steps)[0, 1]) < 8 / math.sqrt(40_000)


def test_clients_join_independently_with_their_chance() -> None:
    rounds = PrivateRounds(plan(sampling="poisson", sampling_prob=0.3), ZEROS, rng=Rng.from_seed(2))
    draws, clients = 4_000, [f"client {number}" for number in range(6)]
    joined = numpy.array([[client in set(rounds.choose(clients)) for client in clients] for _ in range(draws)])
    spread = math.sqrt(0.3 * 0.7 / draws)
    assert numpy.abs(joined.mean(axis=0) - 0.3).max() < 6 * spread  # a false alarm in 1e8 of other seeds
    pairs = numpy.corrcoef(joined.T) - numpy.eye(6)
    assert numpy.abs(pairs).max() < 6 / math.sqrt(draws)


def test_who_was_not_asked_is_refused_and_a_round_begins_with_a_choice() -> None:
    rounds = PrivateRounds(plan(), ZEROS)
    with pytest.raises(InvalidValue, match="begins with choose"):
        rounds.finish({})
    rounds.choose([1, 2])
    with pytest.raises(InvalidValue, match="client 3 was not asked"):
        rounds.finish({1: answer(1.0), 3: answer(1.0)})
    assert rounds.done == 0
    rounds.finish({1: answer(1.0)})
    with pytest.raises(InvalidValue, match="begins with choose"):
        rounds.finish({})


# Charges -------------------------------------------------------------------------------------------------------


def test_every_round_is_charged_before_it_is_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "DURABLE", ("synchronous=OFF",))
    account = Ledger(tmp_path / "budget.db").account("hospitals")
    chosen = plan(sampling="poisson", sampling_prob=0.5)
    rounds = PrivateRounds(chosen, ZEROS, account=account, note="run 1")
    seen = []
    add = rounds._noise.add

    def watched(*arguments: Any) -> Any:
        seen.append(len(account.rows()) - 1)  # how many rounds are on disk when noise is made
        return add(*arguments)

    monkeypatch.setattr(rounds._noise, "add", watched)
    for _ in range(3):
        rounds.choose(range(4))
        rounds.finish({})
    assert seen == [1, 2, 3]
    step = events.PoissonSampled(events.Gaussian(1.0), 0.5)
    assert account.event == events.Composed(events.Repeated(step, 3))
    truth = accounting.guarantee(events.Repeated(step, 3), delta=1e-5, relation="add_remove")
    assert rounds.guarantee().epsilon == pytest.approx(truth.epsilon)


def test_a_refused_charge_releases_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "DURABLE", ("synchronous=OFF",))
    account = Ledger(tmp_path / "budget.db").account("hospitals", cap=Budget(epsilon=5.0, delta=1e-5))
    rounds = PrivateRounds(plan(), ZEROS, account=account)
    rounds.choose(range(4))
    rounds.finish({})
    before = {name: value.copy() for name, value in rounds.arrays.items()}
    rounds.choose(range(4))
    with pytest.raises(BudgetExceeded):
        rounds.finish({1: answer(1.0)})
    assert all((rounds.arrays[name] == before[name]).all() for name in before)
    assert account.cap is not None
    assert account.cap.allows(account.spent())


def test_the_plan_has_no_further_round() -> None:
    rounds = PrivateRounds(plan(steps=1), ZEROS)
    rounds.choose([1])
    rounds.finish({})
    with pytest.raises(BudgetExceeded, match="all 1 steps"):
        rounds.choose([1])


# Turns and adaptive clipping -----------------------------------------------------------------------------------


def test_without_sampling_each_client_has_one_turn_in_each_pass() -> None:
    chosen = plan(sampling="ordered", expected_batch_size=5, num_examples=20, bands=3, steps=12, relation="zero_out")
    clients = [f"client {number}" for number in range(20)]
    full, fewer = (PrivateRounds(chosen, ZEROS, rng=Rng.from_seed(3)) for _ in range(2))
    turns: list[list[set[Any]]] = [[], []]
    for _ in range(12):
        for place, (rounds, there) in enumerate(((full, clients), (fewer, clients[1:]))):
            turns[place].append(set(rounds.choose(there)))
            rounds.finish({})
    for first in range(0, 12, 4):
        together = [client for turn in turns[0][first : first + 4] for client in turn]
        assert sorted(together) == sorted(clients)  # once each
    assert [turn - {clients[0]} for turn in turns[0]] == turns[1]  # nobody moves when one client is not there
    assert full.guarantee().epsilon == pytest.approx(
        accounting.guarantee(events.Gaussian(1.0), delta=1e-5, relation="zero_out").epsilon
    )


def test_correlated_noise_is_taken_back() -> None:
    """The sum of all rounds has less noise than independent rounds would have."""
    spreads = []
    for more in ({"sampling": "ordered", "num_examples": 80, "bands": 8, "relation": "zero_out"}, {}):
        rounds = PrivateRounds(plan(steps=16, **more), {"weight": numpy.zeros(5_000)}, rng=Rng.from_seed(5))
        for _ in range(16):
            rounds.choose([])
            rounds.finish({})
        spreads.append(float(rounds.arrays["weight"].std()))
    assert spreads[0] < 0.8 * spreads[1]


def test_the_clip_norm_follows_the_quantile() -> None:
    adaptive = AdaptiveClipping(quantile=0.5, count_stddev=1.0, rate=0.5)
    rounds = PrivateRounds(plan(adaptive=adaptive, steps=200, clip_norm=50.0), ZEROS, rng=Rng.from_seed(6))
    for _ in range(120):
        asked = rounds.choose(range(5))
        start = rounds.arrays
        rounds.finish(
            {c: {n: v + (1.0 + c) / 4 for n, v in start.items()} for c in asked}  # type: ignore[operator]
        )  # norms 1, 2, 3, 4, 5: the median is 3
    assert 1.5 < rounds.clip_norm.value < 5.0


@pytest.mark.parametrize("bad", [answer(math.nan), {}])
def test_one_client_moves_the_count_by_half(bad: dict[str, Any]) -> None:
    counts = []
    adaptive = AdaptiveClipping(quantile=0.5, count_stddev=3.0)
    for answers in ({1: answer(0.1)}, {1: answer(0.1), 2: bad}, {1: answer(0.1), 2: answer(0.1)}):
        rounds = PrivateRounds(plan(adaptive=adaptive), ZEROS, rng=Rng.from_seed(6))
        centred = rounds.clip_norm.centred_count
        rounds.clip_norm.centred_count = lambda norms, found=centred: counts.append(found(norms)) or counts[-1]  # type: ignore[assignment,method-assign,misc]
        rounds.choose(range(3))
        rounds.finish(answers)
    assert counts == [0.5, 0.0, 1.0]


@pytest.mark.parametrize(
    ("more", "arrays", "message"),
    [
        ({"average": "ema"}, ZEROS, "average"),
        (
            {"sampling": "truncated_poisson", "sampling_prob": 0.1, "max_batch_size": 9, "num_examples": 99},
            ZEROS,
            "samp",
        ),
        ({}, {}, "no arrays"),
        ({}, {"count": numpy.zeros(3, dtype=int)}, "real numbers"),
        ({}, {"weight": numpy.array([math.nan])}, "not finite"),
    ],
)
def test_what_makes_no_private_rounds_is_refused(more: dict[str, Any], arrays: Any, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        PrivateRounds(plan(**more), arrays)
    with pytest.raises(InvalidValue, match="without privacy"):
        PrivateRounds(plan().without_privacy(), ZEROS)
