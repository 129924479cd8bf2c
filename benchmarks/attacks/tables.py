"""The numbers of `attacks.json` as tables: `python -m benchmarks.attacks.tables` writes `attacks.md`."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.attacks.record import RESULTS


def percent(rate: dict[str, float], digits: int = 2) -> str:
    low, high = (f"{100 * rate[end]:.{digits}f}" for end in ("low", "high"))
    return f"{100 * rate['value']:.{digits}f} % [{low}, {high}]"


def membership(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| epsilon | accuracy: members, others | attack | AUC | TPR at FPR 0.1 % | TPR at FPR 1 % |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        accuracy = f"{100 * row['train_accuracy']:.1f} %, {100 * row['test_accuracy']:.1f} %"
        word = "∞" if row["epsilon"] == "infinity" else f"{row['epsilon']:g}"
        order = ("loss threshold", "shadow models", "RMIA, offline", "LiRA, offline", "LiRA, online")
        for name in order:
            found = row["attacks"][name]
            rates = found["tpr_at_fpr"]
            cells = (word, accuracy, name, f"{found['auc']:.3f}", percent(rates["0.001"]), percent(rates["0.01"]))
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def memorisation(results: list[dict[str, Any]]) -> str:
    counts = [row["repetitions"] for row in results[0]["rows"]]
    head = " | ".join(f"{count}x" for count in counts)
    lines = [f"| epsilon | test loss | {head} |", "|---|---|" + "---|" * len(counts)]
    for result in results:
        cells = []
        for row in result["rows"]:
            values = sorted(row["exposure"])
            middle = (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2
            cells.append(f"{middle:.1f} ({values[0]:.1f} to {values[-1]:.1f})")
        word = "∞" if result["epsilon"] == "infinity" else f"{result['epsilon']:g}"
        lines.append(f"| {word} | {result['test_loss']:.2f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def linkage(found: dict[str, Any]) -> str:
    lines = ["| the attacker knows | release | named rightly | wrongly | nobody |", "|---|---|---|---|---|"]
    for row in found["rows"]:
        cells = (percent(row[name], 1) for name in ("correct", "wrong", "no_match"))
        lines.append(f"| {row['known']} | {row['release']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def who_pays(found: dict[str, Any]) -> str:
    names = list(found)
    order = ("without privacy", "epsilon 8", "epsilon 1", "epsilon 0.1")
    lines = [
        f"| group | rows | {' | '.join(f'accuracy, {name}' for name in order)} | clipped at epsilon 1 |",
        "|---|---|" + "---|" * (len(names) + 1),
    ]
    groups = sorted(found[order[0]]["groups"], key=lambda name: -found[order[0]]["groups"][name]["rows"])
    for group in groups:
        cells = [f"{100 * found[name]['groups'][group]['accuracy']['value']:.1f} %" for name in order]
        clipped = found["epsilon 1"]["groups"][group]["clipped"]["value"]
        rows = found[order[0]]["groups"][group]["rows"]
        lines.append(f"| {group} | {rows:,} | {' | '.join(cells)} | {100 * clipped:.0f} % |")
    return "\n".join(lines)


def main() -> None:
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    parts = [
        "# Attacks",
        "From `python -m benchmarks.attacks.*`, on a shared machine with 2 cores. Intervals are 95 %.",
    ]
    titles = {
        "membership_location30": ("Membership on Location-30: 5,010 rows, 446-128-30, two targets", membership),
        "membership_cifar10": ("Membership on CIFAR-10: 2,000 pictures, a small convolutional network", membership),
        "memorisation": (
            "Exposure in bits (median and range of 6 secrets) by repetitions; 14 is the limit",
            memorisation,
        ),
        "linkage": ("Linkage on MovieLens, 610 people", linkage),
        "who_pays": ("Adult by group, test rows; not private", who_pays),
    }
    for name, (title, table) in titles.items():
        if name in found:
            parts += [f"## {title}", table(found[name])]
    if "speed" in found:
        parts += ["## Speed", "```json\n" + json.dumps(found["speed"], indent=1) + "\n```"]
    RESULTS.with_suffix(".md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
