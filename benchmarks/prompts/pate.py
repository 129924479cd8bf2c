"""PromptPATE with SmolLM2-135M on TREC, AG News and SST-2: student prompt, zero-shot, teachers' ensemble.

    python -m benchmarks.prompts.pate trec [--teachers 150] [--queries 30] [--demonstrations 6] [--epsilon 1]
        [--mechanism confident|gnmax] [--test 500] [--keep FOLDER] [--model smollm2]

Needs HUSH_DATA and SmolLM2 (docs/start/install.md). About one row in ten of the training part, by the hash of its text,
is public: its text is asked about, its label only tells how good the answers were. The other rows are private.
Everything is reported on the test part, which nothing was chosen on. `--keep` holds the votes, to go on after an
interruption. `gnmax` answers every question and pays for no test: better where few are asked. The student's texts with
their true labels are tried too: what is lost there is lost by the labels, the rest by the choice of texts.

"student" is the chosen prompt alone; "joined_student" is what `calibration_texts` gives: that prompt, one of the other
answered texts and zero-shot, with offsets by 200 public texts and the labels that left. How was fixed on other public
rows with their labels and with made-up errors in them, after earlier forms of student and zero-shot had been run on the
test part.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import torch

from hush import Budget, Rng, data
from hush.data.encoding import in_test_part
from hush.ledger import Ledger
from hush.pate import ConfidentGNMax, GNMax, noise_for, synthetic_votes, tune_threshold
from hush.prompts.known_models import load_language_model
from hush.prompts.pate import PromptPATE
from hush.prompts.student import StudentPrompt
from hush.prompts.templates import TASKS

RESULTS = Path(__file__).resolve().parents[1] / "results" / "prompts_pate.json"
DELTA, PUBLIC_SHARE, SOME_TEXTS = 1e-5, 0.1, 200
# How often a teacher is right: guesses, made before any vote was seen. Thresholds are tuned on made-up votes.
GUESS = {"trec": 0.5, "ag-news-sample": 0.7, "sst2": 0.8}
TEST_PART = {"sst2": "dev"}


class Remembering:
    """A language model that is not asked the same twice: prompts share questions, and draws share zero-shot."""

    def __init__(self, model: Any) -> None:
        self.model, self.known = model, dict[tuple[str, str], Any]()

    def log_probs(self, prefix: str, inputs: Sequence[str], continuations: Sequence[str], /) -> list[Any]:
        new = [text for text in dict.fromkeys(inputs) if (prefix, text) not in self.known]
        found = self.model.log_probs(prefix, new, continuations) if new else []
        self.known |= {(prefix, text): row for text, row in zip(new, found, strict=True)}
        return [self.known[prefix, text] for text in inputs]

    def tokens(self, text: str) -> Any:
        return self.model.tokens(text)

    @property
    def name(self) -> str:
        return str(self.model.name)


def public_texts(name: str) -> list[str]:
    """All public texts of the task, without their labels."""
    texts = data.load_labelled_texts(name).texts
    return [texts[row] for row in numpy.flatnonzero(in_test_part(texts, PUBLIC_SHARE)).tolist()]


def parts(name: str, queries: int, tests: int, most: int | None = None) -> tuple[Any, Any, Any]:
    train, test = data.load_labelled_texts(name), data.load_labelled_texts(name, TEST_PART.get(name, "test"))
    is_public = in_test_part(train.texts, PUBLIC_SHARE)
    labels = numpy.array(train.labels)
    public = numpy.random.default_rng(0).permutation(numpy.flatnonzero(is_public))[:queries]
    tried = numpy.random.default_rng(1).permutation(len(test))[:tests]
    private = numpy.random.default_rng(2).permutation(numpy.flatnonzero(~is_public))[:most]
    return (
        ([train.texts[row] for row in private], labels[private]),
        ([train.texts[row] for row in public], labels[public]),
        ([test.texts[row] for row in tried], numpy.array(test.labels)[tried]),
    )


def accuracy(prompt: StudentPrompt, texts: list[str], labels: numpy.ndarray, public: list[str]) -> dict[str, float]:
    """Calibrated by texts without content, by the public texts (their mean log-probabilities), and raw: one pass."""
    questions = [prompt.template.question(text) for text in (*texts, *public, *prompt.content_free)]
    found = prompt.language_model.log_probs(prompt.prefix, questions, list(prompt.labels))
    words = numpy.array([[sum(tokens) for tokens in row] for row in found])
    words -= numpy.logaddexp.reduce(words, axis=1, keepdims=True)
    tried, asked, empty = numpy.split(words, [len(texts), len(texts) + len(public)])
    favoured = {
        "calibrated": numpy.log(numpy.exp(empty).mean(axis=0)),
        "by_public_texts": asked.mean(axis=0),
        "raw": numpy.zeros(len(prompt.labels)),
    }
    right = {name: ((tried - values).argmax(axis=1) == labels).mean() for name, values in favoured.items()}
    return {name: round(100 * float(share), 2) for name, share in right.items()}


def vote_for(given: argparse.Namespace, budget: Budget, queries: int) -> ConfidentGNMax | GNMax:
    """Chosen without a look at votes."""
    if given.mechanism == "gnmax":
        return GNMax(stddev=noise_for(budget, queries=queries))
    made_up, labels = synthetic_votes(
        400,
        num_classes=len(TASKS[given.task].labels),
        num_teachers=given.teachers,
        accuracy=GUESS[given.task],
        rng=Rng.from_seed(0),
    )
    return tune_threshold(made_up, budget=budget, queries=queries, labels=labels).aggregator


def with_true_labels(student: StudentPrompt, queries: list[str], truth: numpy.ndarray) -> StudentPrompt:
    """The student's texts in their order, with the labels that the data set gives them."""
    words = {student.template.clean(text): student.labels[label] for text, label in zip(queries, truth, strict=True)}
    shown = [tuple((text, words[text]) for text, _ in pairs) for pairs in (student.demonstrations, *student.beside)]
    return replace(student, demonstrations=shown[0], beside=tuple(shown[1:]))


