"""The white-box audit of private gradients: canaries inside one training, and an auditor who sees every noisy gradient.

    >>> from hush import Rng
    >>> audit = WhiteBoxAudit(noise_multiplier=4.0, sampling_prob=1.0, steps=16, clip_norm=1.0, delta=1e-5,
    ...                       num_canaries=1_000, rng=Rng.from_seed(7))
    >>> audit.event
    Repeated(event=Gaussian(noise_multiplier=4.0), times=16)

Train `audit.model(model)` on `audit.dataset(dataset)` with `audit.loss(loss_fn)`, call `audit.see(...)` with the noisy
sum of every step, and read `audit.result()`. `hush.fit(..., audit=True)` does all that.

A canary's score is the log of the likelihood ratio between in and out, summed over the steps; "in" is guessed where it
is above 0. With sampling the ratio depends on the noise, so further rules guess as if there were a half, a quarter and
an eighth of it: too little noise would mislead the first. The rules are fixed, and share the significance; nothing is
chosen after looking. See docs/theory/gdp-audit.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy
from numpy.typing import NDArray
from torch import Tensor

from hush import _check
from hush.audit.counts import positive_delta, significance_of
from hush.audit.gradient_canaries import GradientCanaries
from hush.audit.result import ACCUSATION, AuditResult, judge
from hush.errors import InvalidValue
from hush.events import Event, Gaussian, PoissonSampled, Repeated
from hush.privacy import Guarantee, Relation
from hush.rng import Rng

_RULES = (1.0, 0.5, 0.25, 0.125)  # the noise that each guessing rule supposes, over the claimed one

_ROC_POINTS = 200
_HUGE = 1e12  # contributions, over the clip norm; whatever is beyond leaves no doubt


@dataclass(frozen=True, kw_only=True)
class WhiteBox:
    """Settings of an audit inside a training: `fit(..., audit=WhiteBox(num_canaries=20_000))`; True for these values.

    Attributes:
        num_canaries: Fair coins to guess. More are tighter: without sampling 1,000 tell epsilon 8 from 6, and 60,000
            epsilon 1 from 0.8.
        significance: The chance that the evidence is above the truth.
        accusation_significance: The chance that a training that keeps its promise is called a contradiction.
    """

    num_canaries: int = 1_000
    significance: float = 0.05
    accusation_significance: float = ACCUSATION

    def __post_init__(self) -> None:
        _check.whole("num_canaries", self.num_canaries)
        significance_of(self.significance)
        significance_of(self.accusation_significance)


class WhiteBoxAudit(GradientCanaries):
    """Canaries in one training, and what the noisy sums say about them.

    Args:
        noise_multiplier: The claimed noise over the clip norm.
        sampling_prob: The claimed chance of a row to join a step.
        steps: The claimed number of steps.
        clip_norm: The clip norm at the start.
        delta: The delta of the evidence.
        relation: Which data sets are neighbours.
        num_canaries: Fair coins to guess.
        step_event: The claimed event of one step, where it is another than these numbers say.
        rows_per_canary: As in `GradientCanaries`.
        rng: Where the coins come from; fresh entropy if None.
    """

    def __init__(
        self,
        *,
        noise_multiplier: float,
        sampling_prob: float,
        steps: int,
        clip_norm: float,
        delta: float,
        relation: Relation = "add_remove",
        num_canaries: int = 1_000,
        step_event: Event | None = None,
        rows_per_canary: int = 1,
        rng: Rng | None = None,
    ) -> None:
        super().__init__(num_canaries, clip_norm=clip_norm, relation=relation, rows_per_canary=rows_per_canary, rng=rng)
        self._noise = _check.positive("noise_multiplier", noise_multiplier)
        self._prob = _check.probability("sampling_prob", sampling_prob)
        self._steps, self._delta = _check.whole("steps", steps), positive_delta(delta)
        gaussian = Gaussian(self._noise)
        usual = gaussian if self._prob == 1 else PoissonSampled(gaussian, self._prob)
        self._step_event = usual if step_event is None else step_event
        factors = _RULES if self._prob < 1 else _RULES[:1]  # without sampling all rules are the same
        self._supposed = self._noise * numpy.array(factors)[:, None]
        self.scores: NDArray[numpy.float64] = numpy.zeros((len(factors), self.num_canaries))

    @property
    def event(self) -> Event:
        """What is claimed."""
        return Repeated(self._step_event, self._steps)

    def see(self, noisy_sum: Tensor, clip_norm: float) -> None:
        """Take in one step: `audited.noisy_sum(divisor)`, or whatever noisy sum there is along the canaries' axes."""
        found = noisy_sum.detach().double().flatten().cpu().numpy() / clip_norm
        if found.shape != (self.num_canaries,):
            raise InvalidValue(f"noisy_sum must hold {self.num_canaries} numbers; got {len(found)}.")
        if self.step == self._steps:
            raise InvalidValue(f"all {self._steps} claimed steps were seen: one more was not claimed.")
        along = found * self.signs(self.step)
        self.scores += self._log_ratio(numpy.clip(numpy.nan_to_num(along, nan=0.0), -_HUGE, _HUGE))
        self.step += 1

    def guesses(self) -> NDArray[numpy.bool_]:
        """Which canaries are called in, a row for each rule."""
        return self.scores > 0

    def result(
        self,
        *,
        significance: float = 0.05,
        accusation_significance: float = ACCUSATION,
        guarantee: Guarantee | None = None,
    ) -> AuditResult:
        """The guesses against the claim, for the steps that were seen."""
        if not self.step:
            raise InvalidValue("no step was seen; call see() with the noisy sum of every step.")
        result = judge(
            [int(right) for right in (self.guesses() == self.coins).sum(axis=1)],
            self.num_canaries,
            Repeated(self._step_event, self.step),
            delta=self._delta,
            relation=self.relation,
            method="white_box",
            significance=significance_of(significance),
            accusation_significance=significance_of(accusation_significance),
            guarantee=guarantee,
        )
        return replace(result, roc=_roc(self.scores[0], self.coins))

    def _log_ratio(self, along: NDArray[numpy.float64]) -> NDArray[numpy.float64]:
        """log of (1 - q + q e^t) with t = (y - 1/2) / s^2, against its mirror image where a canary is never absent."""
        s, q = self._supposed, self._prob
        up = _log_mixture(q, (along - 0.5) / s**2)
        if self.relation != "replace_one":
            return up
        return up - _log_mixture(q, (-along - 0.5) / s**2)


def _roc(scores: NDArray[numpy.float64], coins: NDArray[numpy.bool_]) -> tuple[tuple[float, float], ...]:
    """The rates of all thresholds, at most a few hundred of them; equal scores go together."""
    order = numpy.argsort(-scores, kind="stable")
    ends = numpy.append(numpy.flatnonzero(numpy.diff(scores[order])), len(order) - 1)
    true, false = (numpy.cumsum(found[order])[ends] / max(1, found.sum()) for found in (coins, ~coins))
    # evenly along the curve's own logarithm, so that the few canaries that an attack is sure of stay in sight
    chosen = numpy.unique(numpy.geomspace(1, len(ends), min(len(ends), _ROC_POINTS)).round().astype(int) - 1)
    return ((0.0, 0.0), *zip(false[chosen].tolist(), true[chosen].tolist(), strict=True))


def _log_mixture(prob: float, exponent: NDArray[numpy.float64]) -> NDArray[numpy.float64]:
    if prob == 1:
        return exponent
    mixed: NDArray[numpy.float64] = numpy.logaddexp(numpy.log1p(-prob), numpy.log(prob) + exponent)
    return mixed
