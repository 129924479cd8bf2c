"""Where the exact accountant was once wrong, or gave up without a clear answer."""

from __future__ import annotations

import math

import pytest

from hush import accounting, events
from hush.events import ApproximateDP, Composed, Event, Gaussian, GaussianDP, Laplace, PoissonSampled, PureDP, Repeated

FEW = Repeated(PoissonSampled(Gaussian(2.0), 0.01), 10_000)
MANY = Repeated(PoissonSampled(Gaussian(8.0), 0.05), 20_000)

# Truth: the same contour with the bounded losses' transforms in 40 digits, delta 1e-6, add_remove; digits shown hold.
CROWDS = [
    (Composed(FEW, Repeated(PureDP(1e-5), 10**7)), 2.451321456135, 1e-12),
    (Composed(FEW, Repeated(PureDP(1e-6), 10**9)), 2.45132145614, 1e-11),
    (Composed(FEW, Repeated(PureDP(1e-7), 10**10)), 2.44719298527, 1e-11),
    (Composed(MANY, Repeated(PureDP(1e-7), 10**10)), 4.27471325174, 1e-11),
    (Composed(MANY, Repeated(Laplace(1e7), 10**10)), 4.27471325173, 1e-11),
    (Composed(MANY, Repeated(Laplace(1 / 3e-5), 10**6)), 4.27715374549, 1e-11),
]


@pytest.mark.parametrize(("event", "truth", "digits"), CROWDS)
def test_rounding_of_very_many_small_losses_is_counted(event: Event, truth: float, digits: float) -> None:
    found = accounting.guarantee(event, delta=1e-6)
    assert found.epsilon_lower <= truth + digits
    assert found.epsilon >= truth - digits
    assert found.gap < 1e-8


@pytest.mark.parametrize(
    "event",
    [
        Composed(Repeated(PoissonSampled(Gaussian(1.0), 0.01), 1000), Repeated(Laplace(1e7), 10**10)),
        Composed(Repeated(PoissonSampled(Gaussian(1000.0), 1e-9), 1000), Repeated(PureDP(0.1), 50)),
        Composed(PoissonSampled(Gaussian(10.0), 1e-9), Repeated(Laplace(100.0), 10_000)),
        Repeated(ApproximateDP(0.1, 0.999999999), 1000),
        Gaussian(1e-200),
        Composed(PoissonSampled(Gaussian(1.0), 0.1), GaussianDP(1e200)),
        Repeated(PoissonSampled(Gaussian(1e-200), 0.5), 3),
        Composed(PoissonSampled(Gaussian(1.0), 0.01), Laplace(1e-300)),
        Composed(PoissonSampled(Gaussian(1.0), 0.01), PureDP(1e300)),
    ],
)
def test_extreme_events_get_an_interval(event: Event) -> None:
    found = accounting.guarantee(event, delta=1e-6)
    assert 0 <= found.epsilon_lower <= found.epsilon


@pytest.mark.parametrize(
    "event",
    [
        Composed(Repeated(PoissonSampled(Gaussian(1000.0), 1e-9), 1000), Repeated(PureDP(0.1), 50)),
        Composed(PoissonSampled(Gaussian(10.0), 1e-9), Repeated(Laplace(100.0), 10_000)),
    ],
)
def test_the_upper_end_is_finite_where_the_renyi_bound_is(event: Event) -> None:
    found = accounting.guarantee(event, delta=1e-6)
    assert found.epsilon <= accounting.guarantee(event, delta=1e-6, method="rdp").epsilon < math.inf
    assert found.epsilon_lower <= found.epsilon


@pytest.mark.parametrize(
    ("event", "epsilon", "relation"),
    [
        (Repeated(PoissonSampled(Gaussian(0.1), 0.99), 3), 1e-7, "replace_one"),
        (Repeated(PoissonSampled(Gaussian(0.1), 0.99), 3), 1e-3, "replace_one"),
        (Composed(PoissonSampled(Gaussian(1.0), 0.01), Gaussian(0.005)), 1.0, "add_remove"),
        (Repeated(PoissonSampled(Gaussian(1e200), 0.5), 3), 0.1, "add_remove"),
        (Composed(PoissonSampled(Gaussian(1.0), 0.01), Laplace(0.001)), 1e-200, "add_remove"),
        (Composed(PoissonSampled(Gaussian(1.0), 0.01), PureDP(1e-300)), 1e300, "add_remove"),
    ],
)
def test_extreme_questions_get_an_interval(event: Event, epsilon: float, relation: str) -> None:
    found = accounting.delta(event, epsilon=epsilon, relation=relation)  # type: ignore[arg-type]
    assert 0 <= found.delta_lower <= found.delta <= 1


def test_an_approximate_claim_holds_at_its_own_delta() -> None:
    found = accounting.guarantee(ApproximateDP(0.2, 1e-7), delta=1e-7)
    assert found.epsilon == pytest.approx(0.2, rel=1e-12)
    assert accounting.guarantee(ApproximateDP(0.2, 1e-7), delta=math.nextafter(1e-7, 0)).epsilon == math.inf


def test_a_method_note_says_how_it_was_found() -> None:
    assert accounting.guarantee(FEW, delta=1e-6).notes == ("by contour",)
    assert "closed form" in accounting.guarantee(events.Gaussian(1.0), delta=1e-6).notes[0]


def test_orders_whose_moments_overflow_bound_no_alias() -> None:
    """One step: the closed form P(u > x) - e^epsilon Q(u > x) in 60 digits is the truth; once it was left outside."""
    event = PoissonSampled(Gaussian(7.971674497457102), 0.05581606412345251)
    found = accounting.guarantee(event, delta=3.916078400698478e-30, relation="replace_one")
    assert found.epsilon_lower <= 0.19020008438939961 <= found.epsilon
    assert found.gap < 1e-8


@pytest.mark.parametrize(
    ("phases", "epsilon", "low", "high"),
    [
        (((1.5609442208173795e-07, 1.784224028569677, 34984),), 0.04200940332455521, 0.0, 1e-30),
        (((9e-4, 0.3778, 7982), (0.4781532601915493, 0.4223293758384469, 604580)), 0.7498087367303277, 0.99, 1.0),
    ],
)
def test_delta_where_the_rules_terms_overflow(
    phases: tuple[tuple[float, float, int], ...], epsilon: float, low: float, high: float
) -> None:
    steps = (Repeated(PoissonSampled(Gaussian(noise), prob), times) for prob, noise, times in phases)
    found = accounting.delta(Composed(*steps), epsilon=epsilon, relation="replace_one")
    assert low <= found.delta_lower <= found.delta <= high
