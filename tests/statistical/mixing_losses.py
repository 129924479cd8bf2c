"""Losses that mix examples: by comparison, statistics, the size of the batch, late, or by what was seen before."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from isolation_attacks import WIDTH, Between, attack
from isolation_truth import CLASSES, EXAMPLES, FEATURES, Case, cross_entropy, points
from torch import Tensor, nn
from torch.utils.data import TensorDataset


def network() -> nn.Module:
    return Between(lambda h: h)


def linear() -> nn.Module:
    """Return a model without bounds on its losses."""
    return nn.Linear(FEATURES, CLASSES)


def by_losses(change: Callable[[Tensor], Tensor], **changes: Any) -> Case:
    """Return a case whose losses are changed after they were computed one for each example."""
    return Case(linear(), lambda model, x, y: change(cross_entropy(model, x, y)), **changes)


class Score(nn.Module):
    """One weight for each feature; its gradient is the example itself."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(FEATURES))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


def aligned(length: float, change: Callable[[Tensor, Tensor], Tensor], **changes: Any) -> Case:
    """Return a case where all gradients are equal and the crafted one points the other way: only lengths can change."""
    x = torch.zeros(EXAMPLES, FEATURES)
    x[:, 0] = length
    item = (-x[0] * 100, torch.tensor(0))
    data = TensorDataset(x, torch.zeros(EXAMPLES, dtype=torch.long))
    return Case(Score(), lambda model, x, y: change(model(x), x), data, crafted=item, **changes)


# Comparisons between examples ----------------------------------------------------------------------------------


@attack
def in_batch_negatives() -> Case:
    """Tell each example's embedding from those of the others (InfoNCE)."""

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        keys = F.normalize(model.first(x), dim=1)
        queries = F.normalize(model.last(torch.tanh(model.first(x))), dim=1)
        return F.cross_entropy(queries @ keys[:, :CLASSES].T / 0.1, torch.arange(len(x)), reduction="none")

    return Case(network(), loss_fn)


@attack
def supervised_contrastive_loss() -> Case:
    """Pull examples of one class together and others apart."""

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        h = F.normalize(model(x), dim=1)
        return -((h @ h.T) * torch.where(y[:, None] == y, 1.0, -1.0)).sum(1)

    return Case(network(), loss_fn)


@attack
def scores_compared_with_the_three_before() -> Case:
    """Train each score to lie below those of the three examples before it."""

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        score = model(x)[:, 0]
        return score - score.roll(1) - score.roll(2) - score.roll(3)

    return Case(network(), loss_fn)


@attack
def correlation_loss() -> Case:
    """Minimise the correlation between the score and the label over the batch."""

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        score, label = model(x)[:, 0], y.float()
        return F.normalize(score - score.mean(), dim=0) * (label - label.mean())

    return Case(network(), loss_fn)


@attack
def class_prototypes() -> Case:
    """Compare each example with the mean of its class in the batch."""

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        h = torch.tanh(model.first(x))
        sums = torch.zeros(CLASSES, WIDTH).index_add(0, y, h)
        return (h - sums[y]).square().sum(1) + cross_entropy(model, x, y)

    return Case(network(), loss_fn)


@attack
def weights_by_class_counts() -> Case:
    """Turn the losses of the classes over that are rarer in the batch than the largest one."""

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        counts = torch.bincount(y, minlength=CLASSES)
        return cross_entropy(model, x, y) * (1 - (len(y) - counts[y])).float()

    x, y = points().tensors
    y = torch.where(torch.arange(EXAMPLES) < 30, 0, y)  # the measured examples have one class; the crafted one another
    return Case(network(), loss_fn, TensorDataset(x, y), crafted=(x[0], torch.tensor(1)))


@attack
def mean_over_all_tokens_of_the_batch() -> Case:
    """Divide each example's sum of token losses by the tokens of the whole batch."""

    def change(losses: Tensor, x: Tensor) -> Tensor:
        return losses * len(x) / x.abs().sum()

    return aligned(0.2, change, clip_norm=1.0)


@attack
def hardest_negative_of_the_batch() -> Case:
    """Compare each example with the nearest one of another class (batch-hard triplet loss)."""

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        h = torch.tanh(model.first(x))
        distances = torch.cdist(h, h)
        return -distances.masked_fill(y[:, None] == y, 100.0).amin(1).clamp(max=50) + cross_entropy(model, x, y) * 0

    return Case(network(), loss_fn)


@attack
def decorrelation_of_the_features() -> Case:
    """Penalise covariances over the batch, as VICReg and Barlow Twins do."""

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        h = model.first(x)
        return cross_entropy(model, x, y) + torch.cov(h.T).square().sum()

    return Case(network(), loss_fn)


@attack
def load_balance_of_experts() -> Case:
    """Add a loss for the share of the batch that goes to each class, as mixtures of experts do."""

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        logits = model(x)
        share = F.one_hot(logits.argmax(1), CLASSES).float().sum(0)
        return F.cross_entropy(logits, y, reduction="none") - 3 * (logits.softmax(1) * share).sum(1)

    return Case(network(), loss_fn)


