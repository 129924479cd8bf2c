"""Noise over sensitivity equals the charged event in training and in federated rounds.

Measured on what leaves: the gradient in `.grad`, the weights after `fit`, the server's model after a round, and the
adaptive clip norm. Nothing between the data and these is looked at.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from release_probe import Probe, flat_norm, install
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from hush import Budget, Ledger, TrainingPlan, events, fit
from hush.errors import BudgetExceeded
from hush.federated import PrivateRounds
from hush.gradients.noise import NoiseSource
from hush.training import AdaptiveClipping, PrivateGradients

NOISE, CLIP, EXPECTED, ROWS = 1.6, 0.7, 4, 8
ADAPTIVE = AdaptiveClipping(quantile=0.5, count_stddev=3.0, rate=0.25)
PLANS: dict[str, dict[str, Any]] = {
    "poisson": {},
    "secure": {"secure": True},
    "replace one": {"relation": "replace_one", "sampling": "full_batch", "sampling_prob": 1.0},
    "full batch": {"sampling": "full_batch", "sampling_prob": 1.0},
    "truncated": {"sampling": "truncated_poisson", "max_batch_size": 40, "num_examples": 50},
    "micro-batches": {"physical_batch_size": 3},
    "per layer": {"clipping": "per_layer"},
    "automatic": {"clipping": "automatic"},
    "adaptive": {"adaptive": ADAPTIVE},
    "adaptive, secure": {"adaptive": ADAPTIVE, "secure": True},
    "augmented": {"augmentations": 3},
    "person": {"unit": "person"},
}


@pytest.fixture
def probe() -> Iterator[Probe]:
    with pytest.MonkeyPatch.context() as patch:
        yield install(patch)


def plan_of(**changes: Any) -> TrainingPlan:
    usual: dict[str, Any] = {
        "noise_multiplier": NOISE, "sampling_prob": 0.25, "expected_batch_size": EXPECTED, "steps": 3,
        "clip_norm": CLIP, "delta": 1e-5,
    }  # fmt: skip
    return TrainingPlan(**{**usual, **changes})


def model_of() -> nn.Module:
    return nn.Linear(3, 2, bias=False)


def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The gradient of an example is y times its row, whatever the weights; y = 0 gives a gradient of 0."""
    return y * model(x).sum(1)


def examples(number: int, extra: bool) -> TensorDataset:
    """Examples of gradient 0, and one more with a gradient far longer than any clip norm."""
    x, y = torch.ones(number + extra, 3), torch.zeros(number + extra)
    if extra:
        y[-1] = 1e4
    return TensorDataset(x, y)


