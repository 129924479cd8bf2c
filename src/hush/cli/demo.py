"""The main job on the digits that come with scikit-learn: `python -m hush.cli.demo`. Writes its files to ./demo/.

Trains a classifier under a budget of epsilon 3, beside its twin without privacy; shows why epsilon is that number, and
that the ledger, charged before every block of steps, refuses one step too many; audits the plan; writes the report.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from hush import accounting, report
from hush.cli import job, task
from hush.cli.explain import print_story
from hush.cli.main import BAD_INPUT, FINE, run
from hush.cli.output import console, one_line, print_lines, print_table
from hush.cli.plot import draw
from hush.cli.train import print_outcome, print_plan
from hush.errors import BudgetExceeded, HushError, InvalidValue
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
    page, picture = FOLDER / "epsilon.html", FOLDER / "epsilon.png"
    run_folder = FOLDER / "run"
    FOLDER.mkdir(exist_ok=True)
    for old in (page, picture):  # its own files of an earlier run, and no others
        old.unlink(missing_ok=True)
    shutil.rmtree(run_folder, ignore_errors=True)

    print_lines(f"1. Train on {DATA} with epsilon {EPSILON:g}, and once without privacy to see what it costs")
    outcome = _train(run_folder)
    print_lines("", "2. Why that epsilon: the same run by every theorem, the loosest first")
    plan = outcome.settled.plan
    story = accounting.explain(plan.event, plan.delta)
    print_story(story, f"{plan.steps:,} steps, full batches, noise multiplier {plan.noise_multiplier:.6g}")
    _look_at_the_ledger(outcome)
    draw(plan.event, plan.delta, plan.relation, page, picture)
    print_lines("", "4. Audit it: the plan carried out anew with canaries, and an attack that guesses which were in")
    _audit(run_folder)
    written = report.write(run_folder)
    print_lines("", "5. Written:", *(f"   {path}" for path in (run_folder, page, picture, *written)))
    print_lines(f"Open {written[0]}: what this run proves, and what it means for one person.")
    return outcome.run.guarantee


def _train(folder: Path) -> job.Outcome:
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
    return outcome


def _look_at_the_ledger(outcome: job.Outcome) -> None:
    """The run's own ledger: whole, and full."""
    done = outcome.run
    print_lines("", "3. The ledger: every block of steps was charged before it was taken")
    account = done.ledger.account(done.account)
    _print_charges(account.rows(), outcome.settled.plan)
    try:
        account.charge(outcome.settled.plan.step_event)
        refusal = "it was not refused, which is a mistake; please report it."
    except BudgetExceeded as error:
        refusal = str(error)
    verified = Ledger(outcome.folder / "ledger.db", create=False).verify()
    print_lines(f"One step more is refused: {refusal}", f"The ledger is whole: {verified.rows} rows, {verified.head}")


def _audit(folder: Path) -> None:
    """What `hush audit RUN --out RUN` does; its evidence is in the report."""
    canaries = ("--num-canaries", "5000", "--significance", "0.001")
    if run(["audit", str(folder), *canaries, "--out", str(folder)]) != FINE:
        raise InvalidValue("the audit did not end well, which is a mistake; please report it.")


def _print_charges(charged: tuple[Row, ...], plan: TrainingPlan) -> None:
    odometer, rows = accounting.Odometer(delta=plan.delta, relation=plan.relation), []
    for row in charged:
        if row.kind == "reserve":
            odometer.add(plan.step_event, row.count)
            rows.append((str(row.number), f"{odometer.steps:,}", round_up(odometer.guarantee().epsilon)))
    columns = ("row", "steps charged", "epsilon")
    print_table("ledger", columns, [*rows[:-1:SHOWN_EVERY], rows[-1]], numbers=columns)


if __name__ == "__main__":
    raise SystemExit(main())
