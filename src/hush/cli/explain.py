"""`hush explain`: why epsilon is what it is, theorem by theorem."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hush.cli import options
from hush.cli.epsilon import NOT_A_THEOREM
from hush.cli.output import print_json, print_lines, print_table, times

if TYPE_CHECKING:
    from hush.accounting.explain import Explanation, Link

COLUMNS = ("method", "epsilon", "cost", "as if trained", "what it does", "theorem")


def explain(
    *,
    noise_multiplier: options.NoiseMultiplier = None,
    sampling_prob: options.SamplingProb = None,
    steps: options.Steps = None,
    delta: options.Delta,
    relation: options.RelationName = "add_remove",
    event: options.EventFile = None,
    json: options.Json = False,
) -> None:
    """The chain from the loosest theorem to the exact epsilon, and what each looseness costs."""
    setting = options.setting_of(noise_multiplier, sampling_prob, steps, event)
    from hush import accounting
    from hush.privacy import check_relation

    story = accounting.explain(setting.event, delta, check_relation(relation))
    if json:
        print_json({**setting.to_dict(), **story.to_dict()})
    else:
        print_story(story, str(setting))


def print_story(story: Explanation, subject: str) -> None:
    """The chain as a table, and what lies beside it as lines."""
    title = f"epsilon at delta {story.delta:g}, {story.relation}: {subject}"
    rows = [_row(link) for link in (*story.chain, story.approximation)]
    print_table(title, COLUMNS, rows, numbers=("epsilon", "cost", "as if trained"))
    print_lines(*_legend(story))


def _row(link: Link) -> tuple[str, ...]:
    from hush.privacy import round_up

    if link.epsilon is None:
        return link.method, "-", "-", "-", f"Does not apply: {link.reason}", link.theorem
    return link.method, round_up(link.epsilon), times(link.cost), times(link.steps_ratio), link.idea, link.theorem


def _legend(story: Explanation) -> list[str]:
    from hush.privacy import round_up

    lines = ["cost: this epsilon over the next one that applies."]
    if any(link.steps_ratio for link in story.chain):
        lines.append("as if trained: at this epsilon the exact accountant allows so many times the steps.")
    if story.published_strong_composition is not None:
        lines.append(f"For comparison, {NOT_A_THEOREM}: {round_up(story.published_strong_composition)}")
    if story.sensitivities:
        changes = ", ".join(f"{item.parameter} {item.percent:+.3f} %" for item in story.sensitivities)
        lines.append(f"One per cent more of each changes epsilon by: {changes}.")
    return lines
