"""The table, or rows of it.

    python -m benchmarks.headline.run                              # every row and figure; hours
    python -m benchmarks.headline.run --row 4 --data mnist         # patches on MNIST
    python -m benchmarks.headline.run --row 6 --seeds 1 --share 0.02 --out few
    python -m benchmarks.headline.run --row 4 --data mnist --only-seeds 3 4 --add
    python -m benchmarks.headline.run --row 1 --epsilon 8 --add    # one of the networks that share a file
    python -m benchmarks.headline.run --row 7                      # the figures of row 7; 1-figures for those of row 1

Writes benchmarks/results/headline/*.json; `python -m benchmarks.headline.table` makes docs/guides/results.md of them.
Wall-clock is measured by `benchmarks.headline.clock`, on a machine with nothing else to do.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.headline import abadi_figures, heads, networks, regressions, teachers, words_and_tables
from benchmarks.headline.result import RESULTS, SEEDS, Result, write
from hush.cli.feature_recipes import recipe

FIGURES = {"1-figures": abadi_figures.main, "7-regressions": regressions.main}
Job = Callable[[float, tuple[int, ...], int | None], list[Result]]


def jobs(epsilon: float | None = None) -> list[tuple[str, str, Job]]:
    """(row, data, what to run); with an epsilon, only the networks that are published with it."""
    found: list[tuple[str, str, Job]] = []
    for one in networks.SETTINGS:
        if epsilon not in (None, one.epsilon):
            continue
        found.append(
            (one.row, one.data, lambda s, k, m, one=one: [networks.run(one, share=s, seeds=k, most_steps=m)])  # type: ignore[misc]
        )
    for vote in teachers.SETTINGS:
        if epsilon not in (None, vote.epsilon):
            continue
        found.append(
            ("5-pate", "mnist", lambda s, k, m, vote=vote: [teachers.run(vote, share=s, seeds=k, most_steps=m)])  # type: ignore[misc]
        )
    if epsilon is not None:
        return found
    for row, names in (
        ("3-scatter-linear", ("mnist-scattering", "fashion-scattering", "cifar-scattering")),
        ("4-patches", ("mnist-features", "fashion-features", "cifar-patches")),
    ):
        for name in names:
            found.append((row, recipe(name).data, partial(_features, name, row)))
    for name in ("adult", "imdb"):
        found.append(
            ("6-words-tables", name, lambda s, k, m, n=name: words_and_tables.run(n, share=s, seeds=k, most_steps=m))
        )  # type: ignore[misc]
    return found


def _features(name: str, row: str, share: float, seeds: tuple[int, ...], most_steps: int | None) -> list[Result]:
    return heads.run(recipe(name), row, method=name, share=share, seeds=seeds, most_steps=most_steps)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--row", help="its number, or the beginning of its name")
    parser.add_argument("--data")
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--only-seeds", type=int, nargs="+", help="these and no others")
    parser.add_argument("--add", action="store_true", help="to the seeds that are in the file")
    parser.add_argument("--epsilon", type=float, help="only networks and teachers of this epsilon")
    parser.add_argument("--share", type=float, default=1.0, help="of the training rows")
    parser.add_argument("--most-steps", type=int)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    seeds = tuple(given.only_seeds or SEEDS[: given.seeds])
    together: dict[tuple[str, str], list[Result]] = {}
    for row, data, job in jobs(given.epsilon):
        if (given.row and not row.startswith(given.row)) or (given.data and data != given.data):
            continue
        new = job(given.share, seeds, given.most_steps)
        if given.add:
            write(new, folder=given.out, add=True)
        else:
            found = together.setdefault((row, data), [])
            found += new
            write(found, folder=given.out)
    if given.data is None and given.epsilon is None and given.share == 1.0:
        for row, draw in FIGURES.items():
            if not given.row or row.startswith(given.row):
                draw()


if __name__ == "__main__":
    main()
