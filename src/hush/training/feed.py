"""From a data set and a plan to the batch of each step.

Rows of a `TensorDataset` are taken by one index per tensor; other data sets go through torch's `DataLoader`, whose
batch sampler is the plan's. An empty draw gives an empty batch, never a skipped step.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, default_collate

from hush import _check
from hush.errors import InvalidValue, OddSampling
from hush.gradients.batches import Batch, mapped, take
from hush.rng import Rng
from hush.sampling import Index, draws
from hush.training.collation import Alone, Collate, Collation, Items, Loaded
from hush.training.draws import Draw, mark_draw
from hush.training.lots import Lot, as_lot, augmented, padded
from hush.training.spots import SpotChecks
from hush.training.team import Team

if TYPE_CHECKING:
    from hush.training.plan import TrainingPlan


class Feed:
    """The batches of a plan over one data set; in a team, this process's share of them.

    All processes draw the same lot, from one secret source, and each takes every `size`-th unit of it. So the lot is
    that of one sampler, whatever the plan's sampling and the number of processes, and the shares are of equal size.
    """

    def __init__(
        self,
        plan: TrainingPlan,
        dataset: Dataset[Any],
        *,
        people: Tensor | None = None,
        augment: Callable[[Batch], Batch] | None = None,
        collate: Collate | None = None,
        workers: int = 0,
        team: Team | None = None,
    ) -> None:
        self._plan = plan
        self._team = team or Team()
        self._dataset = dataset
        self._rows = _length(dataset)
        self._people = None if people is None else People(people, self._rows)
        self._augment = augment
        self._collate = collate
        self._workers = _check.whole("workers", workers, least=0)
        if (plan.unit == "person") != (people is not None):
            raise InvalidValue(
                f"people must be given for unit 'person' and only then; this plan has unit {plan.unit!r}."
            )
        if self._team.size > 1:
            self._agree(people)
        self._warn_of_odd_sampling(dataset)
        if plan.augmentations > 1 and augment is None:
            raise InvalidValue(f"{plan.augmentations} augmentations of an example need an augment function.")

    def _warn_of_odd_sampling(self, dataset: Dataset[Any]) -> None:
        plan, rows = self._plan, self._rows
        if isinstance(dataset, Subset) and plan.private and self._people is None:
            repeated = rows - len(set(_numbers(dataset)))
            if repeated:
                warnings.warn(
                    f"the Subset lists {repeated} of its {rows} records more than once, so a record counts several "
                    "times and the guarantee for one of them does not hold; list each record once, or name the people.",
                    OddSampling,
                    stacklevel=4,
                )
        units = rows if self._people is None else self._people.number
        drawn = plan.sampling_prob * units
        spread = 4 * math.sqrt(drawn) + 1
        if (
            plan.private
            and plan.sampling in ("poisson", "full_batch")
            and abs(drawn - plan.expected_batch_size) > spread
        ):
            warnings.warn(
                f"sampling_prob {plan.sampling_prob:g} of {units} units draws {drawn:.0f} a step, and the plan divides "
                f"by expected_batch_size {plan.expected_batch_size:g}; make the plan for {units} units.",
                OddSampling,
                stacklevel=4,
            )

    def _agree(self, people: Tensor | None) -> None:
        """Refuse processes with other data: rows are known by their numbers. Of tensors a few rows are compared."""
        data = _tensors(self._dataset)
        ends = () if data is None else _taken(*data, numpy.array([0, self._rows // 2, self._rows - 1]))
        self._team.agree(
            {
                "plan": self._plan.fingerprint,
                "length of the data set": self._rows,
                "data set": _digest(ends),
                "people": _digest(() if people is None else (people,)),
            }
        )

    def batches(self, rng: Rng, *, first: int = 0) -> Iterator[Batch | Lot]:
        """The batch of each step from `first` on; a `Lot` where rows are not simply units."""
        units = self._rows if self._people is None else self._people.number
        stream = rng.stream(rng.unused("sampling"))
        lots = draws(self._plan.sampler, units, steps=self._plan.steps, stream=stream, first=first)
        indices = (lot[self._team.rank :: self._team.size] for lot in lots)
        tensor_data = _tensors(self._dataset)
        if tensor_data is not None and self._collate is None:
            spots = SpotChecks(rng, self._plan.steps)
            for step, index in enumerate(indices, first):
                rows, groups = self._expand(index)
                draw = Draw(self._plan.fingerprint, step, spots.rows(step, len(rows)))
                yield self._finish(_taken(*tensor_data, rows), groups, draw)
        else:
            yield from self._loaded(indices, rng, first)

    def _expand(self, index: Index) -> tuple[Index, Tensor | None]:
        if self._people is None:
            return index, None
        rows, numbers = self._people.rows_of(index)
        return rows, torch.from_numpy(numbers)

    def _loaded(self, indices: Iterator[Index], rng: Rng, first: int) -> Iterator[Batch | Lot]:
        queue: deque[tuple[int, int, Tensor | None]] = deque()
        spots = SpotChecks(rng, self._plan.steps)

        def lists() -> Iterator[list[Any]]:
            for step, index in enumerate(indices, first):
                rows, groups = self._expand(index)
                chosen = spots.rows(step, len(rows))
                alone = Alone(chosen or spots.any_row(len(rows)), is_due=bool(chosen))
                queue.append((step, len(rows), groups))
                # A loader cannot make an empty batch: row 0 is loaded and dropped.
                yield [*(rows.tolist() or [0]), *([alone] if alone.places else [])]

        loader: DataLoader[Any] = DataLoader(
            Items(self._dataset),
            batch_sampler=cast("Any", _Lists(lists)),
            num_workers=self._workers,
            collate_fn=Collation(self._collate or default_collate, keeps_order=self._people is not None),
            generator=rng.torch_stream(rng.unused("loader")),  # torch's global generator stays as it is
        )
        for loaded in loader:
            step, size, groups = queue.popleft()
            batch, draw = loaded, Draw(self._plan.fingerprint, step)
            if isinstance(loaded, Loaded):
                batch = loaded.batch
                pairs = () if loaded.is_random else loaded.pairs
                draw = replace(draw, rows=loaded.rows, alone=pairs, is_random=loaded.is_random)
            yield self._finish(batch if size else take(batch, slice(0, 0)), groups, draw)

    def _finish(self, batch: Batch, groups: Tensor | None, draw: Draw) -> Batch | Lot:
        found = self._finished(batch, groups)
        if self._augment is not None:
            draw = replace(draw, rows=[row * self._plan.augmentations for row in draw.rows])
        rows = as_lot(found).batch
        kept = [mapped(torch.clone, take(rows, slice(row, row + 1))) for row in draw.rows]
        mark_draw(rows, replace(draw, kept=kept))
        return found

    def _finished(self, batch: Batch, groups: Tensor | None) -> Batch | Lot:
        plan = self._plan
        if groups is None and self._augment is None and plan.sampling != "truncated_poisson":
            return batch
        lot = Lot(batch, groups=groups)
        if plan.max_batch_size is not None:
            lot = padded(batch, -(-plan.max_batch_size // self._team.size))
        return lot if self._augment is None else augmented(lot, plan.augmentations, self._augment)


class People:
    """Which rows belong to which person."""

    def __init__(self, people: Tensor, rows: int) -> None:
        ids = numpy.asarray(people)
        if ids.shape != (rows,):
            raise InvalidValue(f"people must hold one number per row, shape ({rows},); got shape {ids.shape}.")
        _, person = numpy.unique(ids, return_inverse=True)
        self._order = numpy.argsort(person, kind="stable")
        self._sizes = numpy.bincount(person)
        self._starts = numpy.concatenate([[0], numpy.cumsum(self._sizes)])[:-1]

    @property
    def number(self) -> int:
        """How many people there are."""
        return len(self._sizes)

    def rows_of(self, chosen: Index) -> tuple[Index, Index]:
        """The rows of these people, and for each row the place of its person in `chosen`."""
        sizes = self._sizes[chosen]
        place = numpy.repeat(numpy.arange(len(chosen)), sizes)
        before = numpy.repeat(numpy.cumsum(sizes) - sizes, sizes)
        offset = numpy.arange(len(place)) - before
        return self._order[self._starts[chosen][place] + offset], place


class _Lists:
    """A batch sampler that is read once."""

    def __init__(self, lists: Callable[[], Iterator[list[int]]]) -> None:
        self._lists = lists

    def __iter__(self) -> Iterator[list[int]]:
        return self._lists()


def _numbers(dataset: Any) -> list[int]:
    """Return the numbers of a Subset's records in the data set below, through Subsets of Subsets."""
    own = torch.as_tensor(dataset.indices).reshape(-1).tolist()
    if not isinstance(dataset.dataset, Subset):
        return [int(number) for number in own]
    below = _numbers(dataset.dataset)
    return [below[number] for number in own]


