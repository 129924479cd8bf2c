"""Private generation of demonstrations: new examples, token by token, from noisy averages over disjoint prompts.

[Tang, Shin, Inan, Manoel, Mireshghallah, Lin, Gopi, Kulkarni, Sim 2024, Alg. 1]. For each token a fresh Poisson sample
of the private examples is split into disjoint prompts. Each prompt gives a distribution of the next token; their sum
gets Gaussian noise, and the largest entry names the token. What comes out are made-up examples that may be published
and shown to any model, for ever.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy
from numpy.typing import ArrayLike, NDArray

from hush import _check, accounting
from hush.errors import BudgetExceeded, InvalidValue
from hush.events import Event, Gaussian, PoissonSampled, Repeated
from hush.mechanisms.charging import Account, charge
from hush.mechanisms.draws import Draws
from hush.mechanisms.real import add_gaussian
from hush.pate.shards import Integers
from hush.privacy import Budget, Guarantee
from hush.prompts.templates import Demonstration, Template
from hush.rng import Rng
from hush.sampling import bernoulli_rows

Floats = NDArray[numpy.float64]
_GRID = 2.0**40


@runtime_checkable
class NextTokens(Protocol):
    """What generation asks of a model, and `TransformersModel` has: the next token's distribution, tokens as text."""

    def next_token_probs(self, prefixes: Sequence[str], ending: Sequence[int], /) -> Floats:
        """Probabilities of every token after each prefix followed by the tokens `ending`, (prefixes, vocabulary)."""

    def text(self, tokens: Sequence[int], /) -> str:
        """The text of some tokens."""


@dataclass(frozen=True, kw_only=True)
class GenerationPlan:
    """Everything that fixes what a demonstration costs; public, and fixed before a private example is read.

    `noise_multiplier` is the noise's standard deviation over the most that one example moves the sum, sqrt(2).
    """

    sampling_prob: float
    num_prompts: int
    max_tokens: int
    noise_multiplier: float
    public_choices: int = 100  # the likeliest tokens without any example: only they can come out

    def __post_init__(self) -> None:
        object.__setattr__(self, "sampling_prob", _check.probability("sampling_prob", self.sampling_prob))
        object.__setattr__(self, "noise_multiplier", _check.positive("noise_multiplier", self.noise_multiplier))
        for name in ("num_prompts", "max_tokens", "public_choices"):
            _check.whole(name, getattr(self, name))

    @classmethod
    def for_budget(
        cls,
        budget: Budget,
        *,
        sampling_prob: float,
        num_prompts: int,
        max_tokens: int,
        per_label: int,
        public_choices: int = 100,
    ) -> GenerationPlan:
        """The least noise with which so many demonstrations of each label fit the budget."""
        steps = _check.whole("max_tokens", max_tokens) * _check.whole("per_label", per_label)
        noise = accounting.noise_for(budget, sampling_prob=sampling_prob, steps=steps)
        return cls(
            sampling_prob=sampling_prob,
            num_prompts=num_prompts,
            max_tokens=max_tokens,
            noise_multiplier=noise,
            public_choices=public_choices,
        )

    @property
    def event(self) -> Event:
        """One demonstration of every label.

        An example has one label and is read for demonstrations of that label alone, so the labels' lists are private
        in parallel: a neighbour differs in one of them.
        """
        return Repeated(PoissonSampled(Gaussian(self.noise_multiplier), self.sampling_prob), self.max_tokens)

    @property
    def stddev(self) -> float:
        """The noise on each entry of the sum of distributions.

        Adding or removing one example changes one prompt, hence one distribution, p to p'. Both have entries of 0 or
        above that sum to 1 at most, so |p - p'|^2 <= |p|^2 + |p'|^2 <= 2: the sum moves by sqrt(2) at most.
        """
        return math.nextafter(self.noise_multiplier * math.nextafter(math.sqrt(2), math.inf), math.inf)


@dataclass(frozen=True, eq=False)
class Generated:
    """Made-up demonstrations; they may be published. `event` is what was charged."""

    demonstrations: tuple[Demonstration, ...]
    numbers: tuple[int, ...]  # the label of each
    event: Event = field(repr=False)
    stopped: bool = False

    def guarantee(self, *, delta: float) -> Guarantee:
        """What holds for all of them together."""
        return accounting.guarantee(self.event, delta=delta, relation="add_remove", method="exact")


