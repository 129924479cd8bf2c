"""One training from the command line: settle the open settings, train, train the twin, test, save."""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hush import _check, report
from hush.cli.output import console, waiting
from hush.cli.recipes import MOMENTUM, Recipe, default_delta, recipe_for
from hush.cli.task import Task, test_score
from hush.errors import BudgetExceeded, InvalidValue
from hush.ledger import Account, Ledger
from hush.privacy import Budget, Relation
from hush.report.live import Live
from hush.rng import Rng
from hush.training import PrivateGradients, Run, TrainingPlan, fit

OPTIMIZERS = ("sgd", "adam")
_MANY_PEOPLE = 20_000


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What the user asked for; None where the recipe decides. The fields are the options of `hush train`."""

    epsilon: float
    delta: float | None
    relation: Relation = "add_remove"
    model: str | None = None
    steps: int | None = None
    epochs: float | None = None
    expected_batch_size: int | None = None
    num_examples: int | None = None
    clip_norm: float | None
    learning_rate: float | None = None
    optimizer: str = "sgd"
    average: str = "none"
    unit: str | None = None
    physical_batch_size: int | None = None
    seed: int | None = None
    secure: bool = False
    twin: bool = True


@dataclass(frozen=True, kw_only=True)
class Settled:
    """Everything that a run needs, all of it public."""

    plan: TrainingPlan
    model: str
    learning_rate: float
    twin_learning_rate: float
    optimizer: str
    num_examples: int


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came out. `score` and `twin_score` are of the test rows, which no guarantee covers."""

    settled: Settled
    run: Run
    folder: Path
    parameters: int
    seconds: float
    score: tuple[str, float] | None
    twin_score: tuple[str, float] | None
    notes: tuple[str, ...]


def settle(task: Task, wishes: Wishes) -> Settled:
    """The plan: what was asked for, and the recipe for the rest. What nobody can know but the user is asked for."""
    number = wishes.num_examples if wishes.num_examples is not None else task.num_examples
    _ask_for_the_missing(task, wishes, number)
    assert number is not None
    _check.whole("num_examples", number)
    delta = default_delta(number) if wishes.delta is None else wishes.delta
    budget = Budget(epsilon=wishes.epsilon, delta=delta)
    if delta >= 1 / number:
        raise InvalidValue(f"delta must be below 1/num_examples, {1 / number:.3g}, better far below; got {delta:g}.")
    recipe = _recipe(task, wishes, number)
    return Settled(
        plan=_plan(task, wishes, recipe, budget, number),
        model="your own" if task.own_model else recipe.model,
        learning_rate=recipe.learning_rate,
        twin_learning_rate=_twin_learning_rate(task, wishes, recipe),
        optimizer=_check.one_of("--optimizer", wishes.optimizer, OPTIMIZERS),
        num_examples=number,
    )


def _twin_learning_rate(task: Task, wishes: Wishes, recipe: Recipe) -> float:
    """Without clipping gradients are longer, and longer still where those of a person's rows are added."""
    if wishes.optimizer == "adam":
        return recipe.learning_rate
    return recipe.twin_learning_rate / (8 if _unit(task, wishes) == "person" else 1)


def budget_of(settled: Settled) -> Budget:
    """The budget that the plan was made for."""
    assert settled.plan.budget is not None
    return settled.plan.budget


def _ask_for_the_missing(task: Task, wishes: Wishes, number: int | None) -> None:
    """One line with everything that is missing, before anything is read or trained."""
    private = task.num_examples is None
    missing = []
    if number is None:
        missing.append("--num-examples (a public figure for the number of rows or people; it may be rounded)")
    if private and wishes.delta is None:
        missing.append("--delta (well below 1 over that number)")
    if not task.has_recipe:
        wanted = {"--clip-norm": wishes.clip_norm, "--learning-rate": wishes.learning_rate}
        missing += [
            f"{name} (there is no default for your own model)" for name, value in wanted.items() if value is None
        ]
        if wishes.steps is None and wishes.epochs is None:
            missing.append("--steps or --epochs")
    if missing:
        raise InvalidValue(f"{task.name} needs {'; '.join(missing)}.")


