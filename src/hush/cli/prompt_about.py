"""What `hush prompt soft|pate|generate` says beside its runs, for their reports. Private texts stand in none of it."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from hush import report
from hush.cli.pate_progress import FINISHED, write
from hush.events import Event
from hush.ledger import Account, Ledger
from hush.privacy import Relation

if TYPE_CHECKING:
    from hush.cli.prompt_job import Generation, Outcome, Settings
    from hush.cli.prompt_texts import Texts
    from hush.prompts import SoftPrompt

DEMONSTRATIONS = "demonstrations.json"
_DIGITS = 4


def public_name(model: str) -> str:
    """A model's name without the folders above it, or an address without whatever may be secret in it.

    >>> public_name("models/llama"), public_name("https://me:word@host:8080/v1?key=1")
    ('llama', 'https://host:8080')
    """
    if "://" not in model:
        return Path(model).resolve().name
    parts = urlsplit(model)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


@dataclass(frozen=True)
class NotedAccount:
    """An account with the run's name at each charge, so that a report finds them in a shared ledger."""

    account: Account
    note: str

    @classmethod
    def of_generation(cls, account: Account) -> NotedAccount:
        """For a new run of `hush prompt generate`."""
        return cls(account, f"hush prompt generate, run {secrets.token_hex(8)}")

    @property
    def relation(self) -> Relation:
        """The account's relation."""
        return self.account.relation

    def charge(self, event: Event, /) -> None:
        """Charge the event under the run's name."""
        self.account.charge(event, note=self.note)


def describe_votes(outcome: Outcome, texts: Texts, settings: Settings, ledger: str | None, account: str) -> None:
    """Beside a run of `hush prompt pate`. Only known tasks, which are public, have texts to test on."""
    accuracy = outcome.test_accuracy
    shown = sum(map(len, (outcome.student.demonstrations, *outcome.student.beside)))
    report.describe(
        outcome.folder,
        data=texts.name,
        model=f"prompt of {public_name(settings.model)}",
        public_data=bool(texts.test),
        scores=None if accuracy is None else report.Scores(name="test_accuracy", private=accuracy),
        facts={
            "private texts in one teacher's prompt, at most": settings.demonstrations,
            "labelled public texts in the student's prompt": shown,
            "test texts": len(texts.test) or None,
            "test accuracy without any example": _rounded(outcome.zero_shot_accuracy),
            "the same, calibrated by public texts": _rounded(outcome.zero_shot_by_texts_accuracy),
        },
        notes=_seen_by(settings.model),
        labels=tuple(word.strip() for word in texts.words),
        ledger=_place(ledger),
        account=account,
    )


def describe_soft_prompt(
    folder: Path, prompt: SoftPrompt, result: dict[str, Any], *, learning_rate: float, test_rows: int
) -> None:
    """Beside a run of `hush prompt soft`: its data are known tasks, which are public."""
    where = "in front of every layer" if prompt.per_layer else "in front of the text"
    report.describe(
        folder,
        data=result["data"],
        model="soft prompt",
        public_data=True,
        scores=report.Scores(name="test_accuracy", private=result["accuracy"]),
        facts={
            "language model": public_name(result["model"]),
            "vectors": f"{prompt.length} {where}",
            "learning rate": learning_rate,
            "test texts": test_rows,
            "test accuracy with the first, random vectors": _rounded(result["accuracy_before"]),
        },
    )


def describe_generation(
    found: Generation, texts: Texts, payer: NotedAccount, *, model: str, per_label: int, ledger: str | None, source: str
) -> None:
    """run.json and about.json beside the made-up texts of `hush prompt generate`."""
    content = {
        "format": 1,
        "generation": asdict(found.plan),
        "per_label": per_label,
        "stopped": found.made.stopped,
        "promise": found.guarantee.to_dict(),
        "demonstrations_sha256": hashlib.sha256((found.folder / DEMONSTRATIONS).read_bytes()).hexdigest(),
        "ledger": _place(ledger),
        "account": payer.account.name,
        "note": payer.note,
        "randomness": source,
    }
    write(found.folder / FINISHED, content)
    report.describe(
        found.folder,
        data=texts.name,
        model=public_name(model),
        notes=_seen_by(model),
        labels=tuple(word.strip() for word in texts.words),
    )


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, _DIGITS)


def _seen_by(model: str) -> tuple[str, ...]:
    told = f"the private texts stood in prompts that went to {public_name(model)}: whoever runs it has seen them."
    return (told,) if "://" in model else ()


def _place(ledger: str | None) -> str | None:
    """A shared ledger's name without a password; None for the run's own."""
    return None if ledger is None else repr(Ledger(ledger))[len("Ledger('") : -2]
