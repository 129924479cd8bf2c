"""The real console script: how it starts, what it loads, where its words go, how it ends."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from command_line import CLASSIC, SCRIPT, launch

NEVER_LOADED = ("torch", "sqlalchemy", "scipy.optimize", "scipy.stats", "matplotlib", "plotly", "pandas", "sklearn")


def test_epsilon_answers_from_a_fresh_process() -> None:
    assert "0.946867" in launch("epsilon", *CLASSIC).out


def test_epsilon_loads_no_heavy_package() -> None:
    code = "import sys; from hush.cli.main import run; run(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code, "epsilon", *CLASSIC], capture_output=True, text=True, timeout=300, check=True
    )
    loaded = set(done.stderr.split())
    assert "numpy" in loaded  # so that the list is not empty
    assert not loaded & set(NEVER_LOADED)


def test_help_loads_no_numpy() -> None:
    code = "import sys; from hush.cli.main import run; run([]); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    loaded = set(done.stderr.split())
    assert "typer" in loaded
    assert not loaded & {"numpy", "scipy", "rich.table"}


def test_json_alone_on_stdout() -> None:
    answer = launch("epsilon", *CLASSIC, "--json")
    assert answer.code == 0
    assert answer.err == ""
    assert answer.data["method"] == "exact"


@pytest.mark.parametrize(
    "arguments",
    [
        ("epsilon", *CLASSIC[:-1], "nan"),
        ("epsilon", *CLASSIC, "--method", "none"),
        ("epsilon", "--event", "nowhere.json", "--delta", "1e-5"),
        ("calibrate", "--epsilon", "-1", "--delta", "1e-5", "--steps", "1", "--sampling-prob", "1"),
        ("ledger", "verify", "nowhere.db"),
        ("nonsense",),
    ],
)
def test_bad_input_ends_with_2_and_one_line(arguments: tuple[str, ...]) -> None:
    assert launch(*arguments).is_refused()


def test_event_from_stdin() -> None:
    answer = launch("epsilon", "--event", "-", "--delta", "0", "--json", stdin='{"event":"PureDP","epsilon":0.25}')
    assert answer.code == 0
    assert 0.25 <= answer.data["epsilon"] <= 0.25 * (1 + 1e-4)


def test_no_colour_codes_and_no_cut_lines_in_a_pipe() -> None:
    answer = launch("explain", *CLASSIC, TERM="xterm-256color")
    assert answer.code == 0
    assert "\x1b" not in answer.out
    assert "…" not in answer.out
    assert max(len(line) for line in answer.out.splitlines()) <= 120


def test_a_terminal_without_the_letters_still_gets_an_answer() -> None:
    answer = launch("explain", *CLASSIC, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert answer.code == 0
    assert "0.946867" in answer.out


@pytest.mark.skipif(os.name != "posix" or not SCRIPT.exists(), reason="needs a shell and the installed script")
def test_a_reader_that_leaves_early_gets_no_traceback() -> None:
    command = f"'{SCRIPT}' explain {' '.join(CLASSIC)} --json | head -n 1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=300)
    assert done.stdout == "{\n"
    assert done.stderr == ""
