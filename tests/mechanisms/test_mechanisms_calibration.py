"""Gaussian noise for a budget, against 40 digits and published values."""

from __future__ import annotations

import mpmath
import pytest

from hush.errors import InvalidValue
from hush.mechanisms import classical_gaussian_noise_for, gaussian_noise_for

# epsilon, delta -> standard deviation for sensitivity 1, to ten decimals
PUBLISHED = {
    (0.1, 1e-5): 30.7495661320,
    (0.5, 1e-5): 7.0318266756,
    (1.0, 1e-5): 3.7306316348,
    (2.0, 1e-5): 1.9938124456,
    (4.0, 1e-5): 1.0811618495,
    (8.0, 1e-5): 0.6002290722,
    (10.0, 1e-5): 0.4998886197,
    (0.1, 1e-6): 36.3046904262,
    (0.5, 1e-6): 8.0576184807,
    (1.0, 1e-6): 4.2246788893,
    (2.0, 1e-6): 2.2304762712,
    (4.0, 1e-6): 1.1935185872,
    (8.0, 1e-6): 0.6529353844,
    (10.0, 1e-6): 0.5410868318,
}
# noise -> epsilon at delta 1e-5 and 1e-6
EPSILONS = {0.5: (9.99725615, 10.99715121), 1.0: (4.37717810, 4.88655412), 2.0: (1.99309140, 2.25408465)}
WIDE = [(1e-4, 1e-3), (1e-3, 1e-12), (0.1, 0.4), (1.0, 1e-30), (3.0, 1e-100), (50.0, 1e-5), (300.0, 1e-9), (20.0, 0.9)]


def true_delta(epsilon: float, stddev: float) -> mpmath.mpf:
    """Balle and Wang's formula in 400 digits, which leaves no doubt about cancellation."""
    with mpmath.workdps(400):
        s, e = mpmath.mpf(stddev), mpmath.mpf(epsilon)
        return +(mpmath.ncdf(1 / (2 * s) - e * s) - mpmath.exp(e) * mpmath.ncdf(-1 / (2 * s) - e * s))


@pytest.mark.parametrize(("epsilon", "delta"), [*PUBLISHED, *WIDE])
def test_noise_is_enough_and_a_trillionth_less_is_not(epsilon: float, delta: float) -> None:
    stddev = gaussian_noise_for(epsilon, delta, 1.0)
    assert true_delta(epsilon, stddev) <= delta
    assert true_delta(epsilon, stddev * (1 - 1e-12)) > delta


@pytest.mark.parametrize(("setting", "stddev"), PUBLISHED.items(), ids=str)
def test_published_values(setting: tuple[float, float], stddev: float) -> None:
    assert gaussian_noise_for(*setting, 1.0) == pytest.approx(stddev, abs=6e-11)


@pytest.mark.parametrize("stddev", EPSILONS)
def test_published_epsilons(stddev: float) -> None:
    for epsilon, delta in zip(EPSILONS[stddev], (1e-5, 1e-6), strict=True):
        assert gaussian_noise_for(epsilon, delta, 1.0) == pytest.approx(stddev, abs=1e-8)


def test_noise_grows_with_sensitivity() -> None:
    assert gaussian_noise_for(1.0, 1e-5, 250.0) == pytest.approx(250 * gaussian_noise_for(1.0, 1e-5, 1.0), rel=1e-15)


def test_classical_formula_is_refused_where_it_is_not_proven() -> None:
    assert classical_gaussian_noise_for(1.0, 1e-5, 2.0) == pytest.approx(9.6896, abs=1e-4)
    with pytest.raises(InvalidValue, match="proven for epsilon up to 1"):
        classical_gaussian_noise_for(1.01, 1e-5, 1.0)


def test_why_the_classical_formula_is_refused() -> None:
    classical = float(mpmath.sqrt(2 * mpmath.log(1.25 / 1e-5)))
    assert true_delta(8.3, classical / 8.3) < 1e-5
    assert true_delta(8.5, classical / 8.5) > 1e-5
    assert float(true_delta(10.0, classical / 10)) == pytest.approx(2.27e-5, abs=1e-7)


@pytest.mark.parametrize(
    ("epsilon", "delta", "sensitivity"),
    [(0, 1e-5, 1), (-1, 1e-5, 1), (float("nan"), 1e-5, 1), (float("inf"), 1e-5, 1), (1, 0, 1), (1, 1, 1), (1, -0.1, 1),
     (1, 1e-5, 0), (1, 1e-5, float("inf")), (1, 1e-5, float("nan")), ("1", 1e-5, 1)],
)  # fmt: skip
def test_bad_values_are_refused(epsilon: float, delta: float, sensitivity: float) -> None:
    for function in (gaussian_noise_for, classical_gaussian_noise_for):
        with pytest.raises(InvalidValue):
            function(epsilon, delta, sensitivity)
