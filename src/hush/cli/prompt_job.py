"""One run of `hush prompt pate` or `hush prompt generate`: settle, preview, ask, pay, make the student, save."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy

from hush.cli.pate_progress import Payer, Progress, Released, write
from hush.cli.pate_vote import Wishes, settle_vote
from hush.cli.prompt_about import DEMONSTRATIONS, NotedAccount, describe_generation, describe_votes
from hush.cli.prompt_texts import Integers, Texts
from hush.errors import BudgetExceeded, InvalidValue
from hush.ledger import Account, Ledger
from hush.ledger.store import shown_place
from hush.privacy import Budget, Guarantee, Relation
from hush.prompts.generate import Generated, GenerationPlan, generate_demonstrations
from hush.prompts.known_models import load_language_model
from hush.prompts.pate import PromptPATE, Vote
from hush.prompts.preview import CostPreview
from hush.prompts.student import StudentPrompt
from hush.rng import Rng

STUDENT = "student.json"
_TEXTS = 200  # public ones, that zero-shot is calibrated by
_THRESHOLD, _TEST_NOISE, _NOISE = 0.4, 0.3, 1 / 6  # shares of the teachers: prompts agree less than trained teachers


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the user asked for; None where a default decides."""

    epsilon: float
    delta: float
    relation: Relation
    model: str
    teachers: int
    demonstrations: int
    queries: int
    mechanism: str
    threshold: float | None
    threshold_stddev: float | None
    stddev: float | None
    scale: float | None
    candidates: int
    seed: int | None

    @property
    def budget(self) -> Budget:
        """The most that the labels may cost."""
        return Budget(epsilon=self.epsilon, delta=self.delta)

    def vote(self) -> tuple[Vote, int]:
        """The noisy vote, and how many public texts it is asked about."""
        names = ("epsilon", "delta", "relation", "teachers", "queries", "mechanism", "threshold", "threshold_stddev")
        wishes = {name: getattr(self, name) for name in (*names, "stddev", "scale", "seed")}
        if self.mechanism == "confident":
            defaults = {"threshold": _THRESHOLD, "threshold_stddev": _TEST_NOISE, "stddev": _NOISE}
            wishes |= {name: part * self.teachers for name, part in defaults.items() if wishes[name] is None}
        return settle_vote(Wishes(**wishes), self.budget, self.queries)

    def rng(self) -> Rng | None:
        """A seeded source if there is a seed."""
        return None if self.seed is None else Rng.from_seed(self.seed)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came out: all of it may be published. The accuracies are of test texts, and None without any."""

    released: Released
    student: StudentPrompt
    preview: CostPreview
    test_accuracy: float | None
    zero_shot_accuracy: float | None  # calibrated by texts without content
    zero_shot_by_texts_accuracy: float | None  # calibrated by public texts
    folder: Path
    seconds: float


def new_folder(out: Path | None, kind: str, name: str, resume: bool) -> Path:
    """The run's folder: the one asked for, or the first free runs/prompt-KIND-NAME-NUMBER."""
    if out is None:
        if resume:
            raise InvalidValue("--resume needs --out, the folder of the run that was interrupted.")
        free = (Path("runs") / f"prompt-{kind}-{name}-{number}" for number in range(1, 10**6))
        return next(path for path in free if not path.exists())
    if not resume and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InvalidValue(f"{out} is not empty; choose another folder, or go on with that run by --resume.")
    return out


def account_of(place: str | None, name: str, budget: Budget, relation: Relation, folder: Path) -> Account:
    """A shared ledger's account, or the run's own; a new one gets this run's budget as its cap."""
    ledger = Ledger(folder / "ledger.db" if place is None else place)
    is_known = any(account.name == name for account in ledger.accounts())
    return ledger.account(name, cap=None if is_known else budget, relation=relation)


