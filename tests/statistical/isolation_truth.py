"""Measure what a training really did: how far one example moves the clipped sum, and which private values stay behind.

Nothing here knows how Hush defends itself. A case is a model, a loss and a data set. It passes silently if `fit` ends
normally although one example moves the clipped sum by more than the clip norm, a batch changes the next one's sum, or
values of the data set are found in the model. Distances are taken in float64. `Reference` is a trainer without any
defence: it shows that an attack attacks.
"""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset, default_collate

import hush
from hush.errors import HushError

Sums = dict[str, Tensor]
Total = Callable[["Case", Any], Sums]

FEATURES, CLASSES, EXAMPLES = 6, 3, 120
PRIVATE = 1000.0  # the size of every value in a data set whose values must not stay in the model
_MOST_PUBLIC = 100.0  # no width, weight or setting of a case is larger
_MOST_DEPTH = 4  # containers inside containers that are searched for private values


def cross_entropy(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y, reduction="none")


def points(offset: float = 0.0) -> TensorDataset:
    """Return examples of three classes; five of them hold a value above 3, the others none."""
    stream = torch.Generator().manual_seed(5)
    y = torch.randint(0, CLASSES, (EXAMPLES,), generator=stream)
    x = (torch.randn(EXAMPLES, FEATURES, generator=stream) + F.one_hot(y, FEATURES)).clamp(-2.9, 2.9)
    x[::24, 1] = 4.0
    return TensorDataset(x + offset, y)


@dataclass(frozen=True)
class Trained:
    """What a training leaves beside the model; `notes` are those that the plan's own guarantee does not have."""

    notes: tuple[str, ...]
    weights: dict[str, Tensor]


@dataclass(frozen=True)
class Step:
    """What a callback may look at."""

    step: int


@dataclass
class Case:
    """One training.

    Attributes:
        clip_norm: Small, so that every example's gradient is clipped and a change of direction shows.
        size: Examples in the batch whose clipped sum is measured.
        micro_batch: Examples computed at once; None for Hush's choice.
        crafted: An example that is added to that batch; if None, the first one times 30 and -30 with every label.
        evidence: Returns what the run left behind, in words, or "". Looked at after the run.
        slack: How far above the clip norm an example may move the sum, as a share: rounding.
        may_be_noted: Whether a warning and a note beside the guarantee are enough.
        window: If above 0, one example is added this many times, and the largest of these moves counts. For sums that
            are rounded to a coarse grid: most additions move them by nothing, and some by several clip norms.
        is_harmful: Whether a trainer without defence does harm; False for state that Hush must refuse or leave alone.
    """

    model: nn.Module
    loss_fn: Callable[..., Tensor] = cross_entropy
    dataset: Dataset[Any] = field(default_factory=points)
    collate: Callable[[list[Any]], Any] | None = None
    augment: Callable[[Any], Any] | None = None
    callbacks: Sequence[Callable[[Any], None]] = ()
    around: Callable[[], AbstractContextManager[Any]] = nullcontext
    steps: int = 8
    batch: int = 16
    sampling: str = "poisson"
    clip_norm: float = 0.1
    size: int = 12
    micro_batch: int | None = None
    crafted: Any = None
    evidence: Callable[[], str] | None = None
    slack: float = 1e-3
    may_be_noted: bool = False
    window: int = 0
    is_harmful: bool = True
    rate: float = 0.05

    def parameters(self) -> list[nn.Parameter]:
        return [value for value in self.model.parameters() if value.requires_grad]

    def plan(self) -> hush.TrainingPlan:
        examples = len(self.dataset)  # type: ignore[arg-type]
        is_full = self.sampling == "full_batch"
        return hush.TrainingPlan(
            noise_multiplier=1.0,
            sampling_prob=1.0 if is_full else self.batch / examples,
            expected_batch_size=examples if is_full else self.batch,
            steps=self.steps,
            clip_norm=self.clip_norm,
            delta=1e-5,
            sampling=self.sampling,
            physical_batch_size=self.micro_batch,
        )

    def fit(self, *, guard_steps: int = 0) -> Trained:
        """Train by `hush.fit`."""
        with self.around():
            run = hush.fit(
                self.plan(),
                self.model,
                self.dataset,
                loss_fn=self.loss_fn,
                optimizer=torch.optim.SGD(self.parameters(), lr=self.rate),
                collate=self.collate,
                augment=self.augment,
                callbacks=self.callbacks,
                progress=False,
                guard_steps=guard_steps,
            )
        return Trained(self._new_notes((*run.notes, *run.guarantee.notes)), run.weights)

    def loop(self) -> Trained:
        """Train by a loop of one's own, with `PrivateGradients`."""
        plan = self.plan()
        private = hush.PrivateGradients(self.model, plan)
        optimizer = torch.optim.SGD(self.parameters(), lr=self.rate)
        batches = plan.batches(self.dataset, collate=self.collate, augment=self.augment)
        with self.around():
            for step, batch in enumerate(batches, start=1):
                private.backward(self.loss_fn, batch)
                optimizer.step()
                optimizer.zero_grad()
                for callback in self.callbacks:
                    callback(Step(step))
        return Trained(self._new_notes(private.guarantee().notes), {})

    def _new_notes(self, notes: tuple[str, ...]) -> tuple[str, ...]:
        expected = self.plan().guarantee().notes
        return tuple(note for note in notes if note not in expected)

    def items(self, start: int = 0) -> list[Any]:
        return [self.dataset[(start + index) % len(self.dataset)] for index in range(self.size)]  # type: ignore[arg-type]

    def crafted_items(self) -> list[Any]:
        if self.crafted is not None:
            return [self.crafted]
        x, y = self.dataset[0]
        return [(scale * x, (y + turn) % CLASSES) for scale in (-30, 30) for turn in range(CLASSES)]

    def collated(self, items: list[Any]) -> Any:
        return (self.collate or default_collate)(items)


