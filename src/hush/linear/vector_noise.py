"""Noise for a whole weight vector: its direction is uniform and its length follows a Gamma law.

The density is proportional to exp(-|b| / scale), so a value that moves by at most `sensitivity` is private with
epsilon = sensitivity / scale. Independent Laplace noise on each
coordinate would be another law, with another sensitivity.

What floating point does to it: the draws come from the cryptographic stream of `hush.rng`, 53 random bits each, by
inverse distribution functions that are right to a few units in the last place. They are not exact samples of a real
law, and no exponential beyond 37.4 ever occurs. The released vector is rounded to a public grid that is far finer than
the noise and far coarser than a unit in the last place, so that the low bits, where a naive sum shows which value was
noised, do not leave the fit. That removes a known attack; it is no proof. Gaussian noise (`delta` above 0) comes from
`hush.mechanisms`, whose draws are exact.
"""

from __future__ import annotations

import math

import numpy
from numpy.typing import NDArray

from hush.rng import Rng

Floats = NDArray[numpy.float64]
_GRID_BITS = 20  # the grid is this many powers of two finer than the noise on one coordinate


def gamma_norm(rng: Rng, dimension: int, scale: float) -> Floats:
    """A vector with density proportional to exp(-|b| / scale): uniform direction, length Gamma(dimension, scale)."""
    from scipy.special import ndtri

    uniforms = _uniforms(rng, 2 * dimension)
    direction = ndtri(uniforms[:dimension])
    length = -scale * float(numpy.log(uniforms[dimension:]).sum())  # exponentials, whose sum is Gamma
    return numpy.asarray(direction * (length / float(numpy.linalg.norm(direction))))


def _uniforms(rng: Rng, count: int) -> Floats:
    """Odd multiples of 2^-54 between 0 and 1, each as likely as the others."""
    words = rng.cipher_stream(rng.unused("linear")).words(count + count % 2)[:count].view(numpy.uint64)
    return numpy.asarray(((words >> numpy.uint64(11)).astype(numpy.float64) + 0.5) * 2.0**-53)


def on_grid(values: Floats, noise: float) -> Floats:
    """The values rounded to a public power of two, 2^20 times finer than `noise`.

    >>> on_grid(numpy.array([0.1]), 1.0).tolist() == [round(0.1 * 2**20) / 2**20]
    True
    """
    step = 2.0 ** (math.floor(math.log2(noise)) - _GRID_BITS)
    return numpy.asarray(numpy.round(values / step) * step)
