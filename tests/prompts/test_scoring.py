"""Label scores: against whole prompts one by one, and contextual calibration against its formula."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy
import pytest
import torch
from letters import Letters, language_model, tiny

from hush.errors import InvalidValue
from hush.prompts.language_model import LanguageModel, TransformersModel, as_language_model
from hush.prompts.prefix_cache import PrefixCache
from hush.prompts.scoring import label_scores, normalised, set_right
from hush.prompts.templates import TASKS, Template

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
TEMPLATE = Template(instruction="Say which.\n\n", example="Q: {text}\nA:{label}")
LABELS = (" x", " yes", " yet", "n")
TEXTS = ["a", "why not?", "", "a much longer text than the other ones", "b c d e"]


def one_by_one(model: TransformersModel, prefix: str, questions: Sequence[str], labels: Sequence[str]) -> numpy.ndarray:
    """Every prompt whole, with every label word, by itself: no cache, no batch, no filling."""
    table = []
    for question in questions:
        row = []
        for label in labels:
            head = model._begin + model.tokens(prefix) + model.tokens(question)
            tail = model.tokens(label)
            with torch.no_grad():
                logits = model.model(torch.tensor([head + tail])).logits[0].double().log_softmax(-1)
            row.append(sum(float(logits[len(head) - 1 + place, token]) for place, token in enumerate(tail)))
        table.append(row)
    return numpy.array(table)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize("begin", [None, 1])
@pytest.mark.parametrize("tokens_at_once", [1, 60, 10_000])
def test_shared_prefix_scores_are_those_of_whole_prompts(family: str, begin: int | None, tokens_at_once: int) -> None:
    model = language_model(family, begin)
    model.tokens_at_once = tokens_at_once
    assert model._packs
    questions = [TEMPLATE.question(text) for text in TEXTS]
    for prefix in (TEMPLATE.prefix([("m", " x"), ("nn", " yes")]), TEMPLATE.prefix([("m", " x"), ("other", "n")]), "Z"):
        found = model.log_probs(prefix, questions, LABELS)
        summed = numpy.array([[sum(tokens) for tokens in row] for row in found])
        assert numpy.abs(summed - one_by_one(model, prefix, questions, LABELS)).max() < 1e-4
        assert [len(tokens) for tokens in found[0]] == [2, 4, 4, 1]


def test_many_questions_are_read_in_one_call_and_each_once() -> None:
    model = language_model()
    assert model._packs
    prefix, questions = TEMPLATE.prefix([("m", " x")]), [TEMPLATE.question(text) for text in TEXTS] * 3
    model.cache.layers(model.tokens(prefix))
    read: list[tuple[int, ...]] = []
    forward = model.model.forward
    model.model.forward = lambda *args, **given: (read.append(given["input_ids"].shape), forward(*args, **given))[1]
    model.log_probs(prefix, questions, LABELS)
    needed = sum(len(question) for question in questions) + len(questions) * len(" ye")
    assert len(read) == 1
    assert needed <= math.prod(read[0]) < 1.3 * needed  # a side by side batch would copy the prefix and fill up


@pytest.mark.parametrize("fault", ["mask", "places", "refused", "window"])
def test_a_model_that_does_not_heed_our_mask_is_asked_one_by_one(fault: str) -> None:
    model = language_model()
    expected = one_by_one(model, "Say", TEXTS[:2], LABELS)
    forward = model.model.forward

    def deaf(*args: object, **given: object) -> object:
        if given.get("attention_mask") is not None:
            if fault == "refused":
                raise ValueError("masks have two dimensions")
            given.pop("attention_mask" if fault == "mask" else "position_ids")
        return forward(*args, **given)

    model.model.forward = deaf
    if fault == "window":
        model.model.config.sliding_window = 8
    assert not model._packs
    found = model.log_probs("Say", TEXTS[:2], LABELS)
    assert numpy.abs(numpy.array([[sum(tokens) for tokens in row] for row in found]) - expected).max() < 1e-4


def test_a_prompt_without_a_prefix_is_scored_too() -> None:
    model = language_model()
    found = model.log_probs("", ["abc", "z"], LABELS)
    summed = numpy.array([[sum(tokens) for tokens in row] for row in found])
    assert numpy.abs(summed - one_by_one(model, "", ["abc", "z"], LABELS)).max() < 1e-4
    with pytest.raises(InvalidValue, match="no text to continue"):
        model.log_probs("", [""], LABELS)


def test_the_cache_runs_a_prefix_once() -> None:
    model = tiny()
    read: list[int] = []
    forward = model.forward
    model.forward = lambda *args, **given: (read.append(given["input_ids"].shape[1]), forward(*args, **given))[1]
    cache = PrefixCache(model, most=2)
    for prefix in (range(20), range(20), range(15), range(20), range(9), range(15), range(20)):
        cache.layers(prefix)
    assert read == [20, 15, 9, 15, 20]  # whole prefixes, the two last used ones are kept
    cache.forget()
    cache.layers(range(20))
    assert read[5:] == [20]


def test_scores_do_not_depend_on_what_was_asked_before() -> None:
    fresh, used = language_model(), language_model()
    used.log_probs(TEMPLATE.prefix([("secret", " yes")] * 3), ["abc"], LABELS)
    prefix = TEMPLATE.prefix([("secret", " yes"), ("other", " x")])
    assert fresh.log_probs(prefix, TEXTS, LABELS) == used.log_probs(prefix, TEXTS, LABELS)


def test_calibration_is_the_published_formula() -> None:
    model = language_model()
    prefix, empty = TEMPLATE.prefix([("m", " x")]), ("N/A", "")
    raw = label_scores(model, TEMPLATE, LABELS, prefix, [*TEXTS, *empty], content_free=())
    probabilities = numpy.exp(raw)
    assert probabilities.sum(axis=1) == pytest.approx(1)
    weights = 1 / probabilities[-2:].mean(axis=0)  # W = diag(p_cf)^-1, then normalised [Zhao et al. 2021, Sec. 5]
    expected = probabilities[:-2] * weights
    expected /= expected.sum(axis=1, keepdims=True)
    found = label_scores(model, TEMPLATE, LABELS, prefix, TEXTS, content_free=empty)
    assert numpy.exp(found) == pytest.approx(expected, rel=1e-4)
    even = label_scores(model, TEMPLATE, LABELS, prefix, ["N/A"], content_free=("N/A",))
    assert numpy.exp(even) == pytest.approx(1 / len(LABELS), rel=1e-4)


def test_long_words_are_summed_or_averaged() -> None:
    model = language_model()
    found = model.log_probs("ab", ["c"], LABELS)[0]
    for lengths, combine in (("sum", sum), ("mean", numpy.mean)):
        words = numpy.array([combine(tokens) for tokens in found])
        expected = words - numpy.log(numpy.exp(words).sum())
        frame = Template(example="{text}{label}")
        scores = label_scores(model, frame, LABELS, "ab", ["c"], content_free=(), lengths=lengths)
        assert scores[0] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    "answer", [[[[0.5], [0.1]]], [[[float("nan")], [-1.0]]], [[[-1.0]]], "no", [[["a"], ["b"]]], None]
)
def test_models_that_give_no_log_probabilities_are_refused(answer: object) -> None:
    class Wrong:
        def log_probs(self, prefix: str, inputs: object, continuations: object, /) -> object:
            return answer

    with pytest.raises(InvalidValue, match="log_probs must give"):
        label_scores(Wrong(), TEMPLATE, (" a", " b"), "p", ["t"], content_free=())  # type: ignore[arg-type]


def test_what_serves_as_a_model() -> None:
    wrapped = as_language_model(tiny(), Letters())
    assert isinstance(wrapped, LanguageModel)
    assert as_language_model(wrapped) is wrapped
    with pytest.raises(InvalidValue, match="tokenizer"):
        as_language_model(tiny())
    with pytest.raises(InvalidValue, match="log_probs"):
        as_language_model(lambda text: text)


def test_prompts_longer_than_the_model_are_refused_by_number() -> None:
    model = language_model("gpt2")
    with pytest.raises(InvalidValue, match=r"input 1 .* 512") as caught:
        model.log_probs("p", ["a", "private " * 100], LABELS)
    assert "private" not in str(caught.value)


def test_one_example_stays_one_example() -> None:
    template = TASKS["trec"].template
    sly = "x\nAnswer Type: Number\n\nQuestion: y {label} {text}"
    assert template.question(sly).count("\n") == 1
    assert template.prefix([(sly, " Number")]).count("\n\n") == 2
    assert "{label} {text}" in template.question(sly)  # braces are letters like others
    assert len(template.question("word " * 1000)) < 450
    for example in ("{text}", "{label}{text}", "{text}{text}{label}", "{label} {text} {label}"):
        with pytest.raises(InvalidValue, match="example must hold"):
            Template(example=example)


@pytest.mark.parametrize(("number", "share"), [(1, 1 / 33), (8, 8 / 40), (32, 0.5), (500, 0.5)])
def test_a_teacher_is_set_right_by_both_measures(number: int, share: float) -> None:
    stream = numpy.random.default_rng(number)
    scores, empty = (numpy.log(stream.dirichlet([2.0, 0.5, 1.0], size=rows)) for rows in (number, 3))
    wanted = scores - share * scores.mean(axis=0) - (1 - share) * numpy.log(numpy.exp(empty).mean(axis=0))
    assert set_right(scores, empty) == pytest.approx(normalised(wanted))
    assert set_right(scores, empty[:0]) is scores
    alike = numpy.repeat(empty[:1], 3, axis=0)  # one text without content, so that it is a plain shift
    fond = numpy.array([5.0, 0.0, -2.0])  # what a model likes whatever the text changes nothing
    moved = set_right(normalised(scores + fond), normalised(alike + fond))
    assert moved == pytest.approx(set_right(scores, alike))
