"""Why epsilon is what it is: every method's value for one event, with its theorem and what its looseness costs.

    >>> from hush import events
    >>> step = events.PoissonSampled(events.Gaussian(noise_multiplier=4.0), sampling_prob=0.01)
    >>> story = explain(events.Repeated(step, times=10_000), delta=1e-5)
    >>> [link.method for link in story.chain]
    ['basic', 'advanced', 'optimal', 'moments', 'rdp', 'exact']
    >>> story["moments"].looseness > story["rdp"].looseness > story["exact"].looseness == 1.0
    True

Every number is computed when asked. A method that cannot bound the event stays in the chain with its reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from hush import _check, events
from hush.accounting.calibrate import sampled_gaussian
from hush.accounting.guarantee import guarantee
from hush.errors import UnsupportedEvent
from hush.events.kinds import MOST_TIMES
from hush.privacy import Guarantee, Relation, check_relation, round_up

# method -> title, theorem, what it does in one sentence
_THEOREMS = {
    "basic": (
        "basic composition",
        "Dwork, Roth 2014, Theorem 3.16",
        "Adds up the epsilon of every step, as if each step leaked its worst in the same direction.",
    ),
    "advanced": (
        "advanced composition",
        "Dwork, Rothblum, Vadhan 2010, Theorem III.3; Kairouz, Oh, Viswanath 2015, Theorem 3.5",
        "Lets the leaks of the steps partly cancel, so epsilon grows like the root of the steps; "
        "knows each step by its (epsilon, delta) only.",
    ),
    "optimal": (
        "optimal composition",
        "Kairouz, Oh, Viswanath 2015, Theorem 3.3",
        "The best that can follow from each step's (epsilon, delta); what is lost is the shape of the noise.",
    ),
    "moments": (
        "moments accountant",
        "Abadi et al. 2016, Theorem 2",
        "Follows whole moments of the privacy loss of the noise itself and turns them into epsilon by a tail bound.",
    ),
    "rdp": (
        "Rényi accountant",
        "Mironov 2017, Proposition 1; Canonne, Kamath, Steinke 2020, Proposition 12",
        "Moments of every real order with the best known conversion; what is lost is that one moment stands "
        "for the whole distribution.",
    ),
    "exact": (
        "exact accountant",
        "Balle, Wang 2018, Theorem 5; Zhu, Dong, Wang 2022, Theorem 10",
        "Evaluates the whole distribution of the privacy loss and returns an interval that holds the truth.",
    ),
    "gdp_clt": (
        "Gaussian limit",
        "Bu, Dong, Long, Su 2020, Corollary 1",
        "Replaces the composition by its limit for infinitely many steps: an approximation, not a bound.",
    ),
}
CHAIN: tuple[str, ...] = ("basic", "advanced", "optimal", "moments", "rdp", "exact")
_MOST_STEPS = MOST_TIMES  # no further steps are tried than one `Repeated` may hold
_LARGEST_EXPONENT = 700.0
_CLOSE = 1e-2  # relative: how well the number of steps that a looser epsilon would buy is found

# Exact answers for one explanation. Forty random settings took 21 at most; a growth that is not smooth takes more.
_MOST_EVALUATIONS = 40


@dataclass(frozen=True, kw_only=True)
class Link:
    """One method of the chain.

    `looseness` is epsilon over the exact one and `cost` is epsilon over the next method's that applies. `steps_ratio`
    says what the exact accountant would allow at this method's epsilon: so many times the steps. Each is None where it
    has no meaning; `reason` says why a method gives no number.
    """

    method: str
    title: str
    theorem: str
    idea: str
    guarantee: Guarantee | None = None
    reason: str = ""
    looseness: float | None = None
    cost: float | None = None
    steps_ratio: float | None = None

    @property
    def epsilon(self) -> float | None:
        """The method's epsilon; None where it does not apply."""
        return None if self.guarantee is None else self.guarantee.epsilon

    def to_dict(self) -> dict[str, Any]:
        """Plain values under the glossary's words; a method that does not apply has no epsilon but a reason."""
        words = {"method": self.method, "title": self.title, "theorem": self.theorem, "idea": self.idea}
        if self.guarantee is None:
            return {**words, "epsilon": None, "reason": self.reason}
        costs = {"looseness": self.looseness, "cost": self.cost, "steps_ratio": self.steps_ratio}
        return {**words, **self.guarantee.to_dict(), **costs}

    def __str__(self) -> str:
        if self.epsilon is None:
            return f"{self.title}: does not apply. {self.reason}"
        flag = "" if self.guarantee is None or self.guarantee.proven else " (no bound)"
        return f"{self.title}: epsilon {round_up(self.epsilon)}{flag}{self._cost_text()}  [{self.theorem}]"

    def _cost_text(self) -> str:
        ratio = "" if self.cost is None else f", {self.cost:.3g} times the next"
        return ratio if self.steps_ratio is None else f"{ratio}, as if trained {self.steps_ratio:.3g} times as long"


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """How the exact epsilon answers to one parameter: `percent` more (or less) epsilon per 1 % more of it."""

    parameter: str
    value: float
    changed_to: float
    epsilon: float
    percent: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values; `epsilon` is the one at `changed_to`."""
        return dict(vars(self))

    def __str__(self) -> str:
        return f"{self.parameter} +1 %: epsilon {self.percent:+.3f} %"


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """The chain from the loosest theorem to the exact value, the Gaussian limit beside it, and the sensitivities.

    `published_strong_composition` is the figure that an often-copied formula gives for sampled Gaussian steps. It is
    no theorem, so it is no link of the chain; see `hush.accounting.composition`.
    """

    event: events.Event
    delta: float
    relation: Relation
    chain: tuple[Link, ...]
    approximation: Link
    published_strong_composition: float | None
    sensitivities: tuple[Sensitivity, ...]

    def __getitem__(self, method: str) -> Link:
        links = {link.method: link for link in (*self.chain, self.approximation)}
        return links[_check.one_of("method", method, tuple(links))]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; the chain is under "methods"."""
        return {
            "delta": self.delta,
            "relation": self.relation,
            "event": events.to_dict(self.event),
            "methods": [link.to_dict() for link in (*self.chain, self.approximation)],
            "published_strong_composition": self.published_strong_composition,
            "sensitivities": [item.to_dict() for item in self.sensitivities],
        }

    def __str__(self) -> str:
        lines = [f"delta {self.delta:g}, {self.relation}", *map(str, self.chain), str(self.approximation)]
        if self.published_strong_composition is not None:
            lines.append(
                f"strong composition as published (not a theorem): {round_up(self.published_strong_composition)}"
            )
        return "\n".join([*lines, *map(str, self.sensitivities)])


