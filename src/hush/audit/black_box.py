"""The black-box audit: canaries in the data, a trained model out, and how well its scores tell which were in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from hush import _check
from hush.audit.counts import significance_of
from hush.audit.data_canaries import CanaryKind, Split, split
from hush.audit.one_run import one_run_bound
from hush.audit.one_run_fdp import one_run_fdp_bound
from hush.audit.rates import clopper_pearson_bound, gdp_bound
from hush.errors import InvalidValue
from hush.privacy import Evidence
from hush.rng import Rng

Method = Literal["one_run", "one_run_fdp", "clopper_pearson", "gdp"]
METHODS = ("one_run", "one_run_fdp", "clopper_pearson", "gdp")
Score = Callable[[Dataset[Any]], Any]
TrainFunction = Callable[[Dataset[Any]], nn.Module | Score]
_GAUSSIAN_NOTE = "a bound for trainings whose trade-off curve is Gaussian"


def audit(
    train_fn: TrainFunction,
    dataset: Dataset[Any],
    *,
    delta: float,
    canaries: CanaryKind | Dataset[Any] = "mislabelled",
    method: Method = "one_run",
    num_canaries: int | None = None,
    num_guesses: int | None = None,
    num_runs: int = 200,
    num_classes: int | None = None,
    significance: float = 0.05,
    rng: Rng | None = None,
) -> Evidence:
    """Put canaries into the data by fair coins, train, and bound epsilon by how well the model gives them away.

    The result is a measurement on these data and is not private itself. Guess counts and thresholds are fixed before
    the scores are looked at: by `num_guesses` in one run, by a first half of the runs in many.

    Args:
        train_fn: Trains on a data set and returns a model (an `nn.Module` whose outputs are class scores), or a
            function that gives each item of a data set a score, larger where it looks like a member.
        dataset: What to train on. For canaries made here, a `TensorDataset` of inputs and labels.
        delta: The delta of the evidence.
        canaries: "mislabelled" (rows of the data, taken out and given a wrong label), "blank" (empty but for one
            feature, with a random label), or a data set of your own.
        method: "one_run" [Steinke, Nasr, Jagielski 2023], "one_run_fdp" (more, for Gaussian curves), or many runs with
            one canary: "clopper_pearson", "gdp" (more, for Gaussian curves).
        num_canaries: Coins to toss in one run; a quarter of the rows and 1,000 at most if None.
        num_guesses: How many of them to guess, half as in and half as out; half of the canaries if None.
        num_runs: Trainings of "clopper_pearson" and "gdp".
        num_classes: Number of classes; one more than the largest label if None.
        significance: The chance that the evidence is above the truth.
        rng: Where coins and canaries come from; fresh entropy if None.
    """
    _check.one_of("method", method, METHODS)
    level, delta = significance_of(significance), _check.delta(delta)
    stream = _stream(rng)
    if method in ("clopper_pearson", "gdp"):
        parts = split(dataset, canaries, 1, num_classes, stream)
        counts = _many_runs(train_fn, parts, _check.whole("num_runs", num_runs, least=8), stream)
        return counts.evidence(method, delta, level)
    parts = split(dataset, canaries, num_canaries, num_classes, stream)
    number = len(parts.canaries)  # type: ignore[arg-type]
    guesses = _check.whole("num_guesses", max(1, number // 2) if num_guesses is None else num_guesses)
    if guesses > number:
        raise InvalidValue(f"num_guesses must be at most the number of canaries, {number}; got {guesses}.")
    coins = stream.integers(0, 2, number).astype(bool)
    scores = scores_of(train_fn(_with(parts, coins)), parts.canaries)
    right = correct_guesses(scores, coins, guesses)
    bound = one_run_bound if method == "one_run" else one_run_fdp_bound
    notes = (f"{number:,} canaries, {guesses:,} guesses, {right:,} right",)
    return Evidence(
        epsilon_at_least=bound(number, guesses, right, delta, level),
        delta=delta,
        significance=level,
        method=method,
        notes=notes if method == "one_run" else (*notes, _GAUSSIAN_NOTE),
    )


def correct_guesses(scores: NDArray[numpy.float64], coins: NDArray[numpy.bool_], num_guesses: int) -> int:
    """How many are right if the largest scores are called in and the smallest out, half of the guesses each.

    >>> correct_guesses(numpy.array([3.0, 1.0, 2.0, 0.0]), numpy.array([True, True, False, False]), 2)
    2
    """
    order = numpy.argsort(scores, kind="stable")
    low = num_guesses // 2
    return int((~coins[order[:low]]).sum() + coins[order[len(order) - (num_guesses - low) :]].sum())


@torch.no_grad()
def scores_of(trained: nn.Module | Score, canaries: Dataset[Any]) -> NDArray[numpy.float64]:
    """One score per canary: of a model, minus the cross-entropy of its label."""
    if isinstance(trained, nn.Module):
        if not isinstance(canaries, TensorDataset) or len(canaries.tensors) != 2:
            raise InvalidValue(
                "a model can score a TensorDataset of inputs and labels; return a score function instead."
            )
        was_training = trained.training
        trained.eval()
        inputs, labels = canaries.tensors
        found: Any = -functional.cross_entropy(trained(inputs).double(), labels, reduction="none")
        trained.train(was_training)
    elif callable(trained):
        found = trained(canaries)
    else:
        raise InvalidValue(f"train_fn must return a model or a score function; got {type(trained).__name__}.")
    scores = numpy.asarray(found.detach().cpu() if isinstance(found, Tensor) else found, dtype=numpy.float64).ravel()
    if scores.shape != (len(canaries),) or numpy.isnan(scores).any():  # type: ignore[arg-type]
        raise InvalidValue(f"a score function must give one number per canary, never NaN; got {scores.shape} scores.")
    return scores


@dataclass(frozen=True)
class _Counts:
    """Right and wrong calls in the second half of the runs."""

    true_positives: int
    positives: int
    false_positives: int
    negatives: int

    def evidence(self, method: str, delta: float, significance: float) -> Evidence:
        called = self.true_positives, self.positives, self.false_positives, self.negatives
        mirrored = (
            self.negatives - self.false_positives,
            self.negatives,
            self.positives - self.true_positives,
            self.positives,
        )  # the other direction uses the same two ends, so it costs no further significance
        if method == "gdp":
            epsilon = gdp_bound(*called, delta=delta, significance=significance)
        else:
            epsilon = max(
                clopper_pearson_bound(*counts, delta=delta, significance=significance) for counts in (called, mirrored)
            )
        note = f"{called[0]} of {called[1]} runs with the canary told, {called[2]} of {called[3]} without it mistaken"
        return Evidence(
            epsilon_at_least=epsilon,
            delta=delta,
            significance=significance,
            method=method,
            notes=(note, _GAUSSIAN_NOTE) if method == "gdp" else (note,),
        )


def _many_runs(train_fn: TrainFunction, parts: Split, num_runs: int, stream: numpy.random.Generator) -> _Counts:
    coins = stream.integers(0, 2, num_runs).astype(bool)
    scores = numpy.array([scores_of(train_fn(_with(parts, numpy.array([coin]))), parts.canaries)[0] for coin in coins])
    first, coin_first = scores[: num_runs // 2], coins[: num_runs // 2]
    threshold = float(numpy.median(first))
    if coin_first.any() and not coin_first.all():
        threshold = float(numpy.median(first[coin_first]) + numpy.median(first[~coin_first])) / 2
    called, truth = scores[num_runs // 2 :] > threshold, coins[num_runs // 2 :]
    return _Counts(int((called & truth).sum()), int(truth.sum()), int((called & ~truth).sum()), int((~truth).sum()))


def _with(parts: Split, coins: NDArray[numpy.bool_]) -> Dataset[Any]:
    """The data with those canaries whose coin is heads."""
    chosen = numpy.flatnonzero(coins)
    rest, canaries = parts.rest, parts.canaries
    if isinstance(rest, TensorDataset) and isinstance(canaries, TensorDataset):
        index = torch.from_numpy(chosen)
        return TensorDataset(
            *(torch.cat([left, right[index]]) for left, right in zip(rest.tensors, canaries.tensors, strict=True))
        )
    return ConcatDataset([rest, Subset(canaries, chosen.tolist())])


def _stream(rng: Rng | None) -> numpy.random.Generator:
    rng = rng or Rng.from_entropy()
    return rng.stream(rng.unused("audit"))
