"""A plan as lines that carry it out: the `hush train` command and the Python of a `TrainingPlan`."""

from __future__ import annotations

import shlex

from hush.planner.question import Question
from hush.privacy import Guarantee, round_up

_TABLES = (".csv", ".parquet")


def command(found: Question, answer: Guarantee, data: str) -> str:
    """The command that trains inside this plan's cost; it looks for the least noise itself.

    >>> from hush.planner.solve import settle
    >>> asked = Question(num_examples=1438, expected_batch_size=256, epochs=40, noise_multiplier=2.0, delta=1e-5,
    ...                  epsilon=3.0, find="noise_multiplier")
    >>> command(*settle(asked), "digits")
    'hush train --data digits --epsilon 3 --delta 1e-05 --num-examples 1438 --expected-batch-size 256 --steps 225'
    """
    words = ["hush", "train", "--data", data, "--epsilon", round_up(answer.epsilon), "--delta", repr(found.delta)]
    words += ["--num-examples", str(found.num_examples), "--expected-batch-size", str(found.expected_batch_size)]
    words += ["--steps", str(found.steps)]
    if found.relation != "add_remove":
        words += ["--relation", found.relation]
    if data.lower().endswith(_TABLES):
        words += ["--schema", "schema.json"]
    return shlex.join(words)


def python_lines(found: Question) -> str:
    """The Python that makes this plan, and prints what it costs."""
    calibrated = found.find == "noise_multiplier"
    start = (
        f"plan = TrainingPlan.for_budget(\n    Budget(epsilon={found.epsilon!r}, delta={found.delta!r}),"
        if calibrated
        else f"plan = TrainingPlan(\n    noise_multiplier={found.noise_multiplier!r},\n    delta={found.delta!r},"
    )
    relation = "" if found.relation == "add_remove" else f"    relation={found.relation!r},\n"
    return (
        f"from hush import {'Budget, ' if calibrated else ''}TrainingPlan\n\n"
        f"{start}\n"
        f"    sampling_prob={found.expected_batch_size} / {found.num_examples},\n"
        f"    expected_batch_size={found.expected_batch_size},\n"
        f"    steps={found.steps},\n"
        f"    clip_norm=1.0,  # the bound on one example's gradient: choose it for your model\n"
        f"{relation})\n"
        f"print(plan.guarantee())\n"
    )