def explain(event: events.Event, delta: float, relation: Relation = "add_remove") -> Explanation:
    """Every method's epsilon for `event` at `delta`, from the loosest theorem to the exact value.

    Raises:
        InvalidValue: An argument is outside its domain.
        UnsupportedEvent: No method can bound the event; the message is the exact accountant's.
    """
    delta, relation = _check.delta(delta), check_relation(relation)
    answers = {method: _answer(event, method, delta, relation) for method in _THEOREMS}
    exact = answers["exact"]
    if isinstance(exact, str) and all(isinstance(answer, str) for answer in answers.values()):
        raise UnsupportedEvent(exact)
    return Explanation(
        event=event,
        delta=delta,
        relation=relation,
        chain=_chain(answers, _Growth(event, exact) if isinstance(exact, Guarantee) else None),
        approximation=_link("gdp_clt", answers["gdp_clt"], None, exact),
        published_strong_composition=published_for(event, delta, relation),
        sensitivities=tuple(_sensitivities(event, exact)) if isinstance(exact, Guarantee) else (),
    )


def setting(event: events.Event) -> tuple[float, float, int] | None:
    """(noise_multiplier, sampling_prob, steps) if the event is one phase of sampled Gaussian steps, else None.

    >>> setting(sampled_gaussian(4.0, 0.01, 10_000))
    (4.0, 0.01, 10000)
    """
    match list(events.flat(event)):
        case [(events.PoissonSampled(events.Gaussian(noise_multiplier), sampling_prob), steps)]:
            return noise_multiplier, sampling_prob, steps
    return None


def _answer(event: events.Event, method: str, delta: float, relation: Relation) -> Guarantee | str:
    """The method's guarantee, or why it has none."""
    try:
        return guarantee(event, delta=delta, relation=relation, method=method)
    except UnsupportedEvent as error:
        return str(error)


def _chain(answers: dict[str, Guarantee | str], growth: _Growth | None) -> tuple[Link, ...]:
    """The links of the chain, built from its tight end, because each is compared with the next that applies."""
    following: Guarantee | None = None
    links: list[Link] = []
    for method in reversed(CHAIN):
        found = answers[method]
        link = _link(method, found, following, answers["exact"])
        if isinstance(found, Guarantee):
            following = found
            link = replace(link, steps_ratio=growth.ratio_at(found.epsilon) if growth else None)
        links.append(link)
    return tuple(reversed(links))


