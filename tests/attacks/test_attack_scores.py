"""Membership scores: published vectors, and what each attack must and must not see."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hush import Rng, attacks
from hush.attacks import AttackResult, Recipe, Shadows
from hush.attacks.lira import lira_scores, log_density, tail_score
from hush.attacks.rmia import rmia_scores
from hush.attacks.shadows import coin_flips
from hush.attacks.signals import cross_entropy, log_odds, log_probabilities
from hush.errors import InvalidValue


def test_log_odds_and_losses_have_the_published_values() -> None:
    log_probs = log_probabilities([[1, 2, -3], [-1, 1, 0]])
    labels = np.array([1, 2])
    found = log_odds(log_probs, labels)
    assert found == pytest.approx([0.98185009, -1.12692802], abs=2e-8)  # from 32-bit floats
    assert found == pytest.approx([1 - math.log1p(math.exp(-4)), -math.log(math.e + 1 / math.e)], abs=1e-14)
    assert cross_entropy(log_probs, labels) == pytest.approx([0.31817543, 1.40760596], abs=5e-9)


@pytest.mark.parametrize("gap", [0.0, 5.0, 50.0, 500.0, -500.0])
def test_log_odds_keep_their_digits_where_probabilities_round(gap: float) -> None:
    """Two classes: the log-odds are the difference of the logits, exactly."""
    for shift in (0.0, 1e4):
        found = log_odds(log_probabilities([[gap + shift, shift]]), np.array([0]))
        assert found[0] == pytest.approx(gap, abs=1e-9)


def test_probabilities_and_single_outputs_are_the_same_signal() -> None:
    logits = np.array([[0.3, -1.2], [2.0, 0.5]])
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    expected = log_odds(log_probabilities(logits), np.array([1, 1]))
    assert log_odds(log_probabilities(chances, "probabilities"), np.array([1, 1])) == pytest.approx(expected)
    assert log_odds(log_probabilities(logits[:, 1:] - logits[:, :1]), np.array([1, 1])) == pytest.approx(expected)
    assert log_odds(log_probabilities(chances[:, 1], "probabilities"), np.array([1, 1])) == pytest.approx(expected)


def test_probabilities_of_exactly_one_are_finite() -> None:
    assert np.isfinite(log_odds(log_probabilities([[1.0, 0.0]], "probabilities"), np.array([0]))).all()


def test_logits_given_as_probabilities_are_refused() -> None:
    with pytest.raises(InvalidValue, match="logits"):
        log_probabilities([[1.0, 2.0]], "probabilities")


def test_lira_densities_have_the_published_values() -> None:
    """Targets 1, 0, 0 against in-shadows {-1, 1}, {0, 2}, {0, 20}, population deviations."""
    shadow = np.array([[-1.0, 0.0, 0.0], [1.0, 2.0, 20.0]])
    density = log_density(np.array([1.0, 0.0, 0.0]), shadow.mean(axis=0), shadow.std(axis=0))
    assert -density == pytest.approx([1.41893853, 1.41893853, 3.72152363], abs=5e-9)
    # The same through the whole score: out-shadows equal to the in-shadows cancel, others do not.
    values = np.concatenate([shadow, shadow + np.array([0.0, 0.0, 5.0])])
    included = np.array([[True] * 3, [True] * 3, [False] * 3, [False] * 3])
    scores = lira_scores(np.array([1.0, 0.0, 0.0]), values, included, variance="per_example")
    out = log_density(np.array([0.0]), np.array([15.0]), np.array([10.0]))[0]
    assert scores == pytest.approx([0.0, 0.0, density[2] - out], abs=1e-12)


def test_offline_lira_is_one_sided() -> None:
    """Confidences far below the out-models are no sign of membership; a density would rank them as high as above."""
    stream = np.random.default_rng(0)
    values = np.tile(stream.normal(0, 1, (16, 1)), (1, 5))  # the same out-models for each row
    included = np.zeros((16, 5), bool)
    scores = lira_scores(np.array([-50.0, -5.0, 0.0, 5.0, 50.0]), values, included, mode="offline")
    assert (np.diff(scores) > 0).all()
    assert np.isfinite(scores).all()


def test_tail_scores_rise_where_the_tail_rounds_to_one() -> None:
    from scipy.stats import norm

    z = np.array([-3.0, 0.0, 2.0])
    assert np.exp(-tail_score(z)) == pytest.approx(norm.sf(z), rel=1e-9)
    assert tail_score(np.array([40.0]))[0] > tail_score(np.array([39.0]))[0] > 700


def test_few_shadows_share_one_variance() -> None:
    """The pooled variance within rows, not of all values: rows that differ in level are not a wide spread."""
    stream = np.random.default_rng(1)
    level = np.linspace(-100, 100, 400)
    included = coin_flips(16, 400, rng=Rng.from_seed(1))
    values = level + stream.normal(0, 2, (16, 400))
    scores = lira_scores(level + 2.0, values, included, mode="offline", variance="auto")
    centre = np.median(np.where(included, np.nan, values)[:, 0][~included[:, 0]])
    z = (level[0] + 2.0 - centre) / 2.0  # the true spread is 2
    assert scores[0] == pytest.approx(tail_score(np.array([z]))[0], rel=0.1)
    many = lira_scores(level, np.tile(values, (4, 1)), np.tile(included, (4, 1)), variance="auto")
    own = lira_scores(level, np.tile(values, (4, 1)), np.tile(included, (4, 1)), variance="per_example")
    assert many == pytest.approx(own)  # 64 shadows: each row its own variance
    shrunk = lira_scores(level, values, included, variance="shrunk")
    plain = lira_scores(level, values, included, variance="per_example")
    shared = lira_scores(level, values, included, variance="global")
    assert np.abs(shrunk - shared).mean() < np.abs(plain - shared).mean()


def test_a_row_without_out_models_is_named() -> None:
    included = np.ones((4, 3), bool)
    included[:2, [0, 2]] = False
    with pytest.raises(InvalidValue, match="row 1"):
        lira_scores(np.zeros(3), np.zeros((4, 3)), included)


def test_rmia_scores_are_the_naive_double_loop() -> None:
    stream = np.random.default_rng(2)
    rows, population = stream.normal(0, 1, 30), stream.normal(0, 1, 50)
    naive = [np.mean([math.exp(row) / math.exp(other) >= 2.0 for other in population]) for row in rows]
    assert rmia_scores(rows, population, 2.0) == pytest.approx(naive)


def gaussian_shadows(seed: int, rows: int, count: int, gain: float) -> tuple[Shadows, Tensor, np.ndarray]:
    """Made-up models: the logit of a row is its own hardness, plus noise, plus a gain if it was trained on."""
    stream = np.random.default_rng(seed)
    hardness = stream.normal(0, 4, rows)
    included = np.concatenate([stream.random((1, rows)) < 0.5, coin_flips(count, rows, rng=Rng.from_seed(seed))])
    logits = hardness + gain * included + stream.normal(0, 1, included.shape)
    answers = np.stack([np.zeros_like(logits), logits], axis=-1)
    x, y = torch.zeros(rows, 1), torch.ones(rows, dtype=torch.int64)
    return Shadows(x, y, included[1:], lambda x: answers[1:]), torch.from_numpy(answers[0]), included[0]


@pytest.mark.parametrize(
    "attack",
    [
        lambda model, shadows, members: attacks.lira(model, shadows, members),
        lambda model, shadows, members: attacks.lira(model, shadows, members, mode="offline"),
        lambda model, shadows, members: attacks.rmia(model, shadows, members),
        lambda model, shadows, members: attacks.rmia(model, shadows, members, mode="online"),
    ],
    ids=["lira", "lira offline", "rmia", "rmia online"],
)
def test_comparing_each_row_with_itself_beats_the_loss(attack: object) -> None:
    """Rows differ far more in hardness (4) than membership moves them (3): the loss cannot see what LiRA sees."""
    shadows, said, members = gaussian_shadows(5, 4000, 32, gain=3.0)
    result: AttackResult = attack(lambda x: said, shadows, members)  # type: ignore[operator]
    plain = attacks.loss_threshold(lambda x: said, shadows.x, shadows.y, members)
    assert result.auc > plain.auc + 0.08
    assert result.tpr_at(0.01).low > 3 * plain.tpr_at(0.01).high


def test_online_lira_reaches_the_best_possible_test() -> None:
    """Two normal distributions 3 apart: no test has a larger area than Phi(3 / sqrt 2) = 0.9831."""
    from scipy.stats import norm

    shadows, said, members = gaussian_shadows(6, 6000, 64, gain=3.0)
    found = attacks.lira(lambda x: said, shadows, members)
    best = norm.cdf(3 / math.sqrt(2))
    assert best - 0.012 < found.auc < best + 0.006  # 6,000 rows: standard error below 0.002


@pytest.mark.parametrize("name", ["lira", "rmia", "shadow_models"])
def test_nothing_is_found_where_there_is_nothing(name: str) -> None:
    """The truth enters no score. 4,000 rows: the area's standard error is 0.009; 5 of them is a chance of 6e-7."""
    shadows, said, members = gaussian_shadows(7, 4000, 16, gain=0.0)
    found: AttackResult = getattr(attacks, name)(lambda x: said, shadows, members)
    assert abs(found.auc - 0.5) < 0.046
    assert not found.is_above(0.0, 0.0)
    again = getattr(attacks, name)(lambda x: said, shadows, ~members)
    assert np.array_equal(found.scores, again.scores)


