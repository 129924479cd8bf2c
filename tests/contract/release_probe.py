"""Replace every noise primitive by a draw of known size, and record what reaches it.

A path that releases private data is run three times: on a data set with draws of size 0, on its neighbour with draws
of size 0, and with draws of size 1. The first two differ by the measured sensitivity, the first and the third by the
scale of the noise that really arrives. Their ratio must be what was charged, whatever lies between.

Draws have size `level`: a Gaussian is `level` standard deviations, an exponential is `level` times its mean, and every
sign is +1. Poisson samples take every example, and their probabilities are recorded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy
import pytest
import torch
from scipy import special
from torch import Tensor

from hush import events, sampling
from hush.errors import BudgetExceeded
from hush.gradients import noise, normals
from hush.linear import vector_noise
from hush.mechanisms import bounded, choice, discrete, draws, real
from hush.privacy import Relation


@dataclass(frozen=True)
class Release:
    """One exact value on its way out, and the scale of the noise that it is given."""

    kind: str
    value: Any
    scale: float


@dataclass
class Probe:
    """What reached the noise primitives. `level` is the size of every draw; a list gives one size for each step."""

    level: float | list[float] = 0.0
    draws: int = 0
    releases: list[Release] = field(default_factory=list)
    sampled: list[float] = field(default_factory=list)
    choices: list[numpy.ndarray] = field(default_factory=list)  # exponents of a choice, one for each candidate
    sizes: list[Any] = field(default_factory=list)  # how many candidates share an exponent, or None
    chances: list[float] = field(default_factory=list)  # that an answer of randomized response is kept

    def of_kind(self, kind: str) -> list[Release]:
        return [release for release in self.releases if release.kind == kind]

    def clear(self) -> None:
        self.draws = 0
        for found in (self.releases, self.sampled, self.choices, self.sizes, self.chances):
            found.clear()

    def size(self) -> float:
        self.draws += 1
        return self.level.pop(0) if isinstance(self.level, list) else self.level

    def run(self, function: Callable[[], Any], level: float = 0.0) -> Any:
        """Call the function with draws of this size, and forget what was recorded before."""
        self.clear()
        self.level = level
        return function()


class Book:
    """An account that keeps its charges, and how much noise had been drawn when each came."""

    def __init__(self, probe: Probe, relation: Relation = "add_remove", *, refuses: bool = False) -> None:
        self.relation = relation
        self.charged: list[events.Event] = []
        self.drawn: list[int] = []
        self._probe, self._refuses = probe, refuses

    def charge(self, event: events.Event, /) -> None:
        if self._refuses:
            raise BudgetExceeded("this account has nothing left")
        self.charged.append(event)
        self.drawn.append(self._probe.draws)

    @property
    def event(self) -> events.Event:
        return events.Composed(*self.charged)


@dataclass(frozen=True)
class Price:
    """What an event stands for, read off its fields: no accountant is asked."""

    mu_squared: float = 0.0
    epsilon: float = 0.0
    rho: float = 0.0
    delta: float = 0.0


def price(event: events.Event, relation: Relation = "add_remove") -> Price:
    """Sum the parts of a composition. A replaced example moves a sum twice as far as one that is added."""
    twice = 2.0 if relation == "replace_one" else 1.0
    mu_squared = epsilon = rho = delta = 0.0
    for part, times in events.flat(event):
        match part:
            case events.Gaussian(noise_multiplier=multiplier):
                mu_squared += times * (twice / multiplier) ** 2
            case events.GaussianDP(mu=mu):
                mu_squared += times * mu**2
            case events.Laplace(scale=scale):
                epsilon += times * twice / scale
            case events.PureDP(epsilon=cost):
                epsilon += times * cost
            case events.ApproximateDP(epsilon=cost, delta=failure):
                epsilon, delta = epsilon + times * cost, delta + times * failure
            case events.ZeroConcentratedDP(rho=cost):
                rho += times * cost
            case _:
                raise AssertionError(f"no price for {part}")
    return Price(mu_squared, epsilon, rho, delta)


def replace_everywhere(patch: pytest.MonkeyPatch, original: Any, stand_in: Any) -> None:
    """Put the stand-in wherever a module of the package holds the original by some name."""
    for name, module in list(sys.modules.items()):
        if name == "hush" or name.startswith("hush."):
            for key, value in list(vars(module).items()):
                if value is original:
                    patch.setattr(module, key, stand_in)


def install(patch: pytest.MonkeyPatch) -> Probe:
    """Replace the primitives for as long as the patch holds."""
    probe = Probe()
    _draws_of_mechanisms(patch, probe)
    _draws_of_gradients(patch, probe)
    _draws_of_vectors(patch, probe)

    def bernoulli_rows(num_examples: int, probability: float, stream: object) -> numpy.ndarray:
        probe.sampled.append(probability)
        return numpy.arange(num_examples)

    replace_everywhere(patch, sampling.bernoulli_rows, bernoulli_rows)
    return probe


def _draws_of_mechanisms(patch: pytest.MonkeyPatch, probe: Probe) -> None:
    def floors(self: draws.Draws, line: draws.Line) -> numpy.ndarray:
        sizes = numpy.full(len(line.signs), probe.size())
        return numpy.floor(line.values(sizes)).astype(numpy.int64)

    add, thin, total, count = real._add, discrete.gaussian_integers, bounded._noisy_total, bounded._noisy_count

    def recorded_add(values: Any, scale: float, source: Any, kind: str, down: bool) -> Any:
        probe.releases.append(Release(kind, numpy.array(values, dtype=float), scale))
        return add(values, scale, source, kind, down)

    def gaussian_integers(number: int, stddev: float, source: object) -> numpy.ndarray:
        probe.releases.append(Release("discrete gaussian", None, stddev))
        return numpy.full(number, round(probe.size() * stddev), dtype=numpy.int64)

    def choose(exponents: Any, exponent_at: Any, counts: Any, source: object) -> int:
        probe.size()
        exact = numpy.array([float(exponent_at(place)) for place in range(len(exponents))])
        assert numpy.allclose(exact, exponents)  # both ways to choose follow one law
        probe.choices.append(exact)
        probe.sizes.append(counts)
        return int(numpy.argmin(exponents))

    def accept(self: draws.Draws, exponents: Any, exponent_at: Any) -> numpy.ndarray:
        probe.size()
        exact = numpy.array([float(exponent_at(place)) for place in range(len(exponents))])
        assert numpy.allclose(exact, exponents)
        probe.choices.append(exact)
        return numpy.ones(len(exponents), dtype=bool)

    def flip(self: draws.Draws, number: int, chance: float, interval: object) -> numpy.ndarray:
        probe.size()
        probe.chances.append(chance)
        return numpy.ones(number, dtype=bool)

    def recorded(kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            result = function(*args)
            probe.releases.append(Release(kind, result, numpy.nan))  # its scale shows between two levels
            return result

        return call

    patch.setattr(draws.Draws, "signs", lambda self, number: numpy.ones(number, dtype=numpy.int64))
    patch.setattr(draws.Draws, "floor_normals", floors)
    patch.setattr(draws.Draws, "floor_exponentials", floors)
    patch.setattr(draws.Draws, "accept", accept)
    patch.setattr(draws.Draws, "flip", flip)
    replace_everywhere(patch, add, recorded_add)
    replace_everywhere(patch, thin, gaussian_integers)
    replace_everywhere(patch, choice.choose, choose)
    replace_everywhere(patch, total, recorded("total", total))
    replace_everywhere(patch, count, recorded("count", count))


def _draws_of_gradients(patch: pytest.MonkeyPatch, probe: Probe) -> None:
    def pieces(self: normals.NormalStream, count: int, *, ahead: int = 0) -> Iterator[Tensor]:
        yield torch.full((count,), probe.size(), dtype=self.dtype)

    add = noise.NoiseSource.add

    def recorded_add(self: noise.NoiseSource, gradients: dict[str, Tensor], stddev: float) -> dict[str, Tensor]:
        exact = {name: value.detach().double().clone().numpy() for name, value in gradients.items()}
        probe.releases.append(Release("gradients", exact, stddev))
        return add(self, gradients, stddev)

    patch.setattr(normals.NormalStream, "pieces", pieces)
    patch.setattr(noise.NoiseSource, "add", recorded_add)


def _draws_of_vectors(patch: pytest.MonkeyPatch, probe: Probe) -> None:
    gamma = vector_noise.gamma_norm

    def uniforms(rng: object, count: int) -> numpy.ndarray:
        """One coordinate of the direction is 1 and the others 0; every exponential is `level`."""
        result = numpy.full(count, numpy.exp(-probe.size()))
        result[: count // 2] = 0.5
        result[0] = special.ndtr(1.0)
        return result

    def recorded(rng: Any, dimension: int, scale: float) -> numpy.ndarray:
        probe.releases.append(Release("gamma", dimension, scale))
        return gamma(rng, dimension, scale)

    patch.setattr(vector_noise, "_uniforms", uniforms)
    replace_everywhere(patch, gamma, recorded)


def flat_norm(one: Any, other: Any, order: int = 2) -> float:
    """The distance of two arrays, or of two dictionaries of arrays taken as one vector."""
    if isinstance(one, dict):
        one, other = (numpy.concatenate([value.ravel() for value in found.values()]) for found in (one, other))
    difference = numpy.asarray(one, dtype=float) - numpy.asarray(other, dtype=float)
    return float(numpy.linalg.norm(difference.ravel(), order))
