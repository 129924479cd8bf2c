"""Frozen descriptions of what was done to private data, and of how such things compose.

An event states the mathematics of a mechanism and nothing else: which noise, how large against the contribution
of one example, how the examples were sampled, how often. Accountants read events; mechanisms and training yield
them; neither side knows the other. An event is never removed and never changes its meaning.

    >>> step = PoissonSampled(Gaussian(noise_multiplier=4.0), sampling_prob=0.01)
    >>> Repeated(step, times=10_000)
    Repeated(event=PoissonSampled(event=Gaussian(noise_multiplier=4.0), sampling_prob=0.01), times=10000)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from hush import _check
from hush.errors import InvalidValue

MOST_TIMES = 10**12


@dataclass(frozen=True)
class Event:
    """Base of all events."""

    def parts(self) -> tuple[Event, ...]:
        """The events directly inside this one."""
        return tuple(value for field in fields(self) if isinstance(value := getattr(self, field.name), Event))


def _store(event: Event, **values: object) -> None:
    for name, value in values.items():
        object.__setattr__(event, name, value)


def _check_event(name: str, value: object) -> Event:
    if not isinstance(value, Event):
        raise InvalidValue(f"{name} must be an event, such as events.Gaussian(noise_multiplier=1.0); got {value!r}.")
    return value


def _check_samplable(value: object) -> None:
    pending = [_check_event("event", value)]
    while pending:
        event = pending.pop()
        if isinstance(event, MatrixGaussian):
            raise InvalidValue("a MatrixGaussian takes examples in their order; it has no meaning on a random sample.")
        pending.extend(event.parts())


@dataclass(frozen=True)
class Gaussian(Event):
    """A sum plus Gaussian noise. `noise_multiplier` is its standard deviation over one example's contribution."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        _store(self, noise_multiplier=_check.positive("noise_multiplier", self.noise_multiplier))


@dataclass(frozen=True)
class Laplace(Event):
    """A value plus Laplace noise. `scale` is the noise's scale over one example's contribution (L1)."""

    scale: float

    def __post_init__(self) -> None:
        _store(self, scale=_check.positive("scale", self.scale))


@dataclass(frozen=True)
class RandomizedResponse(Event):
    """One answer out of `categories`, true with odds e^epsilon against each other answer."""

    epsilon: float
    categories: int = 2

    def __post_init__(self) -> None:
        _store(
            self,
            epsilon=_check.positive("epsilon", self.epsilon),
            categories=_check.whole("categories", self.categories, least=2),
        )


@dataclass(frozen=True)
class PureDP(Event):
    """Anything that is (epsilon, 0)-differentially private under the relation in use."""

    epsilon: float

    def __post_init__(self) -> None:
        _store(self, epsilon=_check.nonnegative("epsilon", self.epsilon))


