"""A report says what the run says, refuses what was edited, and shows nothing private unasked."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy
import pytest
from small_runs import train

import hush
from hush import _digest, accounting, events, report
from hush.errors import HushError, InvalidValue, UnreadableFile
from hush.report.of_audit import AUDIT_FILE
from hush.report.reading import read_subject
from hush.training.files import read_tensors, write_tensors


def plot(content: dict[str, Any], key: str) -> dict[str, Any]:
    return next(values for values in content["plots"] if values["key"] == key)


def line(values: dict[str, Any], name: str) -> dict[str, Any]:
    return next(found for found in values["lines"] if found["name"] == name)


def edit(path: Path, **changes: Any) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**data, **changes}), encoding="utf-8")


def test_every_item_of_a_training(trained: Path, content: dict[str, Any]) -> None:
    run = hush.Run.load(trained)
    assert content["kind"] == "training"
    assert content["guarantee"] == run.guarantee.to_dict()
    assert content["claim"]["proven"]
    assert content["claim"]["unit"] == "example"
    assert {"e^2", "1e-05"} <= set(content["claim"]["symbols"].replace("·", " ").split())
    facts = {fact["label"]: fact["value"] for fact in content["facts"]}
    assert facts["data"] == "visits"
    assert facts["noise multiplier"] == run.plan.noise_multiplier
    assert facts["weights in the model"] == 12
    assert [row["method"] for row in content["methods"]] == [
        *("basic", "advanced", "optimal", "moments", "rdp", "exact", "gdp_clt"),
    ]
    assert content["ledger"]["account_head"] == run.ledger.verify().heads["training"]
    assert sum(row["count"] for row in content["ledger"]["rows"]) == 40
    assert run.evidence is not None
    assert content["evidence"][0]["evidence"] == run.evidence.to_dict()
    assert content["versions"]["run"]["hush"] == content["versions"]["report"]["hush"]
    assert any("tuning" in text.lower() for text in content["not_covered"])
    assert any("stopping" in text.lower() for text in content["not_covered"])
    assert content["check"][0].startswith("hush ledger verify ledger.db --head training=")


def test_curves_are_the_accountants(trained: Path, content: dict[str, Any]) -> None:
    run = hush.Run.load(trained)
    exact = line(plot(content, "steps"), "exact")
    assert exact["x"][-1] == 40
    assert exact["y"][-1] == run.guarantee.epsilon
    assert line(plot(content, "steps"), "exact, lower end")["y"][-1] == run.guarantee.epsilon_lower
    middle = exact["x"].index(20) if 20 in exact["x"] else len(exact["x"]) // 2
    part = events.Repeated(run.plan.step_event, exact["x"][middle])
    assert exact["y"][middle] == pytest.approx(accounting.guarantee(part, delta=1e-5).epsilon, rel=1e-9)
    names = {found["name"] for found in plot(content, "steps")["lines"]}
    assert {"basic composition", "moments accountant", "Rényi accountant", "exact"} <= names
    deltas = line(plot(content, "delta"), "delta")
    answer = accounting.delta(run.event, epsilon=deltas["x"][5])
    assert deltas["y"][5] == pytest.approx(answer.delta, rel=1e-9)


def test_the_measured_curve_is_in_the_attack_plot(content: dict[str, Any]) -> None:
    measured = line(plot(content, "attacks"), "measured by audit")
    assert measured["x"] == sorted(measured["x"])
    assert measured["y"] == sorted(measured["y"])
    assert measured["x"][-1] == measured["y"][-1] == 1


def test_nothing_private_unless_asked(trained: Path, content: dict[str, Any]) -> None:
    kept = json.loads((trained / "not_private.json").read_text(encoding="utf-8"))
    shown = json.dumps(content)
    for secret in (*(str(value) for value in kept["loss"][:5]), "0.8123457", "0.8434567"):
        assert secret not in shown
    assert content["not_private"] is None
    assert content["scores"] is None
    assert {"loss of each batch", "test results"} <= set(content["left_out"])
    asked = report.read(trained, include_private=True)
    assert asked["not_private"]["scores"]["private"] == 0.8123457
    assert asked["not_private"]["plots"][0]["lines"][0]["y"] == kept["loss"]
    assert "0.8123457" not in (trained / "about.json").read_text(encoding="utf-8")


def test_results_on_public_rows_are_shown(copy: Path) -> None:
    scores = report.Scores(name="test_accuracy", private=0.9, twin=0.95)
    report.describe(copy, data="digits", model="cnn", public_data=True, scores=scores)
    found = read_subject(copy).scores
    assert found is not None
    assert found.twin == 0.95


def test_private_files_have_another_name(trained: Path, tmp_path: Path) -> None:
    names = [path.name for path in report.write(trained, out=tmp_path, include_private=True)]
    assert names == [f"report-not-private.{ending}" for ending in ("html", "md", "json")]
    assert "Do not publish" in (tmp_path / "report-not-private.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "changes",
    [
        {"guarantee": {"epsilon": 0.1}},
        {"event": events.to_dict(events.Composed(events.Gaussian(100.0)))},
        {"note": "run 0000"},
        {"account": "other"},
        {"plan_fingerprint": "0" * 64},
        {"format": 99},
        {"plan": {}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_an_edited_run_is_refused(copy: Path, changes: dict[str, Any]) -> None:
    edit(copy / "run.json", **changes)
    with pytest.raises(HushError):
        report.read(copy)


def sign(folder: Path) -> None:
    """As if another version of Hush had written run.json so."""
    facts = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    tensors, notes = read_tensors(folder / "model.safetensors")
    write_tensors(folder / "model.safetensors", tensors, {**notes, _digest.RUN: _digest.of_facts(facts)})
    edit(folder / "run.json", **{_digest.WEIGHTS: _digest.of_file(folder / "model.safetensors")})


def test_a_claim_below_the_charges_is_refused_and_other_last_digits_are_not(copy: Path) -> None:
    stated = json.loads((copy / "run.json").read_text(encoding="utf-8"))["guarantee"]
    found = hush.Run.load(copy).guarantee
    edit(
        copy / "run.json",
        audit=None,
        guarantee={**stated, "epsilon": found.epsilon_lower * (1 - 1e-6), "epsilon_lower": 0.0},
    )
    with pytest.raises(UnreadableFile, match="do not say the same"):
        read_subject(copy)
    edit(copy / "run.json", guarantee={**stated, "epsilon": found.epsilon * (1 + 1e-6)})
    sign(copy)
    assert read_subject(copy).guarantee == found  # what this installation proves


def test_an_edited_noise_is_refused(copy: Path) -> None:
    plan = json.loads((copy / "run.json").read_text(encoding="utf-8"))["plan"]
    edit(copy / "run.json", plan={**plan, "noise_multiplier": 100.0})
    with pytest.raises(UnreadableFile, match="fingerprint"):
        report.read(copy)


def test_weights_of_another_run_are_refused(copy: Path, tmp_path: Path) -> None:
    train(tmp_path / "other", steps=11)
    shutil.copy(tmp_path / "other" / "model.safetensors", copy)
    with pytest.raises(UnreadableFile, match="another run"):
        report.read(copy)


def test_other_folders_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="no folder"):
        report.read(tmp_path / "nowhere")
    with pytest.raises(UnreadableFile, match="neither"):
        report.read(tmp_path)
    (tmp_path / "run.json").write_text('{"something": 1}', encoding="utf-8")
    with pytest.raises(UnreadableFile, match="kind"):
        report.read(tmp_path)
    (tmp_path / "run.json").unlink()
    (tmp_path / "checkpoint.safetensors").write_bytes(b"")
    with pytest.raises(UnreadableFile, match="not finished"):
        report.read(tmp_path)
    with pytest.raises(InvalidValue, match="html"):
        report.write(tmp_path, formats=("pdf",))


def test_a_seed_is_warned_of(tmp_path: Path) -> None:
    train(tmp_path, rng=hush.Rng.from_seed(73_219), steps=11)
    found = read_subject(tmp_path)
    assert "73219" in (tmp_path / "run.json").read_text(encoding="utf-8")
    assert "73219" not in repr(found)  # whoever has it can take the noise away
    assert any("Do not release" in text for text in found.warnings)
    assert "data without a name" in found.title


def test_a_linear_model(fitted: Path) -> None:
    content = report.read(fitted)
    assert content["kind"] == "linear"
    assert content["guarantee"]["epsilon"] <= 1.0
    coefficients = hush.linear.load(fitted).coef_.ravel()
    assert plot(content, "coefficients")["lines"][0]["y"] == coefficients.tolist()
    assert len(content["ledger"]["rows"]) == 1


def test_an_audit_beside_a_run_and_alone(copy: Path, tmp_path: Path) -> None:
    run = hush.Run.load(copy)
    assert run.audit is not None
    report.save_audit(copy, run.audit, source="again", event=run.event)
    assert len(read_subject(copy).evidence) == 1  # the same audit is not shown twice
    weaker = hush.Evidence(epsilon_at_least=0.0, delta=1e-5, significance=0.05, method="one_run")
    report.save_audit(copy, weaker, source="a black box")
    assert [item["source"] for item in read_subject(copy).evidence][-1] == "a black box"
    report.save_audit(tmp_path / "alone", run.audit, source="a plan", event=run.event)
    content = report.read(tmp_path / "alone")
    assert content["kind"] == "audit"
    assert not content["claim"]["proven"]
    assert "not proven here" in content["claim"]["sentence"]


def test_evidence_without_a_claim_proves_nothing(tmp_path: Path) -> None:
    found = hush.Evidence(epsilon_at_least=1.5, delta=1e-5, significance=0.05, method="one_run")
    report.save_audit(tmp_path, found, source="a black box")
    content = report.read(tmp_path)
    assert content["guarantee"] is None
    assert content["claim"]["sentence"].startswith("Nothing is proven")
    assert "Nothing is proven" in report.text_of(content, "html")
    assert "1.5" in report.text_of(content, "md")


def test_a_contradiction_comes_first(copy: Path) -> None:
    data = json.loads((copy / "run.json").read_text(encoding="utf-8"))
    audit = {**data["audit"], "rate_at_least": 1.0}
    (copy / AUDIT_FILE).write_text(
        json.dumps({"format": 1, "source": "x", "event": None, "audit": audit, "evidence": None}), encoding="utf-8"
    )
    assert read_subject(copy).warnings[0].startswith("CONTRADICTION")


def test_the_audits_curve_is_right() -> None:
    from hush.audit.white_box import _roc

    scores, coins = numpy.array([3.0, 2.0, 2.0, 1.0]), numpy.array([True, True, False, False])
    assert _roc(scores, coins) == ((0.0, 0.0), (0.0, 0.5), (0.5, 1.0), (1.0, 1.0))
