"""Makes docs/guides/results.md of the rows in benchmarks/results/headline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.headline.result import RESULTS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "results.md"
TITLES = {
    "1-abadi": "Private PCA and 1000 units (Abadi et al. 2016)",
    "2-tanh-cnn": "A small tanh network (Papernot et al. 2020)",
    "3-scatter-cnn": "Scattering and a network (Tramèr, Boneh 2021)",
    "3-scatter-linear": "Scattering and a full-batch softmax",
    "4-patches": "Whitened patches and a full-batch softmax",
    "6-words-tables": "A table and texts: public features and a softmax",
}
START, END = "<!-- table: made by benchmarks.headline.table -->", "<!-- end of table -->"


def rows() -> list[dict[str, Any]]:
    return [row for path in sorted(RESULTS.glob("*.json")) for row in json.loads(path.read_text())]


def shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def table(title: str, found: list[dict[str, Any]]) -> str:
    lines = [
        f"### {title}",
        "",
        "| data | epsilon | accuracy % (std, min) | seeds | without privacy | published | goal | by Rényi | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in found:
        accuracy = f"**{100 * row['mean']:.2f}** ({100 * row['std']:.2f}, {100 * row['min']:.2f})"
        twin = "-" if row["twin"] is None else f"{100 * row['twin']:.2f}"
        lines.append(
            f"| {row['data']} | {row['epsilon']:.3f} | {accuracy} | {len(row['seeds'])} | {twin} | "
            f"{shown(row['published'])} | {shown(row['goal'])} | {row['rdp_epsilon']:.2f} | {row['seconds']:.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    found = rows()
    parts = [
        table(title, [row for row in found if row["row"] == name])
        for name, title in TITLES.items()
        if any(row["row"] == name for row in found)
    ]
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.split(START)[0], text.split(END)[1]
    PAGE.write_text(before + START + "\n\n" + "\n\n".join(parts) + "\n\n" + END + after, encoding="utf-8")


if __name__ == "__main__":
    main()