# What one example moves ----------------------------------------------------------------------------------------


def neighbours(case: Case) -> Iterator[list[Any]]:
    """Yield the measured batch without one of its examples, and with a crafted one at either end."""
    items = case.items()
    for place in sorted({0, case.size // 2, case.size - 1}):
        yield items[:place] + items[place + 1 :]
    for crafted in case.crafted_items():
        yield [crafted, *items]
        yield [*items, crafted]


def sensitivity(case: Case, total: Total) -> float:
    """Return how far one example moves the clipped sum at most, in units of the clip norm."""
    with case.around():
        start = _sum(case, total, case.items())
        if case.window:
            growing = (case.items() + [case.crafted] * count for count in range(1, case.window + 1))
            sums = [start, *(_sum(case, total, items) for items in growing)]
            return max(_distance(one, other) for one, other in pairwise(sums))
        return max(_distance(start, _sum(case, total, items)) for items in neighbours(case))


def memory(case: Case, total: Total) -> float:
    """Return how far an example of the batch before moves the clipped sum, in units of the clip norm."""
    items, later = case.items(), case.items(case.size)
    with case.around():
        _sum(case, total, [case.crafted_items()[0], *items])
        once = _sum(case, total, later)
        _sum(case, total, items)
        return _distance(once, _sum(case, total, later))


def _sum(case: Case, total: Total, items: list[Any]) -> Sums:
    torch.manual_seed(0)
    return {name: value.double() / case.clip_norm for name, value in total(case, case.collated(items)).items()}


def _distance(one: Sums, other: Sums) -> float:
    return float(sum((one[name] - other[name]).square().sum() for name in one).sqrt())  # type: ignore[union-attr]


def hush_total(case: Case, batch: Any) -> Sums:
    micro_batch = case.micro_batch
    return hush.clipped_sum(case.model, case.loss_fn, batch, case.clip_norm, physical_batch_size=micro_batch).gradients


# What stays behind ---------------------------------------------------------------------------------------------


def private_values(model: nn.Module) -> list[str]:
    """Return the places in the model where a number larger than any public one is kept."""
    places = []
    for name, module in model.named_modules():
        for key, value in {**vars(type(module)), **vars(module)}.items():
            if not key.startswith("__") and _is_private(value, _MOST_DEPTH):
                places.append(f"{name}.{key}".lstrip("."))
    frozen = [(name, value) for name, value in model.named_parameters() if not value.requires_grad]
    places += [f"{name}.grad" for name, value in frozen if value.grad is not None and _is_private(value.grad, 0)]
    return places


def private_state(model: nn.Module) -> list[str]:
    """Return which parameters, buffers and tensor attributes hold private values. A refused run must restore them."""
    places = [name for name, value in [*model.named_parameters(), *model.named_buffers()] if _is_private(value, 0)]
    for name, module in model.named_modules():
        tensors = {key: value for key, value in vars(module).items() if isinstance(value, Tensor)}
        places += [f"{name}.{key}".lstrip(".") for key, value in tensors.items() if _is_private(value, 0)]
    return places


def _is_private(value: object, depth: int) -> bool:
    if isinstance(value, Tensor | numpy.ndarray | numpy.generic | float | int):
        numbers = torch.as_tensor(value).detach()
        return bool((numbers.double().abs().nan_to_num(0.0, 0.0, 0.0) > _MOST_PUBLIC).any())
    if depth == 0 or isinstance(value, nn.Module | types.FunctionType):
        return False
    if isinstance(value, dict):
        return any(_is_private(item, depth - 1) for item in value.values())
    if isinstance(value, list | tuple | set | frozenset) or type(value).__name__ == "deque":
        return any(_is_private(item, depth - 1) for item in value)  # type: ignore[union-attr]
    if isinstance(value, types.SimpleNamespace):
        return _is_private(vars(value), depth - 1)
    return False


# The verdict ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """What became of an attack.

    Attributes:
        kind: "refused" with an error of Hush; "noted" by a warning of Hush and a note beside the guarantee; "harmless";
            or, which no attack may reach, "passed".
        words: The error's name, or what was harmed.
    """

    kind: str
    words: str = ""

    @property
    def is_caught(self) -> bool:
        return self.kind != "passed"


def silent_harm(case: Case, total: Total, weights: dict[str, Tensor] | None = None) -> str:
    """Return in words what one example could do in a run that ended normally; "" if it is harmless."""
    if case.evidence is not None and (words := case.evidence()):
        return words
    if places := private_values(case.model):
        return f"private values in {', '.join(places)}"
    if names := [name for name, value in (weights or {}).items() if _is_private(value, 0)]:
        return f"private values in the run's weights {', '.join(names)}"
    if (moved := sensitivity(case, total)) > 1 + case.slack:
        return f"one example moves the clipped sum by {moved:.3g} clip norms"
    if (moved := memory(case, total)) > case.slack:
        return f"an example of the batch before moves the clipped sum by {moved:.3g} clip norms"
    return ""


def judge(case: Case, train: Callable[[Case], Trained]) -> Verdict:
    """Train, and say what became of the attack.

    A training that ends normally is judged by what `clipped_sum` gives for the model, the loss and the mode that it
    left. A refusal by `clipped_sum` then comes too late. A refusal by the training must have left nothing behind.
    """
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            trained = train(case)
        except HushError as error:
            places = private_state(case.model)
            words = f"{type(error).__name__} leaves private values in {', '.join(places)}" if places else ""
            return Verdict("passed", words) if words else Verdict("refused", type(error).__name__)
        if case.may_be_noted and trained.notes and any(map(_is_own_warning, heard)):
            return Verdict("noted", trained.notes[0])
        return _judge_by_clipped_sum(case, trained)


def _judge_by_clipped_sum(case: Case, trained: Trained) -> Verdict:
    try:
        harm = silent_harm(case, hush_total, trained.weights)
    except HushError as error:
        harm = f"trains, and clipped_sum refuses it later: {type(error).__name__}"
    return Verdict("passed", harm) if harm else Verdict("harmless")


def _is_own_warning(message: warnings.WarningMessage) -> bool:
    return message.category.__module__.startswith("hush.")


# A trainer without defence -------------------------------------------------------------------------------------


def naive_total(case: Case, batch: Any) -> Sums:
    """Return the sum of the clipped gradients of each loss inside the batch, in whatever precision torch takes."""
    names = [name for name, value in case.model.named_parameters() if value.requires_grad]
    parameters = case.parameters()
    losses = case.loss_fn(case.model, **batch) if isinstance(batch, dict) else case.loss_fn(case.model, *batch)
    if case.window:  # these batches are large, and nothing in their models is hidden from vmap
        columns = [
            values.flatten(1)
            for values in torch.autograd.grad(
                losses, parameters, torch.eye(len(losses)).to(losses), is_grads_batched=True
            )
        ]
    else:
        rows = [
            torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True, materialize_grads=True)
            for loss in losses
        ]
        columns = [torch.stack(values).flatten(1) for values in zip(*rows, strict=True)]
    norms = torch.stack([values.float().norm(dim=1) for values in columns]).norm(dim=0)
    factors = case.clip_norm / norms.clamp(min=case.clip_norm)
    sums = [factors.to(values.dtype) @ values for values in columns]
    return {name: total.view_as(value) for name, total, value in zip(names, sums, parameters, strict=True)}


class Reference:
    """Train without any check: what an attack does to this trainer is what the attack can do."""

    @staticmethod
    def train(case: Case) -> None:
        stream = numpy.random.default_rng(0)
        examples = len(case.dataset)  # type: ignore[arg-type]
        with case.around():
            for step in range(1, case.steps + 1):
                rows = range(examples) if case.sampling == "full_batch" else stream.permutation(examples)[: case.batch]
                if case.sampling == "full_batch" and isinstance(case.dataset, TensorDataset):
                    batch: Any = case.dataset.tensors
                else:
                    batch = case.collated([case.dataset[int(row)] for row in rows])
                if case.augment is not None:
                    batch = case.augment(tuple(batch))
                sums = naive_total(case, batch)
                with torch.no_grad():
                    for name, value in case.model.named_parameters():
                        if name in sums:
                            value.sub_(sums[name], alpha=case.rate / case.batch)
                for callback in case.callbacks:
                    callback(Step(step))

    @staticmethod
    def harm(case: Case) -> str:
        """Train, and return in words what the attack achieved."""
        Reference.train(case)
        return silent_harm(case, naive_total)
