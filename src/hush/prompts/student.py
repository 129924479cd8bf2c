"""The student prompt: public texts with the labels of the noisy vote, chosen on public texts with such labels.

Everything here is computed from public texts and labels that were paid for, so it costs nothing more, and the prompt
may be published and used for ever [post-processing].
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import ArrayLike

from hush import _check
from hush.errors import InvalidValue, UnreadableFile
from hush.pate.shards import Integers
from hush.prompts.demonstrations import in_turn
from hush.prompts.language_model import Floats, LanguageModel, as_language_model
from hush.prompts.scoring import CONTENT_FREE, label_scores, normalised, text_offsets
from hush.prompts.templates import Demonstration, Template
from hush.rng import Rng

_FORMAT = 2
SHOTS = (4, 8, 16)
_MOST_TEXTS = 200  # that a student is calibrated by


@dataclass(frozen=True, kw_only=True, eq=False)
class StudentPrompt:
    """A prompt that may be published: its demonstrations are public texts with privately made labels.

    `agreement` is the share of other public texts on which it says what the vote said; None if there were none.

    A student that is calibrated by public texts asks several prompts and takes the mean of their scores: its own, and
    one for each list of demonstrations in `beside`, an empty list being zero-shot. Each has its row of `offsets`, which
    are added to its log-probabilities in place of the calibration by content-free texts.
    """

    language_model: LanguageModel = field(repr=False)
    template: Template
    labels: tuple[str, ...]
    demonstrations: tuple[Demonstration, ...]
    content_free: tuple[str, ...] = CONTENT_FREE
    lengths: str = "sum"
    agreement: float | None = None
    beside: tuple[tuple[Demonstration, ...], ...] = ()
    offsets: tuple[tuple[float, ...], ...] = ()

    def __post_init__(self) -> None:
        rows = len(self.beside) + 1 if self.offsets or self.beside else 0
        table = [len(row) == len(self.labels) and bool(numpy.isfinite(row).all()) for row in self.offsets]
        if len(table) != rows or not all(table):
            raise InvalidValue(f"offsets must hold {len(self.labels)} numbers for each of the prompts.")

    @property
    def prefix(self) -> str:
        """The text before a question, in the first prompt."""
        return self.template.prefix(self.demonstrations)

    def scores(self, texts: Sequence[str]) -> Floats:
        """Log-probabilities of the labels, calibrated, (texts, labels)."""
        shown = (self.demonstrations, *self.beside)
        found = [
            self._ask(self.template.prefix(pairs), texts, offsets)
            for pairs, offsets in zip(shown, self.offsets or ((),), strict=True)
        ]
        return found[0] if len(found) == 1 else normalised(numpy.mean(found, axis=0))

    def _ask(self, prefix: str, texts: Sequence[str], offsets: tuple[float, ...]) -> Floats:
        how = {"content_free": self.content_free, "lengths": self.lengths, "offsets": offsets}
        return label_scores(self.language_model, self.template, self.labels, prefix, texts, **how)  # type: ignore[arg-type]

    def predict(self, texts: Sequence[str]) -> Integers:
        """The number of the likeliest label of each text."""
        found: Integers = self.scores(texts).argmax(axis=1).astype(numpy.int64)
        return found

    def calibrated(
        self, texts: Sequence[str], labels: ArrayLike = (), *, beside: Sequence[tuple[Demonstration, ...]] = ()
    ) -> StudentPrompt:
        """This prompt and those `beside` it, with offsets by public texts and by labels that were paid for.

        A prompt repeats the labels of texts that it shows, so those do not count for its offsets if there are others.
        See `text_offsets`.
        """
        if not len(texts):
            raise InvalidValue("calibration needs one public text or more.")
        offsets = []
        for pairs in (self.demonstrations, *beside):
            shown = {text for text, _ in pairs}
            unseen = [text for text in texts if self.template.clean(text) not in shown] or texts
            raw = replace(self, demonstrations=pairs, beside=(), offsets=(), content_free=())
            offsets.append(text_offsets(raw.scores(unseen), labels))
        return replace(self, beside=tuple(beside), offsets=tuple(offsets))

    def save(self, path: str | Path) -> None:
        """A JSON file of everything but the model."""
        template = vars(self.template)
        parts = ("labels", "demonstrations", "content_free", "lengths", "agreement", "beside", "offsets")
        content = {"format": _FORMAT, "template": template, **{name: getattr(self, name) for name in parts}}
        Path(path).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path, language_model: Any, *, tokenizer: Any = None) -> StudentPrompt:
        """The prompt of a file, for this model."""
        model = as_language_model(language_model, tokenizer)
        try:
            found = json.loads(Path(path).read_text(encoding="utf-8"))
            if found["format"] not in (1, _FORMAT):
                raise ValueError
            if found["format"] == 1:  # written before there were several prompts in a student
                found |= {"beside": [], "offsets": []}
            return cls(
                language_model=model,
                template=Template(**found["template"]),
                labels=tuple(found["labels"]),
                demonstrations=_pairs(found["demonstrations"]),
                content_free=tuple(found["content_free"]),
                lengths=found["lengths"],
                agreement=found["agreement"],
                beside=tuple(map(_pairs, found["beside"])),
                offsets=tuple(tuple(map(float, row)) for row in found["offsets"]),
            )
        except (ValueError, KeyError, TypeError):
            raise UnreadableFile(f"{path} is not a student prompt that save() wrote.") from None


def _pairs(shown: list[list[str]]) -> tuple[Demonstration, ...]:
    return tuple((str(text), str(label)) for text, label in shown)


def choose_student(
    blank: StudentPrompt,
    texts: Sequence[str],
    labels: ArrayLike,
    *,
    shots: Sequence[int] = SHOTS,
    candidates: int = 8,
    most_checked: int = 100,
    calibration_texts: Sequence[str] | None = None,
    rng: Rng | None = None,
) -> StudentPrompt:
    """The best of some random prompts: the one that agrees most with the vote on answered texts it does not show.

    Some answers are wrong. One that zero-shot, calibrated by public texts, finds likely too is mostly right: of each
    label the texts with the likeliest answers are shown, and such texts count more when prompts are compared.

    Args:
        blank: A prompt without demonstrations: model, template, labels.
        texts: The public texts that were asked about.
        labels: What the vote answered, -1 where it did not.
        shots: How many demonstrations to try, half of the answered texts at most: the others judge. A prompt shows some
            of each label that was answered.
        candidates: How many prompts to try of each size.
        most_checked: The most texts that a prompt is tried on.
        calibration_texts: Public texts without labels, answered or not. With them the best prompt is joined by a
            prompt of the other answered texts (as many as the largest of `shots`) and by zero-shot, and each is
            calibrated by 200 of these texts at most and by how often the vote gave each label.
        rng: A seeded source. Nothing here is secret.
    """
    found = numpy.asarray(labels)
    if (
        found.shape != (len(texts),)
        or found.dtype.kind not in "iu"
        or (len(found) and found.max() >= len(blank.labels))
    ):
        raise InvalidValue(f"labels must hold the number of a label for each of the {len(texts)} texts, or -1.")
    answered = numpy.flatnonzero(found >= 0)
    if not len(answered):
        raise InvalidValue("no public text was answered, so there is nothing to show: ask more, or lower the bar.")
    sizes = sorted({min(_check.whole("shots", size), max(1, len(answered) // 2)) for size in shots})
    stream, best = (rng or Rng()).stream("student prompts"), None
    pool = [texts[row] for row in answered.tolist()] if calibration_texts is None else calibration_texts
    tried = [pool[row] for row in stream.permutation(len(pool))[:_MOST_TEXTS].tolist()]
    support = _support(blank, texts, found, answered, tried)
    for size in sizes:
        for _ in range(_check.whole("candidates", candidates)):
            mixed = answered[stream.permutation(len(answered))]
            mixed = mixed[numpy.argsort(-support[mixed], kind="stable")]
            mixed = mixed[in_turn(found[mixed])]
            shown = stream.permutation(mixed[:size])
            prompt = replace(blank, demonstrations=_shown(blank, texts, found, shown))
            score = _judged(prompt, texts, found, mixed[size:][:most_checked], support)
            if best is None or score > best[0]:
                best = score, prompt, mixed[size:]
    assert best is not None
    (*_, agreement), prompt, rest = best
    prompt = replace(prompt, agreement=None if len(answered) == 1 else agreement)
    if calibration_texts is None:
        return prompt
    others = _shown(blank, texts, found, stream.permutation(rest[: max(shots)]))
    return prompt.calibrated(tried, found[answered], beside=(others, ()) if others else ((),))


def _shown(blank: StudentPrompt, texts: Sequence[str], labels: Integers, shown: Integers) -> tuple[Demonstration, ...]:
    return tuple((blank.template.clean(texts[row]), blank.labels[labels[row]]) for row in shown.tolist())


def _support(
    blank: StudentPrompt, texts: Sequence[str], labels: Integers, answered: Integers, public: list[str]
) -> Floats:
    """The log-probability that zero-shot, calibrated by public texts, gives to each answer; in hundredths, for ties."""
    found = numpy.zeros(len(texts))
    scores = blank.calibrated(public).scores([texts[row] for row in answered.tolist()])
    found[answered] = numpy.take_along_axis(scores, labels[answered][:, None], axis=1)[:, 0]
    return found.round(2)


def _judged(
    prompt: StudentPrompt, texts: Sequence[str], labels: Integers, others: Integers, support: Floats
) -> tuple[float, float, float]:
    """How well the prompt says what the vote said of the others.

    Their share by support, the mean log-probability of their labels by support, and their share.
    """
    if not len(others):
        return 0.0, 0.0, 0.0
    scores, wanted = prompt.scores([texts[row] for row in others.tolist()]), labels[others]
    weights = numpy.exp(support[others] - support[others].max())
    agrees, likely = scores.argmax(axis=1) == wanted, numpy.take_along_axis(scores, wanted[:, None], axis=1)[:, 0]
    by_support = [round(float(numpy.average(values, weights=weights)), 9) for values in (agrees, likely)]
    return by_support[0], by_support[1], float(agrees.mean())
