"""A softmax on fixed features by full-batch noisy gradient descent: exact accounting, no noise from the dimension.

Rows have length at most 1 and their gradients are clipped (`softmax_sums`). The noise of all steps together is one
Gaussian mechanism [dong22, Cor. 3.3]; noise on a logit does not grow with the number of columns. What is made of the
noisy sums (step sizes, momentum) costs nothing.

Noise is that of gradients, on a grid (`hush.gradients.noise`). The privacy of rounding in sums of float32 is not
covered (docs/sharp-edges.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy
from numpy.typing import NDArray
from scipy.sparse import diags_array, issparse

from hush import accounting, events
from hush.errors import InvalidValue, Unreachable
from hush.linear.counting import Count, split_gaussian
from hush.linear.softmax_sums import clipped_sums, contrasts_of, in_parts, lengths_of
from hush.privacy import Budget, Relation
from hush.rng import Rng

if TYPE_CHECKING:
    from hush.gradients.noise import NoiseSource

Floats = NDArray[numpy.float64]
MOMENTUM, WARM_UP, LAST_RATE = 0.9, 5, 0.1
RATE = 0.022  # the learning rate times the clip norm, over mu and the number of rows: found on pictures and reviews
MOST_RATE = 2_000.0
_MARGIN = 1e-6
_SAFE = 1 - 1e-9
_FARTHEST = 1e30  # rows of length 1 then have logits that float32 can hold


@dataclass(frozen=True)
class HeadPlan:
    """The noise for one budget; all of it public."""

    steps: int
    clip_norm: float
    noise_multiplier: float  # of one step
    count: Count | None  # how the number of rows is learned, where it is private
    learning_rate: float | None  # None: RATE mu (noisy number of rows) / clip_norm
    event: events.Event  # of the head alone

    @classmethod
    def for_budget(
        cls,
        budget: Budget,
        *,
        steps: int,
        clip_norm: float,
        learning_rate: float | None,
        spent: events.Event | None,
        relation: Relation,
    ) -> HeadPlan:
        """The plan whose cost together with `spent` is inside the budget."""
        whole = _noise_beside(spent, budget, relation)
        count, noise = split_gaussian(whole) if relation == "add_remove" else (None, whole)
        step = noise * math.sqrt(steps) * (1 + 1e-12)
        event: events.Event = events.Repeated(events.Gaussian(step), steps)
        if count is not None:
            event = events.Composed(count.event, event)
        return cls(steps, clip_norm, step, count, learning_rate, event)

    def without_privacy(self, rows: Any) -> HeadPlan:
        """The same descent on these rows without noise and clipping, at a rate that is stable without them."""
        rate = min(self.rate(rows.shape[0]), _stable_rate(rows))
        return replace(
            self, noise_multiplier=0.0, count=None, clip_norm=math.inf, learning_rate=rate, event=events.NotPrivate()
        )

    def rate(self, num_rows: float) -> float:
        """The learning rate on the mean gradient."""
        if self.learning_rate is not None:
            return self.learning_rate
        return min(MOST_RATE, RATE * math.sqrt(self.steps) / self.noise_multiplier * num_rows) / self.clip_norm


def _noise_beside(spent: events.Event | None, budget: Budget, relation: Relation) -> float:
    """The smallest noise multiplier of one Gaussian release that fits beside what was spent."""
    inside = Budget(epsilon=budget.epsilon * _SAFE, delta=budget.delta * _SAFE)
    alone = accounting.noise_for(inside, sampling_prob=1.0, steps=1, relation=relation)
    if spent is None:
        return alone

    def fits(noise: float) -> bool:
        both = events.Composed(spent, events.Gaussian(noise))
        return budget.allows(accounting.guarantee(both, delta=budget.delta, relation=relation))

    low, high = alone, 2 * alone
    while not fits(high):
        low, high = high, 2 * high
        if high > 1e6 * alone:
            raise Unreachable(f"what was spent on the features leaves nothing of {budget}; give them more noise.")
    while high / low > 1 + 1e-9:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def descend(rows: Any, labels: NDArray[numpy.int64], num_classes: int, plans: Sequence[HeadPlan], rng: Rng) -> Any:
    """Weights (plans, columns, classes): runs for several plans side by side read the rows once for all.

    Each run is a release of its own, and so they cost their sum. A plan's weights alone cost what that plan says.
    """
    from hush.gradients.noise import NoiseSource  # loads torch

    steps, source = plans[0].steps, NoiseSource(rng, secure=True)
    contrasts = contrasts_of(num_classes, rows.dtype)
    sizes = [float(rows.shape[0]) if plan.count is None else plan.count.release(rows.shape[0], rng) for plan in plans]
    rates = numpy.array([plan.rate(size) / size for plan, size in zip(plans, sizes, strict=True)])[:, None, None]
    weights = numpy.zeros((len(plans), num_classes - 1, rows.shape[1]), dtype=rows.dtype)
    speed = numpy.zeros_like(weights)
    parts, clips = in_parts(rows, labels), [plan.clip_norm for plan in plans]
    for step in range(steps):
        sums = clipped_sums(parts, weights + MOMENTUM * speed, contrasts, clips)
        for one, plan in zip(sums, plans, strict=True):
            _add_noise(one, plan, source)
        pace = rates * _shape(step, steps) * (1 - MOMENTUM)
        speed = (MOMENTUM * speed - pace * sums).astype(rows.dtype)
        weights = weights + speed
        _check_range(weights)
    return (contrasts.T @ weights).transpose(0, 2, 1)


def _shape(step: int, steps: int) -> float:
    """A linear rise over the first steps, then a cosine down to a tenth."""
    fall = LAST_RATE + (1 - LAST_RATE) * 0.5 * (1 + math.cos(math.pi * step / steps))
    return min(1.0, (step + 1) / WARM_UP) * fall


def _add_noise(total: Floats, plan: HeadPlan, source: NoiseSource) -> None:
    import torch

    if not isinstance(plan.event, events.NotPrivate):
        contribution = plan.clip_norm * (1 + _MARGIN)
        source.add({"sum": torch.from_numpy(total)}, plan.noise_multiplier * contribution)


def _check_range(weights: Any) -> None:
    """Weights are public by now. Beyond this, logits could overflow, and one row could make a whole sum NaN."""
    if not numpy.abs(weights).max() < _FARTHEST:
        raise InvalidValue("the weights grew beyond all bounds; give a smaller learning_rate. What was spent is spent.")


def _stable_rate(rows: Any) -> float:
    """Half of the rate at which momentum descent on a softmax's loss ceases to be stable.

    The mean loss curves by at most half of the largest eigenvalue of the rows' second moments (found by powers), and
    the limit is 2 (1 + momentum) / (1 - momentum) over that.
    """
    direction = numpy.ones(rows.shape[1], dtype=rows.dtype)
    largest = 0.0
    for _ in range(20):
        direction = rows.T @ (rows @ direction) / rows.shape[0]
        largest = float(numpy.linalg.norm(direction))
        direction = direction / max(largest, 1e-30)
    return (1 + MOMENTUM) / (1 - MOMENTUM) / (largest / 2)


def within_norm(rows: Any, norm: float) -> Any:
    """The rows divided by `norm`, those that are longer shortened to length 1; dense or sparse, the dtype kept."""
    factors = 1 / numpy.maximum(norm, lengths_of(rows) * (1 + 1e-7))
    if numpy.all(factors == 1):
        return rows
    factors = factors.astype(rows.dtype)
    return (diags_array(factors) @ rows).tocsr() if issparse(rows) else rows * factors[:, None]
