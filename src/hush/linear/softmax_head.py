"""A softmax on fixed features by full-batch noisy gradient descent: exact accounting, no noise from the dimension.

Rows have length at most 1, and so the gradient of one row, (p - y) x^T, is clipped by its length |p - y| |x| without
ever being formed: a step is two matrix products. The noise of all steps together is one Gaussian mechanism [dong22,
Cor. 3.3]; noise on a logit does not grow with the number of columns. What is made of the noisy sums (step sizes,
momentum) costs nothing.

p - y sums to zero over the classes, and only differences of logits matter: weights, sums and noise are kept in
classes - 1 orthonormal contrasts of the classes, which takes half of the work off for two classes.

Rows of float32 stay float32, for they may be gigabytes; sums are kept in float64. The privacy of rounding is not
covered then (docs/sharp-edges.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy
from numpy.typing import NDArray
from scipy.linalg import helmert

from hush import accounting, events, mechanisms
from hush.errors import Unreachable
from hush.linear.counting import Count, split_gaussian
from hush.privacy import Budget, Relation
from hush.rng import Rng

Floats = NDArray[numpy.float64]
MOMENTUM, WARM_UP, LAST_RATE = 0.9, 5, 0.1
RATE = 0.018  # the learning rate over mu and the number of rows: found on CIFAR-10 and Fashion-MNIST pictures
MOST_RATE = 2_000.0
_MARGIN = 1e-6
_AT_ONCE, _CACHED = 4_096, 512  # rows
_SAFE = 1 - 1e-9


@dataclass(frozen=True)
class HeadPlan:
    """The noise for one budget; all of it public."""

    steps: int
    clip_norm: float
    noise_multiplier: float  # of one step
    count: Count | None  # how the number of rows is learned, where it is private
    learning_rate: float | None  # None: RATE mu (noisy number of rows)
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
        return min(MOST_RATE, RATE * math.sqrt(self.steps) / self.noise_multiplier * num_rows)


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
    steps = plans[0].steps
    contrasts = helmert(num_classes).astype(rows.dtype)
    sizes = [float(rows.shape[0]) if plan.count is None else plan.count.release(rows.shape[0], rng) for plan in plans]
    rates = numpy.array([plan.rate(size) / size for plan, size in zip(plans, sizes, strict=True)])[:, None, None]
    weights = numpy.zeros((len(plans), rows.shape[1], num_classes - 1), dtype=rows.dtype)
    speed = numpy.zeros_like(weights)
    lengths = _lengths(rows)
    for step in range(steps):
        ahead, clips = weights + MOMENTUM * speed, [plan.clip_norm for plan in plans]
        sums = _clipped_sums(rows, lengths, labels, ahead, contrasts, clips)
        noisy = numpy.stack([_noisy(one, plan, rng) for one, plan in zip(sums, plans, strict=True)])
        pace = rates * _shape(step, steps) * (1 - MOMENTUM)
        speed = (MOMENTUM * speed - pace * noisy).astype(rows.dtype)
        weights = weights + speed
    return weights @ contrasts


def _shape(step: int, steps: int) -> float:
    """A linear rise over the first steps, then a cosine down to a tenth."""
    fall = LAST_RATE + (1 - LAST_RATE) * 0.5 * (1 + math.cos(math.pi * step / steps))
    return min(1.0, (step + 1) / WARM_UP) * fall


def _noisy(total: Floats, plan: HeadPlan, rng: Rng) -> Floats:
    if isinstance(plan.event, events.NotPrivate):
        return total
    contribution = plan.clip_norm * (1 + _MARGIN)
    return numpy.asarray(
        mechanisms.gaussian(total, sensitivity=contribution, noise_multiplier=plan.noise_multiplier, rng=rng)
    )


def _lengths(rows: Any) -> Any:
    """The rows' lengths, for clipping. In float32 the sum of thousands of squares would come out too small."""
    from scipy.sparse import issparse

    if issparse(rows):
        squares = rows.power(2).sum(axis=1, dtype=numpy.float64)
    else:
        squares = numpy.einsum("ij,ij->i", rows, rows, dtype=numpy.float64)
    return numpy.sqrt(numpy.asarray(squares)).ravel()


def _clipped_sums(
    rows: Any, lengths: Floats, labels: Any, weights: Any, contrasts: Any, clip_norms: Sequence[float]
) -> Floats:
    """The sum of the clipped gradients for each plan: (plans, columns, contrasts), as the weights are."""
    runs, columns, width = weights.shape
    flat = numpy.ascontiguousarray(weights.transpose(1, 0, 2).reshape(columns, -1))
    total = numpy.zeros((runs * width, columns))
    clips = numpy.asarray(clip_norms)
    for start in range(0, rows.shape[0], _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        of_part = _dense_sum if isinstance(rows, numpy.ndarray) and rows.flags.writeable else _plain_sum
        total += of_part(rows[part], lengths[part], labels[part], flat, contrasts, clips)
    return total.reshape(runs, width, columns).transpose(0, 2, 1)


def _plain_sum(rows: Any, lengths: Floats, labels: Any, flat: Any, contrasts: Any, clips: Floats) -> Any:
    slopes = _slopes(numpy.asarray(rows @ flat), lengths, labels, contrasts, clips)
    return (rows.T @ slopes.astype(rows.dtype)).T


def _dense_sum(rows: Any, lengths: Floats, labels: Any, flat: Any, contrasts: Any, clips: Floats) -> Any:
    """The same by few rows at once, which stay in the cache: two to four times quicker than numpy's products."""
    import torch

    weights = torch.from_numpy(flat)
    total = torch.zeros(flat.shape[1], flat.shape[0], dtype=weights.dtype)
    for start in range(0, len(rows), _CACHED):
        part = slice(start, start + _CACHED)
        block = torch.from_numpy(rows[part])
        slopes = _slopes((block @ weights).numpy(), lengths[part], labels[part], contrasts, clips)
        total.addmm_(torch.from_numpy(slopes.astype(rows.dtype, copy=False)).T, block)
    return total.numpy()


def _slopes(scores: Any, lengths: Floats, labels: Any, contrasts: Any, clips: Floats) -> Any:
    """p - y of each row and plan, in contrasts, shortened so that the gradient is no longer than the clip norm."""
    chances = _softmax(scores.reshape(-1, len(contrasts)) @ contrasts)  # one row for each row and plan
    chances[numpy.arange(len(chances)), labels.repeat(len(clips))] -= 1
    slopes = (chances @ contrasts.T).reshape(len(scores), len(clips), -1)
    sizes = numpy.sqrt(numpy.einsum("nrc,nrc->nr", slopes, slopes)) * lengths[:, None]
    slopes *= numpy.minimum(1.0, clips / numpy.maximum(sizes, 1e-30))[:, :, None]
    return slopes.reshape(len(scores), -1)


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
    factors = 1 / numpy.maximum(norm, _lengths(rows) * (1 + 1e-7))
    if numpy.all(factors == 1):
        return rows
    from scipy.sparse import diags_array, issparse

    factors = factors.astype(rows.dtype)
    return (diags_array(factors) @ rows).tocsr() if issparse(rows) else rows * factors[:, None]


def _softmax(logits: Any) -> Any:
    less = logits - logits.max(axis=1, keepdims=True)
    powers = numpy.exp(numpy.maximum(less, -60.0, out=less))  # smaller ones would be denormal, and slow
    return powers / powers.sum(axis=1, keepdims=True)
