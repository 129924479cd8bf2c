"""PromptPATE: disjoint teachers, the votes' path, the ledger, interruption, the student."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest
from letters import Keyword, language_model

from hush import Budget, Ledger, Rng, accounting
from hush.errors import BudgetExceeded, InvalidValue, ResumeRefused, UnreadableFile
from hush.pate import ConfidentGNMax, GNMax, LNMax, VoteCounts
from hush.prompts.language_model import TokenLogProbs
from hush.prompts.pate import PromptPATE
from hush.prompts.student import StudentPrompt, choose_student
from hush.prompts.templates import Template

TEMPLATE = Template(instruction="Which animal?\n\n", example="Noise: {text}\nAnimal:{label}")
WORDS = (" cat", " dog", " cow")
SOUNDS = (("meow", "purr"), ("woof", "bark"), ("moo", "low"))
STREAM = Rng.from_seed(3).stream("noises")


def noises(number: int, mark: str = "") -> tuple[list[str], numpy.ndarray]:
    """Texts with one of two tell-tale words each; `mark` and a number make every text one of its kind."""
    labels = STREAM.integers(3, size=number)
    tells = [SOUNDS[label][STREAM.integers(2)] for label in labels]
    return [f"{tell} {mark}{place}." for place, tell in enumerate(tells)], labels


TEXTS, LABELS = noises(600, "secret")
QUERIES, TRUTH = noises(40, "public")
HOW = {"num_teachers": 50, "demonstrations": 8, "progress": False}
VOTE = ConfidentGNMax(threshold=25.0, threshold_stddev=12.0, stddev=8.0)


def pate(model: object | None = None) -> PromptPATE:
    return PromptPATE(model or Keyword(), TEMPLATE, WORDS)


def secrets_in(prefix: str) -> set[str]:
    return {word for word in prefix.split() if word.startswith("secret")}


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_no_private_text_is_in_two_prompts(relation: str) -> None:
    model = Keyword()
    pate(model).votes(TEXTS, LABELS, QUERIES, relation=relation, **HOW)  # type: ignore[arg-type]
    shown = [secrets_in(prefix) for prefix, _ in model.calls]
    assert len(shown) == 51  # a public call first, then one for each teacher
    assert sum(map(len, shown)) == len(set().union(*shown)) > 200
    assert max(map(len, shown)) == 8
    assert all(not secrets_in(text) for _, inputs in model.calls for text in inputs)


def test_a_person_is_in_one_prompt() -> None:
    model, people = Keyword(), numpy.arange(600) // 5
    pate(model).votes(TEXTS, LABELS, QUERIES, groups=people, **HOW)  # type: ignore[arg-type]
    number_of = {text.split()[1]: person for text, person in zip(TEXTS, people, strict=True)}
    shown = [{number_of[word] for word in secrets_in(prefix)} for prefix, _ in model.calls]
    assert sum(map(len, shown)) == len(set().union(*shown))


def test_one_person_less_moves_one_vote_of_each_row() -> None:
    """The whole proof: with the same key, leaving one text out changes at most one teacher."""
    whole = pate().votes(TEXTS, LABELS, QUERIES, rng=Rng.from_seed(5), **HOW)  # type: ignore[arg-type]
    moved = 0
    for gone in (599, 598):  # the last ones: the other texts keep their numbers, by which they are dealt
        names = numpy.delete(numpy.arange(600), gone)
        texts = [TEXTS[row] for row in names]
        rest = pate().votes(texts, LABELS[names], QUERIES, groups=names, rng=Rng.from_seed(5), **HOW)  # type: ignore[arg-type]
        full = pate().votes(TEXTS, LABELS, QUERIES, groups=numpy.arange(600), rng=Rng.from_seed(5), **HOW)  # type: ignore[arg-type]
        distance = numpy.abs(rest.counts - full.counts).sum(axis=1)
        assert distance.max() <= 2
        moved += int(distance.sum())
    assert moved > 0
    assert whole.num_teachers == 50


def test_prompts_show_some_of_each_label() -> None:
    model, rare = Keyword(), LABELS.copy()
    rare[rare == 2] = numpy.where(STREAM.random((rare == 2).sum()) < 0.3, 1, 2)
    pate(model).votes(TEXTS, rare, QUERIES, num_teachers=10, demonstrations=6, progress=False, rng=Rng.from_seed(1))
    for prefix, _ in model.calls[1:]:
        assert [prefix.count(f"Animal:{word}\n\n") for word in WORDS] == [2, 2, 2]


def test_teachers_are_calibrated_by_what_they_are_asked() -> None:
    """A model that likes one word, but not after texts without content: only the texts that are asked about show it."""

    class Fond(Keyword):
        def log_probs(self, prefix: str, inputs: Sequence[str], continuations: Sequence[str], /) -> TokenLogProbs:
            found = super().log_probs(prefix, inputs, continuations)
            empty = [any(f"Noise: {text}\n" in question for text in ("N/A", "", "[MASK]")) for question in inputs]
            return [[[row[0][0] - 0.01], *([value[0] - 0.01 - 1.0 * (not none)] for value in row[1:])]
                    for row, none in zip(found, empty, strict=True)]  # fmt: skip

    def right(**how: bool) -> float:
        asked = PromptPATE(Fond(), TEMPLATE, WORDS, **how)  # type: ignore[arg-type]
        votes = asked.votes(TEXTS, LABELS, QUERIES, rng=Rng.from_seed(5), **HOW)  # type: ignore[arg-type]
        return float((votes.counts.argmax(axis=1) == TRUTH).mean())

    assert right() > right(by_queries=False) + 0.2


def test_labels_leave_by_the_noisy_vote_and_are_charged_before(tmp_path: Path) -> None:
    budget = Budget(epsilon=20.0, delta=1e-6)
    account = Ledger(tmp_path / "ledger.db").account("noises", cap=budget)
    answers = pate().label(TEXTS, LABELS, QUERIES, vote=VOTE, budget=budget, account=account, **HOW)  # type: ignore[arg-type]
    assert answers.answered.sum() > 30
    assert (answers.labels == TRUTH)[answers.answered].mean() > 0.9
    assert account.event.events == answers.event.events  # type: ignore[attr-defined]
    # What is charged, by the closed form: mu^2 = asked / t^2 + 2 answered / s^2
    mu = math.sqrt(40 / 12.0**2 + 2 * int(answers.answered.sum()) / 8.0**2)
    closed = accounting.guarantee(accounting_event(mu), delta=1e-6).epsilon
    assert account.spent().epsilon == pytest.approx(closed, rel=1e-6)
    assert answers.guarantee().epsilon == 20.0  # the promise is the budget: how often it abstained is a result


def accounting_event(mu: float) -> object:
    from hush.events import GaussianDP

    return GaussianDP(mu)


def test_the_budget_ends_the_list_in_the_middle() -> None:
    budget = Budget(epsilon=2.0, delta=1e-6)
    how = {"num_teachers": 50, "demonstrations": 8}
    vote = GNMax(stddev=10.0)
    preview = pate().preview(QUERIES, vote=vote, budget=budget, **how)
    answers = pate().label(TEXTS, LABELS, QUERIES, vote=vote, budget=budget, progress=False, **how)  # type: ignore[arg-type]
    assert answers.stopped
    assert 0 < answers.answered.sum() == preview.answers < 40
    assert answers.guarantee().epsilon <= 2.0 == preview.epsilon
    student = pate().student(QUERIES, answers.labels, shots=(3,), candidates=2, rng=Rng.from_seed(1))
    asked = set(numpy.array(QUERIES)[answers.asked])
    assert {text for text, _ in student.demonstrations} <= asked


def test_an_account_without_room_stops_before_the_first_call(tmp_path: Path) -> None:
    model = Keyword()
    account = Ledger(tmp_path / "ledger.db").account("noises", cap=Budget(epsilon=0.01, delta=1e-6))
    with pytest.raises(BudgetExceeded, match="not called"):
        pate(model).label(TEXTS, LABELS, QUERIES, vote=GNMax(stddev=1.0), account=account, **HOW)  # type: ignore[arg-type]
    assert model.calls == []
    with pytest.raises(InvalidValue, match="add_remove"):
        pate(model).label(TEXTS, LABELS, QUERIES, vote=VOTE, account=account, relation="replace_one", **HOW)  # type: ignore[arg-type]


@pytest.mark.parametrize("vote", [GNMax(stddev=10.0), LNMax(scale=10.0), VOTE], ids=["gnmax", "lnmax", "confident"])
def test_a_budget_without_room_stops_before_the_first_call(vote: Any) -> None:
    model, small = Keyword(), Budget(epsilon=1e-3, delta=1e-6)
    with pytest.raises(BudgetExceeded, match=r"not one query fits into the budget; the model was not called\. Allow"):
        pate(model).label(TEXTS, LABELS, QUERIES, vote=vote, budget=small, **HOW)  # type: ignore[arg-type]
    assert model.calls == []


def test_a_filter_that_is_used_up_stops_before_the_first_call() -> None:
    model, vote = Keyword(), GNMax(stddev=10.0)
    spent = accounting.GDPFilter(Budget(epsilon=1.0, delta=1e-6), relation="add_remove")
    while not spent.would_exceed(vote.prices.of(1, 1)):
        spent.charge(vote.prices.of(1, 1))
    with pytest.raises(BudgetExceeded, match="not called"):
        pate(model).label(TEXTS, LABELS, QUERIES, vote=vote, budget=spent, delta=1e-6, **HOW)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="budget must be"):
        pate(model).label(TEXTS, LABELS, QUERIES, vote=vote, budget=1.0, delta=1e-6, **HOW)  # type: ignore[arg-type]
    assert model.calls == []


def test_preview_counts_what_then_happens() -> None:
    model = Keyword()
    how = {"num_teachers": 50, "demonstrations": 8}
    preview = pate(model).preview(QUERIES, vote=VOTE, delta=1e-6, **how)
    assert model.calls == []
    pate(model).votes(TEXTS, LABELS, QUERIES, progress=False, **how)  # type: ignore[arg-type]
    calls = model.calls
    assert preview.calls == len(calls) == 51
    assert preview.prompts == sum(len(inputs) for _, inputs in calls)
    read = sum(len(prefix) + sum(map(len, inputs)) for prefix, inputs in calls) / 4
    assert preview.tokens == pytest.approx(read, rel=0.1)
    whole = sum(len(prefix) * len(inputs) + sum(map(len, inputs)) for prefix, inputs in calls) / 4
    assert preview.tokens_prompt_by_prompt == pytest.approx(whole, rel=0.1)
    mu = math.sqrt(40 / 12.0**2 + 2 * 40 / 8.0**2)
    assert preview.epsilon == pytest.approx(accounting.guarantee(accounting_event(mu), delta=1e-6).epsilon, rel=1e-6)
    assert "epsilon" in str(preview)
    with pytest.raises(InvalidValue, match="delta"):
        pate().preview(QUERIES, vote=VOTE, **how)


class Falling(Keyword):
    """Falls silent after some calls, as a service does."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.left = calls

    def log_probs(self, prefix: str, inputs: Sequence[str], continuations: Sequence[str], /) -> TokenLogProbs:
        self.left -= 1
        if self.left < 0:
            raise ConnectionError("nobody there")
        return super().log_probs(prefix, inputs, continuations)

    name = "Keyword"


