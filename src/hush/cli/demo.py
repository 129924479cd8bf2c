"""The accountant at work, in a few seconds: `python -m hush.cli.demo`. Writes its files to ./demo/.

A training run on 60,000 examples in batches of about 600, 20 passes, under a budget of epsilon 1: how much noise it
needs, why that is the number, and a ledger that charges every block of steps before it runs.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from hush import Budget, accounting, events
from hush.accounting.calibrate import sampled_gaussian
from hush.cli.explain import print_story
from hush.cli.main import BAD_INPUT, FINE
from hush.cli.output import console, one_line, print_lines, print_table
from hush.cli.plot import draw
from hush.errors import BudgetExceeded, HushError
from hush.ledger import Ledger
from hush.privacy import Guarantee, round_up

FOLDER = Path("demo")
NUM_EXAMPLES, EXPECTED_BATCH_SIZE, PASSES = 60_000, 600, 20
SAMPLING_PROB = EXPECTED_BATCH_SIZE / NUM_EXAMPLES
STEPS = PASSES * NUM_EXAMPLES // EXPECTED_BATCH_SIZE
BUDGET = Budget(epsilon=1.0, delta=1e-5)
BLOCK, SHOWN_EVERY = 100, 250


def main() -> int:
    """Run the demo; 0 if all went well."""
    start = time.perf_counter()
    try:
        guarantee = _run()
    except (HushError, OSError) as error:
        console(stderr=True).print(f"hush: {one_line(str(error))}")
        return BAD_INPUT
    print_lines(f"Finished in {time.perf_counter() - start:.1f} s. The run is proven to give {guarantee}.")
    return FINE


def _run() -> Guarantee:
    ledger_file, page, picture, text, data = (
        FOLDER / name for name in ("budget.db", "epsilon.html", "epsilon.png", "report.txt", "report.json")
    )
    FOLDER.mkdir(exist_ok=True)
    for old in (ledger_file, page, picture, text, data):  # its own files of an earlier run, and no others
        old.unlink(missing_ok=True)

    noise = _calibrate()
    event = sampled_gaussian(noise, SAMPLING_PROB, STEPS)
    print_lines("", "2. Why that number: the same run by every theorem, the loosest first")
    story = accounting.explain(event, BUDGET.delta)
    print_story(story, f"{STEPS:,} steps, noise multiplier {noise:.6g}, sampling prob {SAMPLING_PROB:g}")
    spent, record = _train(noise, ledger_file)
    draw(event, BUDGET.delta, "add_remove", page, picture)
    _write_report(text, data, story, {"noise_multiplier": noise, **spent.to_dict(), **record})
    print_lines("", "4. Written:", *(f"   {path}" for path in (ledger_file, page, picture, text, data)))
    return spent


def _calibrate() -> float:
    print_lines(
        f"1. Noise for a budget of epsilon {BUDGET.epsilon:g} at delta {BUDGET.delta:g}",
        f"   {NUM_EXAMPLES:,} examples, batches of about {EXPECTED_BATCH_SIZE}, {PASSES} passes: {STEPS:,} steps",
    )
    noise = accounting.noise_for(BUDGET, sampling_prob=SAMPLING_PROB, steps=STEPS)
    classic = accounting.noise_for(BUDGET, sampling_prob=SAMPLING_PROB, steps=STEPS, method="rdp")
    saved = 100 * (1 - noise / classic)
    print_lines(f"   noise multiplier {round_up(noise)} ({saved:.1f} % less than the {round_up(classic)} of Rényi)")
    return noise


def _train(noise: float, ledger_file: Path) -> tuple[Guarantee, dict[str, Any]]:
    """The run without the learning: charge, step, read the odometer; then one step too many."""
    print_lines("", f"3. The run: {BLOCK} steps are charged to the ledger before they are taken")
    account = Ledger(ledger_file).account("digits", cap=BUDGET)
    step = events.PoissonSampled(events.Gaussian(noise), SAMPLING_PROB)
    odometer = accounting.Odometer(delta=BUDGET.delta)
    rows = []
    with account.reserve(step, times=STEPS, block=BLOCK, note="demo run") as reservation:
        for _ in range(STEPS):
            number = reservation.step()
            odometer.add(step)
            if number % SHOWN_EVERY == 0:
                rows.append((f"{number:,}", round_up(odometer.guarantee().epsilon), f"{reservation.reserved:,}"))
    columns = ("steps done", "epsilon so far", "steps charged")
    print_table("odometer", columns, rows, numbers=columns)
    refusal = _one_too_many(account, step)
    verified = Ledger(ledger_file, create=False).verify()
    print_lines(f"One step more is refused: {refusal}", f"The ledger is whole: {verified.rows} rows, {verified.head}")
    return account.spent(), {"ledger_rows": verified.rows, "ledger_head": verified.head, "refusal": refusal}


def _one_too_many(account: Any, step: events.Event) -> str:
    try:
        account.charge(step)
    except BudgetExceeded as error:
        return str(error)
    return "it was not refused, which is a mistake; please report it."


def _write_report(text: Path, data: Path, story: accounting.Explanation, run: dict[str, Any]) -> None:
    limits = {"epsilon": BUDGET.epsilon, "delta": BUDGET.delta}
    setting = {"sampling_prob": SAMPLING_PROB, "steps": STEPS, "budget": limits}
    content = json.dumps({**setting, **run, "explanation": story.to_dict()}, indent=2, ensure_ascii=False)
    data.write_text(content + "\n", encoding="utf-8")
    lines = [f"{name}: {value}" for name, value in {**setting, **run}.items()]
    text.write_text("\n".join([*lines, "", str(story), ""]), encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
