"""What `fit` does: open the books, restore or begin, step, keep checkpoints, close."""

from __future__ import annotations

import hashlib
import inspect
import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import Dataset

from hush import _check
from hush.audit.white_box import WhiteBox
from hush.errors import BudgetExceeded, InvalidValue
from hush.events import Event, from_json, to_json
from hush.gradients.batches import Batch, LossFunction
from hush.gradients.clipped import Method
from hush.ledger import Account, Ledger
from hush.rng import Rng
from hush.training import checkpoint
from hush.training.audited import Watched
from hush.training.averages import Average, project
from hush.training.books import ACCOUNT, Books, books_for_all, open_books, room
from hush.training.checkpoint import CHECKPOINT_FILE, Checkpoint, Trainee
from hush.training.costs import cost
from hush.training.feed import Feed
from hush.training.files import remove_scratch
from hush.training.guards import CheckedAugmentation, MovementGuard
from hush.training.history import History
from hush.training.parts import gathered
from hush.training.plan import TrainingPlan
from hush.training.progress import Bar, Callback, Meter, Progress
from hush.training.run import Run
from hush.training.step import PrivateGradients
from hush.training.team import Team

_MOST_BLOCK = 100  # steps charged at once
_LEAST_BETWEEN = 10  # steps between two checkpoints, unless asked for


@dataclass(frozen=True, kw_only=True)
class Setup:
    """The arguments of `fit`, which explains them."""

    plan: TrainingPlan
    model: nn.Module
    dataset: Dataset[Any]
    loss_fn: LossFunction
    optimizer: Optimizer
    scheduler: LRScheduler | None
    ledger: Ledger | None
    account: Account | str | None
    folder: Path | None
    resume: bool
    checkpoint_every: int | None
    dataset_name: str | None
    people: Tensor | None
    augment: Callable[[Batch], Batch] | None
    collate: Callable[[list[Any]], Any] | None
    workers: int
    memory_limit: int | None
    rng: Rng | None
    method: Method
    callbacks: Sequence[Callback]
    progress: bool
    guard_steps: int
    may_rest: Collection[str]
    audit: bool | WhiteBox


