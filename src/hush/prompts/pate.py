"""PromptPATE: prompts of disjoint private examples vote on public texts, and a student prompt is made of the answers.

[Duan, Dziedzic, Papernot, Boenisch 2023, PromptPATE]. Nothing is trained: a teacher is the frozen model with some
examples of one shard before the question. Its vote depends on that shard alone, and one person is in
one shard; so one person moves one vote, and everything that `hush.pate` proves about votes holds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import ArrayLike

from hush import _check
from hush.errors import BudgetExceeded, HushError, InvalidValue
from hush.mechanisms.charging import Account
from hush.pate.aggregate import Answers, ConfidentGNMax, GNMax, LNMax
from hush.pate.shards import Integers, deal, new_key
from hush.pate.shelf import Shelf, digest, labels_tensor
from hush.pate.spending import Cap, cap_for
from hush.pate.votes import VoteCounts
from hush.pate.watching import Bar
from hush.privacy import Budget, Relation
from hush.prompts.demonstrations import shown_rows
from hush.prompts.language_model import Floats, as_language_model
from hush.prompts.preview import CostPreview, preview_of
from hush.prompts.scoring import CONTENT_FREE, LENGTHS, set_right
from hush.prompts.student import SHOTS, StudentPrompt, choose_student
from hush.prompts.templates import Demonstration, Template
from hush.rng import Rng

Vote = LNMax | GNMax | ConfidentGNMax
_TEACHERS_AT_ONCE = 10  # in one file of the folder
_VOTES = "votes"


class PromptPATE:
    """Private labels, and a student prompt, from a frozen language model and private examples.

    Args:
        language_model: A causal transformers model, with its `tokenizer`; or any object with the method `log_probs`
            of `hush.prompts.language_model.LanguageModel`.
        template: The public frame of the prompts.
        labels: The label words, in the order of the labels' numbers, each as it follows a question: mostly with a
            blank in front.
        tokenizer: Of a transformers model.
        content_free: Texts without content for contextual calibration; none to leave it out. It costs no privacy.
        lengths: How the tokens of a long label word count, see `label_scores`.
        by_queries: Whether teachers are calibrated by the public texts that they are asked about, too (`set_right`).
            Turn it off where most of these texts have one and the same label. It costs no privacy either.

    Whoever runs the model sees every prompt: all private examples and all questions. See docs/guides/prompt-pate.md.
    """

    def __init__(
        self,
        language_model: Any,
        template: Template,
        labels: Sequence[str],
        *,
        tokenizer: Any = None,
        content_free: Sequence[str] = CONTENT_FREE,
        lengths: str = "sum",
        by_queries: bool = True,
    ) -> None:
        self.language_model = as_language_model(language_model, tokenizer)
        self.template = template
        self.labels = tuple(labels)
        if len(self.labels) < 2 or len(set(self.labels)) < len(self.labels) or not all(self.labels):
            raise InvalidValue(f"labels must be two or more different words; got {self.labels!r}.")
        self.content_free = tuple(content_free)
        self.lengths = _check.one_of("lengths", lengths, LENGTHS)
        self.by_queries = by_queries

    def preview(
        self,
        queries: Sequence[str],
        *,
        num_teachers: int,
        demonstrations: int,
        vote: Vote,
        budget: Budget | None = None,
        delta: float | None = None,
    ) -> CostPreview:
        """Calls, tokens and epsilon of `label` with these arguments, from public facts alone. Nothing is called."""
        return preview_of(self, queries, num_teachers, demonstrations, vote, budget, delta)

    def votes(
        self,
        texts: Sequence[str],
        labels: ArrayLike,
        queries: Sequence[str],
        *,
        num_teachers: int,
        demonstrations: int,
        groups: ArrayLike | None = None,
        relation: Relation = "add_remove",
        folder: str | Path | None = None,
        progress: bool = True,
        rng: Rng | None = None,
    ) -> VoteCounts:
        """The teachers' votes on public texts. Private.

        Args:
            texts: The private texts.
            labels: The number of each text's label.
            queries: The public texts.
            num_teachers: How many prompts; each has a shard of its own.
            demonstrations: The most examples in a prompt. A shard that has more shows some of each label.
            groups: For each text whose it is; all texts of a person go to one teacher.
            relation: Which neighbours are meant; it decides how shards are dealt, see `hush.pate.shards`.
            folder: Each teacher's votes are kept there, to go on after an interruption. Private.
            progress: A bar, if there is a terminal.
            rng: A seeded source for the shards, for tests only.

        A teacher whose prompt the model refuses (too long, say) votes for label `teacher % len(labels)`.
        """
        answers, queries = _checked_labels(texts, labels, len(self.labels)), list(queries)
        if not queries:
            raise InvalidValue("queries must hold one public text or more.")
        number, most = _check.whole("num_teachers", num_teachers), _check.whole("demonstrations", demonstrations)
        self.prompt().scores(queries[:1])  # public: a model that does not work at all says so before a private text
        key, shelf = new_key(rng), None
        if folder is not None:
            shelf = Shelf(Path(folder), self._identity(texts, answers, groups, queries, number, most, relation), key)
            key = shelf.key
        shards = deal(len(answers), num_teachers=number, key=key, groups=groups, relation=relation).all_rows()
        prompts = (shown_rows(rows, answers, most, key, teacher) for teacher, rows in enumerate(shards))
        found = self._ask(texts, answers, list(prompts), queries, shelf, progress)
        return VoteCounts.from_labels(found, len(self.labels))

    def label(
        self,
        texts: Sequence[str],
        labels: ArrayLike,
        queries: Sequence[str],
        *,
        num_teachers: int,
        demonstrations: int,
        vote: Vote,
        budget: Budget | Cap | None = None,
        delta: float | None = None,
        account: Account | None = None,
        groups: ArrayLike | None = None,
        relation: Relation = "add_remove",
        folder: str | Path | None = None,
        progress: bool = True,
        rng: Rng | None = None,
    ) -> Answers:
        """Labels of public texts by a noisy vote: what may leave. The arguments are those of `votes`, and:

        Args:
            vote: `ConfidentGNMax`, `GNMax` or `LNMax`; its noise is chosen without a look at votes.
            budget: The most that this list may spend; where it ends, the list ends. One without room for a single
                query is refused before the model is called.
            delta: At which `guarantee()` states the cost; by default the budget's.
            account: Charged with what happened, before anything is returned; where its cap ends, the list ends.
        """
        _check_relation(account, relation)
        _check_room(vote, budget, account)
        counts = self.votes(
            texts,
            labels,
            queries,
            num_teachers=num_teachers,
            demonstrations=demonstrations,
            groups=groups,
            relation=relation,
            folder=folder,
            progress=progress,
            rng=rng,
        )
        return vote.answer(counts, account=account, rng=rng, budget=budget, delta=delta)

    def student(
        self,
        queries: Sequence[str],
        labels: ArrayLike,
        *,
        shots: Sequence[int] = SHOTS,
        candidates: int = 8,
        calibration_texts: Sequence[str] | None = None,
        rng: Rng | None = None,
    ) -> StudentPrompt:
        """A prompt of answered public texts, chosen on answered public texts; see `hush.prompts.student`.

        Give all public texts as `calibration_texts`, also those that were not asked about: it costs no privacy.
        """
        how = {"shots": shots, "candidates": candidates, "calibration_texts": calibration_texts, "rng": rng}
        return choose_student(self.prompt(), queries, labels, **how)  # type: ignore[arg-type]

    def prompt(self, demonstrations: Sequence[Demonstration] = ()) -> StudentPrompt:
        """A prompt with these demonstrations, zero-shot without. It is as private as they are."""
        return StudentPrompt(
            language_model=self.language_model,
            template=self.template,
            labels=self.labels,
            demonstrations=tuple(demonstrations),
            content_free=self.content_free,
            lengths=self.lengths,
        )

    def _ask(
        self,
        texts: Sequence[str],
        labels: Integers,
        prompts: list[Integers],
        queries: list[str],
        shelf: Shelf | None,
        progress: bool,
    ) -> Integers:
        """What each teacher says of each query, (teachers, queries): from the folder, or by a call for each teacher."""
        found: list[Integers] = []
        with Bar("teachers", total=len(prompts), shown=progress) as bar:
            for block, first in enumerate(range(0, len(prompts), _TEACHERS_AT_ONCE)):
                kept = None if shelf is None else shelf.read(block)
                if kept is None:
                    part = prompts[first : first + _TEACHERS_AT_ONCE]
                    rows = [self._teacher(texts, labels, shown, queries, first + n) for n, shown in enumerate(part)]
                    if shelf is not None:
                        shelf.write(block, {_VOTES: labels_tensor(numpy.stack(rows))}, {})
                else:
                    rows = list(kept[0][_VOTES].numpy().astype(numpy.int64))
                found.extend(rows)
                bar.at(len(found))
        return numpy.stack(found)

    def _teacher(
        self, texts: Sequence[str], labels: Integers, shown: Integers, queries: list[str], teacher: int
    ) -> Integers:
        pairs = [(texts[row], self.labels[labels[row]]) for row in shown.tolist()]
        try:
            found: Integers = self._said(self.prompt(pairs), queries).argmax(axis=1).astype(numpy.int64)
            return found
        except HushError:  # a prompt that the model cannot take; that it happened is private, and still one vote
            return numpy.full(len(queries), teacher % len(self.labels))

    def _said(self, teacher: StudentPrompt, queries: list[str]) -> Floats:
        if not self.by_queries:
            return teacher.scores(queries)
        raw = replace(teacher, content_free=()).scores([*queries, *self.content_free])
        return set_right(raw[: len(queries)], raw[len(queries) :])

    def _identity(
        self, texts: Sequence[str], labels: Integers, groups: ArrayLike | None, queries: list[str], *how: object
    ) -> dict[str, Any]:
        """What must be the same for a folder to be gone on with: fingerprints of the data, and the settings."""
        model = getattr(self.language_model, "name", type(self.language_model).__name__)
        frame = {"template": vars(self.template), "words": self.labels, "content_free": self.content_free}
        data = {"texts": _fingerprint(texts), "labels": digest(labels), "queries": _fingerprint(queries)}
        people = "" if groups is None else _fingerprint([str(group) for group in numpy.asarray(groups).tolist()])
        counts = dict(zip(("teachers", "demonstrations", "relation"), how, strict=True))
        how_scored = {"lengths": self.lengths, "by_queries": self.by_queries}
        return {"model": str(model), **frame, **how_scored, **data, "groups": people, **counts}


def _fingerprint(texts: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(list(texts)).encode()).hexdigest()


def _check_relation(account: Account | None, relation: Relation) -> None:
    kept_for = getattr(account, "relation", relation)
    if kept_for != relation:
        raise InvalidValue(f"the account is kept for {kept_for}: pass relation={kept_for!r}, which deals the shards.")


def _check_room(vote: Vote, budget: Budget | Cap | None, account: Account | None) -> None:
    """At least one query must fit: calls to the model take time or money, and show it private texts."""
    caps = {"into the budget": cap_for(budget, vote.prices), "under the account's cap": account}
    for where, cap in caps.items():
        if isinstance(cap, Cap) and cap.would_exceed(vote.prices.of(1, 1)):
            raise BudgetExceeded(
                f"not one query fits {where}; the model was not called. Allow more, or a vote with more noise."
            )


def _checked_labels(texts: Sequence[str], labels: ArrayLike, number: int) -> Integers:
    found = numpy.asarray(labels)
    if found.ndim != 1 or found.dtype.kind not in "iu" or len(found) != len(texts) or not len(found):
        raise InvalidValue("labels must hold one whole number for each private text, and there must be one or more.")
    if found.min() < 0 or found.max() >= number:
        raise InvalidValue(f"labels must lie in 0 .. {number - 1}, the places of the label words.")
    return found.astype(numpy.int64)
