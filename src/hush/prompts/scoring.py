"""Which label a prompt gives a text: by the log-probabilities of the label words, set right by content-free inputs.

A model favours some words whatever it is asked. Contextual calibration asks the same prompt about texts without content
("N/A", "", "[MASK]") and divides by what it says there [Zhao, Wallace, Feng, Klein, Singh 2021, Sec. 5]. That is a
function of one prompt: a teacher's calibration sees the teacher's own examples alone, and costs no privacy. With public
texts without labels at hand, what the prompt says of them is a better measure [Zhou et al. 2023]: see `text_offsets`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy
from numpy.typing import ArrayLike

from hush import _check
from hush.errors import InvalidValue
from hush.prompts.language_model import Floats, LanguageModel
from hush.prompts.templates import Template

CONTENT_FREE = ("N/A", "", "[MASK]")
LENGTHS = ("sum", "mean")
_COUNT_OF_EMPTY = 32
_UNSEEN = 6.0  # labels of each kind that count as seen beforehand: private labels are few and partly wrong


def label_scores(
    language_model: LanguageModel,
    template: Template,
    labels: Sequence[str],
    prefix: str,
    texts: Sequence[str],
    *,
    content_free: Sequence[str] = CONTENT_FREE,
    lengths: str = "sum",
    offsets: Sequence[float] = (),
) -> Floats:
    """The calibrated score of each label for each text, (texts, labels); each row holds log-probabilities.

    Args:
        language_model: Has the method `log_probs`.
        template: Makes a question of a text.
        labels: The label words, as they follow the question.
        prefix: What stands before each question.
        texts: What to label.
        content_free: Texts without content; none for raw log-probabilities.
        lengths: Of label words with several tokens: "sum" adds the tokens' log-probabilities, the word's own
            probability; "mean" divides by their number, which favours no short word.
        offsets: Added to the labels' raw log-probabilities; then content-free texts are not asked about.
    """
    _check.one_of("lengths", lengths, LENGTHS)
    content_free = () if offsets else content_free
    questions = [template.question(text) for text in (*texts, *content_free)]
    if not questions:
        return numpy.empty((0, len(labels)))
    found = language_model.log_probs(prefix, questions, list(labels))
    scores = normalised(_words(found, len(questions), len(labels), lengths))
    if offsets:
        return normalised(scores + numpy.asarray(offsets))
    if not content_free:
        return scores
    number = len(texts)
    return normalised(scores[:number] - _expected(scores[number:]))


def text_offsets(scores: Floats, labels: ArrayLike = ()) -> tuple[float, ...]:
    """Offsets of a prompt by what it says of public texts, and by labels that were paid for.

    Args:
        scores: The prompt's raw log-probabilities, (texts, labels), of public texts that it does not show.
        labels: Numbers of labels that left the vote.

    A word that is likely whatever the text is set back by its mean log-probability; then half the logarithm of the
    label's share is added, each label counted six times more than it was seen.

    >>> log_probs = numpy.log([[0.6, 0.4], [0.9, 0.1]])
    >>> [round(offset, 2) for offset in text_offsets(log_probs, [0, 1, 1, 0])]
    [-0.04, 1.26]
    """
    found, number = numpy.asarray(labels), scores.shape[1]
    if found.size and (found.dtype.kind not in "iu" or found.min() < 0 or found.max() >= number):
        raise InvalidValue(f"labels must lie in 0 .. {number - 1}, the places of the label words.")
    seen = numpy.bincount(found.astype(numpy.int64), minlength=number) + _UNSEEN
    return tuple((0.5 * numpy.log(seen / seen.sum()) - scores.mean(axis=0)).tolist())


def set_right(scores: Floats, empty: Floats) -> Floats:
    """A teacher's scores of public texts, set right by what it says of texts without content and of these texts.

    Args:
        scores: The prompt's raw log-probabilities of the public texts, (texts, labels).
        empty: Those of the texts without content; none to leave everything as it is.

    What is taken off is the mean of both measures, where the texts without content count as 32 texts at least: of few
    texts the mean says more about them than about the prompt.
    """
    if not len(empty):
        return scores
    share = len(scores) / (len(scores) + max(_COUNT_OF_EMPTY, len(scores)))
    return normalised(scores - (1 - share) * _expected(empty) - share * scores.mean(axis=0))


def _expected(empty: Floats) -> Floats:
    """The logarithm of the mean probability of each label over texts without content."""
    found: Floats = numpy.log(numpy.exp(empty).mean(axis=0).clip(min=1e-300))
    return found


def _words(found: object, rows: int, columns: int, lengths: str) -> Floats:
    """One number for each word; what a model gives is checked here, because anything can serve as a model."""
    combine = numpy.mean if lengths == "mean" else numpy.sum
    try:
        table = numpy.array([[float(combine(tokens)) for tokens in row] for row in found], dtype=numpy.float64)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        table = numpy.empty((0, 0))
    if table.shape != (rows, columns):
        raise InvalidValue(f"log_probs must give {rows} x {columns} lists of numbers, one list for each label word.")
    if numpy.isnan(table).any() or (table > 1e-6).any():
        raise InvalidValue("log_probs must give logarithms of probabilities: numbers, none above 0.")
    return table.clip(min=-1e6)  # a probability of 0


def normalised(scores: Floats) -> Floats:
    """Logarithms of probabilities over the labels alone."""
    shifted: Floats = scores - scores.max(axis=1, keepdims=True)
    result: Floats = shifted - numpy.log(numpy.exp(shifted).sum(axis=1, keepdims=True))
    return result