class Session:
    """One process's part of a run. In a team the first process alone has the books and writes the files."""

    def __init__(self, setup: Setup) -> None:
        plan = setup.plan
        self._setup, self._plan = setup, plan
        _refuse_arguments(setup.optimizer, "optimizer", "closure")
        _refuse_arguments(setup.scheduler, "scheduler", "metrics")
        self._team = Team.current(next((value.device for value in setup.model.parameters()), None))
        self._every = _check.whole("checkpoint_every", setup.checkpoint_every or max(_LEAST_BETWEEN, plan.steps // 20))
        augment = None if setup.augment is None else CheckedAugmentation(setup.augment)
        self._watched = Watched(setup, augment)
        self._watched.refuse_team(self._team)
        self._feed = Feed(
            plan,
            self._watched.dataset,
            people=self._watched.people,
            augment=self._watched.augment,
            collate=self._watched.collate,
            workers=setup.workers,
            team=self._team,
        )
        self._identity = self._described()
        found = self._team.alone_first(lambda: self._opened(self._identity))
        start = self._team.by_first(lambda: _start(found))
        self._note, self._spent = start["note"], from_json(start["spent"])
        self._books = None if found is None else found[0]
        self._private, self._trainee = self._prepared(start["step"])
        saved = checkpoint.shared(None if found is None else found[1], self._trainee, self._team)
        if saved is not None:
            checkpoint.restore(self._trainee, saved)
        self._guard = MovementGuard(
            self._watched.model,
            setup.optimizer,
            steps=setup.guard_steps if self._trainee.step < setup.guard_steps else 0,
            may_rest=self._watched.may_rest,
            team=self._team,
        )
        self._stopped = ""

    def _opened(self, identity: checkpoint.Identity) -> tuple[Books, Checkpoint | None]:
        """The books, and the checkpoint to go on from; for the first process, whose files they are."""
        setup, saved = self._setup, self._saved()
        if saved is not None:
            self._watched.refuse_resume()
            checkpoint.check_same(saved, identity)
        books = open_books(self._plan, setup.ledger, setup.account, setup.folder, must_exist=saved is not None)
        if saved is not None:
            books.check_continues(saved.head)
        return books, saved

    def _saved(self) -> Checkpoint | None:
        folder = self._setup.folder
        if folder is None:
            if self._setup.resume:
                raise InvalidValue("resume needs the folder of the run.")
            return None
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / CHECKPOINT_FILE
        remove_scratch(folder)
        if not path.exists():
            return None
        if not self._setup.resume:
            raise InvalidValue(f"{folder} holds a run; go on with resume=True, or choose another folder.")
        return checkpoint.read(path)

    def _described(self) -> checkpoint.Identity:
        setup = self._setup
        name = setup.dataset_name or type(setup.dataset).__name__
        data = {"name": name, "examples": len(setup.dataset)}  # type: ignore[arg-type]
        account = setup.account.name if isinstance(setup.account, Account) else setup.account or ACCOUNT
        identity = checkpoint.identity_of(self._plan, setup.model, setup.optimizer, setup.scheduler, data, account)
        others = [setup.folder is not None, setup.resume, self._every, setup.guard_steps, setup.method]
        self._team.agree({**identity, "setting of fit": others})
        return identity

    def _prepared(self, first: int) -> tuple[PrivateGradients, Trainee]:
        setup, plan = self._setup, self._plan
        self._rng = _source(setup.rng, first, self._spent)
        private = PrivateGradients(
            self._watched.model,
            plan,
            account=None if self._books is None else self._books.account,
            rng=self._rng,
            method=setup.method,
            note=self._note,
            block=_MOST_BLOCK if setup.folder is None else min(_MOST_BLOCK, self._every),
            first=first,
            most=room(plan, self._spent, plan.steps - first),
            memory_limit=setup.memory_limit,
        )
        average = Average(setup.model, plan.average, plan.average_decay)
        trainee = Trainee(setup.model, setup.optimizer, setup.scheduler, average, private.clip_norm, History())
        trainee.sources = (self._rng.label if setup.rng is None else setup.rng.label,)
        return private, trainee

    def run(self) -> Run:
        """Take the steps and give the run."""
        trainee = self._trainee
        if trainee.step == 0:
            self._keep()  # before the first charge: whatever is charged has a checkpoint that says what it was for
        meter = Meter(self._plan, self._spent)
        batches = self._feed.batches(self._team.sampling(self._rng), first=trainee.step)
        with Bar(shown=self._setup.progress and self._team.is_first) as bar:
            for batch in batches:
                report = self._step(batch)
                if report is None:
                    break
                shown = Progress(trainee.step, self._plan.steps, report, meter, self._private.steps)
                bar(shown)
                for callback in self._setup.callbacks:
                    callback(shown)
                if trainee.step % self._every == 0 and trainee.step < self._plan.steps:
                    self._keep()
        return self._finish()

    def _step(self, batch: Batch) -> Any:
        trainee, setup = self._trainee, self._setup
        try:
            report = self._private.backward(self._watched.loss_fn, batch)
        except BudgetExceeded as error:
            if trainee.step == 0:
                raise
            self._stopped = f"stopped after {trainee.step} of {self._plan.steps} steps: {error}"
            return None
        self._watched.see(report.clip_norm)
        setup.optimizer.step()
        if setup.scheduler is not None:
            setup.scheduler.step()
        if self._plan.project_to is not None:
            trainable = (value for value in setup.model.parameters() if value.requires_grad)
            project(trainable, self._plan.project_to, self._team)
        trainee.average.update()
        trainee.history.add(report)
        trainee.step += 1
        self._guard.after_step(self._private.reach)
        return report

    def _keep(self) -> None:
        if self._setup.folder is not None:
            path = self._setup.folder / CHECKPOINT_FILE
            head = "" if self._books is None else self._books.head()
            checkpoint.write(path, self._trainee, self._identity, run=self._note, head=head, team=self._team)

    def _finish(self) -> Run:
        setup, trainee = self._setup, self._trainee
        if self._private.steps:  # a run that goes on may have no step left
            self._guard.finish()
        self._private.close()
        setup.optimizer.zero_grad()
        self._keep()
        trainee.average.put_into_model()
        own = self._books
        event = from_json(self._team.by_first(lambda: "" if own is None else to_json(own.charged(self._note))))
        books = books_for_all(own, self._plan, setup.ledger, setup.account, self._team)
        weights = gathered(setup.model.state_dict(), self._team)
        guarantee = cost(event, delta=self._plan.delta, relation=self._plan.relation)
        guarantee = replace(guarantee, notes=(*guarantee.notes, *self._private.notes()))
        run = Run(
            plan=self._plan,
            guarantee=guarantee,
            event=event,
            ledger=books.ledger,
            account=books.account.name,
            note=self._note,
            steps=trainee.step,
            weights={name: value.detach().clone() for name, value in weights.items()},
            history=trainee.history,
            notes=self._notes(),
            randomness=", then ".join(trainee.sources),
            own_ledger=books.own,
            keep=books.scratch,
            audit=self._watched.result(guarantee),
            is_copy=own is None,
        )
        if setup.folder is not None:
            folder = setup.folder
            self._team.by_first(lambda: run.save(folder))
        return run

    def _notes(self) -> tuple[str, ...]:
        notes = [self._stopped] if self._stopped else []
        notes += self._private.notes()
        sources = self._trainee.sources
        if any(source.startswith("seed") for source in sources):
            part = "" if len(sources) == 1 else " in a part of the run"
            notes.append(f"noise and sampling come from a seed{part}: whoever knows it can take the noise away.")
        if len(sources) > 1:
            notes.append(f"noise and sampling come from {', then '.join(sources)}.")
        if self._plan.unit == "person":
            notes.append("the guarantee is for a person with all their examples.")
        return tuple(notes)


def _refuse_arguments(stepper: Optimizer | LRScheduler | None, role: str, argument: str) -> None:
    """A step that wants to see losses anew, or a metric of the data, is not what one noisy gradient allows."""
    if stepper is None:
        return
    wanted = inspect.signature(stepper.step).parameters.get(argument)
    if wanted is not None and wanted.default is inspect.Parameter.empty:
        raise InvalidValue(
            f"{role} {type(stepper).__name__} needs a {argument} at each step, which would be read from the data "
            "without noise; choose one whose step() takes nothing."
        )


def _start(found: tuple[Books, Checkpoint | None] | None) -> dict[str, Any]:
    """Where a run begins, in JSON values."""
    assert found is not None
    books, saved = found
    note = f"run {secrets.token_hex(8)}" if saved is None else saved.run
    return {"note": note, "spent": to_json(books.charged(note)), "step": 0 if saved is None else saved.step}


def _source(rng: Rng | None, first: int, spent: Event) -> Rng:
    """The run's own randomness: fresh entropy, or for a seed another stream at every new start, so no noise repeats."""
    if rng is None or rng.is_secret:
        return rng or Rng.from_entropy()
    if first == 0 and not spent.parts():
        return rng
    text = f"{rng.seed}/{first}/{to_json(spent)}"
    return Rng.from_seed(int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "little"))