def label_and_choose(
    texts: Texts,
    settings: Settings,
    folder: Path,
    *,
    ledger: str | None,
    account: str | None,
    resume: bool,
    votes_folder: Path | None,
    show: Callable[[CostPreview], None],
) -> Outcome:
    """`hush prompt pate`. `show` is called with the preview before the model is."""
    start, name, (vote, asked) = time.perf_counter(), account or texts.name, settings.vote()
    queries = texts.public[:asked]
    pate = PromptPATE(load_language_model(settings.model), texts.template, texts.words)
    counts: dict[str, Any] = {"num_teachers": settings.teachers, "demonstrations": settings.demonstrations}
    preview = pate.preview(queries, vote=vote, budget=settings.budget, **counts)
    show(preview)
    shown = None if ledger is None else shown_place(ledger)  # without a password
    request = {"data": texts.name, "ledger": shown, "account": name, **asdict(settings)}
    progress = Progress(folder, request, resume=resume)
    payer = Payer(account_of(ledger, name, settings.budget, settings.relation, folder), progress.run)
    released = progress.released(payer)
    if released is None:
        answers = pate.label(
            texts.private, texts.labels, queries, vote=vote, budget=settings.budget, account=payer,
            relation=settings.relation, folder=votes_folder, rng=settings.rng(), **counts,
        )  # fmt: skip
        promise = answers.guarantee(relation=settings.relation)
        rows = numpy.arange(len(queries))
        released = Released(rows, answers.labels, int(answers.asked.sum()), promise, None)
        progress.keep(released)
    if not released.answered.any():
        raise BudgetExceeded("the vote answered nothing: the budget ended, or no query reached the threshold.")
    student = pate.student(
        queries, released.labels, candidates=settings.candidates, calibration_texts=texts.public, rng=settings.rng()
    )
    student.save(folder / STUDENT)
    progress.finish(_facts(settings, vote, released))
    outcome = Outcome(
        released=released,
        student=student,
        preview=preview,
        test_accuracy=_accuracy(student, texts.test, texts.test_labels),
        zero_shot_accuracy=_accuracy(pate.prompt(), texts.test, texts.test_labels),
        zero_shot_by_texts_accuracy=(
            _accuracy(pate.prompt().calibrated(texts.public[:_TEXTS]), texts.test, texts.test_labels)
            if texts.test
            else None
        ),
        folder=folder,
        seconds=time.perf_counter() - start,
    )
    describe_votes(outcome, texts, settings, ledger, name)
    return outcome


def _accuracy(prompt: StudentPrompt, texts: list[str], labels: Integers) -> float | None:
    return float((prompt.predict(texts) == labels).mean()) if texts else None


def _facts(settings: Settings, vote: Vote, released: Released) -> dict[str, Any]:
    source = "operating-system entropy" if settings.seed is None else f"seed {settings.seed}: never release this"
    return {"aggregator": repr(vote), **asdict(settings), **released.to_dict(), "randomness": source}


@dataclass(frozen=True, kw_only=True)
class Generation:
    """What `hush prompt generate` made."""

    made: Generated
    plan: GenerationPlan
    guarantee: Guarantee
    folder: Path
    seconds: float


def generate(
    texts: Texts,
    plan: GenerationPlan,
    budget: Budget,
    folder: Path,
    *,
    model: str,
    per_label: int,
    ledger: str | None,
    account: str | None,
    seed: int | None,
) -> Generation:
    """`hush prompt generate`."""
    start, language_model = time.perf_counter(), load_language_model(model)
    folder.mkdir(parents=True, exist_ok=True)
    entry = account_of(ledger, account or texts.name, budget, "add_remove", folder)
    payer = NotedAccount.of_generation(entry)
    made = generate_demonstrations(
        language_model, texts.template, texts.words, texts.private, texts.labels, plan=plan, per_label=per_label,
        account=payer, rng=None if seed is None else Rng.from_seed(seed),
    )  # fmt: skip
    guarantee = made.guarantee(delta=budget.delta)
    content = {"demonstrations": made.demonstrations, "promise": guarantee.to_dict(), "plan": asdict(plan)}
    source = "operating-system entropy" if seed is None else f"seed {seed}: never release this"
    write(folder / DEMONSTRATIONS, {**content, "randomness": source})
    seconds = time.perf_counter() - start
    found = Generation(made=made, plan=plan, guarantee=guarantee, folder=folder, seconds=seconds)
    describe_generation(found, texts, payer, model=model, per_label=per_label, ledger=ledger, source=source)
    return found