def _recipe(task: Task, wishes: Wishes, number: int) -> Recipe:
    regression = task.num_classes is None
    model = "cnn" if task.own_model else wishes.model
    base = recipe_for(task.name, number, wishes.epsilon, model, regression=regression)
    size = base.expected_batch_size if wishes.expected_batch_size is None else wishes.expected_batch_size
    if size is None and _unit(task, wishes) == "person" and number >= _MANY_PEOPLE:
        size, base = number // 20, replace(base, steps=200)  # a person's rows are added first: full batches are slow
    if size is not None and not 1 <= size <= number:
        raise InvalidValue(f"--expected-batch-size must be from 1 to the number of examples, {number}; got {size}.")
    full = size is None or size == number
    return Recipe(
        model=base.model,
        expected_batch_size=None if full else size,
        steps=_steps(base, wishes, 1.0 if full else (size or number) / number),
        clip_norm=base.clip_norm if wishes.clip_norm is None else _check.positive("clip_norm", wishes.clip_norm),
        learning_rate=base.learning_rate
        if wishes.learning_rate is None
        else _check.positive("learning_rate", wishes.learning_rate),
    )


def _steps(base: Recipe, wishes: Wishes, sampling_prob: float) -> int:
    if wishes.steps is not None and wishes.epochs is not None:
        raise InvalidValue("give either --steps or --epochs, not both.")
    if wishes.steps is not None:
        return _check.whole("steps", wishes.steps)
    if wishes.epochs is not None:
        return max(1, round(_check.positive("epochs", wishes.epochs) / sampling_prob))
    return base.steps


def _unit(task: Task, wishes: Wishes) -> str:
    return ("example" if task.people is None else "person") if wishes.unit is None else wishes.unit


def _plan(task: Task, wishes: Wishes, recipe: Recipe, budget: Budget, number: int) -> TrainingPlan:
    size = recipe.expected_batch_size
    unit = _unit(task, wishes)
    if unit == "person" and task.people is None:
        raise InvalidValue("--unit person needs data that say whose row it is: name a person column in the schema.")
    # Batches of one shape: oneDNN compiles a convolution for each new shape and keeps it, at many times the cost of a
    # step. The cap on a batch needs a bound on the size of the data, which is exact for a public data set only.
    fixed = size is not None and recipe.model == "cnn" and unit == "example" and number == task.num_examples
    sampling = "full_batch" if size is None else "truncated_poisson" if fixed else "poisson"
    return TrainingPlan.for_budget(
        budget,
        sampling_prob=1.0 if size is None else size / number,
        expected_batch_size=number if size is None else size,
        steps=recipe.steps,
        clip_norm=recipe.clip_norm,
        relation=wishes.relation,
        sampling=sampling,
        num_examples=number if fixed else None,
        unit=unit,
        average=wishes.average,
        secure=wishes.secure,
        physical_batch_size=wishes.physical_batch_size,
    )


