"""The benchmark's numbers as a page."""

from __future__ import annotations

from typing import Any

import numpy as np

Row = dict[str, Any]
NAMES = ("dp-accounting PLD", "Opacus PRV", "prv-accountant")


def markdown(result: dict[str, Any]) -> str:
    return "\n".join([*_sweep(result), "", *_classic(result), "", *_calibration(result), ""])


def _table(rows: list[tuple[str, str]]) -> list[str]:
    return ["| what | value |", "|---|---|", *(f"| {what} | {value} |" for what, value in rows)]


def _sweep(result: dict[str, Any]) -> list[str]:
    rows = result["sweep"]
    good = [row for row in rows if "low" in row]
    return [
        f"# Accounting: {len(rows)} random settings, seed {result['seed']}",
        "",
        "sampling_prob 1e-5..1, noise 0.3..100, steps 1..1e6, delta 1e-30..1e-3, 1 to 5 phases, both relations.",
        "Times are of one answer with both ends, on a shared 2-core machine, one thread, the best of seven passes.",
        "",
        *_table([("exceptions", str(len(rows) - len(good))), *_ours(good), *_beside_pld(good)]),
    ]


def _ours(rows: list[Row]) -> list[tuple[str, str]]:
    widths, seconds = (np.array([row[key] for row in rows]) for key in ("width", "seconds"))
    quantiles = np.quantile(1e3 * seconds, [0.5, 0.9, 0.99, 1])
    return [
        ("relative width: 99 % are below", f"{np.quantile(widths, 0.99):.1e}"),
        ("relative width: share at most 1e-6", f"{np.mean(widths <= 1e-6):.2%}"),
        ("relative width: largest", f"{widths.max():.1e}"),
        ("milliseconds: median, 90 %, 99 %, largest", ", ".join(f"{value:.2f}" for value in quantiles)),
    ]


def _beside_pld(rows: list[Row]) -> list[tuple[str, str]]:
    both = [row for row in rows if isinstance(row.get("pld"), float)]
    ratio = np.array([row["pld_seconds"] / row["seconds"] for row in both])
    loose = np.array([row["pld"] / row["high"] - 1 for row in both if row["high"] > 0])
    finite = loose[np.isfinite(loose)]
    spread = ", ".join(f"{np.quantile(finite, share):+.2%}" for share in (0.5, 0.9, 1))
    return [
        ("contradictions with dp-accounting's PLD, both sides, delta >= 1e-11", _contradictions(rows, 1e-11, 1)),
        ("the same below 1e-11, where PLD's own rounding shows", _contradictions(rows, 0, 1e-11)),
        ("of these contradictions, settled for us by the high-precision value", _settled(rows)),
        ("settings that PLD answered", str(len(both))),
        ("PLD's time over ours: median, 1 %, smallest", f"{np.median(ratio):.0f}, {_low(ratio)}, {ratio.min():.2f}"),
        ("settings on which PLD was faster", str(int((ratio < 1).sum()))),
        ("PLD gave no answer in its time, or raised", str(sum(isinstance(row.get("pld"), str) for row in rows))),
        ("PLD answered infinity", str(int((~np.isfinite(loose)).sum()))),
        ("PLD's epsilon above ours, where finite: median, 90 %, largest", spread),
    ]


def _low(ratio: Any) -> str:
    return f"{np.quantile(ratio, 0.01):.1f}"


def _contradictions(rows: list[Row], least: float, most: float) -> str:
    asked = [row for row in rows if "pld" in row and least <= row["delta"] < most]
    return f"{sum(row['contradiction'] for row in asked)} of {len(asked)}"


def _settled(rows: list[Row]) -> str:
    asked = [row for row in rows if row.get("contradiction")]
    held = [row for row in asked if isinstance(row["truth"], float) and row["low"] <= row["truth"] <= row["high"]]
    return f"{len(held)} of {len(asked)}"


def _classic(result: dict[str, Any]) -> list[str]:
    head = ("row", "Hush", "width", "ms", "MB", *NAMES)
    return [
        "# Classic rows",
        "",
        "epsilon (milliseconds; times ours). Peers at their defaults; the PRV accountants cover add/remove only.",
        "",
        f"| {' | '.join(head)} |",
        "|---" * len(head) + "|",
        *(f"| {' | '.join(_classic_cells(row))} |" for row in result["classic"]),
    ]


def _classic_cells(row: Row) -> list[str]:
    ours = row["seconds"]["hush"]
    cells = [
        row["name"],
        f"{row['interval'][1]:.9g}",
        f"{row['width']:.0e}",
        f"{1e3 * ours:.2f}",
        f"{row['memory_mb']:.1f}",
    ]
    for name in NAMES:
        answer, took = row.get(name), row["seconds"].get(name, float("nan"))
        text = f"{answer:.6g}" if isinstance(answer, float) else str(answer)
        cells.append("-" if answer is None else f"{text} ({1e3 * took:.0f}; {took / ours:.0f}x)")
    return cells


def _calibration(result: dict[str, Any]) -> list[str]:
    lines = [
        "# Calibration of noise",
        "",
        "| epsilon, delta, sampling_prob, steps | noise | budget left | ms | PLD's noise (ms; times ours) |",
        "|---|---|---|---|---|",
    ]
    for row in result["calibration"]:
        theirs = row["pld_noise"] if isinstance(row["pld_noise"], str) else f"{row['pld_noise']:.7g}"
        times = f"{1e3 * row['pld_seconds']:.0f}; {row['pld_seconds'] / row['seconds']:.0f}x"
        setting = ", ".join(f"{value:g}" for value in row["budget"])
        cells = (
            setting,
            f"{row['noise']:.9g}",
            f"{row['slack']:.1e}",
            f"{1e3 * row['seconds']:.1f}",
            f"{theirs} ({times})",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines
