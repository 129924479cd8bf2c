"""Makes the tables and pictures of docs/guides/results.md of the files in benchmarks/results."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.headline import pictures
from benchmarks.headline.result import RESULTS, SEEDS
from benchmarks.headline.run import jobs
from benchmarks.pate import tables as pate

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "results.md"
TITLES = {
    "1-abadi": "Private PCA and 1000 units (Abadi et al. 2016)",
    "1-abadi-cifar": "Two convolutions and two layers of 384 units, from scratch (Abadi et al. 2016)",
    "2-tanh-cnn": "A small tanh network (Papernot et al. 2020)",
    "3-scatter-cnn": "Scattering and a network (Tramèr, Boneh 2021)",
    "3-scatter-linear": "Scattering and a full-batch softmax",
    "4-patches": "Patches, whitened by synthetic pictures, and a full-batch softmax",
    "5-pate": "Teachers and students (Papernot et al. 2017, 2018): public pictures without labels",
    "6-words-tables": "A table and texts: public features and a softmax",
}
START, END = "<!-- table: made by benchmarks.headline.table -->", "<!-- end of table -->"


def rows() -> list[dict[str, Any]]:
    return [row for path in sorted(RESULTS.glob("*.json")) for row in json.loads(path.read_text())]


def shown(value: float | None, mean: float) -> str:
    """A published figure or a goal, and how far above or below it the mean is."""
    return "-" if value is None else f"{value:.1f} ({100 * mean - value:+.2f})"


def table(title: str, found: list[dict[str, Any]]) -> str:
    lines = [
        f"### {title}",
        "",
        "| data | epsilon | accuracy % (std, min) | seeds | its twin | published | goal | by moments | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in found:
        accuracy = f"**{100 * row['mean']:.2f}**"
        if len(row["seeds"]) > 1:
            accuracy += f" ({100 * row['std']:.2f}, {100 * row['min']:.2f})"
        twin = "-" if row["twin"] is None else f"{100 * row['twin']:.2f}"
        lines.append(
            f"| {row['data']} | {row['epsilon']:.3f} | {accuracy} | {len(row['seeds'])} | {twin} | "
            f"{shown(row['published'], row['mean'])} | {shown(row['goal'], row['mean'])} | "
            f"{row['moments_epsilon']:.2f} | {row['seconds']:.0f} |"
        )
    return "\n".join(lines)


def teachers() -> str:
    """The runs of PATE on test parts; all of them."""
    lines = [
        "### More teachers and students",
        "",
        "One seed each; folds are in brackets. Test pictures without labels are public here too.",
        "",
        pate.HEAD,
        "|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *(pate.line(row) for row in pate.rows())])


def clock() -> str | None:
    """From data on disk to printed accuracies."""
    path = RESULTS / "figures" / "clock.json"
    if not path.exists():
        return None
    lines = ["### Wall-clock", "", "| what | goal | measured |", "|---|---|---|"]
    lines += [f"| {row['what']} | {row['goal']} | {row['measured']} |" for row in json.loads(path.read_text())]
    return "\n".join(lines)


def missing(found: list[dict[str, Any]]) -> str | None:
    """What `benchmarks.headline.run` has and the tables do not, or with fewer seeds than all."""
    planned = Counter((row, data) for row, data, _ in jobs())
    there = Counter((row["row"], row["data"]) for row in found)
    lines = [
        f"- {TITLES[row]}: {data}{' at some epsilons' if there[row, data] else ''}"
        for (row, data), number in planned.items()
        if there[row, data] < number
    ]
    lines += [
        f"- {TITLES[row['row']]}: {row['data']} at epsilon {row['epsilon']:.3g} has seeds "
        f"{', '.join(map(str, row['seeds']))} only"
        for row in found
        if len(row["seeds"]) < len(SEEDS)
    ]
    return "\n".join(["### Not run, or not with all seeds", "", *lines]) if lines else None


def parts() -> list[str]:
    """Tables of the rows, figures and wall-clock: what comes from benchmarks/results/headline."""
    found = rows()
    shown_rows = [
        table(title, [row for row in found if row["row"] == name])
        for name, title in TITLES.items()
        if any(row["row"] == name for row in found)
    ]
    return [part for part in (*shown_rows, missing(found), *pictures.parts(), clock()) if part]


def page() -> str:
    """The page with its tables made anew."""
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.split(START)[0], text.split(END)[1]
    return before + START + "\n\n" + "\n\n".join([*parts(), teachers()]) + "\n\n" + END + after


def main() -> None:
    pictures.draw()
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