def generate_demonstrations(
    language_model: Any,
    template: Template,
    label_words: Sequence[str],
    texts: Sequence[str],
    labels: ArrayLike,
    *,
    plan: GenerationPlan,
    per_label: int,
    account: Account | None = None,
    stop: str = "\n",
    rng: Rng | None = None,
) -> Generated:
    """Made-up texts of each label, `per_label` of them, each at most `plan.max_tokens` long.

    Args:
        language_model: Has the methods of `NextTokens`, as `TransformersModel` has.
        template: Its `instruction` and `separator` frame the prompts. Here an example is shown label first.
        label_words: The word of each label.
        texts: The private texts.
        labels: The number of each text's label.
        plan: Sample, prompts, noise, length.
        per_label: How many to make of each label; fewer if the account's cap ends before.
        account: Kept for add_remove. Charged before each round of one text a label; where its cap ends, the list ends.
        stop: A text ends where this appears.
        rng: A seeded source, for tests only.
    """
    if not isinstance(language_model, NextTokens):
        raise InvalidValue(
            "language_model must have next_token_probs and text; wrap it: TransformersModel(model, ...)."
        )
    found = numpy.asarray(labels)
    if found.shape != (len(texts),) or found.dtype.kind not in "iu":
        raise InvalidValue("labels must hold one whole number for each private text.")
    source, rounds = rng or Rng(), _check.whole("per_label", per_label)
    writer = _Writer(language_model, template, plan, source.stream(source.unused("samples")), Draws(source), stop)
    made: list[tuple[str, int]] = []
    done = 0
    for _ in range(rounds):
        try:
            charge(account, plan.event, "add_remove")
        except BudgetExceeded:
            if not done:
                raise
            break
        done += 1
        for number, word in enumerate(label_words):
            rows = numpy.flatnonzero(found == number)
            made.append((writer.write(word, [texts[row] for row in rows.tolist()]), number))
    kept = [(text, number) for text, number in made if text]
    pairs = tuple((text, label_words[number]) for text, number in kept)
    return Generated(pairs, tuple(number for _, number in kept), Repeated(plan.event, done), done < rounds)


@dataclass(frozen=True, eq=False)
class _Writer:
    """Writes one text at a time."""

    model: NextTokens
    template: Template
    plan: GenerationPlan
    stream: numpy.random.Generator
    draws: Draws
    stop: str

    def write(self, word: str, texts: Sequence[str]) -> str:
        """One text of this label, from these private texts."""
        tokens: list[int] = []
        for _ in range(self.plan.max_tokens):
            tokens.append(self._next(word, texts, tokens))
            if self.stop in self.model.text(tokens):
                break
        return self.template.clean(self.model.text(tokens).split(self.stop)[0])

    def _next(self, word: str, texts: Sequence[str], tokens: list[int]) -> int:
        public = self._prefix(word, [])
        choices = self.model.next_token_probs([public], tokens)[0].argsort()[::-1][: self.plan.public_choices]
        buckets = self._sample(len(texts))
        # Each sampled example picks its prompt by a lot of its own: with one example more or less, one prompt changes
        # and no other example moves. (Dealing them in turn would move all that follow.)
        prefixes = [self._prefix(word, [texts[row] for row in rows.tolist()]) for rows in buckets]
        total = exact_sum(self.model.next_token_probs(prefixes, tokens), choices)
        noisy = add_gaussian(total, self.plan.stddev, self.draws)
        return int(choices[int(noisy.argmax())])

    def _sample(self, number: int) -> list[Integers]:
        rows = bernoulli_rows(number, self.plan.sampling_prob, self.stream)
        lots = self.stream.integers(self.plan.num_prompts, size=len(rows))
        return [rows[lots == place] for place in range(self.plan.num_prompts)]

    def _prefix(self, word: str, texts: Sequence[str]) -> str:
        frame, gap = self.template.instruction, self.template.separator
        shown = "".join(f"Label:{word}\nText: {self.template.clean(text)}{gap}" for text in texts)
        return f"{frame}{shown}Label:{word}\nText:"


def exact_sum(distributions: Floats, choices: Integers) -> Floats:
    """The sum of the distributions' entries at the chosen places, without rounding.

    Each distribution is brought to a sum of 1 at most and its entries down to multiples of 2^-40, so that the sum is
    exact in any order and moves by no more than the proof says, whatever a model gives; NaN counts as 0.

    >>> exact_sum(numpy.array([[0.5, 0.5], [3.0, 1.0], [numpy.nan, 1.0]]), numpy.array([0, 1])).round(6).tolist()
    [1.25, 1.75]
    """
    rows = numpy.nan_to_num(numpy.asarray(distributions, dtype=numpy.float64), nan=0.0, posinf=0.0, neginf=0.0)
    rows = rows.clip(min=0.0, max=1e300 / rows.shape[-1])
    rows = rows / numpy.maximum(rows.sum(axis=1, keepdims=True) * (1 + 2.0**-30), 1.0)
    whole = numpy.floor(rows[:, choices] * _GRID)
    result: Floats = whole.sum(axis=0) / _GRID
    return result
