"""Correlated noise for data that cannot be sampled at random: each step takes back a part of the earlier steps' noise.

    >>> import torch
    >>> strategy = BandedStrategy.square_root(steps=8, bands=2, min_separation=4, participations=2)
    >>> noise = CorrelatedNoise(strategy, Rng.from_seed(7))
    >>> _ = noise.add({"weight": torch.zeros(3)}, stddev=1.0)
    >>> noise.remaining
    7

The noise of the last `bands - 1` steps is kept in memory and never on disk, where it would undo what it hides. A run
that goes on after a crash must begin a new strategy, which is a second event and a second charge.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from torch import Tensor

from hush import _check
from hush.errors import InvalidValue
from hush.events import MatrixGaussian
from hush.gradients.noise import NoiseSource, add_on_grid, add_plain, flat, hold_in_range, write_back
from hush.rng import Rng, StreamLock
from hush.sampling import OrderedPasses
from hush.training.matrix_factorization import BandedStrategy

if TYPE_CHECKING:
    from hush.training.plan import TrainingPlan


class CorrelatedNoise:
    """The noise C^-1 Z of a strategy, one row at each step, by forward substitution: as many as the strategy has steps.

    `add(gradients, stddev)` takes noise_multiplier * clip_norm as `stddev`, as for independent noise. The strategy's
    own sensitivity is multiplied in here, so that all its steps together cost one `Gaussian(noise_multiplier)`.
    """

    def __init__(self, strategy: BandedStrategy, rng: Rng, *, secure: bool = False) -> None:
        self.strategy = strategy
        self.remaining = strategy.steps
        self._source = NoiseSource(rng, secure=secure)
        self._past: deque[dict[str, Tensor]] = deque(maxlen=strategy.bands - 1)  # the latest first, for stddev 1
        self._lock = StreamLock()  # two threads would mix up whose noise is the past of whose

    @property
    def secure(self) -> bool:
        """Whether sums are rounded to a grid, as in `NoiseSource`."""
        return self._source.secure

    def add(self, gradients: dict[str, Tensor], stddev: float) -> dict[str, Tensor]:
        """Add this step's noise in place, and give the same dictionary back. The names and shapes stay the same."""
        scale = _check.positive("stddev", stddev) * self.strategy.sensitivity
        with self._lock:
            if not self.remaining:
                raise InvalidValue(
                    f"all {self.strategy.steps} steps are taken; more need a new strategy and its charge."
                )
            self._check_same(gradients)
            self.remaining -= 1
            total = sum(gradient.numel() for gradient in gradients.values())
            now = {name: self._noise(name, gradient, total) for name, gradient in gradients.items()}
            for name, gradient in gradients.items():
                self._release(gradient, now[name], scale)
            self._past.appendleft(now)
        return gradients

    def __getstate__(self) -> object:
        raise TypeError("correlated noise is not written to disk: it would undo itself; begin a new strategy instead.")

    def _noise(self, name: str, gradient: Tensor, total: int) -> Tensor:
        """y_t = (z_t - sum of c_i y_(t - i)) / c_0."""
        first, *bands = self.strategy.coefficients
        noise = self._source.normals(name, gradient).tensor(gradient.numel(), ahead=total)
        for band, past in zip(bands, self._past, strict=False):
            noise.add_(past[name], alpha=-band)
        return noise.div_(first)

    def _release(self, gradient: Tensor, noise: Tensor, scale: float) -> None:
        row = flat(gradient)
        if self.secure:
            own = scale / self.strategy.coefficients[0]  # the spread of what is new in this step's noise
            hold_in_range(row, own)
            add_on_grid(row, noise, scale, own)
        else:
            add_plain(row, noise, scale)
        write_back(gradient, row)

    def _check_same(self, gradients: dict[str, Tensor]) -> None:
        if not self._past:
            return
        before = {name: noise.numel() for name, noise in self._past[0].items()}
        now = {name: gradient.numel() for name, gradient in gradients.items()}
        if before != now:
            changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
            raise InvalidValue(f"correlated noise needs the same gradients at every step; {changed[0]!r} has changed.")


def for_plan(plan: TrainingPlan, rng: Rng, first: int = 0) -> CorrelatedNoise:
    """The noise of a plan's steps from `first` on, by a strategy that begins there."""
    passes, steps = _passes(plan), plan.steps - first
    strategy = BandedStrategy.optimized(
        steps=steps,
        bands=_bands(plan, steps),
        min_separation=passes.steps_per_pass,
        participations=passes.participations(steps),
    )
    return CorrelatedNoise(strategy, rng, secure=plan.secure)


def event_of(plan: TrainingPlan, steps: int) -> MatrixGaussian:
    """What a strategy for that many steps of the plan does, from its first step on: it is paid for as a whole."""
    passes = _passes(plan)
    return MatrixGaussian(
        plan.noise_multiplier, steps, _bands(plan, steps), passes.steps_per_pass, passes.participations(steps)
    )


def _passes(plan: TrainingPlan) -> OrderedPasses:
    if not isinstance(plan.sampler, OrderedPasses):
        raise InvalidValue(f"correlated noise is for sampling 'ordered'; this plan has {plan.sampling!r}.")
    return plan.sampler


def _bands(plan: TrainingPlan, steps: int) -> int:
    bands, most = plan.bands or 1, _passes(plan).steps_per_pass
    if bands > most:
        raise InvalidValue(f"bands must be at most {most}, the steps of one pass over the data; got {bands}.")
    return min(bands, steps)