def test_shadow_models_learn_class_by_class() -> None:
    """Class 0: members are surer by 2; class 1: others are. Over both classes members and others look the same."""
    stream = np.random.default_rng(8)
    rows, count = 2000, 6
    y = (np.arange(rows) % 2).astype(np.int64)
    included = np.concatenate([stream.random((1, rows)) < 0.5, coin_flips(count, rows, rng=Rng.from_seed(8))])
    own = stream.normal(0, 1, included.shape) + 2.0 * (included == (y == 0))
    answers = np.zeros((*own.shape, 2))
    np.put_along_axis(answers, np.broadcast_to(y[:, None], (*own.shape, 1)), own[..., None], axis=-1)
    shadows = Shadows(torch.zeros(rows, 1), y, included[1:], lambda x: answers[1:])
    found = attacks.shadow_models(lambda x: answers[0], shadows, included[0])
    joint = attacks.shadow_models(lambda x: answers[0], shadows, included[0], per_class=False)
    assert found.auc > 0.88  # the best possible is Phi(2 / sqrt 2) = 0.921
    assert joint.auc < 0.6


def test_shadows_train_in_one_batch_and_leak_their_rows() -> None:
    """Random labels can only be learned by heart: the attack must see nearly all members."""
    stream = torch.Generator().manual_seed(0)
    x, y = torch.randn(300, 20, generator=stream), torch.randint(0, 3, (300,), generator=stream)
    models = attacks.train_shadows(
        lambda: nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 3)),
        x,
        y,
        count=18,
        recipe=Recipe(epochs=40, learning_rate=5e-3),
        rng=Rng.from_seed(3),
    )
    assert models.included.sum(axis=0).tolist() == [9] * 300
    rest = models.without([0, 1])
    found = attacks.lira(lambda rows: models.predict(rows)[0], rest, models.included[0])
    assert found.auc > 0.9
    assert rest.count == 16


