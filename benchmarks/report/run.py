"""The report: its size, how long it takes to make, and how long a browser takes to show it.

python -m benchmarks.report.run [--turns 9] [--out benchmarks/results]

Making is the whole `hush report` command in a fresh process. Opening is measured inside headless Chromium by the page's
own clock, from the start of the navigation: the load event, the first text on the screen, and the last plot drawn.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from torch.utils.data import TensorDataset

import hush
from hush import report

TRAININGS = {
    "80 full batches": (1.0, 80),
    "2,000 sampled steps": (0.01, 2_000),
}
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
TIMES = """
const load = performance.getEntriesByType("navigation")[0], paint = performance.getEntriesByType("paint");
const first = paint.find((entry) => entry.name === "first-contentful-paint");
return [load.loadEventEnd, first ? first.startTime : null];
"""


def loss_fn(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(model(x), y, reduction="none")


def train(folder: Path, sampling_prob: float, steps: int) -> None:
    """A run of so many steps on made-up rows; the report does not depend on what the model is."""
    rows = TensorDataset(torch.randn(1_000, 4), torch.arange(1_000) % 2)
    plan = hush.TrainingPlan.for_budget(
        hush.Budget(epsilon=3.0, delta=1e-5),
        sampling_prob=sampling_prob,
        expected_batch_size=max(1, round(1_000 * sampling_prob)),
        steps=steps,
        clip_norm=1.0,
        sampling="full_batch" if sampling_prob == 1 else "poisson",
    )
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hush.fit(
        plan, model, rows, loss_fn=loss_fn, optimizer=optimizer, folder=folder, progress=False, checkpoint_every=10_000
    )
    scores = report.Scores(name="test_accuracy", private=0.5, twin=0.5)
    report.describe(folder, data="made up", model="linear", public_data=True, scores=scores)


def make(folder: Path) -> tuple[float, float]:
    """Seconds on the clock and on the processor of `hush report` in a fresh process."""
    before, start = os.times(), time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "hush.cli.main", "report", str(folder)], check=True, stdout=subprocess.DEVNULL
    )
    clock, after = time.perf_counter() - start, os.times()
    return clock, after.children_user + after.children_system - before.children_user - before.children_system


def browser(profile: str) -> Any:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


def show(driver: Any, page: Path) -> tuple[float, float, float]:
    """Seconds until the load event, the first text, and the last plot."""
    driver.get("about:blank")
    driver.get(page.as_uri())
    drawn = driver.execute_async_script(
        "const done = arguments[0]; (function look() { document.querySelector('.plot:not([data-drawn])') ? "
        "setTimeout(look, 5) : done(performance.now()); })();"
    )
    load, first = driver.execute_script(TIMES)
    return load / 1e3, (first or load) / 1e3, drawn / 1e3


def measure(folder: Path, driver: Any, turns: int) -> dict[str, float]:
    made = [make(folder) for _ in range(turns)]
    opened = [show(driver, folder / "report.html") for _ in range(turns)]
    clock, processor = (statistics.median(column) for column in zip(*made, strict=True))
    load, first, drawn = (statistics.median(column) for column in zip(*opened, strict=True))
    return {
        "megabytes": (folder / "report.html").stat().st_size / 1e6,
        "made": clock,
        "made_quickest": min(turn[0] for turn in made),
        "made_processor": processor,
        "load": load,
        "first_text": first,
        "all_plots": drawn,
    }


def table(results: dict[str, dict[str, float]], turns: int) -> str:
    lines = [
        "# The report",
        "",
        "By `python -m benchmarks.report.run`: the whole `hush report` command in a fresh process, and the page in",
        f"headless Chromium by its own clock; medians of {turns}, in seconds. Other programs shared the two cores, so",
        "the processor's seconds say more than the clock's. Goals: under 5 MB, made in under 3 s, opened in under 1 s.",
        "",
        "| run | MB | made, clock | quickest | made, processor | load event | first text | all plots drawn |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, row in results.items():
        cells = [f"{row['megabytes']:.2f}", *(f"{row[key]:.2f}" for key in list(row)[1:])]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    arguments = parser.parse_args()
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="hush-", ignore_cleanup_errors=True) as scratch:
        driver = browser(f"{scratch}/profile")
        try:
            for number, (name, setting) in enumerate(TRAININGS.items()):
                folder = Path(scratch) / f"run-{number}"
                train(folder, *setting)
                results[name] = measure(folder, driver, arguments.turns)
        finally:
            driver.quit()
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "report.json").write_text(json.dumps(results, indent=1) + "\n")
    (arguments.out / "report.md").write_text(table(results, arguments.turns))
    print(table(results, arguments.turns))


if __name__ == "__main__":
    main()