@dataclass(frozen=True)
class ApproximateDP(Event):
    """Anything that is (epsilon, delta)-differentially private under the relation in use."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        _store(self, epsilon=_check.nonnegative("epsilon", self.epsilon), delta=_check.delta(self.delta))


@dataclass(frozen=True)
class ZeroConcentratedDP(Event):
    """Anything whose Rényi divergence of every order a > 1 is at most rho * a, under the relation in use."""

    rho: float

    def __post_init__(self) -> None:
        _store(self, rho=_check.nonnegative("rho", self.rho))


@dataclass(frozen=True)
class GaussianDP(Event):
    """Anything no easier to attack than telling N(0, 1) from N(mu, 1), under the relation in use."""

    mu: float

    def __post_init__(self) -> None:
        _store(self, mu=_check.nonnegative("mu", self.mu))


@dataclass(frozen=True)
class NotPrivate(Event):
    """A release with no privacy at all."""


@dataclass(frozen=True)
class MatrixGaussian(Event):
    """`steps` sums with correlated Gaussian noise, on examples that come in an order instead of being sampled.

    The sums S of all steps are released as S + C^-1 Z, with Z independent Gaussian noise and C lower triangular with
    `bands` bands. Each example takes part in `participations` steps at most, any two `min_separation` apart or more.
    `noise_multiplier` is the standard deviation of Z over the most that one example can move C S, so that all steps
    together cost one `Gaussian(noise_multiplier)`. An example that a neighbour lacks leaves its place empty: no other
    example moves.
    """

    noise_multiplier: float
    steps: int
    bands: int
    min_separation: int
    participations: int

    def __post_init__(self) -> None:
        _store(self, noise_multiplier=_check.positive("noise_multiplier", self.noise_multiplier))
        for name in ("steps", "bands", "min_separation", "participations"):
            _store(self, **{name: _check.whole(name, getattr(self, name))})
        if self.bands > self.steps:
            raise InvalidValue(f"bands must not exceed steps; got {self.bands} of {self.steps}.")
        if (self.participations - 1) * self.min_separation >= self.steps:
            raise InvalidValue(
                f"{self.participations} participations, {self.min_separation} steps apart, do not fit into "
                f"{self.steps} steps; lower participations or min_separation."
            )


@dataclass(frozen=True)
class PoissonSampled(Event):
    """`event` on a batch that each example joins independently with chance `sampling_prob`."""

    event: Event
    sampling_prob: float

    def __post_init__(self) -> None:
        _check_samplable(self.event)
        _store(self, sampling_prob=_check.probability("sampling_prob", self.sampling_prob))


@dataclass(frozen=True)
class FixedSizeSampled(Event):
    """`event` on `sample_size` examples drawn without replacement from `num_examples`."""

    event: Event
    sample_size: int
    num_examples: int

    def __post_init__(self) -> None:
        _check_samplable(self.event)
        size = _check.whole("sample_size", self.sample_size)
        total = _check.whole("num_examples", self.num_examples)
        if size > total:
            raise InvalidValue(f"sample_size must not exceed num_examples; got {size} of {total}.")
        _store(self, sample_size=size, num_examples=total)


@dataclass(frozen=True)
class Repeated(Event):
    """`event`, `times` times over; each may depend on what the earlier ones released."""

    event: Event
    times: int

    def __post_init__(self) -> None:
        _check_event("event", self.event)
        times = _check.whole("times", self.times)
        if times > MOST_TIMES:
            raise InvalidValue(f"times must be at most {MOST_TIMES:.0e}; got {times}.")
        _store(self, times=times)


@dataclass(frozen=True, init=False)
class Composed(Event):
    """All of `events`, one after another; each may depend on what the earlier ones released."""

    events: tuple[Event, ...]

    def __init__(self, *events: Event) -> None:
        for index, event in enumerate(events):
            _check_event(f"events[{index}]", event)
        _store(self, events=tuple(events))

    def parts(self) -> tuple[Event, ...]:
        """The composed events."""
        return self.events


def flat(event: Event, times: int = 1) -> Iterator[tuple[Event, int]]:
    """The event as (elementary event, how often) pairs, equal neighbours merged.

    A `MatrixGaussian` counts as the one `Gaussian` that it costs, for adaptive sums too [Denisov, McMahan, Rush, Smith,
    Thakurta 2022, Thm. 2.1].

    >>> list(flat(Composed(Gaussian(1.0), Repeated(Composed(Gaussian(1.0), Laplace(2.0)), times=3))))
    [(Gaussian(noise_multiplier=1.0), 4), (Laplace(scale=2.0), 3)]
    """
    counts: dict[Event, int] = {}
    pending: list[tuple[Event, int]] = [(event, times)]
    while pending:
        current, count = pending.pop()
        if isinstance(current, Repeated):
            pending.append((current.event, count * current.times))
        elif isinstance(current, Composed):
            pending.extend([(part, count) for part in reversed(current.events)])
        elif isinstance(current, MatrixGaussian):
            pending.append((Gaussian(current.noise_multiplier), count))
        else:
            counts[current] = counts.get(current, 0) + count
    yield from counts.items()