def options(plan: TrainingPlan, number: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if plan.unit == "person":
        found["people"] = torch.arange(number)
    if plan.augmentations > 1:
        found["augment"] = lambda batch: batch
    return found


def first_release(plan: TrainingPlan, extra: bool, account: Any = None) -> tuple[numpy.ndarray, float]:
    """Return the first noisy sum and the noisy count behind the next clip norm."""
    data, model = examples(ROWS, extra), model_of()
    batch = next(iter(plan.batches(data, **options(plan, len(data)))))
    private = PrivateGradients(model, plan, account=account)
    private.backward(loss_fn, batch)
    gradients = [value.grad for value in model.parameters()]
    total = torch.cat([value.ravel() for value in gradients if value is not None]).double().numpy() * EXPECTED
    return total, count_behind(private.clip_norm.value, plan)


def count_behind(clip_norm: float, plan: TrainingPlan) -> float:
    """Invert the rule by which the clip norm follows the noisy count."""
    if plan.adaptive is None:
        return 0.0
    share = plan.adaptive.quantile - math.log(clip_norm / plan.clip_norm) / plan.adaptive.rate
    return (share - 0.5) * plan.expected_batch_size


def one_scale(noisy: numpy.ndarray, exact: numpy.ndarray) -> float:
    """Return the standard deviation that every coordinate got."""
    arrived = noisy - exact
    assert arrived == pytest.approx(numpy.full_like(arrived, arrived[0]), rel=1e-4)
    return float(arrived[0])


def adaptive_plan(name: str) -> dict[str, Any]:
    """Wide enough a batch size that no count is cut off."""
    return {**PLANS[name], "expected_batch_size": 40} if "adaptive" in name else PLANS[name]


@pytest.mark.parametrize("name", PLANS)
def test_backward(probe: Probe, monkeypatch: pytest.MonkeyPatch, name: str, tmp_path: Path) -> None:
    plan = plan_of(**adaptive_plan(name))
    monkeypatch.setattr(f"{__name__}.EXPECTED", plan.expected_batch_size)
    account = Ledger(tmp_path / "ledger.db").account("a", Budget(1e6, 1e-5), relation=plan.relation)
    exact, count = probe.run(lambda: first_release(plan, True, account))
    sampled = list(probe.sampled)
    fewer, fewer_count = probe.run(lambda: first_release(plan, False))
    noisy, noisy_count = probe.run(lambda: first_release(plan, True), 1.0)
    moved = flat_norm(exact, fewer)
    # AUTO-S shortens a gradient g to C |g| / (|g| + 0.01).
    assert moved == pytest.approx(CLIP, rel=1e-4)
    mu_squared = (moved / one_scale(noisy, exact)) ** 2
    if plan.adaptive is not None:
        assert abs(count - fewer_count) == pytest.approx(0.5)
        mu_squared += (0.5 / (noisy_count - count)) ** 2
        assert noisy_count - count == pytest.approx(ADAPTIVE.count_stddev, rel=1e-4)
    assert mu_squared == pytest.approx(NOISE**-2, rel=2e-4)
    charged = {part for event in account.event.parts() for part, _ in events.flat(event)}
    amplified = {part for part in charged if not isinstance(part, events.ApproximateDP)}
    if plan.sampling_prob < 1:
        assert amplified == {events.PoissonSampled(events.Gaussian(NOISE), plan.sampling_prob)}
        assert set(sampled) == {plan.sampling_prob}
    else:
        assert amplified == {events.Gaussian(NOISE)}
        assert not sampled
    assert len(charged - amplified) == (plan.sampling == "truncated_poisson")


@pytest.mark.parametrize(("cap", "number"), [(2, 3), (3, 6), (5, 6), (6, 6)])
def test_truncation_is_charged_the_chance_that_the_others_fill_a_batch(cap: int, number: int) -> None:
    plan = plan_of(sampling="truncated_poisson", max_batch_size=cap, num_examples=number, expected_batch_size=1)
    others = range(cap, number)  # of number - 1 examples, so many or more are drawn
    chance = sum(math.comb(number - 1, drawn) * 0.25**drawn * 0.75 ** (number - 1 - drawn) for drawn in others)
    deltas = [part.delta for part, _ in events.flat(plan.step_event) if isinstance(part, events.ApproximateDP)]
    assert sum(deltas) == pytest.approx(chance, rel=1e-8)
    assert sum(deltas) >= chance


@pytest.mark.parametrize("name", ["poisson", "full batch", "adaptive", "truncated"])
def test_fit(probe: Probe, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    """The weights after three steps of plain descent show the three releases added up."""
    plan = plan_of(**adaptive_plan(name))
    ledger = Ledger(tmp_path / "ledger.db")
    paid: list[int] = []
    add = NoiseSource.add

    def watched(self: NoiseSource, gradients: dict[str, Tensor], stddev: float) -> dict[str, Tensor]:
        paid.append(sum(times for _, times in events.flat(ledger.account("a").event)))
        return add(self, gradients, stddev)

    def train(extra: bool, account: Any = None) -> Any:
        model = model_of()
        start = [value.detach().clone() for value in model.parameters()]
        run = fit(
            plan, model, examples(ROWS, extra), loss_fn=loss_fn, optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
            ledger=None if account is None else ledger, account=account, progress=False, guard_steps=0,
        )  # fmt: skip
        moves = [(now.detach() - old).ravel() for now, old in zip(model.parameters(), start, strict=True)]
        return -torch.cat(moves).double().numpy() * plan.expected_batch_size, run

    ledger.account("a", Budget(1e6, 1e-5))
    with monkeypatch.context() as patch:
        patch.setattr(NoiseSource, "add", watched)
        exact, run = probe.run(lambda: train(True, "a"))
    fewer, _ = probe.run(lambda: train(False))
    noisy, _ = probe.run(lambda: train(True), 1.0)
    if plan.adaptive is None:
        assert flat_norm(exact, fewer) == pytest.approx(plan.steps * CLIP, rel=1e-4)
        assert one_scale(noisy, exact) == pytest.approx(plan.steps * NOISE * CLIP, rel=1e-4)
    assert list(events.flat(run.event)) == list(events.flat(ledger.account("a").event))
    assert {times for _, times in events.flat(run.event)} == {plan.steps}
    assert len(paid) == plan.steps
    assert all(count >= step for step, count in enumerate(paid, 1))  # charged on disk before the noise


def test_a_step_that_does_not_fit_draws_no_noise(probe: Probe, tmp_path: Path) -> None:
    account = Ledger(tmp_path / "ledger.db").account("a", Budget(1e-3, 1e-5))
    with pytest.raises(BudgetExceeded):
        first_release(plan_of(), True, account)
    assert probe.draws == 0


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("bands", [1, 3])
def test_correlated_noise(probe: Probe, bands: int, secure: bool) -> None:
    """All steps are one release G + B z: an example that moves G by D costs mu = |B^-1 D|, at most 1 / NOISE."""
    steps = 8
    plan = plan_of(
        sampling="ordered", sampling_prob=1.0, expected_batch_size=2, num_examples=8, steps=steps, bands=bands,
        secure=secure, relation="zero_out",
    )  # fmt: skip

    def train(extra: bool, level: list[float]) -> numpy.ndarray:
        probe.clear()
        probe.level = list(level)
        model, found = model_of(), []
        private = PrivateGradients(model, plan)
        for batch in plan.batches(examples(7, extra)):
            private.backward(loss_fn, batch)
            (gradient,) = (value.grad for value in model.parameters())
            assert gradient is not None
            found.append(gradient.double().numpy().ravel() * 2)
        assert private.guarantee().epsilon == plan.guarantee().epsilon
        return numpy.array(found)

    still = train(True, [0.0] * steps)
    difference = still - train(False, [0.0] * steps)
    assert numpy.linalg.norm(difference, axis=1) == pytest.approx([0, 0, 0, CLIP] * 2, rel=1e-4)
    response = [train(True, row) - still for row in numpy.eye(steps).tolist()]
    noise = numpy.array([found[:, 0] for found in response]).T  # column t: what draw t adds to every step
    assert all((abs(found - found[:, :1]) < 1e-4).all() for found in response)
    mu = flat_norm(numpy.linalg.solve(noise, difference), 0 * difference)
    assert 0.9 < mu * NOISE <= 1 + 1e-4
    assert plan.event == events.MatrixGaussian(NOISE, steps, bands, 4, 2)


# Federated rounds ----------------------------------------------------------------------------------------------

ROUNDS: dict[str, dict[str, Any]] = {
    "poisson": {},
    "secure": {"secure": True},
    "full batch": {"sampling": "full_batch", "sampling_prob": 1.0},
    "adaptive": {"adaptive": ADAPTIVE, "expected_batch_size": 40},
}
START = {"weight": numpy.zeros((3, 2)), "bias": numpy.zeros(2)}


@pytest.mark.parametrize("rate", [1.0, 0.5])
@pytest.mark.parametrize("name", ROUNDS)
def test_rounds(probe: Probe, tmp_path: Path, name: str, rate: float) -> None:
    plan = plan_of(**ROUNDS[name])
    account = Ledger(tmp_path / "ledger.db").account("a", Budget(1e6, 1e-5))

    def finish(extra: bool, account: Any = None) -> tuple[numpy.ndarray, float]:
        rounds = PrivateRounds(plan, START, account=account, rate=rate)
        clients = rounds.choose(range(ROWS + extra))
        far = {key: value + 1e6 for key, value in START.items()}
        rounds.finish({client: far if client == ROWS else START for client in clients})
        model = numpy.concatenate([value.ravel() for value in rounds.arrays.values()])
        return model * plan.expected_batch_size / rate, count_behind(rounds.clip_norm.value, plan)

    exact, count = probe.run(lambda: finish(True, account))
    sampled = list(probe.sampled)
    fewer, fewer_count = probe.run(lambda: finish(False))
    noisy, noisy_count = probe.run(lambda: finish(True), 1.0)
    moved = flat_norm(exact, fewer)
    assert moved == pytest.approx(CLIP, rel=1e-4)  # secure noise rounds to a grid
    mu_squared = (moved / one_scale(noisy, exact)) ** 2
    if plan.adaptive is not None:
        assert abs(count - fewer_count) == pytest.approx(0.5)
        mu_squared += (0.5 / (noisy_count - count)) ** 2
    assert mu_squared == pytest.approx(NOISE**-2, rel=1e-4)
    step: events.Event = events.Gaussian(NOISE)
    if plan.sampling == "poisson":
        step = events.PoissonSampled(step, 0.25)
        assert sampled == [0.25]
    assert list(events.flat(account.event)) == [(step, 1)]


def test_a_round_that_does_not_fit_draws_no_noise(probe: Probe, tmp_path: Path) -> None:
    rounds = PrivateRounds(plan_of(), START, account=Ledger(tmp_path / "ledger.db").account("a", Budget(1e-3, 1e-5)))
    with pytest.raises(BudgetExceeded):
        rounds.finish(dict.fromkeys(rounds.choose(range(ROWS)), START))
    assert probe.draws == 0