def carry_out(
    task: Task,
    wishes: Wishes,
    settled: Settled,
    folder: Path,
    *,
    ledger: str | None = None,
    account: str | None = None,
    resume: bool = False,
    live: bool = False,
) -> Outcome:
    """Train, then the twin, then test both; the run is in the folder when this returns."""
    start = time.perf_counter()
    rng = Rng.from_entropy() if wishes.seed is None else Rng.from_seed(wishes.seed)
    model = task.model(settled.model, rng)
    twin = copy.deepcopy(model) if wishes.twin else None
    books, entry = _books(ledger, account or task.name, settled.plan)
    if entry is not None and not resume and entry.would_exceed(settled.plan.event):
        raise BudgetExceeded(
            f"this run costs {settled.plan.guarantee()}, and account {entry.name!r} would be over the cap; nothing was "
            "charged. Ask for less, or raise the cap with hush ledger change-cap."
        )
    optimizer, scheduler = _optimizer(model, settled, settled.learning_rate)
    page = _live_page(task, settled, folder) if live else None
    run = fit(
        settled.plan,
        model,
        task.train,
        loss_fn=task.loss_fn,
        optimizer=optimizer,
        scheduler=scheduler,
        ledger=books,
        account=entry,
        folder=folder,
        resume=resume,
        dataset_name=task.name,
        people=task.people if settled.plan.unit == "person" else None,
        rng=rng,
        callbacks=() if page is None else (page,),
    )
    if twin is not None:
        _train_twin(task, twin, settled)
    outcome = Outcome(
        settled=settled,
        run=run,
        folder=folder,
        parameters=sum(value.numel() for value in model.parameters() if value.requires_grad),
        seconds=time.perf_counter() - start,
        score=test_score(task, model),
        twin_score=None if twin is None else test_score(task, twin),
        notes=_notes(task, run, settled),
    )
    _describe(task, outcome)
    if page is not None:
        written = report.write(folder)
        page.finish(run.steps, run.guarantee.epsilon, written[0])
    return outcome


def _live_page(task: Task, settled: Settled, folder: Path) -> Live:
    """A page that follows the training; where it is, is said on stderr at once."""
    plan = settled.plan
    page = Live(
        folder,
        title=f"{task.name}: {settled.model}, training privately",
        event=plan.event,
        steps=plan.steps,
        delta=plan.delta,
        relation=plan.relation,
        budget=plan.budget,
    )
    console(stderr=True).print(f"live: {page.page.resolve().as_uri()}", soft_wrap=True)
    return page


def _describe(task: Task, outcome: Outcome) -> None:
    """What the plan does not know, for the report."""
    settled, score = outcome.settled, outcome.score
    twin = None if outcome.twin_score is None else outcome.twin_score[1]
    report.describe(
        outcome.folder,
        data=task.name,
        model=settled.model,
        public_data=task.public,
        scores=None if score is None else report.Scores(name=score[0], private=score[1], twin=twin),
        facts={
            "examples, public figure": settled.num_examples,
            "optimizer": settled.optimizer,
            "learning rate": settled.learning_rate,
        },
        notes=outcome.notes,
    )


def _books(target: str | None, name: str, plan: TrainingPlan) -> tuple[Ledger | None, Account | None]:
    """A shared ledger's account, opened with this run's budget as its cap if it is new; or nothing: the run's own."""
    if target is None:
        return None, None
    ledger = Ledger(target)
    is_known = any(account.name == name for account in ledger.accounts())
    return ledger, ledger.account(name, cap=None if is_known else plan.budget, relation=plan.relation)


def _optimizer(model: nn.Module, settled: Settled, rate: float) -> tuple[torch.optim.Optimizer, Any]:
    """The optimizer, and a rate that falls to zero along a cosine."""
    parameters = [value for value in model.parameters() if value.requires_grad]
    optimizer: torch.optim.Optimizer
    if settled.optimizer == "adam":
        optimizer = torch.optim.Adam(parameters, lr=rate)
    else:
        optimizer = torch.optim.SGD(parameters, lr=rate, momentum=MOMENTUM)
    return optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=settled.plan.steps)


def _train_twin(task: Task, twin: nn.Module, settled: Settled) -> None:
    """The same training without noise and clipping, to see what privacy costs. It never leaves this process."""
    optimizer, scheduler = _optimizer(twin, settled, settled.twin_learning_rate)
    plan = settled.plan.without_privacy()
    people = task.people if plan.unit == "person" else None
    gradients = PrivateGradients(twin, plan)
    with waiting("training the twin without privacy"):
        for batch in plan.batches(task.train, people=people):
            gradients.backward(task.loss_fn, batch)
            optimizer.step()
            scheduler.step()


def _notes(task: Task, run: Run, settled: Settled) -> tuple[str, ...]:
    notes = [*run.notes, *task.notes]
    if task.people is not None and settled.plan.unit == "example":
        notes.append("a person can have several rows, and the guarantee is for one row: see --unit person.")
    return tuple(notes)