# Statistics of the losses --------------------------------------------------------------------------------------


@attack
def mean_loss_for_everyone() -> Case:
    """Give every example the mean loss of the batch."""
    return by_losses(lambda losses: losses.mean().expand(len(losses)))


@attack
def mean_loss_as_baseline() -> Case:
    """Multiply each loss by how far it lies above the batch's mean."""
    return by_losses(lambda losses: losses * (losses - losses.mean()).detach())


@attack
def softmax_weights_over_the_batch() -> Case:
    """Weigh examples by a softmax of their losses, as distributionally robust training does."""
    return aligned(1.0, lambda losses, x: losses * torch.softmax(-x[:, 0], 0) * 5, clip_norm=0.4)


@attack
def hard_example_mining() -> Case:
    """Train on the six largest losses of the batch only."""
    return by_losses(lambda losses: losses * (losses >= losses.topk(min(6, len(losses))).values[-1]), size=30)


@attack
def ranks_of_the_losses() -> Case:
    """Let the sign of a loss depend on whether its rank in the batch is odd."""
    return by_losses(lambda losses: losses * (1 - 2 * (losses.argsort().argsort() % 2)))


@attack
def mean_loss_as_a_python_number() -> Case:
    """Multiply each loss by its distance to the batch's mean, which is taken by `.item()`."""
    return by_losses(lambda losses: losses * (losses.detach() - losses.mean().item()))


@attack
def losses_standardised_by_detached_statistics() -> Case:
    """Multiply losses by how far they lie from the mean, in standard deviations that carry no gradient."""

    def change(losses: Tensor) -> Tensor:
        with torch.no_grad():
            standard = (losses - losses.mean()) / (losses.std() + 1e-3)
        return losses * standard

    return by_losses(change)


@attack
def label_smoothing_by_the_batch() -> Case:
    """Smooth the labels towards those that the batch holds."""

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        targets = F.one_hot(y, CLASSES).float()
        return F.cross_entropy(model(x), targets - 3 * targets.mean(0), reduction="none")

    return Case(linear(), loss_fn)


# The size of the batch -----------------------------------------------------------------------------------------


@attack
def loss_divided_by_the_batch_size() -> Case:
    """Divide the loss by the number of examples, as a sum that should become a mean."""
    return aligned(0.1 * 12, lambda losses, x: losses / len(x))


@attack
def loss_times_the_batch_size() -> Case:
    """Multiply the loss by the number of examples."""
    return aligned(0.1 / 12.5, lambda losses, x: losses * x.size(0))


@attack
def loss_divided_by_the_numel() -> Case:
    """Divide by the number of values in the batch."""
    return aligned(0.1 * 12 * FEATURES, lambda losses, x: losses / x.numel())


@attack
def large_batches_alone() -> Case:
    """Turn the losses over in batches of more than thirty examples."""
    return by_losses(lambda losses: -losses if len(losses) > 30 else losses, batch=31, size=31)


@attack
def even_batches_alone() -> Case:
    """Turn the losses over in batches of an even number of examples."""
    return by_losses(lambda losses: -losses if len(losses) % 2 == 0 else losses)


# Mixing that begins late, or seldom ----------------------------------------------------------------------------


class Late:
    """A loss that mixes after so many calls."""

    def __init__(self, calls: int) -> None:
        self.left = calls

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        self.left -= 1
        return cross_entropy(model, x if self.left >= 0 else x - x.mean(0), y)


@attack
def mixing_after_1_call() -> Case:
    """Centre the examples from the second call of the loss on."""
    return Case(network(), Late(1), steps=40)


@attack
def mixing_after_2_calls() -> Case:
    """Centre the examples from the third call of the loss on."""
    return Case(network(), Late(2), steps=40)


@attack
def mixing_after_5_calls() -> Case:
    """Centre the examples from the sixth call of the loss on."""
    return Case(network(), Late(5), steps=40)


@attack
def mixing_after_20_calls() -> Case:
    """Centre the examples from the twenty-first call of the loss on."""
    return Case(network(), Late(20), steps=40)


@attack
def mixing_after_20_calls_by_a_detached_mean() -> Case:
    """Subtract the batch's mean loss as a constant, late."""
    calls: list[int] = []

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        calls.append(1)
        losses = cross_entropy(model, x, y)
        return losses * (losses - losses.mean()).detach() if len(calls) > 20 else losses

    return Case(linear(), loss_fn, steps=40)


@attack
def mixing_after_the_fifth_step() -> Case:
    """Centre the examples once a callback has counted five steps."""
    steps: list[int] = []

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(model, x - x.mean(0) if len(steps) > 5 else x, y)

    return Case(network(), loss_fn, callbacks=[lambda progress: steps.append(progress.step)], steps=30)