def test_an_interrupted_run_goes_on_and_keeps_no_text(tmp_path: Path) -> None:
    folder, first, second = tmp_path / "votes", Falling(30), Falling(1000)
    with pytest.raises(ConnectionError):
        pate(first).votes(TEXTS, LABELS, QUERIES, folder=folder, **HOW)  # type: ignore[arg-type]
    whole = pate(second).votes(TEXTS, LABELS, QUERIES, folder=folder, **HOW)  # type: ignore[arg-type]
    assert len(second.calls) == 1 + 50 - 20  # two blocks of ten teachers were kept
    again = Falling(1000)
    same = pate(again).votes(TEXTS, LABELS, QUERIES, folder=folder, **HOW)  # type: ignore[arg-type]
    assert numpy.array_equal(whole.counts, same.counts)
    assert len(again.calls) == 1
    shown = [secrets_in(prefix) for prefix, _ in [*first.calls[:21], *second.calls[1:]]]
    assert sum(map(len, shown)) == len(set().union(*shown))  # disjoint across the interruption too
    content = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert not any(word.encode() in content for word in ("secret", "meow", "public"))
    assert folder.stat().st_mode & 0o077 == 0
    for change in ({"demonstrations": 7}, {"num_teachers": 49}, {"relation": "replace_one"}):
        with pytest.raises(ResumeRefused, match=next(iter(change)).removeprefix("num_")):
            pate(Falling(9)).votes(TEXTS, LABELS, QUERIES, folder=folder, **{**HOW, **change})  # type: ignore[arg-type]
    with pytest.raises(ResumeRefused, match="texts"):
        pate(Falling(9)).votes(["x", *TEXTS[1:]], LABELS, QUERIES, folder=folder, **HOW)  # type: ignore[arg-type]


