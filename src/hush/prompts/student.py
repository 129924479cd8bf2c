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
from hush.prompts.scoring import CONTENT_FREE, label_scores
from hush.prompts.templates import Demonstration, Template
from hush.rng import Rng

_FORMAT = 1
SHOTS = (4, 8, 16)


@dataclass(frozen=True, kw_only=True, eq=False)
class StudentPrompt:
    """A prompt that may be published: its demonstrations are public texts with privately made labels.

    `agreement` is the share of other public texts on which it says what the vote said; None if there were none.
    """

    language_model: LanguageModel = field(repr=False)
    template: Template
    labels: tuple[str, ...]
    demonstrations: tuple[Demonstration, ...]
    content_free: tuple[str, ...] = CONTENT_FREE
    lengths: str = "sum"
    agreement: float | None = None

    @property
    def prefix(self) -> str:
        """The text before a question."""
        return self.template.prefix(self.demonstrations)

    def scores(self, texts: Sequence[str]) -> Floats:
        """Log-probabilities of the labels, calibrated, (texts, labels)."""
        how = {"content_free": self.content_free, "lengths": self.lengths}
        return label_scores(self.language_model, self.template, self.labels, self.prefix, texts, **how)  # type: ignore[arg-type]

    def predict(self, texts: Sequence[str]) -> Integers:
        """The number of the likeliest label of each text."""
        found: Integers = self.scores(texts).argmax(axis=1).astype(numpy.int64)
        return found

    def save(self, path: str | Path) -> None:
        """A JSON file of everything but the model."""
        template = vars(self.template)
        parts = ("labels", "demonstrations", "content_free", "lengths", "agreement")
        content = {"format": _FORMAT, "template": template, **{name: getattr(self, name) for name in parts}}
        Path(path).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path, language_model: Any, *, tokenizer: Any = None) -> StudentPrompt:
        """The prompt of a file, for this model."""
        model = as_language_model(language_model, tokenizer)
        try:
            found = json.loads(Path(path).read_text(encoding="utf-8"))
            if found["format"] != _FORMAT:
                raise ValueError
            shown = tuple((str(text), str(label)) for text, label in found["demonstrations"])
            return cls(
                language_model=model,
                template=Template(**found["template"]),
                labels=tuple(found["labels"]),
                demonstrations=shown,
                content_free=tuple(found["content_free"]),
                lengths=found["lengths"],
                agreement=found["agreement"],
            )
        except (ValueError, KeyError, TypeError):
            raise UnreadableFile(f"{path} is not a student prompt that save() wrote.") from None


def choose_student(
    blank: StudentPrompt,
    texts: Sequence[str],
    labels: ArrayLike,
    *,
    shots: Sequence[int] = SHOTS,
    candidates: int = 8,
    most_checked: int = 100,
    rng: Rng | None = None,
) -> StudentPrompt:
    """The best of some random prompts: the one that agrees most with the vote on answered texts it does not show.

    Args:
        blank: A prompt without demonstrations: model, template, labels.
        texts: The public texts that were asked about.
        labels: What the vote answered, -1 where it did not.
        shots: How many demonstrations to try, half of the answered texts at most: the others judge. A prompt shows some
            of each label that was answered.
        candidates: How many prompts to try of each size.
        most_checked: The most texts that a prompt is tried on.
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
    for size in sizes:
        for _ in range(_check.whole("candidates", candidates)):
            mixed = answered[stream.permutation(len(answered))]
            mixed = mixed[in_turn(found[mixed])]
            shown = stream.permutation(mixed[:size])
            prompt = _with(blank, texts, found, shown)
            score = _judged(prompt, texts, found, mixed[size:], most_checked, stream)
            if best is None or score > best[0]:
                best = score, prompt
    assert best is not None
    (agreement, _), prompt = best
    return replace(prompt, agreement=None if len(answered) == 1 else agreement)


def _with(blank: StudentPrompt, texts: Sequence[str], labels: Integers, shown: Integers) -> StudentPrompt:
    pairs = tuple((blank.template.clean(texts[row]), blank.labels[labels[row]]) for row in shown.tolist())
    return replace(blank, demonstrations=pairs)


def _judged(
    prompt: StudentPrompt,
    texts: Sequence[str],
    labels: Integers,
    others: Integers,
    most: int,
    stream: numpy.random.Generator,
) -> tuple[float, float]:
    """The share of the others that the prompt labels as the vote did, then the mean log-probability of those labels."""
    if not len(others):
        return 0.0, 0.0
    tried = stream.permutation(others)[:most]
    scores = prompt.scores([texts[row] for row in tried.tolist()])
    wanted = labels[tried]
    agreement = float((scores.argmax(axis=1) == wanted).mean())
    return agreement, float(numpy.take_along_axis(scores, wanted[:, None], axis=1).mean())
