"""Pictures of a run of `hush pate`. Those that show private votes say so in large letters, and are drawn on request."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from hush.errors import MissingExtra

if TYPE_CHECKING:
    from hush.cli.pate_job import Outcome, Parts
    from hush.cli.pate_vote import Wishes

_WARNING = "NOT PRIVATE: computed from the teachers' votes. Do not publish."
_RED = "#b00020"
_MOST_ROWS = 1_000


def draw_cost(outcome: Outcome, wishes: Wishes, path: Path) -> Path:
    """Epsilon against the number of queries, if all are answered: public, it needs no votes."""
    from hush import accounting

    settled = outcome.settled
    counts = numpy.unique(numpy.geomspace(1, max(2, settled.queries), 20).astype(int))
    prices = settled.aggregator.prices
    spent = [
        accounting.guarantee(prices.of(int(count), int(count)), delta=settled.vote_budget.delta).epsilon
        for count in counts
    ]
    figure, axes = _figure("What the queries cost, whatever the votes")
    axes.plot(counts, spent, marker="o", markersize=3)
    axes.axhline(settled.vote_budget.epsilon, linestyle="--", color="grey", label="budget")
    axes.set(xlabel="queries answered", ylabel=f"epsilon at delta {settled.vote_budget.delta:g}", ylim=(0, None))
    axes.legend(frameon=False)
    return _saved(figure, path)


def draw_votes(outcome: Outcome, path: Path) -> Path:
    """How many votes the first class got on the queries. Private."""
    assert outcome.votes is not None
    figure, axes = _figure("How much the teachers agree", private=True)
    axes.hist(outcome.votes.counts.max(axis=1), bins=40)
    axes.set(xlabel="votes for the most voted class", ylabel="queries", xlim=(0, outcome.votes.num_teachers))
    return _saved(figure, path)


def draw_accuracy(parts: Parts, wishes: Wishes, path: Path) -> Path:
    """Accuracy of the noisy vote against its noise, for several numbers of teachers. Private."""
    from hush.cli import pate_job, pate_models
    from hush.pate.calibrate import chance_of_label
    from hush.rng import Rng

    rng = Rng() if wishes.seed is None else Rng.from_seed(wishes.seed)
    look = pate_models.look(wishes.teacher, parts.dataset)
    rows, queries = look(parts.dataset.train.tensors[0]), look(parts.test[:_MOST_ROWS])
    truth = parts.test_labels[:_MOST_ROWS].numpy()
    figure, axes = _figure("The noisy vote: accuracy by noise and number of teachers", private=True)
    noises = numpy.geomspace(1, 200, 25)
    for number in sorted({max(2, wishes.teachers // part) for part in (25, 10, 5, 2, 1)}):
        votes = pate_job.trained(parts, wishes, number, rows, rng, None, queries=queries).votes()
        right = [float(chance_of_label(votes, truth, float(noise)).mean()) for noise in noises]
        axes.plot(noises, right, label=f"{number} teachers")
    axes.set(xlabel="standard deviation of the noise on each count", ylabel="accuracy", xscale="log", ylim=(0, 1))
    axes.legend(frameon=False)
    return _saved(figure, path)


def _figure(title: str, *, private: bool = False) -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra('plots need matplotlib: pip install "hush[report]".') from None
    figure = Figure(figsize=(7, 4.2), dpi=100, layout="constrained")
    axes = figure.subplots()
    axes.set_title(title)
    axes.spines[["top", "right"]].set_visible(False)
    if private:
        figure.suptitle(_WARNING, color=_RED, fontweight="bold", fontsize=11)
    return figure, axes


def _saved(figure: Any, path: Path) -> Path:
    figure.savefig(path)
    return path