def test_a_prompt_that_the_model_refuses_still_votes() -> None:
    class Choosy(Keyword):
        def log_probs(self, prefix: str, inputs: Sequence[str], continuations: Sequence[str], /) -> TokenLogProbs:
            if prefix.count("Noise:") > 3:
                raise InvalidValue("too long")
            return super().log_probs(prefix, inputs, continuations)

    votes = pate(Choosy()).votes(TEXTS, LABELS, QUERIES, relation="replace_one", **HOW)  # type: ignore[arg-type]
    assert isinstance(votes, VoteCounts)
    assert (votes.counts == votes.counts[0]).all()  # teacher number modulo three, whatever the query

    class Broken(Keyword):
        def log_probs(self, prefix: str, inputs: Sequence[str], continuations: Sequence[str], /) -> TokenLogProbs:
            raise InvalidValue("does not work")

    with pytest.raises(InvalidValue, match="does not work"):
        pate(Broken()).votes(TEXTS, LABELS, QUERIES, **HOW)  # type: ignore[arg-type]


def test_the_student_sees_answered_public_texts_alone() -> None:
    model = Keyword()
    labels = TRUTH.copy()
    labels[::4] = -1
    student = pate(model).student(QUERIES, labels, shots=(3, 6), candidates=12, rng=Rng.from_seed(1))
    answered = {text for text, label in zip(QUERIES, labels, strict=True) if label >= 0}
    for prefix, inputs in model.calls:
        shown = {line.removeprefix("Noise: ") for line in prefix.splitlines() if line.startswith("Noise: ")}
        tried = {text.removeprefix("Noise: ").removesuffix("\nAnimal:") for text in inputs} - {"N/A", "", "[MASK]"}
        assert shown <= answered
        assert tried == answered - shown  # tried on texts that it does not show
        assert len(shown) in (0, 3, 6)  # zero-shot too: which answers it finds likely
    assert len(student.demonstrations) == 6  # both words of each animal are needed
    assert student.agreement == 1.0
    assert (student.predict(["moo x", "bark y", "purr z"]) == [2, 1, 0]).all()


