"""Noisy votes: events that cost the same under every relation, charges before answers, and budget stops."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hush import Budget, Ledger, Rng, accounting
from hush.accounting import GDPFilter, RenyiFilter
from hush.errors import BudgetExceeded, InvalidValue, UnsupportedEvent
from hush.events import Composed, Event, Gaussian, GaussianDP, PureDP, Repeated, ZeroConcentratedDP, flat
from hush.mechanisms.draws import Draws
from hush.pate import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax, VoteCounts
from hush.pate.aggregate import noisiest
from hush.privacy import RELATIONS

DELTA = 1e-5
CONFIDENT = ConfidentGNMax(threshold=200, threshold_stddev=150, stddev=40)
ALL = [LNMax(20.0), GNMax(40.0), GNMax(40.0, noise="discrete"), CONFIDENT, ConfidentGNMax(200, 150, 40, "discrete")]


def some_votes(queries: int = 300, seed: int = 0) -> VoteCounts:
    shares = np.random.default_rng(seed).dirichlet([4.0, 1.0, 0.5], size=queries)
    return VoteCounts(np.random.default_rng(seed).multinomial(250, shares), 250)


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Balle and Wang's curve, in 50 digits."""
    with mpmath.workdps(50):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return float(mpmath.ncdf(-e / m + m / 2) - mpmath.e**e * mpmath.ncdf(-e / m - m / 2))


class Recorder:
    """An account that remembers, and refuses when told to."""

    def __init__(self, *, refuse: bool = False) -> None:
        self.charged: list[Event] = []
        self.refuse = refuse

    def charge(self, event: Event) -> None:
        if self.refuse:
            raise BudgetExceeded("no.")
        self.charged.append(event)


# The events ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("relation", RELATIONS)
def test_gnmax_costs_root_two_over_stddev_under_every_relation(relation) -> None:
    answers = GNMax(40.0).answer(some_votes(100))
    guarantee = answers.guarantee(delta=DELTA, relation=relation)
    mu = math.sqrt(2 * 100) / 40
    assert gaussian_delta(guarantee.epsilon, mu) == pytest.approx(DELTA, rel=1e-6)
    assert gaussian_delta(guarantee.epsilon, mu) <= DELTA


def test_a_gaussian_event_would_be_doubled_under_replace_one() -> None:
    """Why the votes use GaussianDP: this is the mistake that the test above would catch."""
    wrong = Repeated(Gaussian(40 / math.sqrt(2)), 100)
    right = GNMax(40.0).answer(some_votes(100)).guarantee(delta=DELTA, relation="replace_one").epsilon
    assert accounting.guarantee(wrong, delta=DELTA, relation="replace_one").epsilon > 2 * right


@pytest.mark.parametrize("relation", RELATIONS)
def test_confident_costs_every_test_and_every_answer(relation) -> None:
    answers = CONFIDENT.answer(some_votes(), rng=Rng.from_seed(1))
    asked, answered = int(answers.asked.sum()), int(answers.answered.sum())
    assert 0 < answered < asked == 300
    mu = math.sqrt(asked / 150**2 + 2 * answered / 40**2)
    epsilon = accounting.guarantee(answers.event, delta=DELTA, relation=relation).epsilon
    assert gaussian_delta(epsilon, mu) == pytest.approx(DELTA, rel=1e-6)


def test_the_runs_of_the_paper_cost_what_was_recomputed() -> None:
    """Table 1 of the paper's MNIST and SVHN runs, by exact Gaussian composition."""
    for asked, answered, test, stddev, delta, epsilon in [
        (640, 286, 150, 40, 1e-5, 2.543),
        (8500, 3098, 200, 40, 1e-6, 11.138),
        (1500, 524, 200, 40, 1e-5, 3.543),
        (12000, 10762, 500, 100, 1e-8, 9.012),
    ]:
        event = ConfidentGNMax(1.0, test, stddev).prices.of(asked, answered)
        assert accounting.guarantee(event, delta=delta).epsilon == pytest.approx(epsilon, abs=6e-4)


@pytest.mark.parametrize("relation", RELATIONS)
def test_lnmax_is_pure_and_never_costs_more_than_two_over_scale(relation) -> None:
    answers = LNMax(20.0).answer(some_votes(100))
    assert answers.guarantee(delta=0.0, relation=relation).epsilon == pytest.approx(100 * 2 / 20, rel=1e-9)
    single = accounting.guarantee(Repeated(PureDP(0.1), 100), delta=DELTA, relation=relation).epsilon
    assert answers.guarantee(delta=DELTA, relation=relation).epsilon < single


