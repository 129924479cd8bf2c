"""Private Theil-Sen regression on neighbouring tables: exact chances, and samples of real draws.

Samples prove more than the truth with a chance of at most 1e-6 in each of four checks. A smaller sensitivity than the
right one must be caught. By exact chances it is at half of it where a point is replaced, and at a quarter where one is
added, because the count of heights below a candidate moves by half as much then. There the proof is a rare pair of
medians, so the tests by sampling take away more.
"""

from __future__ import annotations

import numpy
import pytest
from neighbours import largest_log_ratio
from scipy.special import log_softmax

from hush import Rng, mechanisms
from hush.linear import PrivateTheilSen, repeats, theil_sen
from hush.privacy import Relation

EPSILON, SIGNIFICANCE = 2.0, 1e-6
RELATIONS: tuple[Relation, ...] = ("add_remove", "replace_one")
CAUGHT: dict[Relation, float] = {"replace_one": 0.5, "add_remove": 0.25}
Floats = numpy.ndarray
Choice = tuple[Floats, float, float]  # utilities, sensitivity, epsilon


def choices(monkeypatch: pytest.MonkeyPatch, relation: Relation, norm: float) -> list[list[Choice]]:
    """What goes to the exponential mechanism on each side: utilities, sensitivity, epsilon; for both medians.

    Four points, or three: all lines lie at the lower bound but those through the last point, which reach the upper
    bound at both places, whichever points are paired. Eleven candidates instead of 1,001, so that no set is rare.
    """
    x, y = norm * numpy.array([0.0, 0.01, 0.02, 0.2]), norm * numpy.array([0.0, 0.0, 0.0, 1.0])
    other = (x, 0 * y) if relation == "replace_one" else (x[:-1], y[:-1])
    model = PrivateTheilSen(EPSILON, (0, norm), (0, norm), matchings=3, relation=relation)
    found: list[list[Choice]] = []

    def spy(utilities: Floats, *, sensitivity: float, epsilon: float, rng: Rng) -> int:
        found[-1].append((numpy.asarray(utilities), sensitivity, epsilon))
        return 0

    with monkeypatch.context() as patched:
        patched.setattr(mechanisms, "exponential", spy)
        patched.setattr(theil_sen, "CANDIDATES", 11)
        for table in ((x, y), other):
            found.append([])
            repeats.forget()
            model.fit(*table)
    return found


def log_chances(calls: list[Choice], share: float) -> Floats:
    """Of each pair of candidates, by the mechanism's formula."""
    each = [log_softmax(epsilon * u / (2 * sensitivity * share)) for u, sensitivity, epsilon in calls]
    return numpy.asarray(each[0][:, None] + each[1])


@pytest.mark.parametrize("norm", [1.0, 12.0])
@pytest.mark.parametrize("relation", RELATIONS)
def test_exact_chances_of_theil_sen_and_with_a_smaller_sensitivity(
    norm: float, relation: Relation, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = choices(monkeypatch, relation, norm)
    for share in (1.0, CAUGHT[relation]):
        gap = numpy.abs(log_chances(one, share) - log_chances(other, share)).max()
        assert bool(gap <= EPSILON) is (share == 1.0)


@pytest.mark.parametrize(
    ("norm", "relation", "share", "count"),
    [
        (1.0, "replace_one", 0.2, 4000),
        (12.0, "add_remove", 0.1, 4000),
        pytest.param(12.0, "replace_one", 0.3, 20_000, marks=pytest.mark.slow),
        pytest.param(1.0, "add_remove", 0.2, 20_000, marks=pytest.mark.slow),
    ],
)
def test_theil_sen_keeps_epsilon_and_with_a_smaller_sensitivity_does_not(
    norm: float, relation: Relation, share: float, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real draws of both medians."""
    pair = choices(monkeypatch, relation, norm)
    for chosen in (1.0, share):
        gap = log_chances(pair[0], chosen) - log_chances(pair[1], chosen)
        sides = []
        for calls in pair:
            picks = [
                [mechanisms.exponential(u, sensitivity=s * chosen, epsilon=e, rng=rng) for _ in range(count)]
                for rng in (Rng(),)
                for u, s, e in calls
            ]
            sides.append(gap[picks[0], picks[1]])
        assert (largest_log_ratio(sides[0].tolist(), sides[1].tolist(), significance=SIGNIFICANCE) <= EPSILON) is (
            chosen == 1.0
        )
