"""Blocks of teachers on any engine: what a task is given, what it does, and what is kept of its result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import nn

from hush.engines import Engine, Local
from hush.errors import InvalidValue
from hush.pate.batched import Rows
from hush.pate.makers import Block, Labels, Modules, StackBlock, Tick, Trained
from hush.pate.shelf import Shelf, labels_tensor
from hush.pate.watching import Bar
from hush.rng import Rng, same_draws

LABELS = "labels"
_MOST_SEEDS = 2**62


@dataclass(eq=False)
class Kept:
    """A block in memory, on a shelf, or only its labels of the queries."""

    first: int
    size: int
    maker: Modules | Trained
    block: Block | None = None
    answers: NDArray[numpy.integer[Any]] | None = None  # in few bytes
    shelf: Shelf | None = None
    number: int = 0
    failures: dict[int, str] = field(default_factory=dict)  # by the number of the teacher

    def labels(self, X: Any, num_classes: int) -> tuple[Labels, dict[int, str]]:
        """The votes of this block's teachers, and who failed, by the number of the teacher."""
        if self.answers is not None:
            return self.answers.astype(numpy.int64), {}
        block = self.block if self.block is not None else self._from_shelf()
        return _votes(block, X, self.first, num_classes), _numbered(block, self.first)

    def _from_shelf(self) -> Block:
        assert self.shelf is not None
        assert isinstance(self.maker, Modules)
        content = self.shelf.read(self.number)
        if content is None:
            raise InvalidValue(f"the teachers of block {self.number} are gone from their folder; train them again.")
        state, failures = content
        places = state.pop("places").tolist()
        return self.maker.load(state, places, self.size, failures)


def _votes(block: Block, X: Any, first: int, num_classes: int) -> Labels:
    """A vote of each teacher for each row; one that failed votes for a class of its own number."""
    rows = [
        numpy.full(len(X), (first + place) % num_classes) if found is None else found
        for place, found in enumerate(block.predict(X))
    ]
    return numpy.stack(rows).astype(numpy.int64)


def _numbered(block: Block, first: int) -> dict[int, str]:
    return {first + place: wrong for place, wrong in block.failures.items()}


@dataclass(frozen=True, eq=False)
class Task:
    """A block to train. Everything random in it is fixed: trained again, or elsewhere, it gives the same teachers."""

    number: int
    first: int
    rows: Rows
    maker: Modules | Trained
    modules: list[nn.Module]
    num_classes: int
    orders: int  # seed of the order of rows
    draws: int  # seed of what modules draw while they learn, such as dropout

    def train(self, X: Any, y: Labels, tick: Tick) -> Block:
        """The teachers of this block."""
        stream = torch.Generator().manual_seed(self.orders)
        with same_draws(self.draws):
            return self.maker.train(X, y, self.rows, self.modules, stream, tick)


def train_task(
    task: Task, X: Any, y: Labels, queries: Any, tick: Tick = lambda share: None
) -> tuple[Block | None, Any]:
    """What an engine calls: the teachers, or with queries only their votes and who failed."""
    block = task.train(X, y, tick)
    if queries is None:
        return block, None
    votes = _votes(block, queries, task.first, task.num_classes)
    return None, (labels_tensor(votes), block.failures)


class Training:
    """The blocks of one call of `train_teachers`: which are there, which are to be trained, and where they go."""

    def __init__(
        self,
        maker: Modules | Trained,
        rows: list[NDArray[numpy.int64]],
        *,
        size: int,
        num_classes: int,
        shelf: Shelf | None,
        rng: Rng,
        has_queries: bool,
    ) -> None:
        self._maker = maker
        self._rows = rows
        self._num_classes = num_classes
        self._rng = rng
        self._has_queries = has_queries
        starts = enumerate(range(0, len(rows), size))
        self._size = size
        self.blocks = [
            Kept(first, min(size, len(rows) - first), maker, shelf=shelf, number=number) for number, first in starts
        ]
        self._missing = [kept for kept in self.blocks if not self._is_there(kept)]

    def _is_there(self, kept: Kept) -> bool:
        """Take a block from the shelf, if an earlier run left it there."""
        content = None if kept.shelf is None else kept.shelf.read(kept.number)
        if content is None:
            return False
        kept.failures = {kept.first + place: wrong for place, wrong in content[1].items()}
        if self._has_queries:
            kept.answers = content[0][LABELS].numpy()
        return True

    def run(self, engine: Engine, shared: tuple[Any, Labels, Any], *, progress: bool) -> None:
        """Train what is missing; each block is kept as soon as it is there."""
        with Bar("teachers", total=len(self._rows), shown=progress) as bar:
            ready = len(self._rows) - sum(kept.size for kept in self._missing)
            bar.at(ready)

            def done(index: int, result: Any) -> None:
                nonlocal ready
                kept = self._missing[index]
                _keep(kept, *result)
                ready += kept.size
                bar.at(ready)

            def here(task: Task, X: Any, y: Labels, queries: Any) -> Any:  # the bar moves within a block too
                return train_task(task, X, y, queries, bar.part(task.first, len(task.rows)))

            task = here if isinstance(engine, Local) else train_task
            engine.run(task, self._tasks(), shared=shared, done=done)

    def _tasks(self) -> Iterator[Task]:
        """Made one by one as an engine asks for them: the first weights of few blocks are in memory."""
        for kept in self._missing:
            shard = self._rows[kept.first : kept.first + kept.size]
            orders = self._rng.torch_stream(f"teachers {kept.number}").initial_seed()
            draws = int(self._rng.stream(f"draws of teachers {kept.number}").integers(_MOST_SEEDS))
            modules = self._maker.start(shard)
            maker = self._maker.for_tasks()
            yield Task(kept.number, kept.first, shard, maker, modules, self._num_classes, orders, draws)

    def failures(self) -> Iterable[tuple[int, str]]:
        """Who failed, and how."""
        return (pair for kept in self.blocks for pair in kept.failures.items())


def _keep(kept: Kept, block: Block | None, answers: Any) -> None:
    """Write the block if there is a shelf, and hold on to what will be asked for."""
    if block is None:
        votes, failures = answers
        tensors = {LABELS: votes}
        kept.answers = votes.numpy()
    else:
        failures, tensors = block.failures, {}
        if kept.shelf is None:
            kept.block = block
        elif not isinstance(block, StackBlock):
            raise InvalidValue("these modules cannot be stacked, so they are not kept in a folder; give queries=.")
        else:
            tensors = {**block.stack.state, "places": torch.tensor(block.places)}
    if kept.shelf is not None:
        kept.shelf.write(kept.number, tensors, failures)
    kept.failures = {kept.first + place: wrong for place, wrong in failures.items()}
