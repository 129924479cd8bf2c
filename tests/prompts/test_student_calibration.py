"""The student of several prompts, calibrated by public texts and by the labels that left the vote."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
from letters import Keyword

from hush import Rng
from hush.errors import InvalidValue, UnreadableFile
from hush.prompts.language_model import TokenLogProbs
from hush.prompts.pate import PromptPATE
from hush.prompts.scoring import label_scores, text_offsets
from hush.prompts.student import StudentPrompt
from hush.prompts.templates import Template

TEMPLATE = Template(instruction="Which animal?\n\n", example="Noise: {text}\nAnimal:{label}")
WORDS = (" cat", " dog", " cow")
SOUNDS = ("meow", "woof", "moo")
STREAM = Rng.from_seed(4).stream("noises")
TRUTH = STREAM.integers(3, size=24)
TEXTS = [f"{SOUNDS[label]} public{place}." for place, label in enumerate(TRUTH)]
MORE = [f"{SOUNDS[place % 3]} more{place}." for place in range(30)]


class Fond(Keyword):
    """A keyword model with a liking for some label words, whatever the text: logarithms of factors."""

    def __init__(self, liking: Sequence[float] = (0.0, 0.0, 0.0)) -> None:
        super().__init__()
        self.liking = numpy.array(liking)

    def log_probs(self, prefix: str, inputs: Sequence[str], continuations: Sequence[str], /) -> TokenLogProbs:
        found = numpy.array(super().log_probs(prefix, inputs, continuations))[:, :, 0] + self.liking
        found -= numpy.logaddexp.reduce(found, axis=1, keepdims=True)
        return [[[float(value)] for value in row] for row in found]


def pate(model: object | None = None) -> PromptPATE:
    return PromptPATE(model or Keyword(), TEMPLATE, WORDS)


def student(model: object | None = None, labels: numpy.ndarray = TRUTH, **how: object) -> StudentPrompt:
    how = {"shots": (6,), "candidates": 2, "calibration_texts": TEXTS + MORE, "rng": Rng.from_seed(1)} | how
    return pate(model).student(TEXTS, labels, **how)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(5))
def test_offsets_make_words_even_on_the_texts_but_for_half_the_share_of_labels(seed: int) -> None:
    stream = Rng.from_seed(seed).stream("scores")
    scores = numpy.log(stream.dirichlet([0.5, 3.0, 1.0, 0.1], size=20))
    level = (scores + text_offsets(scores)).mean(axis=0)
    assert numpy.allclose(level, level[0])
    labels = stream.integers(3, size=11)  # the last label was never answered
    ratio = (scores + text_offsets(scores, labels)).mean(axis=0)
    count = [6 + int((labels == label).sum()) for label in range(4)]
    for label in range(4):
        assert numpy.exp(2 * (ratio[label] - ratio[3])) == pytest.approx(count[label] / count[3])


def test_what_a_model_likes_whatever_the_text_changes_nothing() -> None:
    plain, fond = student(Fond()), student(Fond((4.0, 0.0, -3.0)))
    assert plain.demonstrations == fond.demonstrations
    assert numpy.allclose(plain.scores(MORE), fond.scores(MORE))
    assert (fond.predict(MORE) == numpy.arange(30) % 3).all()
    alone = replace(fond, beside=(), offsets=(), content_free=())
    assert set(alone.predict(MORE)) == {0}  # and without calibration it changes everything


def test_every_answered_text_is_shown_once_and_no_prompt_is_calibrated_by_its_own() -> None:
    model, labels = Keyword(), TRUTH.copy()
    labels[::3] = -1
    found = student(model, labels, shots=(8,))
    first, second, third = found.demonstrations, *found.beside
    answered = {(text, WORDS[label]) for text, label in zip(TEXTS, labels, strict=True) if label >= 0}
    assert {*first, *second} == answered
    assert len(first) + len(second) == 16
    assert third == ()
    for shown, (prefix, inputs) in zip((first, second, third), model.calls[-3:], strict=True):
        assert prefix == TEMPLATE.prefix(shown)
        own = {TEMPLATE.question(text) for text, _ in shown}
        assert {*inputs} == {TEMPLATE.question(text) for text in TEXTS + MORE} - own  # nothing without content either
    short = student(labels=labels, shots=(2,))
    assert [len(pairs) for pairs in (short.demonstrations, *short.beside)] == [2, 2, 0]


class Knowing(Keyword):
    """Zero-shot it half knows the sounds; with demonstrations it only repeats them, as `Keyword` does."""

    def log_probs(self, prefix: str, inputs: Sequence[str], continuations: Sequence[str], /) -> TokenLogProbs:
        if "Noise:" in prefix:
            return super().log_probs(prefix, inputs, continuations)
        hits = [[sound in text for sound in SOUNDS] for text in inputs]
        return [[[float(numpy.log(0.6 if hit else 0.2))] for hit in row] for row in hits]


@pytest.mark.parametrize("given", [None, TEXTS + MORE])
def test_answers_that_zero_shot_finds_likely_are_shown_more_often(given: list[str] | None) -> None:
    wrong = numpy.where(numpy.arange(24) % 3 == 0, (TRUTH + 1) % 3, TRUTH)  # a third of the labels
    right = dict(zip(TEXTS, (WORDS[label] for label in TRUTH), strict=True))

    def share_right(model: object) -> float:
        shown = [
            student(model, wrong, candidates=1, calibration_texts=given, rng=Rng.from_seed(seed)).demonstrations
            for seed in range(60)
        ]
        return float(numpy.mean([right[text] == word for pairs in shown for text, word in pairs]))

    assert share_right(Keyword()) == pytest.approx(2 / 3, abs=0.08)  # knows nothing by itself: as often as they come
    assert share_right(Knowing()) > 0.78


def test_prompts_are_compared_by_likely_answers() -> None:
    """The prompt that says what the wrong answers say has more texts for it, and the other one the likely ones."""

    class Two(Knowing):
        def log_probs(self, prefix: str, inputs: Sequence[str], continuations: Sequence[str], /) -> TokenLogProbs:
            if "Noise:" not in prefix:
                return [[[-9.0 if "liar" in text else -0.1], [-9.0]] for text in inputs]
            first = "liar" in prefix.split("Noise: ")[1].splitlines()[0]
            return [[[-0.1 if (("liar" in text) == first) else -3.0], [-1.0]] for text in inputs]

    texts = [f"liar {place}" for place in range(8)] + [f"honest {place}" for place in range(4)]
    asked = PromptPATE(Two(), TEMPLATE, WORDS[:2], content_free=())
    found = asked.student(texts, numpy.zeros(12, int), shots=(1,), candidates=60, rng=Rng.from_seed(1))
    assert "honest" in found.demonstrations[0][0]
    assert found.agreement == pytest.approx(3 / 11)  # told as it is: of all the others


def test_scores_are_the_mean_of_the_prompts() -> None:
    found, asked = student(), ["meow x", "woof meow y", "z"]
    table = [
        label_scores(Keyword(), TEMPLATE, WORDS, TEMPLATE.prefix(shown), asked, content_free=()) + row
        for shown, row in zip((found.demonstrations, *found.beside), found.offsets, strict=True)
    ]
    table = [row - numpy.logaddexp.reduce(row, axis=1, keepdims=True) for row in table]
    mean = numpy.mean(table, axis=0)
    scores = found.scores(asked)
    assert numpy.allclose(numpy.exp(scores).sum(axis=1), 1)
    assert numpy.allclose(scores - scores[:, :1], mean - mean[:, :1])
    model = Keyword()
    replace(found, language_model=model).predict(asked)
    assert [inputs for _, inputs in model.calls] == 3 * [[TEMPLATE.question(text) for text in asked]]


def test_at_most_two_hundred_texts_are_asked_about() -> None:
    model = Keyword()
    student(model, calibration_texts=[f"text {place}" for place in range(500)])
    assert [len(inputs) for _, inputs in model.calls[-3:]] == [200, 200, 200]


def test_zero_shot_is_calibrated_without_a_label() -> None:
    fond = pate(Fond((3.0, 0.0, 0.0))).prompt()
    raw = replace(fond, content_free=()).scores(MORE)
    level = fond.calibrated(MORE).scores(MORE)
    assert raw[:, 0].min() > -0.2
    assert numpy.allclose(level, numpy.log(1 / 3))  # it knows nothing without examples, and now says so


def test_one_answer_is_enough() -> None:
    labels = numpy.full(24, -1)
    labels[5] = TRUTH[5]
    found = student(labels=labels)
    assert found.beside == ((),)
    assert found.agreement is None
    assert found.predict([TEXTS[5]])[0] == TRUTH[5]
    assert student(labels=labels, calibration_texts=TEXTS[5:6]).predict([TEXTS[5]]).shape == (1,)


def test_a_file_holds_all_prompts(tmp_path: Path) -> None:
    found, path = student(), tmp_path / "student.json"
    found.save(path)
    back = StudentPrompt.load(path, Keyword())
    assert (back.beside, back.offsets) == (found.beside, found.offsets)
    assert numpy.array_equal(back.scores(MORE), found.scores(MORE))
    content = json.loads(path.read_text())
    for wrong in ({"offsets": []}, {"offsets": [[0.0, 0.0]] * 3}, {"beside": []}, {"beside": 3}, {"format": 3},
                  {"offsets": [["a", "b", "c"]] * 3}, {"offsets": [[0, 0, float("nan")]] * 3}):  # fmt: skip
        path.write_text(json.dumps({**content, **wrong}))
        with pytest.raises(UnreadableFile):
            StudentPrompt.load(path, Keyword())


def test_a_file_of_the_first_format_still_loads(tmp_path: Path) -> None:
    path, shown = tmp_path / "student.json", [["meow 1", " cat"], ["moo 2", " cow"]]
    content = {"format": 1, "template": vars(TEMPLATE), "labels": WORDS, "demonstrations": shown,
               "content_free": ["N/A"], "lengths": "sum", "agreement": 0.5}  # fmt: skip
    path.write_text(json.dumps(content))
    back = StudentPrompt.load(path, Fond((2.0, 0.0, 0.0)))
    pairs = [(text, label) for text, label in shown]
    alone = label_scores(Fond((2.0, 0.0, 0.0)), TEMPLATE, WORDS, TEMPLATE.prefix(pairs), MORE, content_free=["N/A"])
    assert numpy.array_equal(back.scores(MORE), alone)
    assert (back.beside, back.offsets, back.agreement) == ((), (), 0.5)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(InvalidValue, match="one public text"):
        student(calibration_texts=[])
    with pytest.raises(InvalidValue, match=r"0 \.\. 2"):
        pate().prompt().calibrated(TEXTS, [3])
    with pytest.raises(InvalidValue, match=r"0 \.\. 2"):
        pate().prompt().calibrated(TEXTS, [-1])
    with pytest.raises(InvalidValue, match="3 numbers for each"):
        replace(pate().prompt(), beside=((),))
    with pytest.raises(InvalidValue, match="3 numbers for each"):
        replace(pate().prompt(), offsets=((0.0, 0.0),))
