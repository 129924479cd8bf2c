"""The simplest attack: who has a small loss was trained on (Yeom et al. 2018). It needs the model and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np

from hush.attacks.result import AttackResult
from hush.attacks.signals import Model, Outputs, answers, as_labels, cross_entropy, log_probabilities


def loss_threshold(model: Model, x: Any, y: Any, members: Any, *, outputs: Outputs = "logits") -> AttackResult:
    """Score each row by minus its loss.

    It compares easy rows with hard ones, so it rarely finds anybody at small false positive rates; see `lira`.

    Args:
        model: Rows -> logits or probabilities.
        x: Rows, trained on or not.
        y: Their classes.
        members: Which of them the model was trained on: the truth that the attack is measured against.
        outputs: What the model gives, "logits" or "probabilities".

    >>> import torch
    >>> rows = torch.tensor([[3.0, 0.0], [0.0, 0.5], [0.2, 0.0], [0.0, 0.1]])
    >>> loss_threshold(lambda x: x, rows, [0, 1, 0, 0], [True, True, False, False]).auc
    1.0
    """
    log_probs = log_probabilities(answers(model, x), outputs)
    loss = cross_entropy(log_probs, as_labels(np.asarray(y), log_probs.shape[-1], len(log_probs)))
    return AttackResult("loss threshold", -loss, np.asarray(members))