def right_share(prompt: StudentPrompt, texts: list[str], labels: numpy.ndarray) -> float:
    return round(100 * float((prompt.predict(texts) == labels).mean()), 2)


def first_prompt(student: StudentPrompt) -> StudentPrompt:
    return replace(student, beside=(), offsets=())


def draw(
    given: argparse.Namespace, pate: PromptPATE, vote: Any, counts: Any, asked: Any, tests: Any, public: list[str]
) -> tuple[dict[str, Any], StudentPrompt, numpy.ndarray]:
    """One draw of the noise: labels, their price, the student, and how often it is right on the tests."""
    (queries, truth), budget = asked, Budget(epsilon=given.epsilon, delta=DELTA)
    with tempfile.TemporaryDirectory() as place:
        account = Ledger(Path(place) / "ledger.db").account(given.task, cap=budget)
        answers = vote.answer(counts, account=account, budget=budget)
        spent = account.spent().epsilon
    answered = answers.answered
    student = pate.student(
        queries, answers.labels, shots=given.shots, candidates=given.candidates, calibration_texts=public
    )
    print("student", student.agreement, len(student.demonstrations), flush=True)
    zero_shot = replace(student, demonstrations=(), beside=(), offsets=student.offsets[-1:])
    found = {
        "answered": int(answered.sum()),
        "epsilon": answers.guarantee().epsilon,
        "charged_epsilon": spent,
        "labels_right": round(100 * float((answers.labels == truth)[answered].mean()), 2),
        "student_shots": len(student.demonstrations),
        "student_agreement": student.agreement,
        "student": accuracy(first_prompt(student), *tests, queries),
        "joined_student_shots": [len(pairs) for pairs in (student.demonstrations, *student.beside)],
        "joined_student": right_share(student, *tests),
        "zero_shot_by_texts_and_labels": right_share(zero_shot, *tests),
    }
    print(json.dumps(found), flush=True)
    return found, student, answers.labels[answered]


