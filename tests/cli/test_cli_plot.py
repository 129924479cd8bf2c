"""`hush epsilon --plot`: files of the right kind, with the published figures in them."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

import pytest
from command_line import CLASSIC, call
from hypothesis import given
from hypothesis import strategies as st

from hush import events
from hush.accounting.calibrate import sampled_gaussian
from hush.cli.curves import curves, spread
from hush.report.curves import step_points

FIRST_BYTES = {".png": b"\x89PNG\r\n", ".pdf": b"%PDF", ".svg": b"<?xml", ".html": b"<html"}
SHORT = ("--noise-multiplier", "4", "--sampling-prob", "0.01", "--steps", "5", "--delta", "1e-5")


@pytest.mark.parametrize("ending", FIRST_BYTES)
def test_each_kind_of_file(capsys: pytest.CaptureFixture[str], tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"epsilon{ending}"
    answer = call(capsys, "epsilon", *SHORT, "--plot", file, "--json")
    assert answer.code == 0
    assert answer.data["plot"] == str(file)
    assert str(file) in answer.err  # the news is on stderr, the result on stdout
    assert FIRST_BYTES[ending] in file.read_bytes()[:100]


def test_page_has_the_published_figure(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "epsilon.html"
    call(capsys, "epsilon", *CLASSIC, "--plot", file)
    text = file.read_text(encoding="utf-8")
    for part in ("1.26  moments accountant", "9.34  strong composition as published (not a theorem)", "0.947  exact"):
        assert part in text
    for part in ("sampling_prob 0.01, noise_multiplier 4, delta 1e-05", "advanced composition", "steps (number of"):
        assert part in text
    assert re.search(r"<script[^>]*\ssrc=", text[:3000] + text[-20_000:]) is None  # seen without a network
    assert len(text) > 1_000_000


def test_curves_rise_and_end_at_the_known_values() -> None:
    found = {curve.method: curve for curve in curves(_classic(), 1e-5, "add_remove")}
    assert found["exact"].end == pytest.approx(0.946867, abs=1e-6)
    assert found["moments"].end == pytest.approx(1.258575, abs=1e-6)
    assert found["published"].end == pytest.approx(9.337634, abs=1e-6)
    for curve in found.values():
        assert curve.steps[-1] == 10_000
        assert all(low <= high * (1 + 1e-9) for low, high in itertools.pairwise(curve.epsilons))
    for method in ("basic", "advanced", "optimal", "moments", "rdp"):
        exact = dict(zip(found["exact"].steps, found["exact"].epsilons, strict=True))
        pairs = zip(found[method].steps, found[method].epsilons, strict=True)
        assert all(bound >= exact[steps] * (1 - 1e-9) for steps, bound in pairs)


def _classic() -> events.Repeated:
    event = sampled_gaussian(4.0, 0.01, 10_000)
    assert isinstance(event, events.Repeated)
    return event


def test_methods_that_do_not_apply_are_left_out() -> None:
    event = events.Repeated(events.Laplace(2.0), 4)
    assert {curve.method for curve in curves(event, 1e-5, "add_remove")}.isdisjoint({"gdp_clt", "published"})


@pytest.mark.parametrize("words", [("--steps", "1"), ("--delta", "0")])
def test_nothing_to_draw(capsys: pytest.CaptureFixture[str], tmp_path: Path, words: tuple[str, str]) -> None:
    arguments = list(SHORT)
    arguments[arguments.index(words[0]) + 1] = words[1]
    answer = call(capsys, "epsilon", *arguments, "--plot", tmp_path / "e.png")
    assert answer.is_refused()
    assert "--plot" in answer.err


@given(st.integers(min_value=1, max_value=10**12))
def test_step_points_rise_to_the_number_asked_for(most: int) -> None:
    points = step_points(most)
    assert points[-1] == most
    assert points[0] >= 1
    assert all(low < high for low, high in itertools.pairwise(points))


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=9), st.floats(0.01, 1))
def test_labels_are_kept_apart_in_order(places: list[float], gap: float) -> None:
    places = sorted(places, reverse=True)
    spaced = spread(places, gap)
    assert len(spaced) == len(places)
    assert all(high - low >= gap * (1 - 1e-6) for high, low in itertools.pairwise(spaced))
    assert math.fsum(spaced) == pytest.approx(math.fsum(places), abs=1e-6)  # moved as little as possible, on average
