"""The loop: a plan, a model, a data set, and a run at the end.

run = fit(plan, model, dataset, loss_fn=loss_fn, optimizer=optimizer)
print(run.guarantee)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import Dataset

from hush.audit.white_box import WhiteBox
from hush.gradients.batches import Batch, LossFunction
from hush.gradients.clipped import Method
from hush.ledger import Account, Ledger
from hush.rng import Rng
from hush.training.plan import TrainingPlan
from hush.training.progress import Callback
from hush.training.run import Run
from hush.training.session import Session, Setup


def fit(
    plan: TrainingPlan,
    model: nn.Module,
    dataset: Dataset[Any],
    *,
    loss_fn: LossFunction,
    optimizer: Optimizer,
    scheduler: LRScheduler | None = None,
    ledger: Ledger | None = None,
    account: Account | str | None = None,
    folder: str | os.PathLike[str] | None = None,
    resume: bool = False,
    checkpoint_every: int | None = None,
    dataset_name: str | None = None,
    people: Tensor | None = None,
    augment: Callable[[Batch], Batch] | None = None,
    collate: Callable[[list[Any]], Any] | None = None,
    workers: int = 0,
    memory_limit: int | None = None,
    rng: Rng | None = None,
    method: Method = "auto",
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
    guard_steps: int = 10,
    may_rest: Collection[str] = (),
    audit: bool | WhiteBox = False,
) -> Run:
    """Train the model as planned; it ends with the trained (or averaged) weights.

    Under torchrun all processes train one model together, whole or sharded by `fully_shard`, at the same guarantee.

    Args:
        plan: What will be done.
        model: Any unmodified module, in the mode (train or eval) that you left it in.
        dataset: Any map-style data set; rows of a `TensorDataset` are taken a whole batch at a time.
        loss_fn: `loss_fn(model, *batch)` gives one loss per example, shape (batch,).
        optimizer: Any torch optimizer over the model's trainable parameters.
        scheduler: Any torch scheduler; it steps once after every step of the plan.
        ledger: A ledger that others use too; None for one of the run's own.
        account: The account of `ledger` to charge, or its name.
        folder: Where checkpoints and the finished run go; None keeps the run in memory until `run.save`.
        resume: Go on from the folder's checkpoint, if there is one. Whatever changed is refused.
        checkpoint_every: Steps between two checkpoints; a twentieth of the plan, and at least 10, if None.
        dataset_name: A public name, by which a resumed run refuses other data; the class's name if None.
        people: For `unit="person"`, the number of the person that each row belongs to.
        augment: Random augmentation of a batch, each row for itself.
        collate: How items become a batch; torch's default if None.
        workers: Processes that load items.
        memory_limit: Bytes that a gradient may take beside the model: lots are split so that they fit.
        rng: Where noise and sampling come from; fresh entropy if None. A seed is for tests.
        method: How gradients are taken, as in `clipped_sum`.
        callbacks: Called with a `Progress` after each step.
        progress: Show a bar, where there is a terminal.
        guard_steps: Within so many steps every trainable parameter must have had a gradient and moved; 0 for no guard.
        may_rest: Names of parameters that the guard leaves alone.
        audit: Attack this very training by canary gradients, which change nothing in the model, and put the evidence
            beside the guarantee; True, or settings. The run then holds `audit` and `evidence`.

    Raises:
        BudgetExceeded: Not even the first step fits. Where a later one does not, the run ends early and says so.
        NotIsolated, NotLearning: See `hush.training.guards`.
        WorkerLost: Another process of a run under torchrun ended or does not answer.
        ResumeRefused: The checkpoint is of another plan, model, optimizer, scheduler, data set or ledger.
    """
    place = None if folder is None else Path(folder)
    given = {**locals(), "folder": place}
    del given["place"]
    return Session(Setup(**given)).run()
