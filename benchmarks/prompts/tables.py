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
    lines = [f"| epsilon | batch, steps | loss on other lines | {' | '.join(f'{count}x' for count in counts)} |"]
    lines.append("|---|---|---|" + "---|" * len(counts))
    for row in rows:
        cells = [f"{statistics.median(v):.1f} ({min(v):.1f} to {max(v):.1f})" for v in row["exposure"].values()]
        word = names.get(row["epsilon"], f"{row['epsilon']}")
        work = f"{row['batch']}, {row['steps']}" if row["steps"] else "none"
        lines.append(f"| {word} | {work} | {row['held_out_loss']:.2f} | {' | '.join(cells)} |")
    return "\n".join(lines)


TASKS = {"trec": "TREC", "ag-news-sample": "AG News", "sst2": "SST-2"}
CALIBRATED = {"raw": "raw", "calibrated": "calibrated", "by_public_texts": "calibrated by the texts asked about"}


def percent(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.1f} %"


def drawn(row: dict[str, Any], *keys: str) -> str:
    """The mean over the draws of the noise, and where there are several, each of them."""
    found = []
    for draw in (row, *row.get("further_draws_of_the_noise", ())):
        value: Any = draw
        for key in keys:
            value = value.get(key, {})
        found.append(value)
    if found[0] == {}:
        return "not measured"
    if len(found) == 1:
        return percent(found[0])
    return f"{percent(statistics.fmean(found))} ({', '.join(f'{value:.1f}' for value in found)})"


def pate(rows: list[dict[str, Any]]) -> str:
    """A column for each run of PromptPATE with students of three prompts; a line for each of the others."""
    columns = [
        {
            "": TASKS[row["task"]],
            "private examples used": f"{row['private_examples']:,}",
            "teachers, demonstrations each": f"{row['teachers']}, {row['demonstrations']}",
            "public texts asked about, answered": f"{row['queries']}, {row['answered']}",
            "texts in the test": f"{row['test_texts']}",
            "one teacher, on the texts asked about": percent(row["one_teacher_on_queries"]),
            "the vote without noise, on them": percent(row["ensemble_on_queries"]),
            "labels that left, right": drawn(row, "labels_right"),
            **{f"zero-shot, {how}": percent(row["zero_shot"][kind]) for kind, how in CALIBRATED.items()},
            "zero-shot, calibrated by 200 public texts": percent(row["zero_shot_by_200_texts"]),
            "zero-shot, by 200 public texts and the labels that left": drawn(row, "zero_shot_by_texts_and_labels"),
            **{f"one student prompt, {how}": drawn(row, "student", kind) for kind, how in CALIBRATED.items()},
            "**student of three prompts, by 200 public texts and the labels that left**": drawn(row, "joined_student"),
            "the same with true labels": percent(row["joined_student_with_true_labels"]),
        }
        for row in rows
        if _is_column(row)
    ]
    lines = [f"| {title} | {' | '.join(column[title] for column in columns)} |" for title in columns[0]]
    older = [_older(row) for row in rows if not _is_column(row)]
    head = "| earlier runs | teachers, demonstrations each | questions | zero-shot, calibrated "
    head += "| one student prompt, calibrated | student of three prompts |"
    return "\n".join(
        [lines[0], "|---|" + "---|" * len(columns), *lines[1:], "", head, "|---|---|---|---|---|---|", *older]
    )


def _is_column(row: dict[str, Any]) -> bool:
    return "joined_student" in row and "earlier" not in row


def _older(row: dict[str, Any]) -> str:
    teachers = f"{row['teachers']}, {row['demonstrations']} | {row['queries']}"
    shares = percent(row["zero_shot"]["calibrated"]), drawn(row, "student", "calibrated"), drawn(row, "joined_student")
    return f"| {TASKS[row['task']]} | {teachers} | {' | '.join(shares)} |"


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
