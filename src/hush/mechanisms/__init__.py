"""Noise for released numbers, counts and choices. Each function charges its event, then draws, then returns."""

from hush.mechanisms.bounded import count, mean, quantile, sum
from hush.mechanisms.calibration import classical_gaussian_noise_for, gaussian_noise_for
from hush.mechanisms.choice import exponential, report_noisy_max
from hush.mechanisms.discrete import discrete_gaussian, discrete_laplace
from hush.mechanisms.gaussian import gaussian
from hush.mechanisms.histogram import histogram, stability_threshold
from hush.mechanisms.laplace import laplace
from hush.mechanisms.survey import randomized_response

__all__ = [
    "classical_gaussian_noise_for",
    "count",
    "discrete_gaussian",
    "discrete_laplace",
    "exponential",
    "gaussian",
    "gaussian_noise_for",
    "histogram",
    "laplace",
    "mean",
    "quantile",
    "randomized_response",
    "report_noisy_max",
    "stability_threshold",
    "sum",
]
