"""The main job on the digits that come with scikit-learn: `python -m hush.cli.demo`. Writes its files to ./demo/.

Trains a classifier under a budget of epsilon 3, beside its twin without privacy; shows why epsilon is that number, and
that the ledger, charged before every block of steps, refuses one step too many.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

from hush import accounting
from hush.cli import job, task
from hush.cli.explain import print_story
from hush.cli.main import BAD_INPUT, FINE
from hush.cli.output import console, one_line, print_lines, print_table
from hush.cli.plot import draw
from hush.cli.train import print_outcome, print_plan, to_dict
from hush.errors import BudgetExceeded, HushError
from hush.ledger import Ledger
from hush.ledger.chain import Row
from hush.privacy import Guarantee, round_up
from hush.training import TrainingPlan

FOLDER = Path("demo")
DATA, EPSILON = "digits", 3.0
SHOWN_EVERY = 5  # blocks of steps


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
    page, picture, text, data = (FOLDER / name for name in ("epsilon.html", "epsilon.png", "report.txt", "report.json"))
    run_folder = FOLDER / "run"
    FOLDER.mkdir(exist_ok=True)
    for old in (page, picture, text, data, FOLDER / "budget.db"):  # its own files of an earlier run, and no others
        old.unlink(missing_ok=True)
    shutil.rmtree(run_folder, ignore_errors=True)

    print_lines(f"1. Train on {DATA} with epsilon {EPSILON:g}, and once without privacy to see what it costs")
    digits, outcome = _train(run_folder)
    print_lines("", "2. Why that epsilon: the same run by every theorem, the loosest first")
    plan = outcome.settled.plan
    story = accounting.explain(plan.event, plan.delta)
    print_story(story, f"{plan.steps:,} steps, full batches, noise multiplier {plan.noise_multiplier:.6g}")
    record = _look_at_the_ledger(outcome)
    draw(plan.event, plan.delta, plan.relation, page, picture)
    _write_report(text, data, story, {**to_dict(digits, outcome), **record})
    print_lines("", "4. Written:", *(f"   {path}" for path in (run_folder, page, picture, text, data)))
    return outcome.run.guarantee


def _train(folder: Path) -> tuple[task.Task, job.Outcome]:
    """What `hush train --data digits --epsilon 3` does."""
    wishes = job.Wishes(epsilon=EPSILON, delta=None, clip_norm=None)
    digits = task.known(DATA, None)
    settled = job.settle(digits, wishes)
    classic = accounting.noise_for(job.budget_of(settled), sampling_prob=1.0, steps=settled.plan.steps, method="rdp")
    print_plan(digits, settled)
    saved = 100 * (1 - settled.plan.noise_multiplier / classic)
    print_lines(f"({saved:.1f} % less noise than the {round_up(classic)} that Rényi accounting would ask for)")
    outcome = job.carry_out(digits, wishes, settled, folder)
    print_outcome(outcome)
    return digits, outcome


def _look_at_the_ledger(outcome: job.Outcome) -> dict[str, Any]:
    """The run's own ledger: whole, and full."""
    run = outcome.run
    print_lines("", "3. The ledger: every block of steps was charged before it was taken")
    account = run.ledger.account(run.account)
    _print_charges(account.rows(), outcome.settled.plan)
    try:
        account.charge(outcome.settled.plan.step_event)
        refusal = "it was not refused, which is a mistake; please report it."
    except BudgetExceeded as error:
        refusal = str(error)
    verified = Ledger(outcome.folder / "ledger.db", create=False).verify()
    print_lines(f"One step more is refused: {refusal}", f"The ledger is whole: {verified.rows} rows, {verified.head}")
    return {"ledger_rows": verified.rows, "ledger_head": verified.head, "refusal": refusal}


def _print_charges(charged: tuple[Row, ...], plan: TrainingPlan) -> None:
    odometer, rows = accounting.Odometer(delta=plan.delta, relation=plan.relation), []
    for row in charged:
        if row.kind == "reserve":
            odometer.add(plan.step_event, row.count)
            rows.append((str(row.number), f"{odometer.steps:,}", round_up(odometer.guarantee().epsilon)))
    columns = ("row", "steps charged", "epsilon")
    print_table("ledger", columns, [*rows[:-1:SHOWN_EVERY], rows[-1]], numbers=columns)


def _write_report(text: Path, data: Path, story: accounting.Explanation, run: dict[str, Any]) -> None:
    limits = {"epsilon": EPSILON, "delta": run["delta"]}
    content = json.dumps({**run, "budget": limits, "explanation": story.to_dict()}, indent=2, ensure_ascii=False)
    data.write_text(content + "\n", encoding="utf-8")
    lines = [f"{name}: {value}" for name, value in run.items()]
    text.write_text("\n".join([*lines, "", str(story), ""]), encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