def test_two_halves_bound_the_laplace_pair() -> None:
    """The privacy curve of two Laplace counts that move by 1, by quadrature, lies below that of the event."""
    scale = 2.0
    x = np.linspace(-60, 60, 1201)
    density = np.exp(-np.abs(x) / scale) / (2 * scale) * (x[1] - x[0])
    loss = (np.abs(x - 1) - np.abs(x)) / scale
    losses = loss[:, None] + loss[None, :]  # the other count moves the other way: the same law
    weights = density[:, None] * density[None, :]
    for epsilon in (0.1, 0.5, 0.9):
        truth = float((weights * np.maximum(-np.expm1(epsilon - losses), 0)).sum())
        claimed = accounting.delta(LNMax(scale).prices.answer, epsilon=epsilon).delta
        assert truth <= claimed * (1 + 1e-3)
        assert truth > 0.5 * claimed


def test_discrete_noise_is_concentrated_and_not_gaussian() -> None:
    answers = GNMax(40.0, noise="discrete").answer(some_votes(100))
    assert [type(part) for part, _ in flat(answers.event)] == [ZeroConcentratedDP]
    assert sum(part.rho * count for part, count in flat(answers.event)) == pytest.approx(100 / 40**2)
    exact = GNMax(40.0).answer(some_votes(100)).guarantee(delta=DELTA).epsilon
    assert exact < answers.guarantee(delta=DELTA).epsilon < 1.2 * exact


# What is promised ----------------------------------------------------------------------------------------------


def test_without_a_cap_the_promise_is_that_all_might_have_been_answered() -> None:
    answers = CONFIDENT.answer(some_votes(), delta=DELTA)
    worst = accounting.guarantee(CONFIDENT.prices.of(300, 300), delta=DELTA)
    assert answers.guarantee().epsilon == worst.epsilon
    assert accounting.guarantee(answers.event, delta=DELTA).epsilon < worst.epsilon


@pytest.mark.parametrize("aggregator", ALL, ids=str)
def test_with_a_budget_the_promise_is_within_it(aggregator) -> None:
    budget = Budget(epsilon=0.8, delta=DELTA)
    answers = aggregator.answer(some_votes(), budget=budget)
    assert answers.stopped
    assert budget.allows(answers.guarantee())
    happened = accounting.guarantee(answers.event, delta=DELTA).epsilon
    assert happened <= 0.8
    assert answers.guarantee(delta=1e-7).epsilon > answers.guarantee().epsilon - 1e-9


def test_how_far_an_account_reached_is_no_promise(tmp_path) -> None:
    """The number asked depends on the votes too; where no budget is known, the whole list counts."""

    class Shut(Recorder):
        def would_exceed(self, event: Event) -> bool:
            return sum(count for _, count in flat(event)) > 40

    answers = CONFIDENT.answer(some_votes(), account=Shut())
    assert 0 < answers.asked.sum() < 300
    assert answers.bound == CONFIDENT.prices.of(300, 300)


def test_a_guarantee_needs_a_delta() -> None:
    with pytest.raises(InvalidValue, match="delta"):
        GNMax(40.0).answer(some_votes(2)).guarantee()


# Budget stops --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_the_list_stops_at_the_first_query_that_might_not_fit(seed: int) -> None:
    budget = Budget(epsilon=1.0, delta=DELTA)
    answers = CONFIDENT.answer(some_votes(seed=seed), budget=budget, rng=Rng.from_seed(seed))
    room = GDPFilter(budget, relation="add_remove").mu ** 2
    spent, expected = 0.0, 0
    for answered in answers.answered.tolist():  # one after another, as the filter's theorem has it
        if spent + 1 / 150**2 + 2 / 40**2 > room:
            break
        spent += 1 / 150**2 + (2 / 40**2 if answered else 0)
        expected += 1
    assert int(answers.asked.sum()) == expected < 300
    assert answers.asked[:expected].all()
    assert (answers.labels[expected:] == -1).all()
    assert not answers.answered[expected:].any()


