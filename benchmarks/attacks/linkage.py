"""Linkage on MovieLens: who is found from a few known ratings, in four releases.

    HUSH_DATA=... python -m benchmarks.attacks.linkage

The private release counts the ratings of each film, at most 50 of each person, with Gaussian noise. The records in it
are drawn from these counts, so nobody is in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.attacks.record import PICTURES, keep
from hush import Rng, mechanisms
from hush.attacks import NO_MATCH, Ratings, known_ratings, link_records
from hush.data import load_ratings

SEED, EPSILON, DELTA, MOST = 1, 3.0, 1e-5, 50
KNOWLEDGE = {
    "2 ratings, dates within 3 days": {"count": 2, "day_error": 3.0},
    "4 ratings, dates within 14 days": {"count": 4, "rating_error": 0.5, "day_error": 14.0},
    "8 ratings, 2 wrong, dates within 14 days": {"count": 8, "wrong": 2, "rating_error": 1.0, "day_error": 14.0},
}


def noisy_stars(ratings: Ratings, rng: Rng) -> Ratings:
    """Each rating moved by up to two stars: what people try first. It gives no guarantee worth the name."""
    moved = ratings.rating + rng.stream("stars").uniform(-2, 2, len(ratings))
    return Ratings(ratings.record, ratings.item, np.clip(moved, 0.5, 5), ratings.day)


def private_counts(ratings: Ratings, rng: Rng) -> tuple[np.ndarray, np.ndarray]:
    """The films and their noisy counts. One person changes at most 50 counts by 1: the L2 sensitivity is sqrt 50."""
    shuffled = rng.stream("contributions").permutation(len(ratings))
    order = shuffled[np.argsort(ratings.record[shuffled], kind="stable")]
    first = np.searchsorted(ratings.record[order], ratings.record[order], side="left")
    kept = order[np.arange(len(order)) - first < MOST]
    films = np.unique(ratings.item)  # the catalogue, which is public
    counts = np.bincount(np.searchsorted(films, ratings.item[kept]), minlength=len(films)).astype(float)
    noisy = mechanisms.gaussian(counts, sensitivity=float(np.sqrt(MOST)), epsilon=EPSILON, delta=DELTA, rng=rng)
    return films, np.asarray(noisy, dtype=np.float64)


def synthetic(ratings: Ratings, rng: Rng) -> tuple[Ratings, np.ndarray, np.ndarray]:
    """As many records as people, drawn from the counts that stand out of the noise: post-processing, at no cost."""
    films, noisy = private_counts(ratings, rng)
    limit = 4 * np.sqrt(MOST) * mechanisms.gaussian_noise_for(EPSILON, DELTA, 1.0)
    chance = np.where(noisy > limit, noisy, 0)
    stream = rng.stream("records")
    people, each = 610, 30
    lines = [stream.choice(len(films), each, replace=False, p=chance / chance.sum()) for _ in range(people)]
    item = films[np.concatenate(lines)]
    return Ratings(np.repeat(np.arange(people), each), item, np.full(len(item), 3.5)), films, noisy


def main() -> None:
    ratings, rng = Ratings(**load_ratings()), Rng.from_seed(SEED)
    made, films, noisy = synthetic(ratings, rng)
    releases = {
        "names removed": ratings,
        "names and dates removed": ratings.without_days(),
        "stars moved by up to 2": noisy_stars(ratings, rng),
        f"private counts, epsilon {EPSILON:g}": made,
    }
    rows: list[dict[str, Any]] = []
    for name, settings in KNOWLEDGE.items():
        known = known_ratings(ratings, rng=rng, **settings)  # type: ignore[arg-type]
        for release, records in releases.items():
            found = link_records(known, records)
            truth = np.full(len(known.records), NO_MATCH) if records is made else known.records
            rates = found.named(truth)
            rows.append({"known": name, "release": release, **{word: rate.to_dict() for word, rate in rates.items()}})
            print(name, "|", release, {word: str(rate) for word, rate in rates.items()}, flush=True)
    true_count = np.bincount(np.searchsorted(films, ratings.item), minlength=len(films))
    best = set(np.argsort(-true_count)[:50].tolist())
    shared = len(best & set(np.argsort(-noisy)[:50].tolist()))
    print("of the 50 films rated most, in the private 50:", shared)
    keep("linkage", {"rows": rows, "epsilon": EPSILON, "delta": DELTA, "top_50_kept": shared})
    draw(rows)


def draw(rows: list[dict[str, Any]]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.0), dpi=110, layout="constrained")
    axes: Any = figure.add_subplot()
    names, releases = list(KNOWLEDGE), list(dict.fromkeys(row["release"] for row in rows))
    colours = ("#cc4125", "#b45f06", "#674ea7", "#0b5394")
    for number, (release, colour) in enumerate(zip(releases, colours, strict=True)):
        values = [row["correct"] for row in rows if row["release"] == release]
        places = np.arange(len(names)) + (number - 1.5) * 0.2
        heights = [100 * value["value"] for value in values]
        ends = [[100 * (v["value"] - v["low"]) for v in values], [100 * (v["high"] - v["value"]) for v in values]]
        axes.bar(places, heights, 0.18, color=colour, label=release, yerr=ends, ecolor="#444444", capsize=2)
    axes.set_xticks(range(len(names)), [name.replace(", ", ",\n") for name in names], fontsize=8)
    axes.set(ylabel="people named rightly (%)", ylim=(0, 105))
    axes.set_title("Finding people in MovieLens without names", loc="left", fontweight="bold")
    axes.legend(fontsize=8, title="release", title_fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    figure.savefig(PICTURES / "linkage.png")


if __name__ == "__main__":
    main()
