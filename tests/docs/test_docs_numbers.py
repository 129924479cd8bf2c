"""Numbers that the documents print, computed anew: ours against 32-digit values, others' by the other library."""

from __future__ import annotations

import math
import re
from pathlib import Path

import dp_accounting
import pytest

from hush import Budget, accounting, events
from hush.privacy import round_up

ROOT = Path(__file__).resolve().parents[2]

# sampling_prob, noise_multiplier, steps, delta -> epsilon under add/remove. From 32-digit contour integrals, each by
# two settings that agree to 1e-14; the rows with sampling_prob 1 and the single step also from their closed forms.
TRUTH = {
    (0.01, 4.0, 10_000, 1e-5): 0.94686680076438,
    (0.01, 2.0, 20_000, 1e-5): 3.18689983708349,
    (0.01, 4.0, 20_000, 1e-5): 1.38479073634841,
    (0.01, 8.0, 20_000, 1e-5): 0.63771234356330,
    (1e-4, 1.0, 1_000_000, 1e-6): 0.53242115554386,
    (0.01, 4.0, 10_000, 1e-10): 1.52821847666395,
    (0.01, 0.5, 1_000, 1e-5): 13.3608239853496,
    (0.01, 0.5, 10_000, 1e-5): 43.3664898604199,
    (1.0, 20.0, 100, 1e-5): 1.99309140441512,
    (1.0, 10.0, 1_000, 1e-5): 17.8565868301076,
    (0.08192, 3.0, 2_500, 1e-5): 6.57889585057720,
    (0.5, 1.0, 1, 1e-5): 3.53399798544900,
    (0.2, 1.0, 500, 1e-5): 38.1702472064878,
    (0.001, 50.0, 100, 1e-6): 0.00043957378131202,
    (0.01, 1.0, 1_000, 1e-15): 4.85453775060492,
}
LANGUAGE_MODEL = (1e-5, 0.6, 100_000, 1e-8), 0.2630746, 2e-7  # known to this absolute error only
# target epsilon, delta, sampling_prob, steps -> noise, to the digits given (an exact accountant's root)
NOISE = {
    (1.0, 1e-5, 0.01, 10_000): 3.8128168,
    (8.0, 1e-5, 0.01, 10_000): 0.8825285,
    (3.0, 1e-6, 0.001, 100_000): 0.7902175,
    (8.0, 1e-5, 0.08192, 2_500): 2.5758326,
}
Setting = tuple[float, float, int, float]


def run_of(sampling_prob: float, noise_multiplier: float, steps: int) -> events.Event:
    return events.Repeated(events.PoissonSampled(events.Gaussian(noise_multiplier), sampling_prob), steps)


@pytest.mark.parametrize("setting", TRUTH, ids=str)
def test_exact_interval_holds_the_truth_and_is_narrow(setting: Setting) -> None:
    *parameters, delta = setting
    found = accounting.guarantee(run_of(*parameters), delta=delta)
    truth = TRUTH[setting]
    # The reference has 15 digits; half a unit of its last one is not ours.
    assert found.epsilon_lower <= truth * (1 + 2e-14)
    assert truth * (1 - 2e-14) <= found.epsilon
    assert found.gap <= 1e-6 * truth


def test_exact_interval_on_the_heavy_tail() -> None:
    (*parameters, delta), truth, error = LANGUAGE_MODEL
    found = accounting.guarantee(run_of(*parameters), delta=delta)
    assert truth - error <= found.epsilon_lower <= found.epsilon <= truth + error


@pytest.mark.parametrize("target", NOISE, ids=str)
def test_calibrated_noise_is_the_exact_one_from_above(target: Setting) -> None:
    epsilon, delta, sampling_prob, steps = target
    budget = Budget(epsilon=epsilon, delta=delta)
    noise = accounting.noise_for(budget, sampling_prob=sampling_prob, steps=int(steps))
    assert noise == pytest.approx(NOISE[target], abs=6e-8)
    assert budget.allows(accounting.guarantee(run_of(sampling_prob, noise, int(steps)), delta=delta))


def readme_rows() -> list[list[str]]:
    text = (ROOT / "README.md").read_text(encoding="utf-8").split("## Why another one")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    assert rows[0] == ["sampling_prob", "noise_multiplier", "steps", "delta", "Hush, exact", "RDP", "PLD"]
    return rows[2:]


@pytest.mark.parametrize("row", readme_rows(), ids=lambda row: "-".join(row[:4]))
def test_readme_table_is_what_the_programs_say(row: list[str]) -> None:
    sampling_prob, noise, steps, delta, ours, *theirs = row
    event, failure = run_of(float(sampling_prob), float(noise), int(steps)), float(delta)
    assert round_up(accounting.guarantee(event, delta=failure).epsilon) == ours
    for accountant, printed in zip((rdp_accountant(), pld_accountant()), theirs, strict=True):
        value = accountant.compose(events.to_dp_accounting(event)).get_epsilon(failure)
        assert value == pytest.approx(float(printed), rel=1e-5)
        assert value > float(ours) or math.isinf(value)


def rdp_accountant() -> dp_accounting.PrivacyAccountant:
    return dp_accounting.rdp.RdpAccountant()


def pld_accountant() -> dp_accounting.PrivacyAccountant:
    return dp_accounting.pld.PLDAccountant()


def test_strong_composition_page_has_the_computed_values() -> None:
    text = (ROOT / "docs" / "theory" / "strong-composition.md").read_text(encoding="utf-8")
    printed = {float(value) for value in re.findall(r"^\|[^|]*\| ([\d.]+) \|$", text, flags=re.MULTILINE)}
    from hush.accounting import composition

    event = run_of(0.01, 4.0, 10_000)
    values = {
        round(composition.published_strong_composition(4.0, 0.01, 10_000, 1e-5), 2),
        round(composition.strong_composition(4.0, 0.01, 10_000, 1e-5, form="original"), 2),
        round(composition.strong_composition(4.0, 0.01, 10_000, 1e-5), 2),
        round(accounting.guarantee(event, delta=1e-5, method="advanced").epsilon, 2),
        round(accounting.guarantee(event, delta=1e-5, method="moments").epsilon, 2),
        round(accounting.guarantee(event, delta=1e-5).epsilon, 3),
    }
    assert printed == values