def test_a_budget_does_not_change_the_answers_before_the_stop() -> None:
    free = CONFIDENT.answer(some_votes(), rng=Rng.from_seed(3))
    held = CONFIDENT.answer(some_votes(), rng=Rng.from_seed(3), budget=Budget(1.0, DELTA))
    assert (free.labels[held.asked] == held.labels[held.asked]).all()


@pytest.mark.parametrize(("aggregator", "most"), [(LNMax(20.0), 15), (GNMax(40.0), 57)], ids=str)
def test_votes_without_a_test_use_the_budget_to_the_last_query(aggregator, most: int) -> None:
    answers = aggregator.answer(some_votes(), budget=Budget(1.0, DELTA))
    assert int(answers.asked.sum()) == most
    for asked, fits in ((most, True), (most + 1, False)):
        event = aggregator.prices.of(asked, asked)
        assert Budget(1.0, DELTA).allows(accounting.guarantee(event, delta=DELTA)) is fits


def test_a_pure_budget_counts_laplace_noise() -> None:
    answers = LNMax(20.0).answer(some_votes(), budget=Budget(epsilon=1.0, delta=0.0))
    assert int(answers.asked.sum()) in (9, 10)  # 10 but for the rounding up of 1/20


@pytest.mark.parametrize("make", [GDPFilter, RenyiFilter], ids=lambda kind: kind.__name__)
def test_a_filter_counts_on_from_list_to_list(make) -> None:
    budget = Budget(1.0, DELTA)
    one, many = make(budget, relation="add_remove"), make(budget, relation="add_remove")
    whole = GNMax(40.0).answer(some_votes(), budget=one).asked.sum()
    parts = [GNMax(40.0).answer(some_votes(20), budget=many).asked.sum() for _ in range(6)]
    assert sum(parts) == whole
    assert parts[-1] == 0


def test_a_filter_for_other_noise_is_refused() -> None:
    with pytest.raises(UnsupportedEvent):
        GNMax(40.0, noise="discrete").answer(some_votes(), budget=GDPFilter(Budget(1.0, DELTA), relation="add_remove"))
    with pytest.raises(InvalidValue, match="budget"):
        GNMax(40.0).answer(some_votes(), budget=1.0)  # type: ignore[arg-type]


# Accounts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("aggregator", ALL, ids=str)
def test_the_account_is_charged_with_what_happened(aggregator) -> None:
    account = Recorder()
    answers = aggregator.answer(some_votes(), account=account)
    assert account.charged == [answers.event]


@pytest.mark.parametrize("aggregator", ALL, ids=str)
def test_nothing_leaves_when_the_account_refuses(aggregator) -> None:
    privacy_filter = RenyiFilter(Budget(9.0, DELTA), relation="add_remove")
    with pytest.raises(BudgetExceeded):
        aggregator.answer(some_votes(), account=Recorder(refuse=True), budget=privacy_filter)
    assert privacy_filter.used == 0


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_the_cap_of_a_ledger_ends_the_list(tmp_path, relation) -> None:
    account = Ledger(tmp_path / "ledger.sqlite").account("votes", cap=Budget(1.0, DELTA), relation=relation)
    first = CONFIDENT.answer(some_votes(), account=account)
    assert first.stopped
    assert first.guarantee(delta=DELTA).epsilon == 1.0  # the cap that held the list
    assert 0.9 < account.spent().epsilon <= 1.0
    assert account.spent().notes[-1:] != ("holds if the events were chosen before their results were seen",)
    second = GNMax(40.0).answer(some_votes(50), account=account)
    assert second.asked.sum() <= 2
    assert account.spent().epsilon <= 1.0


def test_no_queries_cost_nothing() -> None:
    for aggregator in ALL:
        account = Recorder()
        answers = aggregator.answer(some_votes()[:0], account=account, budget=Budget(1.0, DELTA))
        assert (len(answers.labels), account.charged, answers.event) == (0, [], Composed())
        assert answers.guarantee().epsilon == 0
        assert not answers.stopped


# Labels --------------------------------------------------------------------------------------------------------


def test_with_little_noise_the_plurality_wins() -> None:
    votes = some_votes()
    clear = np.diff(np.sort(votes.counts, axis=1)[:, -2:], axis=1)[:, 0] > 0
    for aggregator in (LNMax(0.01), GNMax(0.01), GNMax(0.01, noise="discrete")):
        labels = aggregator.answer(votes).labels
        assert (labels[clear] == votes.counts.argmax(axis=1)[clear]).all()