def test_own_training_functions_serve_as_shadows() -> None:
    from sklearn.tree import DecisionTreeClassifier

    stream = np.random.default_rng(9)
    x, y = stream.normal(0, 1, (400, 5)), stream.integers(0, 2, 400)

    def train(rows: np.ndarray, classes: np.ndarray) -> object:
        return DecisionTreeClassifier(random_state=0).fit(rows, classes).predict_proba

    models = attacks.train_shadows_with(train, x, y, count=10, outputs="probabilities", rng=Rng.from_seed(4))
    found = attacks.lira(lambda rows: models.predict(rows)[0], models.without([0, 1]), models.included[0])
    assert found.auc > 0.7  # a full tree knows its own rows, and half of the others by luck


def test_wrong_shapes_are_refused() -> None:
    shadows, said, members = gaussian_shadows(1, 50, 4, gain=1.0)
    with pytest.raises(InvalidValue, match="outputs as the shadows do"):
        attacks.lira(lambda x: said[:, :1].repeat(1, 3), shadows, members)
    with pytest.raises(InvalidValue, match="finite"):
        attacks.lira(lambda x: said * math.nan, shadows, members)
    with pytest.raises(InvalidValue, match="class numbers"):
        attacks.loss_threshold(lambda x: said, shadows.x, shadows.y.double(), members)


def test_a_module_is_asked_in_eval_mode_and_left_as_it_was() -> None:
    model = nn.Sequential(nn.Dropout(0.9), nn.Linear(4, 2))
    x, y = torch.ones(20, 4), torch.zeros(20, dtype=torch.int64)
    members = np.arange(20) < 10
    found = attacks.loss_threshold(model, x, y, members)
    assert len(np.unique(found.scores)) == 1
    assert model.training


@pytest.mark.parametrize("name", ["lira", "rmia", "shadow_models"])
def test_the_target_or_its_partner_among_the_shadows_is_refused(name: str) -> None:
    shadows, said, _ = gaussian_shadows(3, 60, 6, gain=1.0)
    for members in (shadows.included[2], ~shadows.included[2]):
        with pytest.raises(InvalidValue, match="partner"):
            getattr(attacks, name)(lambda x: said, shadows, members)