def _link(method: str, found: Guarantee | str, following: Guarantee | None, exact: Guarantee | str) -> Link:
    title, theorem, idea = _THEOREMS[method]
    if isinstance(found, str):
        return Link(method=method, title=title, theorem=theorem, idea=idea, reason=found)
    return Link(
        method=method,
        title=title,
        theorem=theorem,
        idea=idea,
        guarantee=found,
        looseness=_ratio(found, exact) if isinstance(exact, Guarantee) else None,
        cost=None if following is None else _ratio(found, following),
    )


def _ratio(one: Guarantee, other: Guarantee) -> float | None:
    if not 0 < other.epsilon < math.inf or math.isinf(one.epsilon):
        return None
    return one.epsilon / other.epsilon


class _Growth:
    """The exact epsilon as a function of the number of steps, remembered point by point."""

    def __init__(self, event: events.Event, exact: Guarantee) -> None:
        times = 1
        while isinstance(event, events.Repeated):
            times *= event.times
            event = event.event
        self._step, self._times, self._exact = event, times, exact
        self._known = {times: exact.epsilon}

    def _epsilon(self, steps: int) -> float:
        if steps not in self._known:
            repeated = events.Repeated(self._step, steps)
            answer = guarantee(repeated, delta=self._exact.delta, relation=self._exact.relation)
            self._known[steps] = answer.epsilon
        return self._known[steps]

    def ratio_at(self, epsilon: float) -> float | None:
        """How many times as many steps the exact accountant allows at a looser epsilon; rounded down, to about 1 %.

        None where it is not looser by a step, by more steps than the search goes to, or where the exact epsilon is
        itself not known to 1 %.
        """
        if not 0 < self._exact.epsilon < epsilon < math.inf:
            return None
        if self._exact.epsilon_lower < (1 - _CLOSE) * self._exact.epsilon:
            return None
        low = max(steps for steps, value in self._known.items() if value <= epsilon)
        high = min((steps for steps, value in self._known.items() if value > epsilon), default=0)
        while not high:
            ahead = 8 * low
            if ahead > _MOST_STEPS:
                return None
            low, high = (low, ahead) if self._epsilon(ahead) > epsilon else (ahead, 0)
        while high - low > max(1, _CLOSE * low) and self._epsilon(low) < (1 - _CLOSE / 2) * epsilon:
            if len(self._known) > _MOST_EVALUATIONS:
                break
            middle = self._between(low, high, (1 - _CLOSE / 4) * epsilon)
            low, high = (middle, high) if self._epsilon(middle) <= epsilon else (low, middle)
        return low / self._times if low > self._times else None

    def _between(self, low: int, high: int, epsilon: float) -> int:
        """A point strictly between, where a power of the steps through both ends would reach epsilon."""
        first, last = self._epsilon(low), self._epsilon(high)
        share = 0.5
        if 0 < first < last < math.inf:
            share = min(max(math.log(epsilon / first) / math.log(last / first), 0.05), 0.95)
        return min(max(round(low * math.pow(high / low, share)), low + 1), high - 1)


def published_for(event: events.Event, delta: float, relation: Relation) -> float | None:
    """The often-copied "strong composition" for sampled Gaussian steps, no theorem; None where it says nothing."""
    sampled = setting(event)
    if sampled is None or delta == 0 or relation == "replace_one":
        return None
    from hush.accounting.composition import published_strong_composition

    return published_strong_composition(*sampled, delta)


def _sensitivities(event: events.Event, exact: Guarantee) -> Iterator[Sensitivity]:
    """Finite differences of the exact epsilon: one per cent more noise, sampling_prob and steps.

    Where the parameter cannot grow any more it shrinks by one per cent instead.
    """
    sampled = setting(event)
    if sampled is None or not 0 < exact.epsilon < math.inf:
        return
    noise, prob, steps = sampled
    if steps > _MOST_STEPS:
        return
    moved_prob = prob * 1.01 if prob * 1.01 <= 1 else prob / 1.01
    moved_steps = steps + max(1, round(steps / 100))
    moved_steps = moved_steps if moved_steps <= _MOST_STEPS else steps - round(steps / 100)
    for name, value, changed, moved in (
        ("noise_multiplier", noise, noise * 1.01, sampled_gaussian(noise * 1.01, prob, steps)),
        ("sampling_prob", prob, moved_prob, sampled_gaussian(noise, moved_prob, steps)),
        ("steps", steps, moved_steps, sampled_gaussian(noise, prob, moved_steps)),
    ):
        after = guarantee(moved, delta=exact.delta, relation=exact.relation).epsilon
        if not 0 < after < math.inf:
            continue
        power = math.log(after / exact.epsilon) / math.log(changed / value)  # epsilon grows like the value to this
        percent = 100 * math.expm1(min(power * math.log(1.01), _LARGEST_EXPONENT))
        yield Sensitivity(parameter=name, value=value, changed_to=changed, epsilon=after, percent=percent)
