"""Training a soft prompt privately: DP-SGD on the prompt alone [Duan, Dziedzic, Papernot, Boenisch 2023]."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import Dataset

from hush import _check
from hush.errors import InvalidValue
from hush.gradients.batches import LossFunction
from hush.ledger import Account, Ledger
from hush.prompts.collate import ExampleLoss
from hush.prompts.soft import SoftPrompt
from hush.rng import Rng
from hush.training import Run, TrainingPlan, fit
from hush.training.progress import Callback

LEARNING_RATE = 1e-2


def fit_soft_prompt(
    plan: TrainingPlan,
    prompt: SoftPrompt,
    dataset: Dataset[Any],
    *,
    learning_rate: float | None = None,
    optimizer: Optimizer | None = None,
    scheduler: LRScheduler | None = None,
    loss_fn: LossFunction | None = None,
    collate: Callable[[list[Any]], Any] | None = None,
    ledger: Ledger | None = None,
    account: Account | str | None = None,
    folder: str | os.PathLike[str] | None = None,
    resume: bool = False,
    dataset_name: str | None = None,
    rng: Rng | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
) -> Run:
    """Train the prompt as planned; the model behind it stays as it is.

    This is `hush.fit` with a loss and an optimizer; call that for everything else it offers.

    Args:
        plan: What will be done.
        prompt: What is trained.
        dataset: Items (input_ids, attention_mask, label), or with `collate` whatever that makes a batch of.
        learning_rate: Of Adam; 0.01 if None.
        optimizer: Another one, over the prompt's trainable parameters, in place of Adam.
        scheduler: Of that optimizer.
        loss_fn: One loss per example; that of class labels if None. For the text itself, `ExampleLoss("next_token")`.
        collate: How items become a batch, such as a data collator of transformers.
        ledger, account, folder, resume, dataset_name, rng, callbacks, progress: As in `hush.fit`.
    """
    if not isinstance(prompt, SoftPrompt):
        raise InvalidValue(f"prompt must be a SoftPrompt; got {type(prompt).__name__}. For adapters use hush.fit.")
    if optimizer is not None and learning_rate is not None:
        raise InvalidValue("give learning_rate or optimizer, not both.")
    trained = [value for value in prompt.parameters() if value.requires_grad]
    rate = _check.positive("learning_rate", LEARNING_RATE if learning_rate is None else learning_rate)
    return fit(
        plan,
        prompt,
        dataset,
        loss_fn=loss_fn or ExampleLoss("class"),
        optimizer=optimizer or torch.optim.Adam(trained, lr=rate),
        scheduler=scheduler,
        collate=collate,
        ledger=ledger,
        account=account,
        folder=folder,
        resume=resume,
        dataset_name=dataset_name,
        rng=rng,
        callbacks=callbacks,
        progress=progress,
    )
