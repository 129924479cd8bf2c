"""Canaries for a white-box audit: rows whose gradient is known, in a direction that no other row has.

The model gets two more parameters, tables with one entry per canary that nothing else uses. A canary's loss is the sum
or difference of its two entries times a large number, so its gradient lies along a direction of its own and is clipped
to the clip norm: the worst case. Two tables, because clipping each parameter for itself, or the same noise for both,
would not show in one.
Canaries are ordinary rows of the data set. They are sampled, clipped, summed, noised and divided by the very code that
serves the data, and they change no other gradient, so the trained model is what it would be without them.

The sign of a canary's gradient changes from step to step by a fixed pattern (+- or ++--), because noise that repeats
itself would hide in a constant sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset, Subset, TensorDataset

from hush import _check
from hush.errors import InvalidValue
from hush.gradients.batches import Batch, LossFunction, call
from hush.privacy import Relation, check_relation
from hush.rng import Rng

NOBODY = -1  # the canary number of a row that is none
_TIMES_CLIP_NORM = 100.0  # far above any clipping, and still a number in half precision


class Audited(nn.Module):
    """The user's model beside the canaries' tables."""

    def __init__(self, model: nn.Module, num_canaries: int) -> None:
        super().__init__()
        self.model = model
        like = next((value for value in model.parameters() if value.requires_grad), None)
        if like is None:
            raise InvalidValue("the model has no trainable parameter: nothing has requires_grad.")
        self.canaries = nn.Parameter(torch.zeros(num_canaries, 1, dtype=like.dtype, device=like.device))
        self.canaries_too = nn.Parameter(torch.zeros_like(self.canaries))
        self.training = model.training  # `train()` would set the user's layers too

    def noisy_sum(self, divisor: float) -> Tensor:
        """What is in `.grad` along each canary's direction, times the divisor."""
        first, second = self.canaries.grad, self.canaries_too.grad
        if first is None or second is None:
            raise InvalidValue("the canaries have no gradient: train this model with audit.loss(loss_fn).")
        along = first.detach().double() + sides(len(first)).to(first.device)[:, None] * second.detach().double()
        return along.flatten() * (divisor / math.sqrt(2))