def test_the_student_is_the_candidate_that_agrees_most() -> None:
    class Judge(Keyword):
        """A prompt is as good as the number in its first demonstration says."""

        def log_probs(self, prefix: str, inputs: Sequence[str], continuations: Sequence[str], /) -> TokenLogProbs:
            good = int(prefix.split("Noise: ")[1].split()[0]) if "Noise: " in prefix else 0  # zero-shot: all alike
            return [[[math.log(0.9 if (place < good) == (word == " dog") else 0.05)] for word in continuations]
                    for place in range(len(inputs))]  # fmt: skip

    texts = [f"{number} text" for number in range(12)]
    chosen = PromptPATE(Judge(), TEMPLATE, (" dog", " cat"), content_free=()).student(
        texts, numpy.zeros(12, int), shots=(1,), candidates=40, rng=Rng.from_seed(2)
    )
    assert chosen.demonstrations[0][0] == "11 text"
    assert chosen.agreement == 1.0


def test_the_student_goes_to_a_file_and_back(tmp_path: Path) -> None:
    student = pate().student(QUERIES, TRUTH, shots=(6,), candidates=2, rng=Rng.from_seed(1))
    student.save(tmp_path / "student.json")
    back = StudentPrompt.load(tmp_path / "student.json", Keyword())
    assert back.prefix == student.prefix
    assert back.agreement == student.agreement
    assert numpy.array_equal(back.scores(QUERIES), student.scores(QUERIES))
    found = json.loads((tmp_path / "student.json").read_text())
    (tmp_path / "student.json").write_text(json.dumps({**found, "format": 9}))
    with pytest.raises(UnreadableFile):
        StudentPrompt.load(tmp_path / "student.json", Keyword())


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(InvalidValue, match="different words"):
        PromptPATE(Keyword(), TEMPLATE, (" a", " a"))
    with pytest.raises(InvalidValue, match=r"0 \.\. 2"):
        pate().votes(["a"], [3], QUERIES, **HOW)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="one or more"):
        pate().votes([], [], QUERIES, **HOW)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="queries"):
        pate().votes(TEXTS, LABELS, [], **HOW)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="nothing to show"):
        pate().student(QUERIES, [-1] * 40)
    with pytest.raises(InvalidValue, match="number of a label"):
        choose_student(pate().prompt(), QUERIES, [3] * 40)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_transformers_model_serves() -> None:
    model = language_model()
    found = PromptPATE(model.model, TEMPLATE, WORDS, tokenizer=model.tokenizer)
    votes = found.votes(TEXTS[:40], LABELS[:40], QUERIES[:3], num_teachers=4, demonstrations=2, progress=False)
    assert votes.num_teachers == 4
    preview = found.preview(QUERIES[:3], num_teachers=4, demonstrations=2, vote=VOTE, delta=1e-5)
    assert preview.tokens > 4 * 3 * 20  # letters