def measure(given: argparse.Namespace) -> dict[str, Any]:
    (texts, labels), asked, tests = parts(given.task, given.queries, given.test, given.private)
    (queries, truth), public, task = asked, public_texts(given.task), TASKS[given.task]
    budget = Budget(epsilon=given.epsilon, delta=DELTA)
    vote = vote_for(given, budget, len(queries))
    start, used = time.perf_counter(), time.process_time()
    pate = PromptPATE(Remembering(load_language_model(given.model)), task.template, task.labels)
    preview = pate.preview(
        queries, num_teachers=given.teachers, demonstrations=given.demonstrations, vote=vote, budget=budget
    )
    print(preview, flush=True)
    print(vote, flush=True)
    counts = pate.votes(
        texts,
        labels,
        queries,
        num_teachers=given.teachers,
        demonstrations=given.demonstrations,
        folder=given.keep,
    )
    print("votes are in", round(time.process_time() - used), "CPU seconds", flush=True)
    first, student, left = draw(given, pate, vote, counts, asked, tests, public)
    true = with_true_labels(student, queries, truth)
    joined = first_prompt(true).calibrated(public[:SOME_TEXTS], left, beside=true.beside)
    return {
        "task": given.task,
        "model": "SmolLM2-135M-Instruct, 4-bit weights in float32" if given.model == "smollm2" else given.model,
        "private_examples": len(texts),
        "teachers": given.teachers,
        "demonstrations": given.demonstrations,
        "vote": str(vote),
        "queries": len(queries),
        "delta": DELTA,
        "relation": "add_remove",
        "ensemble_on_queries": round(100 * float((counts.counts.argmax(axis=1) == truth).mean()), 2),
        "one_teacher_on_queries": round(
            100 * float(counts.counts[numpy.arange(len(truth)), truth].mean() / given.teachers), 2
        ),
        "test_texts": len(tests[0]),
        **first,
        "student_with_true_labels": accuracy(first_prompt(true), *tests, queries),
        "joined_student_with_true_labels": right_share(joined, *tests),
        "zero_shot": accuracy(pate.prompt(), *tests, queries),
        "zero_shot_by_200_texts": right_share(pate.prompt().calibrated(public[:SOME_TEXTS]), *tests),
        "preview": preview.to_dict(),
        "further_draws_of_the_noise": [
            draw(given, pate, vote, counts, asked, tests, public)[0] for _ in range(given.draws - 1)
        ],
        "cpu_seconds": round(time.process_time() - used, 1),
        "seconds": round(time.perf_counter() - start, 1),
        "note": given.note,
    }


def main() -> None:
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=sorted(TASKS))
    parser.add_argument("--teachers", type=int, default=150)
    parser.add_argument("--queries", type=int, default=30)
    parser.add_argument("--demonstrations", type=int, default=6)
    parser.add_argument(
        "--private", type=int, help="so many private texts, chosen without a look at them; all if not given"
    )
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--mechanism", choices=("confident", "gnmax"), default="confident")
    parser.add_argument("--test", type=int, default=500)
    parser.add_argument("--shots", type=lambda text: tuple(map(int, text.split(","))), default=(4, 8, 12))
    parser.add_argument("--candidates", type=int, default=6)
    parser.add_argument(
        "--draws", type=int, default=1, help="of the noise, each with its own student and its own price"
    )
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--note", default="", help="kept with the numbers")
    given = parser.parse_args()
    found = measure(given)
    kept = json.loads(given.out.read_text(encoding="utf-8")) if given.out.exists() else []
    given.out.write_text(json.dumps([*kept, found], indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
