"""A catalogue of ways to mix examples, to keep private data and to flip state, and of ordinary models as controls.

An attack is caught if Hush raises an error and leaves nothing private behind, or if it is harmless: with the model, the
loss and the mode that a run ends with, one example moves the noise-free clipped sum by at most the clip norm (and
0.1 % for rounding), the batch before moves it by nothing, and no private value is found in the model or the run.
`isolation_truth.py` measures that, `isolation_attacks.py` says with what probability a check finds what is rare, and
`ordinary_models.py` holds the controls, which must train.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from isolation_attacks import Between, all_attacks, attacks_in
from isolation_truth import Case, Reference, Verdict, cross_entropy, hush_total, judge, points, sensitivity
from ordinary_models import CONTROLS, control_case
from torch import Tensor, nn
from torch.utils.data import Subset, TensorDataset

import hush
from hush.errors import HushError

LEAST_ATTACKS, LEAST_CONTROLS = 60, 34
USUAL_RUNS, SLOW_RUNS = 2, 20

# No function of torch carries these values: a branch of Python, a seed, a text, memory that another library reads.
UNTRACEABLE = ("rare branch in the model", "dropout seeded by the batch", "text round trip", "dlpack round trip")

# What a trainer can see without collating anything anew: functions of torch over the batch axis, values that leave
# torch, and losses that compare examples. `clipped_sum` and loops of one's own must catch all of these.
VISIBLE = [name for name in attacks_in("mixing_functions") if name not in UNTRACEABLE]
COMPARISONS = (
    "in batch negatives",
    "supervised contrastive loss",
    "scores compared with the three before",
    "correlation loss",
    "class prototypes",
    "weights by class counts",
    "mean over all tokens of the batch",
    "hardest negative of the batch",
    "decorrelation of the features",
    "load balance of experts",
    "mean loss for everyone",
    "mean loss as baseline",
    "softmax weights over the batch",
    "hard example mining",
    "ranks of the losses",
    "mean loss as a python number",
    "losses standardised by detached statistics",
    "label smoothing by the batch",
    "rare value through where",
)

# What only shows when an example is computed alone. A loop of one's own may say instead that it was not checked.
ALONE = (
    "loss divided by the batch size",
    "even batches alone",
    "mean over the padded length",
    "left padding with absolute positions",
    "collation that centres",
    "module backward hook that mixes",
    "own function whose backward mixes",
    "saved activations shared over the batch",
    *UNTRACEABLE,
    "batch norm put back by forward",
    "memory bank in a closure",
)


def judged(make: Callable[[], Case], train: Callable[[Case], object]) -> Verdict:
    torch.manual_seed(1)  # the weights with which each attack is known to do harm
    return judge(make(), train)


def test_size_of_the_catalogue() -> None:
    assert len(all_attacks()) >= LEAST_ATTACKS
    assert len(CONTROLS) >= LEAST_CONTROLS


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", all_attacks())
def test_attack_harms_a_trainer_without_defence(name: str) -> None:
    torch.manual_seed(1)
    case = all_attacks()[name]()
    if case.is_harmful:
        assert Reference.harm(case)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", all_attacks())
def test_attack_does_not_pass_through_fit(name: str) -> None:
    verdict = judged(all_attacks()[name], Case.fit)
    assert verdict.is_caught, f"{name}: {verdict.words}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*VISIBLE, *COMPARISONS])
def test_attack_does_not_pass_through_clipped_sum(name: str) -> None:
    torch.manual_seed(1)
    case = all_attacks()[name]()
    try:
        moved = sensitivity(case, hush_total)
    except HushError:
        return
    assert moved <= 1 + case.slack


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*VISIBLE, *COMPARISONS])
def test_attack_does_not_pass_through_a_loop_of_ones_own(name: str) -> None:
    verdict = judged(all_attacks()[name], Case.loop)
    assert verdict.is_caught, f"{name}: {verdict.words}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ALONE)
def test_loop_of_ones_own_finds_what_shows_alone_or_says_that_it_was_not_checked(name: str) -> None:
    noted: list[bool] = []

    def train(case: Case) -> object:
        trained = case.loop()
        noted.append(bool(trained.notes))
        return trained

    verdict = judged(all_attacks()[name], train)
    assert verdict.is_caught or noted == [True], f"{name}: {verdict.words}"


# Records that contradict the plan: a warning that names the numbers ---------------------------------------------


def plan_of(*, examples: int, batch: int = 12, probability: float | None = None) -> hush.TrainingPlan:
    return hush.TrainingPlan(
        noise_multiplier=1.0,
        sampling_prob=batch / examples if probability is None else probability,
        expected_batch_size=batch,
        steps=3,
        clip_norm=0.1,
        delta=1e-5,
    )


def train_quickly(plan: hush.TrainingPlan, model: nn.Module, data: object) -> tuple[hush.Run | None, list[str]]:
    """Return the run, or None if it was refused, and what Hush warned of."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            run = hush.fit(
                plan,
                model,
                data,
                loss_fn=cross_entropy,
                optimizer=torch.optim.SGD(model.parameters(), lr=0.05),
                progress=False,
                guard_steps=0,
            )
        except HushError as error:
            return None, [str(error)]
    return run, [str(message.message) for message in heard if message.category.__module__.startswith("hush.")]


