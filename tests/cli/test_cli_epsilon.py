"""`hush epsilon` and `hush explain`: values, tables, JSON and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import CLASSIC, call

from hush import events
from hush.accounting import METHODS
from hush.cli.output import one_line, round_down

TRUTH = 0.94686680076438


def test_table_has_the_epsilon_rounded_up(capsys: pytest.CaptureFixture[str]) -> None:
    answer = call(capsys, "epsilon", *CLASSIC)
    assert answer.code == 0
    assert answer.err == ""
    for part in ("0.946867", "exact", "10,000 steps", "delta 1e-05", "add_remove"):
        assert part in answer.out
    assert "\x1b" not in answer.out


def test_json_is_one_object_with_the_glossary_words(capsys: pytest.CaptureFixture[str]) -> None:
    data = call(capsys, "epsilon", *CLASSIC, "--json").data
    assert data["epsilon_lower"] <= TRUTH <= data["epsilon"]
    assert data["epsilon"] - data["epsilon_lower"] < 1e-6
    expected = {"delta": 1e-5, "relation": "add_remove", "method": "exact", "proven": True}
    asked = {"noise_multiplier": 4.0, "sampling_prob": 0.01, "steps": 10_000}
    for key, value in {**expected, **asked}.items():
        assert data[key] == value
    assert events.from_dict(data["event"]).times == 10_000  # type: ignore[attr-defined]


def test_all_methods_in_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    out = call(capsys, "epsilon", *CLASSIC, "--method", "all").out
    rows = {line.split()[0]: line for line in out.splitlines() if line.split() and line.split()[0] in METHODS}
    assert set(rows) == set(METHODS)
    for method, value in {"moments": "1.25858", "exact": "0.946867", "rdp": "1.03539"}.items():
        assert value in rows[method]
    assert "no bound" in rows["gdp_clt"]
    assert "(not a theorem): 9.33764" in out


def test_all_methods_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    data = call(capsys, "epsilon", *CLASSIC, "--method", "all", "--json").data
    found = {item["method"]: item for item in data["methods"]}
    assert set(found) == set(METHODS)
    assert found["moments"]["epsilon"] == pytest.approx(1.258575, abs=1e-6)
    assert [method for method, item in found.items() if not item["proven"]] == ["gdp_clt"]
    assert all(item["epsilon"] >= TRUTH for item in found.values() if item["proven"])
    assert data["published_strong_composition"] == pytest.approx(9.337634, abs=1e-6)
    assert data["steps"] == 10_000


def test_methods_that_do_not_apply_keep_their_reason(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("epsilon", *CLASSIC, "--relation", "replace_one", "--method", "all")
    found = {item["method"]: item for item in call(capsys, *arguments, "--json").data["methods"]}
    assert found["exact"]["epsilon"] == pytest.approx(1.993120057, rel=1e-6)
    assert found["basic"]["epsilon"] is None
    assert "PoissonSampled" in found["basic"]["reason"]
    assert "does not apply" in call(capsys, *arguments).out


def test_one_method_that_does_not_apply_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    answer = call(capsys, "epsilon", *CLASSIC, "--relation", "replace_one", "--method", "basic")
    assert answer.is_refused()
    assert "PoissonSampled" in answer.err


@pytest.mark.parametrize("steps", ["1e4", "10_000", "10000.0", "10000"])
def test_whole_steps_in_any_spelling(capsys: pytest.CaptureFixture[str], steps: str) -> None:
    arguments = ("--noise-multiplier", "4", "--sampling-prob", "1e-2", "--steps", steps, "--delta", "1e-5")
    data = call(capsys, "epsilon", *arguments, "--json").data
    assert data["steps"] == 10_000


def test_event_file_gives_the_same_answer_as_the_numbers(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    step = events.PoissonSampled(events.Gaussian(4.0), 0.01)
    file = tmp_path / "event.json"
    file.write_text(events.to_json(events.Repeated(step, 10_000)))
    arguments = ("epsilon", "--delta", "1e-5", "--json")
    assert call(capsys, *arguments, "--event", file).data == call(capsys, "epsilon", *CLASSIC, "--json").data


def test_event_file_of_another_mechanism(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "event.json"
    file.write_text(events.to_json(events.Repeated(events.RandomizedResponse(0.5, 2), 3)))
    data = call(capsys, "epsilon", "--event", file, "--delta", "0", "--json").data
    assert data["epsilon"] == pytest.approx(1.5, rel=1e-4)
    assert data["epsilon"] >= 1.5
    assert "noise_multiplier" not in data


def test_no_privacy_is_the_word_infinity(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "event.json"
    file.write_text('{"event":"NotPrivate"}')
    answer = call(capsys, "epsilon", "--event", file, "--delta", "1e-5", "--method", "all", "--json")
    assert {item["epsilon"] for item in answer.data["methods"]} == {"infinity"}


def replaced(option: str, value: str) -> list[str]:
    arguments = list(CLASSIC)
    arguments[arguments.index(option) + 1] = value
    return arguments


BAD = {
    "noise nan": (replaced("--noise-multiplier", "nan"), "noise_multiplier must be"),
    "noise zero": (replaced("--noise-multiplier", "0"), "noise_multiplier must be above 0"),
    "noise negative": (replaced("--noise-multiplier", "-1"), "noise_multiplier must be above 0"),
    "noise infinite": (replaced("--noise-multiplier", "inf"), "noise_multiplier must be"),
    "noise a word": (replaced("--noise-multiplier", "much"), "--noise-multiplier"),
    "sampling_prob above 1": (replaced("--sampling-prob", "1.5"), "sampling_prob must be above 0 and at most 1"),
    "sampling_prob zero": (replaced("--sampling-prob", "0"), "sampling_prob must be"),
    "steps zero": (replaced("--steps", "0"), "steps must be at least 1"),
    "steps negative": (replaced("--steps", "-5"), "steps must be at least 1"),
    "steps broken": (replaced("--steps", "1.5"), "not a whole number"),
    "steps nan": (replaced("--steps", "nan"), "not a whole number"),
    "steps infinite": (replaced("--steps", "1e999"), "not a whole number"),
    "steps beyond reason": (replaced("--steps", "1e30"), "steps must be at most 1e+12"),
    "delta one": (replaced("--delta", "1"), "delta must be in [0, 1)"),
    "delta negative": (replaced("--delta", "-0.1"), "delta must be in [0, 1)"),
    "delta nan": (replaced("--delta", "nan"), "delta must be in [0, 1)"),
    "delta missing": (list(CLASSIC[:-2]), "'--delta'"),
    "steps missing": ([*CLASSIC[:4], *CLASSIC[6:]], "missing --steps"),
    "unknown method": ([*CLASSIC, "--method", "best"], "method must be one of"),
    "unknown relation": ([*CLASSIC, "--relation", "friends"], "relation must be one of"),
    "unknown option": ([*CLASSIC, "--sigma", "3"], "--sigma"),
    "extra word": ([*CLASSIC, "please"], "please"),
    "both file and numbers": ([*CLASSIC, "--event", "x.json"], "leave out --noise-multiplier"),
    "no such file": (["--event", "nowhere.json", "--delta", "1e-5"], "nowhere.json"),
    "plot of another kind": ([*CLASSIC, "--plot", "epsilon.gif"], ".html, .png, .svg, .pdf"),
    "plot nowhere": ([*CLASSIC, "--plot", "no/such/folder/e.png"], "no folder"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str], name: str) -> None:
    arguments, message = BAD[name]
    answer = call(capsys, "epsilon", *arguments, "--json")
    assert answer.is_refused()
    assert message in answer.err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an event in JSON"),
        (b"\xff\xfe\x00", "not an event in JSON"),
        (b'{"event":"Magic"}', "unknown event 'Magic'"),
        (b'{"event":"Gaussian","noise_multiplier":NaN}', "NaN"),
        (b'{"event":"Gaussian","noise_multiplier":-1}', "noise_multiplier must be above 0"),
        (b'{"event":"Repeated","of":{"event":"Laplace","scale":1},"times":0}', "times must be at least 1"),
        (b"[" * 100_000, "event.json"),
    ],
)
def test_bad_event_files(capsys: pytest.CaptureFixture[str], tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "event.json"
    file.write_bytes(content)
    for command in ("epsilon", "explain"):
        answer = call(capsys, command, "--event", file, "--delta", "1e-5")
        assert answer.is_refused()
        assert "event.json" in answer.err
        assert message in answer.err


def test_explain_table(capsys: pytest.CaptureFixture[str]) -> None:
    out = call(capsys, "explain", *CLASSIC).out
    for part in (
        "0.946867",
        "1.25858",
        "9.33764",
        "not a theorem",
        "Abadi et al. 2016",
        "Theorem 2",
        "noise_multiplier -1.1",
    ):
        assert part in out
    order = [line.split()[0] for line in out.splitlines() if line.split() and line.split()[0] in METHODS]
    assert order == ["basic", "advanced", "optimal", "moments", "rdp", "exact", "gdp_clt"]


def test_explain_json(capsys: pytest.CaptureFixture[str]) -> None:
    data = call(capsys, "explain", *CLASSIC, "--json").data
    assert data["noise_multiplier"] == 4.0
    assert [item["method"] for item in data["methods"]][-2:] == ["exact", "gdp_clt"]
    assert {item["parameter"] for item in data["sensitivities"]} == {"noise_multiplier", "sampling_prob", "steps"}


def test_help_teaches_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    answer = call(capsys)
    assert answer.code == 0
    for part in ("hush epsilon --noise-multiplier 4", "hush calibrate", "hush explain", "hush ledger verify"):
        assert part in answer.out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    import hush

    assert call(capsys, "--version").out == f"hush {hush.__version__}\n"


def test_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    answer = call(capsys, "epsylon")
    assert answer.is_refused()
    assert "epsylon" in answer.err


@pytest.mark.parametrize("value", [0.1 + 0.2, 1.0, 123456.789, 9.99999999e-7, 2e300])
def test_round_down_never_rounds_up(value: float) -> None:
    shown = float(round_down(value))
    assert shown <= value
    assert shown == pytest.approx(value, rel=1.1e-5)


@pytest.mark.parametrize(("value", "text"), [(2.0, "2"), (0.3, "0.3"), (0.0, "0"), (1.9999999, "1.99999")])
def test_round_down_keeps_what_is_short(value: float, text: str) -> None:
    assert round_down(value) == text


def test_one_line_takes_no_control_characters() -> None:
    assert json.dumps(one_line("a\x1b]0;title\x07\nb")) == '"a?]0;title? b"'
