"""What a run of PromptPATE will cost: calls, tokens, epsilon. Told before the first call, from public facts alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from hush import _check, accounting
from hush.errors import InvalidValue
from hush.pate.calibrate import queries_for
from hush.privacy import Budget, round_up

if TYPE_CHECKING:
    from hush.prompts.pate import PromptPATE, Vote

_CHARACTERS_A_TOKEN = 4  # where the model's tokens cannot be counted


@dataclass(frozen=True, kw_only=True)
class CostPreview:
    """The cost of the labels. Demonstrations are taken to be as long as the queries: private lengths are not looked at.

    `epsilon` is what may be published afterwards. `answers` is how many labels fit if none is abstained from.
    """

    calls: int  # of the method log_probs: a public one, to see that it works, and one for each teacher
    prompts: int  # questions in all calls, content-free ones included
    tokens: int  # read by the model, if a call's prefix is read once
    tokens_prompt_by_prompt: int  # read if every prompt is sent whole, as most services count
    answers: int
    epsilon: float
    delta: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"{self.calls:,} calls with {self.prompts:,} prompts: about {self.tokens:,} tokens with a shared prefix, "
            f"{self.tokens_prompt_by_prompt:,} prompt by prompt; epsilon {round_up(self.epsilon)} at delta "
            f"{self.delta:.3g} for up to {self.answers:,} labels"
        )


def preview_of(
    pate: PromptPATE,
    queries: Sequence[str],
    num_teachers: int,
    demonstrations: int,
    vote: Vote,
    budget: Budget | None,
    delta: float | None,
) -> CostPreview:
    """See `PromptPATE.preview`."""
    number, shown = _check.whole("num_teachers", num_teachers), _check.whole("demonstrations", demonstrations)
    if not queries:
        raise InvalidValue("queries must hold one public text or more.")
    epsilon, delta, answers = _promise(vote, len(queries), budget, delta)
    lengths = [_tokens(pate, pate.template.question(text)) for text in (*queries, *pate.content_free)]
    example = sum(lengths[: len(queries)]) / len(queries) + 2  # its label and the separator
    frame = _tokens(pate, pate.template.instruction)
    prefix, first = frame + shown * example, [lengths[0], *lengths[len(queries) :]]
    return CostPreview(
        calls=1 + number,
        prompts=len(first) + number * len(lengths),
        tokens=round(frame + sum(first) + number * (prefix + sum(lengths))),
        tokens_prompt_by_prompt=round(
            len(first) * frame + sum(first) + number * (len(lengths) * prefix + sum(lengths))
        ),
        answers=answers,
        epsilon=epsilon,
        delta=delta,
    )


def _promise(vote: Vote, queries: int, budget: Budget | None, delta: float | None) -> tuple[float, float, int]:
    """The epsilon that holds whatever the votes are: of the whole list answered, or the budget that ends it."""
    delta = budget.delta if delta is None and budget is not None else delta
    if delta is None:
        raise InvalidValue("a preview needs a budget or a delta, at which epsilon is stated.")
    whole = accounting.guarantee(vote.prices.of(queries, queries), delta=delta, method="exact").epsilon
    if budget is None or whole <= budget.epsilon:
        return whole, delta, queries
    return budget.epsilon, delta, min(queries, queries_for(vote, budget))


def _tokens(pate: PromptPATE, text: str) -> float:
    count = getattr(pate.language_model, "tokens", None)
    return len(count(text)) if callable(count) else len(text) / _CHARACTERS_A_TOKEN