def test_ties_are_broken_at_random() -> None:
    """Noise that small is 0, so that every row is a tie; an argmax by index would give 0 alone. False alarm 1e-9."""
    votes = VoteCounts(np.full((3000, 3), 5), 15)
    counts = np.bincount(GNMax(1e-3, noise="discrete").answer(votes, rng=Rng.from_seed(0)).labels, minlength=3)
    assert np.abs(counts - 1000).max() < 6.2 * math.sqrt(3000 * 2 / 9)


@given(st.lists(st.lists(st.integers(-3, 3), min_size=3, max_size=3), min_size=1, max_size=20))
@settings(max_examples=50)
def test_the_noisiest_place_holds_the_largest_number(rows: list[list[int]]) -> None:
    noisy = np.array(rows)
    places = noisiest(noisy, Draws(Rng.from_seed(0)))
    assert (noisy[np.arange(len(rows)), places] == noisy.max(axis=1)).all()


def test_fresh_noise_every_time() -> None:
    votes = VoteCounts(np.full((200, 2), 5), 10)
    rng = Rng.from_seed(5)
    one, two = (GNMax(40.0).answer(votes, rng=rng).labels for _ in range(2))
    assert (one != two).any()
    assert (GNMax(40.0).answer(votes).labels != GNMax(40.0).answer(votes).labels).any()


def test_bare_arrays_are_refused() -> None:
    for aggregator in ALL:
        with pytest.raises(InvalidValue, match="VoteCounts"):
            aggregator.answer(np.array([[3, 1]]))


@pytest.mark.parametrize(
    "make",
    [
        lambda: GNMax(0.0),
        lambda: GNMax(math.nan),
        lambda: LNMax(-1.0),
        lambda: GNMax(1.0, noise="laplace"),  # type: ignore[arg-type]
        lambda: ConfidentGNMax(math.inf, 1.0, 1.0),
        lambda: ConfidentGNMax(200, 0.0, 1.0),
        lambda: InteractiveGNMax(200, 1.0, 1.0, confidence=1.5),
    ],
)
def test_bad_settings_are_refused(make) -> None:
    with pytest.raises(InvalidValue):
        make()


# The student takes part ----------------------------------------------------------------------------------------


def test_interactive_answers_where_teachers_disagree_with_the_student() -> None:
    votes = VoteCounts([[250, 0], [250, 0], [250, 0]], 250)
    student = np.array([[0.02, 0.98], [0.99, 0.01], [0.55, 0.45]])
    aggregator = InteractiveGNMax(threshold=125, threshold_stddev=1.0, stddev=1.0, confidence=0.9)
    answers = aggregator.answer(votes, student, rng=Rng.from_seed(0))
    assert answers.labels.tolist() == [0, 0, -1]  # taught, confirmed, neither
    assert answers.answered.tolist() == [True, False, False]
    assert answers.reinforced is not None
    assert answers.reinforced.tolist() == [False, True, False]
    assert dict(flat(answers.event)) == dict(flat(aggregator.prices.of(3, 1)))


@pytest.mark.parametrize("noise", ["gaussian", "discrete"])
def test_interactive_stops_and_reinforces_nothing_beyond(noise) -> None:
    votes, student = some_votes(), np.full((300, 3), 1 / 3)
    aggregator = InteractiveGNMax(50.0, 150.0, 40.0, confidence=0.2, noise=noise)
    answers = aggregator.answer(votes, student, budget=Budget(0.7, DELTA))
    assert answers.stopped
    assert (answers.labels[~answers.asked] == -1).all()
    assert answers.reinforced is not None
    assert not answers.reinforced[~answers.asked].any()


def test_logits_are_not_taken_for_probabilities() -> None:
    aggregator = InteractiveGNMax(50.0, 150.0, 40.0, confidence=0.9)
    for student in ([[2.0, -1.0, 0.5]], [[0.9, 0.3, 0.1]], [[0.5, 0.5]], [[math.nan, 0.5, 0.5]]):
        with pytest.raises(InvalidValue, match="probabilities"):
            aggregator.answer(some_votes(1), student)


def test_events_are_the_kinds_that_no_relation_changes() -> None:
    for aggregator in ALL:
        kinds = {type(part) for part, _ in flat(aggregator.prices.of(1, 1))}
        assert kinds <= {GaussianDP, PureDP, ZeroConcentratedDP}
