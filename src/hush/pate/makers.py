"""What a teacher may be: a torch module, an estimator with fit and predict, or a function that returns a predictor.

A maker trains a block of teachers and gives back their predictors. What goes wrong in one teacher is caught there and
kept as the name of the error, without its text: a message may quote rows.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hush.errors import InvalidValue
from hush.pate.batched import Rows, Stack, State, can_stack, predict, train_block
from hush.pate.recipe import Recipe

Labels = NDArray[numpy.int64]
Tick = Callable[[float], object]
NO_ROWS = "no rows"


class Block(Protocol):
    """Trained teachers of one block."""

    failures: dict[int, str]  # place in the block -> what went wrong

    def predict(self, X: Any) -> list[Labels | None]:
        """The labels that each teacher names; None where it failed."""


@dataclass(eq=False)
class StackBlock:
    """Torch teachers whose weights are stacked; `places` are the block's places that have a teacher."""

    stack: Stack
    places: list[int]
    size: int
    failures: dict[int, str]

    def predict(self, X: Any) -> list[Labels | None]:
        """All teachers at once."""
        labels: list[Labels | None] = [None] * self.size
        for place, found in zip(self.places, predict(self.stack, as_tensor(X)), strict=True):
            labels[place] = None if place in self.failures else found
        return labels


@dataclass(eq=False)
class ListBlock:
    """Teachers of any kind, one after the other."""

    predictors: list[Any]
    num_classes: int | None
    failures: dict[int, str]

    def predict(self, X: Any) -> list[Labels | None]:
        """Each teacher in turn; one that fails now is a failure from now on."""
        labels: list[Labels | None] = []
        for place, predictor in enumerate(self.predictors):
            try:
                labels.append(None if place in self.failures else _labels(predictor, X, self.num_classes))
            except Exception as error:
                self.failures[place] = type(error).__name__
                labels.append(None)
        return labels


@dataclass(frozen=True)
class Modules:
    """Torch modules of one architecture."""

    make: Callable[[], nn.Module]
    recipe: Recipe
    kind = "module"

    def for_tasks(self) -> Modules:
        """What training needs: not the function that makes modules, which may hold what no other machine can take."""
        return replace(self, make=_made_already)

    def start(self, rows: Rows) -> list[nn.Module]:
        """New modules for the shards that have rows, with their first weights."""
        return [self.make() for shard in rows if len(shard)]

    def train(
        self, X: Any, y: Labels, rows: Rows, modules: list[nn.Module], stream: torch.Generator, tick: Tick
    ) -> Block:
        """Together if the architecture allows it, else one by one; both by the same code."""
        x, targets = as_tensor(X), torch.from_numpy(y)
        places = [place for place, shard in enumerate(rows) if len(shard)]
        failures = {place: NO_ROWS for place, shard in enumerate(rows) if not len(shard)}
        shards = [rows[place] for place in places]
        if not places:
            return ListBlock([None] * len(rows), None, failures)
        if not can_stack(modules[0]):
            return self._one_by_one(modules, x, targets, rows, stream, tick)
        stack = train_block(modules, x, targets, shards, self.recipe, stream, tick)
        broken = [place for place, fine in zip(places, _finite(stack), strict=True) if not fine]
        return StackBlock(stack, places, len(rows), failures | dict.fromkeys(broken, "not finite"))

    def load(self, state: State, places: list[int], size: int, failures: dict[int, str]) -> Block:
        """Teachers whose weights were kept."""
        return StackBlock(Stack.of([self.make()]).load(state), places, size, failures)

    def _one_by_one(
        self, modules: list[nn.Module], x: Tensor, y: Tensor, rows: Rows, stream: torch.Generator, tick: Tick
    ) -> Block:
        from hush.pate.single import train_module

        found, left = [], iter(modules)
        for place, shard in enumerate(rows):
            fit = partial(_fit_module, train_module, left, self.recipe, stream)
            found.append(_attempt(fit, x[shard], y.numpy()[shard]))
            tick((place + 1) / len(rows))
        return _listed(found, None)


def _made_already() -> nn.Module:
    raise InvalidValue("modules are made where the teachers are asked for.")


def _fit_module(
    train_module: Any, modules: Iterator[nn.Module], recipe: Recipe, stream: torch.Generator, x: Tensor, y: Labels
) -> nn.Module:
    trained: nn.Module = train_module(next(modules), x, torch.from_numpy(y), recipe, stream)
    return trained