def _digest(values: Iterable[Any]) -> str:
    """The sha256 of the tensors' bytes."""
    digest = hashlib.sha256()
    for value in values:
        digest.update(
            torch.as_tensor(value).detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        )
    return digest.hexdigest()


def _length(dataset: Dataset[Any]) -> int:
    if not isinstance(dataset, Sized) or not hasattr(dataset, "__getitem__"):
        raise InvalidValue(f"dataset must be a map-style data set with a length; got {type(dataset).__name__}.")
    if len(dataset) == 0:
        raise InvalidValue("the data set is empty.")
    return len(dataset)


def _tensors(dataset: Dataset[Any]) -> tuple[tuple[Tensor, ...], Tensor | None] | None:
    """The tensors behind a data set and the rows of them it shows (None for all), or None if it is another kind."""
    if isinstance(dataset, Subset):
        inner = _tensors(dataset.dataset)
        if inner is None or type(dataset).__getitem__ is not Subset.__getitem__:
            return None
        chosen = torch.as_tensor(dataset.indices)
        return inner[0], chosen if inner[1] is None else inner[1][chosen]
    plain = isinstance(dataset, TensorDataset) and type(dataset).__getitem__ is TensorDataset.__getitem__
    return (dataset.tensors, None) if plain else None  # type: ignore[attr-defined]


def _taken(tensors: tuple[Tensor, ...], shown: Tensor | None, rows: Index) -> tuple[Tensor, ...]:
    """Return copies of these rows, so that nothing which a model does to its batch reaches the data set."""
    index = torch.from_numpy(rows)
    index = index if shown is None else shown[index]
    return tuple(tensor.index_select(0, index.to(tensor.device)) for tensor in tensors)