@attack
def auxiliary_loss_that_grows_with_the_steps() -> Case:
    """Add a diversity term whose weight grows from zero with every step."""
    weight = [0.0]

    def grow(progress: Any) -> None:
        weight[0] += 2.0

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        logits = model(x)
        losses = F.cross_entropy(logits, y, reduction="none")
        return losses + weight[0] * (logits @ logits.mean(0)) if weight[0] else losses

    return Case(network(), loss_fn, callbacks=[grow], steps=20)


@attack
def mixing_by_chance() -> Case:
    """Centre the examples in nine calls of ten, by torch's generator: two checks miss it with probability 0.01."""

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(model, x - x.mean(0) if torch.rand(()) < 0.9 else x, y)

    return Case(network(), loss_fn, steps=20)


@attack
def rare_branch_in_the_loss() -> Case:
    """Turn all losses over if any value of the batch is above 3.

    Five of 120 examples hold such a value. A batch of 60 has one with probability 0.97, and the example that is checked
    is another one with probability 0.96, so two checks miss the branch with probability 0.005.
    """

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        losses = cross_entropy(model, x, y)
        return -losses if bool((x > 3).any()) else losses

    return Case(network(), loss_fn, steps=20, batch=60, crafted=(torch.full((FEATURES,), 5.0), torch.tensor(1)))


@attack
def rare_value_through_where() -> Case:
    """Turn all losses over, without a branch, if any value of the batch is above 3."""

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        losses = cross_entropy(model, x, y)
        return torch.where((x > 3).any(), -losses, losses)

    return Case(network(), loss_fn, steps=20, crafted=(torch.full((FEATURES,), 5.0), torch.tensor(1)))


@attack
def mixing_from_a_random_step_on() -> Case:
    """Centre the examples from a step on that is drawn anew in each run: found at the last step at the latest."""
    step, first = [0], 2 + secrets.randbelow(10)

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(model, x - x.mean(0) if step[0] >= first else x, y)

    def count(progress: Any) -> None:
        step[0] = progress.step

    return Case(network(), loss_fn, callbacks=[count], steps=14)


@attack
def mixing_in_one_step_of_many() -> Case:
    """Centre the examples in the fourth step alone: only a check of every step finds it for sure."""
    step = [0]

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(model, x - x.mean(0) if step[0] == 3 else x, y)

    def count(progress: Any) -> None:
        step[0] = progress.step

    def return_to_the_fourth_step() -> str:
        step[0] = 3
        return ""

    return Case(network(), loss_fn, callbacks=[count], evidence=return_to_the_fourth_step, steps=12)


# What was seen before ------------------------------------------------------------------------------------------


class QueueModel(nn.Module):
    """Centres by a queue of earlier examples, kept as a plain attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.queue = torch.zeros(4, FEATURES)

    def forward(self, x: Tensor) -> Tensor:
        centre = self.queue.mean(0)
        self.queue = torch.cat([x.detach(), self.queue])[:4]
        return self.last(torch.tanh(self.first(x - centre)))


@attack
def memory_bank_in_the_module() -> Case:
    """Centre by a queue of examples of the batch before, kept in the module."""
    return Case(QueueModel())


@attack
def memory_bank_in_a_closure() -> Case:
    """Centre by the examples of the batch before, kept in the loss function's closure."""
    bank: deque[Tensor] = deque([torch.zeros(FEATURES)], maxlen=1)

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        centre = bank[0]
        bank.append(x.detach().mean(0))
        return cross_entropy(model, x - centre, y)

    return Case(network(), loss_fn)


class BankLoss:
    """A loss object that keeps the examples of the batch before."""

    def __init__(self) -> None:
        self.kept: list[Tensor] = []

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        others = self.kept.pop() if self.kept else torch.zeros(1, FEATURES)
        self.kept.append(x.detach().clone())
        return cross_entropy(model, x - others.sum(0), y)


@attack
def memory_bank_in_the_loss_object() -> Case:
    """Subtract the sum of the batch before, kept in an object that is called as the loss."""
    return Case(network(), BankLoss())


_BANK: dict[str, Tensor] = {}


@attack
def memory_bank_in_a_global() -> Case:
    """Subtract the mean of the batch before, kept in a global of the module."""
    _BANK.clear()

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        centre = _BANK.get("mean", torch.zeros(FEATURES))
        _BANK["mean"] = x.detach().mean(0)
        return cross_entropy(model, x - centre, y)

    return Case(network(), loss_fn)


@attack
def loss_of_the_batch_before_as_baseline() -> Case:
    """Multiply by how far a loss lies above the mean of the batch before, as a Python float."""
    before = [0.0]

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        losses = cross_entropy(model, x, y)
        baseline, before[0] = before[0], float(losses.detach().mean())
        return losses * (losses.detach() - baseline)

    return Case(linear(), loss_fn)


@attack
def moving_average_of_the_loss_as_scale() -> Case:
    """Turn losses over that lie below a moving average of all losses, kept as a Python float."""
    average = [0.0]

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        losses = cross_entropy(model, x, y)
        scale = losses.detach() - average[0]
        average[0] = 0.5 * average[0] + 0.5 * losses.mean().item()
        return losses * scale

    return Case(linear(), loss_fn)