@dataclass(frozen=True)
class Trained:
    """Estimators, or whatever a function of (X, y) returns; in several processes if asked to."""

    train_one: Callable[[Any, Labels], Any]
    num_classes: int | None
    workers: int = 1
    kind = "predictor"

    def for_tasks(self) -> Trained:
        """What training needs."""
        return self

    def start(self, rows: Rows) -> list[nn.Module]:
        """Nothing: each teacher is made when it is trained."""
        return []

    def train(
        self, X: Any, y: Labels, rows: Rows, modules: list[nn.Module], stream: torch.Generator, tick: Tick
    ) -> Block:
        """One after the other, or spread over processes by joblib."""
        if self.workers == 1:
            found = []
            for place, shard in enumerate(rows):
                found.append(_attempt(self.train_one, X[shard], y[shard]))
                tick((place + 1) / len(rows))
        else:
            from joblib import Parallel, delayed  # type: ignore[import-untyped]

            jobs = (delayed(_attempt)(self.train_one, X[shard], y[shard]) for shard in rows)
            found = Parallel(n_jobs=self.workers)(jobs)
        return _listed(found, self.num_classes)


def _listed(found: list[tuple[Any, str | None]], num_classes: int | None) -> ListBlock:
    failures = {place: wrong for place, (_, wrong) in enumerate(found) if wrong is not None}
    return ListBlock([predictor for predictor, _ in found], num_classes, failures)


def maker_of(make_teacher: Any, recipe: Recipe, num_classes: int | None, workers: int) -> Modules | Trained:
    """How these teachers are made, from what the user gave."""
    if isinstance(make_teacher, nn.Module):
        return Modules(lambda: copy.deepcopy(make_teacher), recipe)
    if _is_estimator(make_teacher) and not isinstance(make_teacher, type):
        return Trained(_Fit(lambda: _clone(make_teacher)), num_classes, workers)
    if not callable(make_teacher):
        raise InvalidValue(
            "make_teacher must return a torch module or an estimator with fit and predict, or be a function of "
            f"(X, y) that returns a predictor; got {type(make_teacher).__name__}."
        )
    if not _takes_nothing(make_teacher):
        return Trained(make_teacher, num_classes, workers)
    first = make_teacher()
    if isinstance(first, nn.Module):
        return Modules(make_teacher, recipe)
    if _is_estimator(first):
        return Trained(_Fit(make_teacher), num_classes, workers)
    raise InvalidValue(f"make_teacher() must return a torch module or an estimator; got {type(first).__name__}.")


@dataclass(frozen=True)
class _Fit:
    """Make an estimator and fit it; estimators take tables, so pictures are flattened."""

    make: Callable[[], Any]

    def __call__(self, X: Any, y: Labels) -> Any:
        estimator = self.make()
        estimator.fit(as_table(X), y)
        return estimator


def _attempt(train_one: Callable[[Any, Labels], Any], X: Any, y: Labels) -> tuple[Any, str | None]:
    if not len(y):
        return None, NO_ROWS
    try:
        return train_one(X, y), None
    except Exception as error:
        return None, type(error).__name__


def _labels(predictor: Any, X: Any, num_classes: int | None) -> Labels:
    """What a predictor says, as whole numbers of the known classes."""
    if isinstance(predictor, nn.Module):
        from hush.pate.single import classes

        return classes(predictor, as_tensor(X))
    found = predictor.predict(as_table(X)) if hasattr(predictor, "predict") else predictor(X)
    labels = numpy.asarray(found.detach().cpu() if isinstance(found, Tensor) else found)
    if labels.shape != (len(X),) or not numpy.array_equal(labels, whole := labels.astype(numpy.int64)):
        raise InvalidValue("a predictor must return one whole number for each row.")
    if len(whole) and (whole.min() < 0 or (num_classes is not None and whole.max() >= num_classes)):
        raise InvalidValue("a predictor must return classes 0 .. num_classes - 1.")
    return whole


def _finite(stack: Stack) -> list[bool]:
    """Whether all weights of each teacher are numbers."""
    fine = torch.stack([value.isfinite().flatten(1).all(dim=1) for value in stack.parameters.values()])
    return [bool(each) for each in fine.all(dim=0)]


def _is_estimator(thing: Any) -> bool:
    return hasattr(thing, "fit") and hasattr(thing, "predict")


def _clone(estimator: Any) -> Any:
    from sklearn.base import clone

    return clone(estimator)


def _takes_nothing(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind()
    except TypeError:
        return False
    except ValueError:  # a built-in without a signature
        return True
    return True


def as_tensor(X: Any) -> Tensor:
    """Rows for a torch module: single-precision numbers."""
    return (X if isinstance(X, Tensor) else torch.from_numpy(numpy.asarray(X))).to(torch.float32)


def as_table(X: Any) -> NDArray[Any]:
    """Rows for an estimator: (rows, columns)."""
    array = X.detach().cpu().numpy() if isinstance(X, Tensor) else numpy.asarray(X)
    return array.reshape(len(array), -1) if array.ndim > 2 else array
