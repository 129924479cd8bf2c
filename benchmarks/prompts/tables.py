"""The numbers of prompts_*.json as tables: `python -m benchmarks.prompts.tables` puts them into docs/guides/lora.md."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guides" / "lora.md"
WAYS = {
    "head": "head alone",
    "lora": "LoRA in the last two layers, and the head",
    "soft": "soft prompt before each layer, and the head",
}
ORDER = (1.0, 3.0, 8.0, "infinity")


def read(name: str) -> list[dict[str, Any]]:
    path = ROOT / "benchmarks" / "results" / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else []


def spread(rows: list[dict[str, Any]]) -> str:
    values = sorted(100 * row["accuracy"] for row in rows)
    if not values:
        return "not run"
    if len(values) == 1:
        return f"{values[0]:.1f} (one seed)"
    return f"{statistics.mean(values):.1f} ({values[0]:.1f} to {values[-1]:.1f})"


def sst2(rows: list[dict[str, Any]]) -> str:
    lines = ["| what is trained | epsilon 1 | 3 | 8 | no privacy |", "|---|---|---|---|---|"]
    for way, title in WAYS.items():
        cells = [spread([row for row in rows if row["way"] == way and row["epsilon"] == word]) for word in ORDER]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def memorisation(rows: list[dict[str, Any]]) -> str:
    names = {0.0: "before tuning", "infinity": "no privacy"}
    counts = list(rows[0]["exposure"]) if rows else []
    lines = [f"| epsilon | loss on other lines | {' | '.join(f'{count}x' for count in counts)} |"]
    lines.append("|---|---|" + "---|" * len(counts))
    for row in rows:
        cells = [f"{statistics.median(v):.1f} ({min(v):.1f} to {max(v):.1f})" for v in row["exposure"].values()]
        word = names.get(row["epsilon"], f"{row['epsilon']}")
        lines.append(f"| {word} | {row['held_out_loss']:.2f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def put(text: str, name: str, table: str) -> str:
    pattern = rf"(<!-- table {name} -->\n).*?(<!-- end -->)"
    return re.sub(pattern, lambda found: f"{found[1]}\n{table}\n\n{found[2]}", text, count=1, flags=re.DOTALL)


def main() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    text = put(text, "sst2", sst2(read("prompts_sst2")))
    GUIDE.write_text(put(text, "memorisation", memorisation(read("prompts_memorisation"))), encoding="utf-8")


if __name__ == "__main__":
    main()
