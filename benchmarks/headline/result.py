"""One row of the table: what was done, what it cost, what came out."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from hush import accounting, events

RESULTS = Path(__file__).resolve().parents[1] / "results" / "headline"
DELTA = 1e-5
SEEDS = (0, 1, 2, 3, 4)  # fixed before any run


@dataclass(frozen=True, kw_only=True)
class Result:
    """Accuracies of one setting over seeds, with the interval that holds its epsilon."""

    row: str
    data: str
    track: str  # "none": no public data at all
    method: str
    epsilon: float
    epsilon_lower: float
    moments_epsilon: float | None  # by the moments accountant and its conversion, as papers up to 2021 have it
    replace_one_epsilon: float
    delta: float = DELTA
    relation: str = "add_remove"
    tuning: str  # "field convention", "proxy-tuned" or "paid"
    seeds: tuple[int, ...]
    accuracies: tuple[float, ...]
    twin: float | None  # the same without noise and clipping, first seed
    seconds: float  # of all seeds, from data on disk
    share: float = 1.0  # of the training rows
    published: float | None = None
    goal: float | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def mean(self) -> float:
        return statistics.fmean(self.accuracies)

    @property
    def spread(self) -> float:
        return statistics.stdev(self.accuracies) if len(self.accuracies) > 1 else 0.0

    @classmethod
    def from_dict(cls, row: dict[str, Any]) -> Result:
        kept = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
        return cls(**{key: kept[key] for key in kept if key not in ("mean", "std", "min")})

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "mean": self.mean, "std": self.spread, "min": min(self.accuracies)}


def cost(event: events.Event) -> dict[str, Any]:
    """The interval of epsilon, and the two figures beside it."""
    exact = accounting.guarantee(event, delta=DELTA)
    other = accounting.guarantee(event, delta=DELTA, relation="replace_one")
    moments = accounting.guarantee(event, delta=DELTA, method="moments")
    return {
        "epsilon": exact.epsilon,
        "epsilon_lower": exact.epsilon_lower,
        "moments_epsilon": moments.epsilon,
        "replace_one_epsilon": other.epsilon,
    }


def write(results: list[Result], *, folder: Path = RESULTS, add: bool = False) -> None:
    """One file for each row and data set. A run replaces it, or adds its seeds and rows to it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in sorted({f"{result.row}-{result.data}" for result in results}):
        path = folder / f"{name}.json"
        rows = [result for result in results if f"{result.row}-{result.data}" == name]
        if add and path.exists():
            rows = joined([Result.from_dict(row) for row in json.loads(path.read_text())], rows)
        path.write_text(json.dumps([row.to_dict() for row in rows], indent=1) + "\n")
    for result in results:
        print(
            f"{result.row:18} {result.data:14} epsilon {result.epsilon:6.3f}  "
            f"{100 * result.mean:6.2f} % +- {100 * result.spread:4.2f} (min {100 * min(result.accuracies):6.2f})  "
            f"{result.method}; twin {'-' if result.twin is None else f'{100 * result.twin:.2f} %'}",
            flush=True,
        )


def joined(old: list[Result], new: list[Result]) -> list[Result]:
    """The seeds of both, where everything but the seeds is the same, or else an error; other rows as they are."""
    found = {(row.published, row.goal): row for row in old}
    for row in new:
        key = row.published, row.goal
        found[key] = _together(found[key], row) if key in found else row
    return sorted(found.values(), key=lambda row: row.epsilon)


def _together(one: Result, other: Result) -> Result:
    if (one.method, one.share, one.notes) != (other.method, other.share, other.notes) or (
        abs(one.epsilon - other.epsilon) > 1e-6
    ):
        raise SystemExit(f"{one.row} on {one.data} was run with other settings; run all of its seeds again.")
    both = dict(zip((*one.seeds, *other.seeds), (*one.accuracies, *other.accuracies), strict=True))
    seeds = tuple(sorted(both))
    scores = tuple(both[seed] for seed in seeds)
    seconds = one.seconds + other.seconds
    twin = other.twin if one.twin is None else one.twin
    return replace(one, seeds=seeds, accuracies=scores, seconds=seconds, twin=twin)