def sides(num_canaries: int) -> Tensor:
    """The sign of each canary's entry in the second table: + + - - in turn."""
    return 1.0 - 2.0 * (torch.arange(num_canaries, dtype=torch.float64) // 2 % 2)


class GradientCanaries:
    """Canaries, each in by its own fair coin.

    Args:
        num_canaries: How many coins are tossed.
        clip_norm: The clip norm at the start; the canaries' own gradients are over a hundred times as large.
        relation: With "replace_one" every canary is in, and its coin is the sign of its gradient.
        rows_per_canary: Rows of each canary that is in; 2 shows whether a person's rows are clipped together.
        rng: Where the coins come from; fresh entropy if None.
    """

    def __init__(
        self,
        num_canaries: int,
        *,
        clip_norm: float,
        relation: Relation = "add_remove",
        rows_per_canary: int = 1,
        rng: Rng | None = None,
    ) -> None:
        self.num_canaries = _check.whole("num_canaries", num_canaries)
        self.relation = check_relation(relation)
        self.rows_per_canary = _check.whole("rows_per_canary", rows_per_canary)
        self._size = _TIMES_CLIP_NORM * _check.positive("clip_norm", clip_norm)
        rng = rng or Rng.from_entropy()
        self.coins = rng.stream(rng.unused("canaries")).integers(0, 2, self.num_canaries).astype(bool)
        self.step = 0
        self.attached: Audited | None = None
        self._flat = False

    @property
    def inserted(self) -> numpy.ndarray:
        """The canary number of each row that is added to the data."""
        numbers = numpy.arange(self.num_canaries) if self.relation == "replace_one" else numpy.flatnonzero(self.coins)
        return numpy.repeat(numbers, self.rows_per_canary)

    def signs(self, step: int) -> numpy.ndarray:
        """The sign of each canary's gradient at a step, the same whether it is in or not."""
        odd = numpy.arange(self.num_canaries) % 2
        return numpy.where(odd, 1 - 2 * (step // 2 % 2), 1 - 2 * (step % 2)).astype(float)

    def model(self, model: nn.Module) -> Audited:
        """The model to train in place of `model`, which is inside and keeps its parameters."""
        self.attached = Audited(model, self.num_canaries)
        return self.attached

    def dataset(self, dataset: Dataset[Any], *, collated: bool = False) -> Dataset[Any]:
        """The data set with the canaries' rows at its end. Their content is that of row 0, and counts nothing.

        Items are (item, canary number); in a `TensorDataset` without your own `collate` the number is a tensor more.
        """
        numbers = self.inserted
        tensors = None if collated else tensors_of(dataset)
        self._flat = tensors is not None
        if tensors is None:
            return _WithCanaries(dataset, numbers)
        rows = len(tensors[0])
        grown = [torch.cat([tensor, tensor[:1].expand(len(numbers), *tensor.shape[1:])]) for tensor in tensors]
        index = torch.cat([torch.full((rows,), NOBODY), torch.from_numpy(numbers)])
        return TensorDataset(*grown, index.to(tensors[0].device))

    def people(self, people: Tensor | None) -> Tensor | None:
        """The people's numbers with one more person for each canary."""
        if people is None:
            return None
        numbers = torch.from_numpy(self.inserted)
        return torch.cat([people, people.max() + 1 + numbers.to(people.device, people.dtype)])

    def augment(self, augment: Callable[[Batch], Batch] | None) -> Callable[[Batch], Batch] | None:
        """The augmentation, which leaves the canaries' numbers alone."""
        if augment is None:
            return None

        def beside(batch: Batch) -> Batch:
            inner, index = self._parts(batch)
            changed = augment(inner)
            return (*changed, index) if self._flat else (changed, index)

        return beside

    def collate(self, collate: Callable[[list[Any]], Any] | None) -> Callable[[list[Any]], Any] | None:
        """The way from items to a batch, which leaves the canaries' numbers alone."""
        if collate is None:
            return None
        return lambda items: _joined(collate([item for item, _ in items]), [number for _, number in items])

    def loss(self, loss_fn: LossFunction) -> LossFunction:
        """The loss per row: the user's for data, the table's entry for canaries."""

        def audited_loss(audited: Audited, *batch: Any) -> Tensor:
            inner, index = self._parts(batch)
            own = call(loss_fn, audited.model, inner)
            signs, second = torch.from_numpy(self._gradient_sizes()).to(own), sides(self.num_canaries).to(own)
            canary = index >= 0
            place = index.clamp(min=0)
            entries = functional.embedding(place, audited.canaries).squeeze(-1)
            others = functional.embedding(place, audited.canaries_too).squeeze(-1)
            sizes = functional.embedding(place, signs[:, None]).squeeze(-1) * canary
            opposite = functional.embedding(place, second[:, None]).squeeze(-1)
            return own * (~canary).to(own.dtype) + entries * sizes + others * (sizes * opposite)

        return audited_loss

    def _parts(self, batch: Any) -> tuple[Batch, Tensor]:
        return (tuple(batch[:-1]) if self._flat else batch[0]), batch[-1]

    def _gradient_sizes(self) -> numpy.ndarray:
        sizes = self._size * self.signs(self.step)
        return sizes * numpy.where(self.coins, 1.0, -1.0) if self.relation == "replace_one" else sizes


class _WithCanaries(Dataset[Any]):
    """Items (item, canary number)."""

    def __init__(self, dataset: Dataset[Any], numbers: numpy.ndarray) -> None:
        self._dataset, self._numbers = dataset, numbers
        self._rows = len(dataset)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return self._rows + len(self._numbers)

    def __getitem__(self, row: int) -> tuple[Any, int]:
        if row < self._rows:
            return self._dataset[row], NOBODY
        return self._dataset[0], int(self._numbers[row - self._rows])


def _joined(batch: Batch, numbers: list[int]) -> tuple[Batch, Tensor]:
    return batch, torch.tensor(numbers)


def tensors_of(dataset: Dataset[Any]) -> tuple[Tensor, ...] | None:
    """The tensors behind a plain `TensorDataset` or a `Subset` of one; None for another kind."""
    if type(dataset) is Subset:
        inner = tensors_of(dataset.dataset)
        return None if inner is None else tuple(tensor[torch.as_tensor(dataset.indices)] for tensor in inner)
    return dataset.tensors if type(dataset) is TensorDataset else None
