"""Private generation: the event, the sensitivity it rests on, the noise, the ledger."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy
import pytest
import torch
from letters import VOCABULARY, language_model
from scipy import stats

from hush import Budget, Ledger, Rng, accounting, events
from hush.errors import BudgetExceeded, InvalidValue
from hush.mechanisms.draws import Draws
from hush.prompts import generate
from hush.prompts.generate import GenerationPlan, _Writer, exact_sum, generate_demonstrations
from hush.prompts.templates import Template

TEMPLATE = Template(instruction="Invent.\n\n")


class Echo:
    """Says the last letter of the last private text for sure; '.' without one. Other letters come after, in order."""

    def next_token_probs(self, prefixes: Sequence[str], ending: Sequence[int], /) -> numpy.ndarray:
        table = numpy.zeros((len(prefixes), VOCABULARY))
        for row, prefix in enumerate(prefixes):
            shown = prefix.removesuffix("Text:").split("Text: ")[1:]
            letter = shown[-1].split("\n")[0][-1] if shown else "."
            table[row, ord(letter)] = 1.0
        return table

    def text(self, tokens: Sequence[int], /) -> str:
        return "".join(map(chr, tokens))


def plan(**changes: float) -> GenerationPlan:
    settings = {"sampling_prob": 0.5, "num_prompts": 4, "max_tokens": 3, "noise_multiplier": 1.0, "public_choices": 128}
    return GenerationPlan(**{**settings, **changes})  # type: ignore[arg-type]


def writer(model: object, settings: GenerationPlan, seed: int = 1) -> _Writer:
    rng = Rng.from_seed(seed)
    return _Writer(model, TEMPLATE, settings, rng.stream("samples"), Draws(rng), "\n")  # type: ignore[arg-type]


# The published runs: private examples of a label, sampled ones, tokens, noise for epsilon 1, 2, 4, 8 at delta 1/N.
PUBLISHED = {
    "AG News": (30_000, 20, 100, (0.51, 0.46, 0.39, 0.31)),
    "DBPedia": (40_000, 80, 100, (0.63, 0.54, 0.45, 0.36)),
    "MIT-G": (2_953, 80, 80, (1.08, 0.81, 0.64, 0.50)),
    "MIT-D": (1_561, 80, 80, (1.52, 1.04, 0.77, 0.58)),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_event_costs_what_the_published_runs_say(name: str) -> None:
    examples, sampled, tokens, noises = PUBLISHED[name]
    for noise, epsilon in zip(noises, (1.0, 2.0, 4.0, 8.0), strict=True):
        settings = plan(sampling_prob=sampled / examples, max_tokens=tokens, noise_multiplier=noise)
        found = accounting.guarantee(settings.event, delta=1 / examples).epsilon
        assert 0.8 * epsilon < found <= 1.01 * epsilon  # their accountant rounds up, and their noise has two digits


def test_a_budget_gives_the_least_noise() -> None:
    budget = Budget(epsilon=2.0, delta=1e-5)
    found = GenerationPlan.for_budget(budget, sampling_prob=0.01, num_prompts=5, max_tokens=20, per_label=3)
    assert budget.allows(accounting.guarantee(events.Repeated(found.event, 3), delta=1e-5))
    less = plan(sampling_prob=0.01, max_tokens=20, noise_multiplier=found.noise_multiplier * 0.999)
    assert not budget.allows(accounting.guarantee(events.Repeated(less.event, 3), delta=1e-5))


def test_one_example_moves_the_sum_by_the_root_of_two_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours under the same lots: the last text is there or not."""
    sums: list[numpy.ndarray] = []
    monkeypatch.setattr(generate, "exact_sum", lambda *given: (sums.append(exact_sum(*given)), sums[-1])[1])
    texts = [f"x{chr(97 + place)}" for place in range(20)]
    farthest = 0.0
    for seed in range(20):
        for rows in (texts, texts[:-1]):
            writer(Echo(), plan(sampling_prob=1.0), seed)._next(" w", rows, [])
        distance = float(numpy.linalg.norm(sums[-1] - sums[-2]))
        farthest = max(farthest, distance)
        assert distance <= math.sqrt(2)
    assert farthest == pytest.approx(math.sqrt(2), abs=1e-6)  # and it is reached: the noise must not be less
    assert plan(noise_multiplier=1.5).stddev == pytest.approx(1.5 * math.sqrt(2))
    assert plan(noise_multiplier=1.5).stddev >= 1.5 * math.sqrt(2)