def test_duplicates_in_a_subset_are_named() -> None:
    """One record that is drawn as three examples moves a sum by three clip norms."""
    data = Subset(points(), [0, 0, 0, *range(1, 98)])
    _, words = train_quickly(plan_of(examples=100), nn.Linear(6, 3), data)
    assert any("Subset" in text or "duplicate" in text for text in words)
    assert any(number in text for text in words for number in ("2", "3"))


def test_duplicates_in_a_subset_of_a_subset_are_named() -> None:
    data = Subset(Subset(points(), [*range(60), *range(60)]), list(range(100)))
    _, words = train_quickly(plan_of(examples=100), nn.Linear(6, 3), data)
    assert any("40" in text for text in words)


def test_subset_without_duplicates_is_not_warned_of() -> None:
    run, words = train_quickly(plan_of(examples=100), nn.Linear(6, 3), Subset(points(), list(range(100))))
    assert run is not None
    assert words == []


@pytest.mark.parametrize(("probability", "batch"), [(0.01, 12), (0.5, 12), (0.1, 60)])
def test_plan_that_contradicts_the_data_set_is_named(probability: float, batch: int) -> None:
    """The plan expects another number of examples in a batch than its sampling probability gives on 120 examples."""
    _, words = train_quickly(plan_of(examples=120, batch=batch, probability=probability), nn.Linear(6, 3), points())
    assert any("120" in text and str(batch) in text for text in words)


def test_training_again_composes_or_says_that_it_does_not() -> None:
    model, plan = nn.Linear(6, 3), plan_of(examples=120)
    first, words = train_quickly(plan, model, points())
    again, later = train_quickly(plan, model, points())
    assert first is not None
    assert words == []
    if again is not None:
        includes_first = again.guarantee.epsilon > 1.05 * first.guarantee.epsilon
        known = {*first.notes, *first.guarantee.notes}
        assert includes_first or (later and {*again.notes, *again.guarantee.notes} - known)


def test_a_batch_that_the_plan_did_not_draw_is_known_by_more_than_its_size() -> None:
    """A foreign batch of the very size that was drawn is warned of, or refused."""
    torch.manual_seed(1)
    model, plan = nn.Linear(6, 3), plan_of(examples=120)
    private = hush.PrivateGradients(model, plan)
    x, y = points().tensors
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            for batch in plan.batches(points()):
                private.backward(cross_entropy, (x[: len(batch[0])], y[: len(batch[0])]))
        except HushError:
            return
    assert [message for message in heard if message.category.__module__.startswith("hush.")]


def test_batches_of_the_plan_are_not_warned_of() -> None:
    model, plan = nn.Linear(6, 3), plan_of(examples=120)
    private = hush.PrivateGradients(model, plan)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for batch in plan.batches(points()):
            private.backward(cross_entropy, batch)


# Full batches never hand out the data set's own memory ----------------------------------------------------------


def test_full_batches_are_copies() -> None:
    data = points()
    plan = Case(nn.Linear(6, 3), sampling="full_batch", steps=2).plan()
    own = {value.data_ptr() for value in data.tensors}
    for batch in plan.batches(data):
        assert not own & {value.data_ptr() for value in batch if isinstance(value, Tensor)}


# Controls ------------------------------------------------------------------------------------------------------


def train_control(name: str, runs: int) -> None:
    for turn in range(runs):
        torch.manual_seed(turn)
        case = control_case(name)
        before = [value.detach().clone() for value in case.parameters()]
        with warnings.catch_warnings():
            warnings.simplefilter("error", category=hush.errors.UnplannedBatch)
            warnings.filterwarnings("ignore", module="torch")
            case.fit()
        assert any(not torch.equal(one, other) for one, other in zip(before, case.parameters(), strict=True))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CONTROLS)
def test_ordinary_model_trains(name: str) -> None:
    train_control(name, USUAL_RUNS)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CONTROLS)
def test_ordinary_model_trains_in_many_runs(name: str) -> None:
    train_control(name, SLOW_RUNS)


def test_measured_sensitivity_of_an_honest_model_is_the_clip_norm() -> None:
    """The measure itself is right: it finds one clip norm where nothing mixes."""
    torch.manual_seed(1)
    case = Case(Between(lambda h: h))
    assert 0.99 < sensitivity(case, hush_total) <= 1 + case.slack
    assert judge(case, Case.fit) == Verdict("harmless")
    assert isinstance(case.dataset, TensorDataset)
