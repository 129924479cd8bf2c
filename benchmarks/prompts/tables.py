"""The numbers of prompts_*.json as tables: `python -m benchmarks.prompts.tables` puts them into the guides."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
WAYS = {
    "head": "head alone",
    "lora": "LoRA in the last layer, and the head",
    "soft": "soft prompt before each layer, and the head",
}
ORDER = (1.0, 3.0, 8.0, "infinity")


def read(name: str) -> Any:
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


TASKS = {"trec": "TREC", "ag-news-sample": "AG News", "sst2": "SST-2"}
PROMPTS = {
    "zero_shot": "zero-shot",
    "student": "one student prompt",
    "student_with_true_labels": "its texts with true labels",
}
JOINED = {
    "zero_shot_by_200_texts": "zero-shot, calibrated by 200 public texts",
    "zero_shot_by_texts_and_labels": "zero-shot, by 200 public texts and the labels that left",
    "joined_student": "**student of three prompts, by 200 public texts and the labels that left**",
    "joined_student_with_true_labels": "student of three prompts, its texts with true labels",
}
CALIBRATED = {"raw": "raw", "calibrated": "calibrated", "by_public_texts": "calibrated by public texts"}


def percent(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.1f} %"


def pate(rows: list[dict[str, Any]]) -> str:
    """A column for each run of PromptPATE."""
    columns = [
        {
            "": TASKS[row["task"]],
            "private examples used": f"{row['private_examples']:,}",
            "teachers, demonstrations each": f"{row['teachers']}, {row['demonstrations']}",
            "public texts asked about, answered": f"{row['queries']}, {row['answered']}",
            "one teacher, on them": percent(row["one_teacher_on_queries"]),
            "the vote without noise, on them": percent(row["ensemble_on_queries"]),
            "labels that left, right": percent(row["labels_right"]),
            "demonstrations in one student prompt": f"{row['student_shots']}",
            "texts in the test": f"{row['test_texts']}",
            **{
                f"{who}, {how}": percent(row.get(key, {}).get(kind))
                for key, who in PROMPTS.items()
                for kind, how in CALIBRATED.items()
            },
            **{title: percent(row.get(key)) for key, title in JOINED.items()},
        }
        for row in rows
    ]
    lines = [f"| {title} | {' | '.join(column[title] for column in columns)} |" for title in columns[0]]
    return "\n".join([lines[0], "|---|" + "---|" * len(rows), *lines[1:]])


def generated(found: dict[str, Any]) -> str:
    lines = ["| label | made-up question |", "|---|---|"]
    lines += [f"| {label.strip()} | `{text}` |" for text, label in found["demonstrations"]]
    return "\n".join(lines)


def put(text: str, name: str, table: str) -> str:
    pattern = rf"(<!-- table {name} -->\n).*?(<!-- end -->)"
    return re.sub(pattern, lambda found: f"{found[1]}\n{table}\n\n{found[2]}", text, count=1, flags=re.DOTALL)


TABLES: dict[str, dict[str, Callable[[Any], str]]] = {
    "lora.md": {"sst2": sst2, "memorisation": memorisation},
    "prompt-pate.md": {"pate": pate},
    "private-generation.md": {"generate": generated},
}


def filled(guide: str, text: str) -> str:
    """The guide's text with its tables made anew."""
    for name, table in TABLES[guide].items():
        text = put(text, name, table(read(f"prompts_{name}")))
    return text


def main() -> None:
    for guide in TABLES:
        path = ROOT / "docs" / "guides" / guide
        path.write_text(filled(guide, path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