def test_a_token_has_the_chance_of_the_mechanism() -> None:
    """One prompt, one text that says 'b', else '.': P('b') in closed form. False alarms: 1 in 10^6."""
    settings = plan(sampling_prob=0.3, num_prompts=1, noise_multiplier=0.8, public_choices=2)

    class Two(Echo):
        def next_token_probs(self, prefixes: Sequence[str], ending: Sequence[int], /) -> numpy.ndarray:
            return super().next_token_probs(prefixes, ending)[:, [ord("."), ord("b")]]

        def text(self, tokens: Sequence[int], /) -> str:
            return "".join(".b"[token] for token in tokens)

    source, number = writer(Two(), settings), 2_000
    found = sum(source._next(" w", ["xb"], []) for _ in range(number))
    spread = settings.stddev * math.sqrt(2)  # of the difference of two noisy entries
    chance = 0.3 * stats.norm.cdf(1 / spread) + 0.7 * stats.norm.cdf(-1 / spread)
    assert 2 * min(stats.binom.cdf(found, number, chance), stats.binom.sf(found - 1, number, chance)) > 1e-6


def test_only_public_choices_come_out() -> None:
    class Public(Echo):
        def next_token_probs(self, prefixes: Sequence[str], ending: Sequence[int], /) -> numpy.ndarray:
            table = super().next_token_probs(prefixes, ending)
            return numpy.where(numpy.arange(VOCABULARY) < 100, 0.5 * table + 1e-3, table)

    settings = plan(sampling_prob=1.0, public_choices=3, noise_multiplier=0.01, max_tokens=30)
    made = writer(Public(), settings).write(" w", ["secret z"] * 8)
    assert "z" not in made


def test_examples_of_other_labels_are_not_read() -> None:
    class Watched(Echo):
        seen: list[str] = []  # noqa: RUF012

        def next_token_probs(self, prefixes: Sequence[str], ending: Sequence[int], /) -> numpy.ndarray:
            self.seen.extend(prefixes)
            return super().next_token_probs(prefixes, ending)

    texts = ["of a"] * 10 + ["of b"] * 10
    labels = [0] * 10 + [1] * 10
    made = generate_demonstrations(Watched(), TEMPLATE, (" A", " B"), texts, labels, plan=plan(), per_label=1)
    assert not any("of b" in prefix and "Label: A" in prefix for prefix in Watched.seen)
    assert any("of b" in prefix and "Label: B" in prefix for prefix in Watched.seen)
    assert made.event == events.Repeated(plan().event, 1)
    assert set(made.numbers) <= {0, 1}


def test_every_round_is_charged_before_and_the_cap_ends_the_list(tmp_path: Path) -> None:
    one = accounting.guarantee(events.Repeated(plan().event, 3), delta=1e-5).epsilon
    account = Ledger(tmp_path / "ledger.db").account("texts", cap=Budget(epsilon=one, delta=1e-5))
    how = {"plan": plan(), "account": account}
    made = generate_demonstrations(Echo(), TEMPLATE, (" A", " B"), ["xa", "xb"], [0, 1], per_label=9, **how)  # type: ignore[arg-type]
    assert made.stopped
    assert made.event == events.Repeated(plan().event, 3)
    assert account.spent().epsilon == made.guarantee(delta=1e-5).epsilon <= one
    with pytest.raises(BudgetExceeded):
        generate_demonstrations(Echo(), TEMPLATE, (" A", " B"), ["xa", "xb"], [0, 1], per_label=1, **how)  # type: ignore[arg-type]
    other = Ledger(tmp_path / "other.db").account("texts", relation="replace_one")
    with pytest.raises(InvalidValue, match="replace_one"):
        generate_demonstrations(Echo(), TEMPLATE, (" A", " B"), ["xa"], [0], per_label=1, plan=plan(), account=other)


def test_the_sum_is_exact_whatever_a_model_gives() -> None:
    stream = Rng.from_seed(4).stream("test")
    rows = stream.dirichlet(numpy.ones(50), size=64) * stream.choice([0.1, 1.0, 7.0], size=(64, 1))
    rows[5, 3], rows[6, 7] = numpy.nan, numpy.inf
    places = numpy.arange(50)
    forward, backward = exact_sum(rows, places), exact_sum(rows[::-1], places)
    assert (forward == backward).all()
    for row in rows:
        single = exact_sum(row[None], places)
        assert single.sum() <= 1
        assert (single >= 0).all()
    apart = sum(exact_sum(row[None], places) for row in rows)
    assert (apart == forward).all()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_transformers_model_writes() -> None:
    model = language_model(begin=1)
    prefixes, ending = ["abc", "a much longer one", "x"], [65, 66]
    found = model.next_token_probs(prefixes, ending)
    for prefix, row in zip(prefixes, found, strict=True):
        with torch.no_grad():
            logits = model.model(torch.tensor([[1, *model.tokens(prefix), *ending]])).logits[0, -1]
        assert row == pytest.approx(logits.double().softmax(0).numpy(), abs=1e-5)
    made = generate_demonstrations(
        model, TEMPLATE, (" A", " B"), ["one", "two", "three"], [0, 1, 0], plan=plan(max_tokens=4), per_label=2
    )
    assert 0 < len(made.demonstrations) <= 4
    with pytest.raises(InvalidValue, match="TransformersModel"):
        generate_demonstrations(object(), TEMPLATE, (" A",), ["a"], [0], plan=plan(), per_label=1)
