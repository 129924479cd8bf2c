"""The skew normal distribution: its fit, and its left tail as a logarithm, where the value itself would be 0."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hush.attacks.language import Floats
from hush.errors import InvalidValue

_MOST_SKEW = 0.99  # of the sample; the distribution's own limit is 0.9953
_NODES = 400
_TAIL = 1e-6  # below it the plain formula, a difference of two functions, has lost digits


@dataclass(frozen=True)
class SkewNormal:
    """Density 2 phi(z) Phi(shape z) / scale, with z = (x - location) / scale."""

    shape: float
    location: float
    scale: float

    def log2_cdf(self, values: Floats) -> Floats:
        """log2 P(X <= value), good far out on the left, where the probability itself rounds to 0."""
        from scipy.stats import skewnorm

        z = (np.asarray(values, dtype=np.float64) - self.location) / self.scale
        plain = skewnorm.cdf(z, self.shape)
        tail = self._log_tail(np.minimum(z, 0.0)) / math.log(2)
        return np.asarray(np.where((plain > _TAIL) | (z > 0), np.log2(np.maximum(plain, _TAIL)), tail))

    def _log_tail(self, z: Floats) -> Floats:
        """log P(Z <= z) for z below 0, by Gauss-Legendre on nodes that crowd near z: the density falls from there."""
        from scipy.special import logsumexp

        reach = (40 / np.maximum(1.0, -z))[..., None]  # beyond it the density is below e^-40 of that at z
        nodes, weights = np.polynomial.legendre.leggauss(_NODES)
        distance, jacobian = reach * (nodes + 1) ** 3 / 8, reach * 3 * (nodes + 1) ** 2 / 8
        return np.asarray(logsumexp(self._log_density(z[..., None] - distance) + np.log(weights * jacobian), axis=-1))

    def _log_density(self, z: Floats) -> Floats:
        from scipy.special import log_ndtr

        return np.asarray(math.log(2) - z**2 / 2 - 0.5 * math.log(2 * math.pi) + log_ndtr(self.shape * z))

    def p_value(self, values: Floats) -> float:
        """Of the Kolmogorov-Smirnov test; a little too kind, since the parameters come from the same values."""
        from scipy.stats import kstest, skewnorm

        return float(kstest(values, skewnorm(self.shape, self.location, self.scale).cdf).pvalue)


def fit_skew_normal(values: Floats) -> SkewNormal:
    """The likeliest parameters, searched from those with the same mean, variance and skewness."""
    from scipy.optimize import minimize
    from scipy.special import log_ndtr

    if len(values) < 10 or float(np.std(values)) == 0:
        raise InvalidValue("a skew normal needs at least 10 references that differ.")
    shape, location, scale = _by_moments(values)

    def surprise(point: Floats) -> float:
        z = (values - point[1]) / math.exp(point[2])
        return float(np.mean(z**2 / 2 + point[2] - log_ndtr(point[0] * z)))

    start = np.array([shape, location, math.log(scale)])
    found = minimize(surprise, start, method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-10, "maxiter": 4000})
    best = found.x if found.fun <= surprise(start) else start
    return SkewNormal(float(best[0]), float(best[1]), math.exp(float(best[2])))


def _by_moments(values: Floats) -> tuple[float, float, float]:
    centre, spread = float(np.mean(values)), float(np.std(values))
    skew = float(np.clip(np.mean(((values - centre) / spread) ** 3), -_MOST_SKEW, _MOST_SKEW))
    part = abs(skew) ** (2 / 3)
    delta = math.copysign(math.sqrt(math.pi / 2 * part / (part + ((4 - math.pi) / 2) ** (2 / 3))), skew)
    scale = spread / math.sqrt(1 - 2 * delta**2 / math.pi)
    return delta / math.sqrt(1 - delta**2), centre - scale * delta * math.sqrt(2 / math.pi), scale
