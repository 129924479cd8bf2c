"""Noisy projected gradient descent for a convex Lipschitz loss over a ball [bassily14].

Each step adds Gaussian noise to the mean gradient, moves against it and projects back into the ball. If gradients are
at most G long, the ball has radius R, the noise has standard deviation b on each of d coordinates, and the weights
start in the centre, then with H = sqrt(G^2 + d b^2)

    average of the iterates,  step size R / (H sqrt(T)):       excess risk <= R H / sqrt(T)
    last iterate,             step sizes 2 R / (H sqrt(t)):    excess risk <= 4 R H (2 + log T) / sqrt(T)

in expectation. The first is the textbook's bound, with d b^2 for the noise; the second is [shamir13, Thm. 2] with the
ball's diameter 2R. With b = G sqrt(T) / (mu n) the first is R G sqrt(1/T + d / (mu n)^2): more steps never hurt, and
from T = (mu n)^2 / d on they hardly help.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy
from numpy.typing import ArrayLike

from hush import _check, accounting, events, mechanisms
from hush.errors import InvalidValue
from hush.linear.estimator import RELATIONS, Account
from hush.linear.losses import SLOPES, Floats, Gradients, clipped_sum
from hush.privacy import Budget, Guarantee, Relation
from hush.rng import Rng
from hush.sampling import bernoulli_rows

ITERATES = ("average", "last")
MOST_STEPS = 1000  # that are taken unless more are asked for
_MARGIN = 1e-6  # added to a row's contribution: more than rounding adds to a sum of millions of rows
_SAFE = 1 - 1e-9


@dataclass(frozen=True, kw_only=True, eq=False)
class ProjectedDescent:
    """What `noisy_projected_sgd` returns; all of it may be shown.

    Attributes:
        weights: The released weights, inside the ball.
        guarantee: What they cost.
        event: What was done.
        steps: How many steps were taken.
        noise_multiplier: The noise of a step over a row's contribution.
        risk_bound: The theorem's bound on the expected excess empirical risk, if no gradient had to be clipped.
        randomness: Where the noise came from.
    """

    weights: Floats
    guarantee: Guarantee
    event: events.Event
    steps: int
    noise_multiplier: float
    risk_bound: float
    randomness: str


def noisy_projected_sgd(
    loss: str | Gradients,
    X: ArrayLike,
    y: ArrayLike,
    *,
    epsilon: float,
    delta: float,
    lipschitz: float,
    radius: float,
    num_examples: int | None = None,
    steps: int | None = None,
    sampling_prob: float = 1.0,
    iterate: str = "average",
    relation: str = "add_remove",
    account: Account | None = None,
    rng: Rng | None = None,
) -> ProjectedDescent:
    """Weights of a private linear model inside a ball, with the theorem's step sizes.

    >>> import numpy
    >>> x = numpy.array([[1.0, 0.0], [0.0, 1.0]] * 500)
    >>> found = noisy_projected_sgd("logistic", x, [1.0, -1.0] * 500, epsilon=1.0, delta=1e-6, lipschitz=1.0,
    ...                             radius=2.0, num_examples=1000)
    >>> found.weights[0] > 0 > found.weights[1], found.guarantee.epsilon <= 1
    (np.True_, True)

    Args:
        loss: "logistic" or "hinge" (targets -1 and 1), "absolute" or "huber"; or a function (weights, rows, targets)
            -> one gradient per row, of a convex loss.
        X: The rows.
        y: The targets.
        epsilon: The most that may be spent.
        delta: The accepted chance of failure, above 0.
        lipschitz: Bound on the length of a row's gradient. It is not trusted: longer ones are clipped to it.
        radius: Of the ball around 0 that holds the weights.
        num_examples: A public figure for the number of rows, the divisor of the sums. Needed under "add_remove",
            where the number itself is private; under "replace_one" it is the number of rows.
        steps: How many; None: (mu n)^2 / d, at most 1,000.
        sampling_prob: Below 1, each step takes a Poisson sample of the rows.
        iterate: "average" of all iterates, or the "last" one, with the step sizes of its own theorem.
        relation: "add_remove" or "replace_one".
        account: Charged before any noise is drawn.
        rng: A seeded source, for tests only.
    """
    rows, targets = _checked(loss, X, y)
    budget = Budget(epsilon=epsilon, delta=mechanisms.calibration.positive_delta(delta))
    clip_norm, radius = _check.positive("lipschitz", lipschitz), _check.positive("radius", radius)
    kind: Relation = _check.one_of("relation", relation, RELATIONS)  # type: ignore[assignment]
    chance = _check.probability("sampling_prob", sampling_prob)
    average = _check.one_of("iterate", iterate, ITERATES) == "average"
    number = _number(num_examples, len(rows), kind)
    count = _steps(steps, budget, number, rows.shape[1], kind)
    noise = _noise(budget, chance, count, kind)
    event = _event(noise, chance, count)
    guarantee = accounting.guarantee(event, delta=budget.delta, relation=kind)
    source = Rng.from_entropy() if rng is None else rng
    if not source.is_secret:
        notes = (*guarantee.notes, f"the noise came from {source.label}: whoever knows it can take the noise off")
        guarantee = replace(guarantee, notes=notes)
    if account is not None:
        if getattr(account, "relation", kind) != kind:
            raise InvalidValue(f"the account is kept for another relation than {kind}; make them equal.")
        account.charge(event)
    divisor = chance * number
    # H^2: a full gradient, the spread of a Poisson sample, the noise.
    square = clip_norm**2 * (1 + (1 - chance) / divisor) + rows.shape[1] * (noise * clip_norm / divisor) ** 2
    weights = _descend(loss, rows, targets, clip_norm, radius, noise, count, chance, divisor, square, average, source)
    bound = radius * math.sqrt(square / count)
    return ProjectedDescent(
        weights=weights,
        guarantee=guarantee,
        event=event,
        steps=count,
        noise_multiplier=noise,
        risk_bound=bound if average else 4 * bound * (2 + math.log(count)),
        randomness=source.label,
    )


def _descend(
    loss: str | Gradients,
    rows: Floats,
    targets: Floats,
    clip_norm: float,
    radius: float,
    noise: float,
    steps: int,
    chance: float,
    divisor: float,
    square: float,
    average: bool,
    rng: Rng,
) -> Floats:
    weights, total = numpy.zeros(rows.shape[1]), numpy.zeros(rows.shape[1])
    stream = rng.stream(rng.unused("samples"))
    for step in range(1, steps + 1):
        total += weights
        part = slice(None) if chance == 1 else bernoulli_rows(len(rows), chance, stream)
        exact = clipped_sum(loss, weights, rows[part], targets[part], clip_norm)
        noisy = mechanisms.gaussian(exact, sensitivity=clip_norm * (1 + _MARGIN), noise_multiplier=noise, rng=rng)
        pace = radius / math.sqrt(square * steps) if average else 2 * radius / math.sqrt(square * step)
        weights = _projected(weights - pace * numpy.asarray(noisy) / divisor, radius)
    return total / steps if average else weights


def _projected(weights: Floats, radius: float) -> Floats:
    length = float(numpy.linalg.norm(weights))
    return weights if length <= radius else weights * (radius / length)


def _noise(budget: Budget, sampling_prob: float, steps: int, relation: Relation) -> float:
    inside = Budget(epsilon=budget.epsilon * _SAFE, delta=budget.delta * _SAFE)
    return accounting.noise_for(inside, sampling_prob=sampling_prob, steps=steps, relation=relation)


def _event(noise: float, sampling_prob: float, steps: int) -> events.Event:
    step: events.Event = events.Gaussian(noise)
    if sampling_prob < 1:
        step = events.PoissonSampled(step, sampling_prob)
    return events.Repeated(step, steps)


def _number(num_examples: int | None, num_rows: int, relation: Relation) -> int:
    if relation == "replace_one":
        if num_examples not in (None, num_rows):
            raise InvalidValue("under replace_one num_examples is the number of rows; leave it out.")
        return num_rows
    if num_examples is None:
        raise InvalidValue(
            "num_examples is needed under add_remove: a public figure for the number of rows, which is private itself."
        )
    return _check.whole("num_examples", num_examples)


def _steps(steps: int | None, budget: Budget, number: int, dimension: int, relation: Relation) -> int:
    if steps is not None:
        return _check.whole("steps", steps)
    mu = 1 / accounting.noise_for(budget, sampling_prob=1.0, steps=1, relation=relation)
    return max(10, min(MOST_STEPS, math.ceil((mu * number) ** 2 / dimension)))


def _checked(loss: object, X: ArrayLike, y: ArrayLike) -> tuple[Floats, Floats]:
    if not callable(loss) and loss not in SLOPES:
        raise InvalidValue(f"loss must be one of {', '.join(SLOPES)} or a function; got {loss!r}.")
    rows, targets = numpy.asarray(X, dtype=numpy.float64), numpy.asarray(y, dtype=numpy.float64)
    if rows.ndim != 2 or not rows.size or targets.shape != (len(rows),):
        raise InvalidValue(f"X must be a table and y one target per row; got shapes {rows.shape} and {targets.shape}.")
    if not (numpy.isfinite(rows).all() and numpy.isfinite(targets).all()):
        raise InvalidValue("X and y must be finite; leave out or fill in what is missing.")
    if loss in ("logistic", "hinge") and not numpy.isin(targets, (-1.0, 1.0)).all():
        raise InvalidValue(f"the loss {loss!r} needs targets -1 and 1.")
    return rows, targets
