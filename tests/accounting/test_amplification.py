"""Amplification by sampling, against the privacy curve of a sampled randomized response."""

import json
import math
from pathlib import Path

import mpmath
import pytest

from hush.accounting.amplification import fixed_size, poisson
from hush.errors import InvalidValue

REFERENCE = json.loads((Path(__file__).parents[1] / "reference" / "classic_accounting.json").read_text())


@pytest.mark.parametrize("row", REFERENCE["amplification"])
def test_poisson_matches_the_reference(row):
    epsilon, delta = poisson(row["epsilon"], 1e-5, row["sampling_prob"])
    assert epsilon == pytest.approx(row["amplified"], rel=1e-11)
    assert delta == pytest.approx(1e-7, rel=1e-14)


@pytest.mark.parametrize("epsilon", [1e-12, 1e-3, 1.0, 29.0, 31.0, 650.0, 5000.0])
@pytest.mark.parametrize("sampling_prob", [1e-9, 0.01, 0.5, 0.999])
def test_poisson_is_the_formula_rounded_up(epsilon, sampling_prob):
    with mpmath.workdps(60):
        exact = mpmath.log(1 + mpmath.mpf(sampling_prob) * mpmath.expm1(mpmath.mpf(epsilon)))
        assert exact <= mpmath.mpf(poisson(epsilon, 0.0, sampling_prob)[0]) * (1 + mpmath.mpf(1e-15))
        assert poisson(epsilon, 0.0, sampling_prob)[0] <= exact * (1 + mpmath.mpf(1e-14))


def test_poisson_is_tight_for_randomized_response():
    epsilon, sampling_prob = 1.3, 0.2
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    largest_ratio = ((1 - sampling_prob) * (1 - truth) + sampling_prob * truth) / (1 - truth)
    assert poisson(epsilon, 0.0, sampling_prob)[0] == pytest.approx(math.log(largest_ratio), rel=1e-13)


def test_edge_cases():
    assert poisson(2.0, 1e-5, 1.0) == (2.0, 1e-5)
    assert poisson(0.0, 1e-5, 0.1) == pytest.approx((0.0, 1e-6))
    assert poisson(math.inf, 0.0, 0.1)[0] == math.inf
    assert fixed_size(1.0, 1e-5, 10, 1000) == poisson(1.0, 1e-5, 0.01)
    assert fixed_size(1.0, 1e-5, 7, 7) == (1.0, 1e-5)


@pytest.mark.parametrize(
    "arguments", [(1.0, 1e-5, 0.0), (1.0, 1e-5, 1.5), (-1.0, 0.0, 0.5), (1.0, 1.0, 0.5), (math.nan, 0.0, 0.5)]
)
def test_poisson_refuses_what_is_outside_the_domain(arguments):
    with pytest.raises(InvalidValue):
        poisson(*arguments)


def test_fixed_size_refuses_a_sample_larger_than_the_data():
    with pytest.raises(InvalidValue, match="5 of 4"):
        fixed_size(1.0, 0.0, 5, 4)
