"""Teachers: models trained on disjoint shards of the private rows, whose votes label public ones.

    >>> import numpy
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> X = numpy.repeat(numpy.eye(3), 100, axis=0)
    >>> y = numpy.repeat([0, 1, 2], 100)
    >>> teachers = train_teachers(DecisionTreeClassifier, X, y, num_teachers=10, progress=False)
    >>> teachers.votes(numpy.eye(3))
    VoteCounts(num_queries=3, num_classes=3, num_teachers=10)

The teachers and their votes are private. What may leave is a label that `GNMax` or another noisy vote makes of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from hush import _check
from hush.engines import Engine, Local, engine_of
from hush.errors import InvalidValue
from hush.pate.blocks import Kept, Training
from hush.pate.makers import Labels, Modules, Trained, maker_of
from hush.pate.recipe import Recipe
from hush.pate.shards import deal, new_key
from hush.pate.shelf import Shelf, digest
from hush.pate.votes import VoteCounts
from hush.privacy import Relation
from hush.rng import Rng

TEACHERS_AT_ONCE = 125
_TASKS = 32  # of teachers that are trained one by one on many machines


@dataclass(eq=False)
class Teachers:
    """Trained teachers. Private, and so are `failures` and what `predict` returns.

    A teacher that failed still votes, for class `teacher % num_classes` whatever the query: were it left out, the
    number of votes would tell that something is odd about one shard, and nobody pays for that. `failures` names the
    error of each; train again with the same folder, after deleting the block's file, to try once more.
    """

    num_teachers: int
    num_classes: int
    relation: Relation
    failures: dict[int, str] = field(default_factory=dict, repr=False)
    _blocks: list[Kept] = field(default_factory=list, repr=False)
    _has_queries: bool = field(default=False, repr=False)

    def predict(self, X: Any = None) -> Labels:
        """The label that each teacher names for each row, (teachers, rows). Private.

        Without `X`: for the `queries` that were given when the teachers were trained.
        """
        return numpy.concatenate([self._labels(block, X) for block in self._blocks])

    def votes(self, X: Any = None) -> VoteCounts:
        """The counts of the votes for each row, block by block: never all labels of all teachers in memory."""
        counts: NDArray[numpy.int64] | None = None
        for block in self._blocks:
            labels = self._labels(block, X)
            part = VoteCounts.from_labels(labels, self.num_classes).counts
            counts = part.copy() if counts is None else counts + part
        assert counts is not None
        return VoteCounts(counts, self.num_teachers)

    def _labels(self, block: Kept, X: Any) -> Labels:
        if (X is None) != self._has_queries:
            raise InvalidValue(
                "these teachers were trained for their queries and are gone: call votes() without rows."
                if self._has_queries
                else "name the public rows to vote on: votes(X)."
            )
        found, failures = block.labels(X, self.num_classes)
        self.failures.update(failures)
        return found


def train_teachers(
    make_teacher: Any,
    X: Any,
    y: ArrayLike | Tensor,
    num_teachers: int,
    groups: ArrayLike | None = None,
    engine: str | Engine = "local",
    *,
    num_classes: int | None = None,
    relation: Relation = "add_remove",
    recipe: Recipe | None = None,
    queries: Any = None,
    folder: str | Path | None = None,
    teachers_at_once: int | None = None,
    workers: int = 1,
    progress: bool = True,
    rng: Rng | None = None,
) -> Teachers:
    """Train a teacher on each of `num_teachers` disjoint shards.

    Args:
        make_teacher: Returns a new torch module (the outputs are a score for each class) or a new estimator with `fit`
            and `predict`; or a function of (X, y) that trains and returns a predictor. Equal torch modules are trained
            together.
        X: Private rows, an array or a tensor. Bring them to a common scale by public constants, never by their own.
        y: Their classes, whole numbers from 0.
        num_teachers: Each vote counts 1, so more teachers bear more noise; each then sees fewer rows.
        groups: For each row, whose it is; all rows of a person go to one teacher. Without it each row is a person.
        engine: "local", this process; "ray" or `hush.engines.Ray(address=...)`: blocks in parallel on the cores or
            machines of a Ray cluster, the same teachers bit by bit if these use as many threads.
        num_classes: How many classes there are, a public number. By default the width of a module's output, or one
            more than the largest label: give it where that is not public.
        relation: Which neighbours the cost is meant for; it decides how shards are dealt, see `hush.pate.shards`.
        recipe: How torch modules learn.
        queries: Public rows to vote on. The teachers then vote on them when they are trained, and are thrown away; this
            is how thousands of teachers fit into memory.
        folder: Kept there block by block, to go on after an interruption. Private. Teachers other than torch modules
            need `queries` for this, because nothing is pickled.
        teachers_at_once: The size of a block, which is one task of an engine: at most 125 by default, and fewer on Ray
            for teachers that are not torch modules.
        workers: Processes, for teachers that are not torch modules.
        progress: A bar, if there is a terminal.
        rng: A seeded source, for tests only. The first weights are the module's own and come from torch.

    Raises:
        ResumeRefused: The folder holds teachers of other data or settings.
    """
    runner = engine_of(engine)
    labels, num_teachers = _checked_labels(X, y, num_classes), _check.whole("num_teachers", num_teachers)
    maker = maker_of(make_teacher, recipe or Recipe(), num_classes, _check.whole("workers", workers))
    classes = _num_classes(maker, X, labels, num_classes)
    if teachers_at_once is None:
        one_by_one = isinstance(maker, Trained) and not isinstance(runner, Local)
        teachers_at_once = math.ceil(num_teachers / _TASKS) if one_by_one else TEACHERS_AT_ONCE
    size = min(_check.whole("teachers_at_once", teachers_at_once), num_teachers)
    key, shelf = new_key(rng), None
    if folder is not None:
        if isinstance(maker, Trained) and queries is None:
            raise InvalidValue("only torch modules are kept in a folder; give queries=, and their votes are kept.")
        settings = _identity(maker, num_teachers, relation, size, classes)
        data = {"X": digest(X), "y": digest(labels), "groups": digest(groups), "queries": digest(queries)}
        shelf = Shelf(Path(folder), {**settings, **data}, key)
        key = shelf.key
    shards = deal(len(labels), num_teachers=num_teachers, key=key, groups=groups, relation=relation)
    teachers = Teachers(num_teachers, classes, relation, _has_queries=queries is not None)
    if isinstance(maker, Trained):
        X = X if isinstance(X, numpy.ndarray | Tensor) else numpy.asarray(X)
    training = Training(
        maker,
        shards.all_rows(),
        size=size,
        num_classes=classes,
        shelf=shelf,
        rng=rng or Rng(),
        has_queries=queries is not None,
    )
    training.run(runner, (X, labels, queries), progress=progress)
    teachers._blocks.extend(training.blocks)
    teachers.failures.update(training.failures())
    return teachers


def _checked_labels(X: Any, y: ArrayLike | Tensor, num_classes: int | None) -> Labels:
    labels = numpy.asarray(y.detach().cpu() if isinstance(y, Tensor) else y)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise InvalidValue(f"y must be a list of whole numbers, a class for each row; got {labels.dtype} values.")
    if len(labels) != len(X):
        raise InvalidValue(f"X and y must have as many rows as each other; got {len(X)} and {len(labels)}.")
    if not len(labels):
        raise InvalidValue("there are no rows to train teachers on.")
    if labels.min() < 0 or (num_classes is not None and labels.max() >= num_classes):
        raise InvalidValue("y must hold classes 0 .. num_classes - 1.")
    return labels.astype(numpy.int64)


def _num_classes(maker: Modules | Trained, X: Any, y: Labels, num_classes: int | None) -> int:
    if num_classes is not None:
        return _check.whole("num_classes", num_classes, least=2)
    if isinstance(maker, Modules):
        from hush.pate.makers import as_tensor

        module = maker.make().eval()
        with torch.no_grad():
            width = module(torch.zeros_like(as_tensor(X[:1]))).shape
        if len(width) != 2 or width[1] <= int(y.max()):
            raise InvalidValue("a module must return (rows, classes), with a score for each class of y.")
        return int(width[1])
    return max(2, int(y.max()) + 1)


def _identity(
    maker: Modules | Trained, num_teachers: int, relation: Relation, size: int, num_classes: int
) -> dict[str, Any]:
    """What makes teachers these teachers, but for the data."""
    settings: dict[str, Any] = {
        "num_teachers": num_teachers,
        "relation": relation,
        "teachers_at_once": size,
        "num_classes": num_classes,
        "kind": maker.kind,
    }
    if isinstance(maker, Modules):
        module = maker.make()
        settings |= {"recipe": maker.recipe.identity(), "architecture": repr(module)}
        settings["weights"] = sum(math.prod(value.shape) for value in module.parameters())
    return settings
