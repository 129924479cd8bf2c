"""The one number that is to be found, so that the training stays inside its target. Never over it.

>>> from hush.planner.question import Question
>>> asked = Question(num_examples=60_000, expected_batch_size=600, epochs=30, noise_multiplier=1.0, delta=1e-5,
...                  epsilon=3.0, find="expected_batch_size")
>>> found, answer = settle(asked)
>>> found.expected_batch_size, answer.epsilon <= 3.0
(539, True)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from hush import accounting
from hush.accounting.calibrate import MOST_STEPS
from hush.errors import Unreachable
from hush.planner.question import MOST_EXAMPLES, Question
from hush.privacy import Budget, Guarantee

_STRIDE = 4  # factor by which the search for a bracket grows
_PATIENCE = 4  # steps from one side before the interval is halved


def settle(asked: Question) -> tuple[Question, Guarantee]:
    """The question with its unknown filled in, and what that training costs.

    Raises:
        Unreachable: no value of the unknown meets the target.
    """
    if asked.find == "delta":
        return _with_delta(asked)
    found = _FINDERS[asked.find](asked)
    answer = cost(found)
    if found.find != "epsilon" and answer.epsilon > found.epsilon:  # cannot be: every finder has looked
        raise Unreachable(f"{found.find} was found outside the target of {found.epsilon:g}; please report this.")
    return found, answer


def cost(asked: Question) -> Guarantee:
    """What the training costs at its delta, exactly."""
    return accounting.guarantee(asked.event, delta=asked.delta, relation=asked.relation)


def _with_delta(asked: Question) -> tuple[Question, Guarantee]:
    answer = accounting.delta(asked.event, epsilon=asked.epsilon, relation=asked.relation)
    if not 1e-300 <= answer.delta < 1:
        where = "1: that is no promise" if answer.delta >= 1 else "below 1e-300"
        raise Unreachable(f"at epsilon {asked.epsilon:g} delta is {where}; change the target or the noise.")
    return replace(asked, delta=answer.delta), answer


def _budget(asked: Question) -> Budget:
    return Budget(epsilon=asked.epsilon, delta=asked.delta)


def _with_noise(asked: Question) -> Question:
    noise = accounting.noise_for(
        _budget(asked), sampling_prob=asked.sampling_prob, steps=asked.steps, relation=asked.relation
    )
    return replace(asked, noise_multiplier=noise)


def _with_epochs(asked: Question) -> Question:
    steps = accounting.steps_for(
        _budget(asked),
        noise_multiplier=asked.noise_multiplier,
        sampling_prob=asked.sampling_prob,
        relation=asked.relation,
    )
    return replace(asked, epochs=steps * asked.sampling_prob)


def _with_batch(asked: Question) -> Question:
    """The largest batch; at a fixed number of epochs a larger one means fewer steps and still costs more."""
    least = max(1, math.ceil(asked.epochs * asked.num_examples / MOST_STEPS))
    if least > asked.num_examples:
        raise Unreachable(f"{asked.epochs:g} epochs are more than {MOST_STEPS:.0e} steps at every batch size.")
    return _at_the_edge(asked, safe=least, costly=asked.num_examples)


def _with_examples(asked: Question) -> Question:
    """The smallest data set; at a fixed number of epochs a larger one means more steps and still costs less."""
    most = min(MOST_EXAMPLES, int(MOST_STEPS * asked.expected_batch_size / asked.epochs))
    if most < asked.expected_batch_size:
        raise Unreachable(f"{asked.epochs:g} epochs are more than {MOST_STEPS:.0e} steps on every data set.")
    return _at_the_edge(asked, safe=most, costly=asked.expected_batch_size)


def _at_the_edge(asked: Question, *, safe: int, costly: int) -> Question:
    """The whole number nearest to `costly` that was seen to be inside the target."""
    seen: dict[int, float] = {}

    def excess(value: int) -> float:
        if value not in seen:
            seen[value] = _excess(asked.changed(asked.find, value))
        return seen[value]

    inside, outside = _bracket(excess, getattr(asked, asked.find), safe, costly)
    if inside is None:
        raise Unreachable(
            f"not even {asked.find} {safe:.6g} stays inside epsilon {asked.epsilon:g}; "
            "use more noise, fewer epochs or a larger target."
        )
    return asked.changed(asked.find, inside if outside is None else _edge(excess, inside, outside))


def _bracket(excess: Callable[[int], float], start: int, safe: int, costly: int) -> tuple[int | None, int | None]:
    """A number inside the target and one outside it, from `start` in ever larger strides; None where there is none."""
    low, high = min(safe, costly), max(safe, costly)
    here = min(max(start, low), high)
    inside, outside = (here, None) if excess(here) <= 0 else (None, here)
    while inside is None or outside is None:
        end = costly if outside is None else safe
        if here == end:
            break
        here = min(here * _STRIDE, end) if end > here else max(here // _STRIDE, end)
        inside, outside = (here, outside) if excess(here) <= 0 else (inside, here)
    return inside, outside


def _edge(excess: Callable[[int], float], inside: int, outside: int) -> int:
    """The number inside whose neighbour is outside, by false position on logarithms with halved ends (Illinois)."""
    below, above, side = excess(inside), excess(outside), 0
    while abs(outside - inside) > 1:
        share = below / (below - above) if math.isfinite(below - above) else 0.5
        point = round(inside * (outside / inside) ** min(max(share, 0.001), 0.999))
        low, high = min(inside, outside) + 1, max(inside, outside) - 1
        point = min(max(point, low), high) if abs(side) < _PATIENCE else (inside + outside) // 2
        value = excess(point)
        if value <= 0:
            inside, below, above = point, value, above / 2 if side < 0 else above
            side = min(side, 0) - 1
        else:
            outside, above, below = point, value, below / 2 if side > 0 else below
            side = max(side, 0) + 1
    return inside


def _excess(asked: Question) -> float:
    """log of the cost over the target: 0 or below is inside."""
    spent = cost(asked).epsilon
    return math.log(spent / asked.epsilon) if spent > 0 else -math.inf


_FINDERS: dict[str, Callable[[Question], Question]] = {
    "epsilon": lambda asked: asked,
    "noise_multiplier": _with_noise,
    "epochs": _with_epochs,
    "expected_batch_size": _with_batch,
    "num_examples": _with_examples,
}
