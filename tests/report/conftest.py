"""Small runs of each kind, made once, and a real browser where there is one."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
from prompt_runs import prompt_run, tiny_model
from small_runs import train

import hush
from hush import linear, report
from hush.audit import WhiteBox
from hush.cli.main import run
from hush.training import AdaptiveClipping

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1000,900"),
)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training of the user's own rows, with an audit and a description."""
    folder = tmp_path_factory.mktemp("runs") / "trained"
    train(folder, audit=WhiteBox(num_canaries=300))
    report.describe(
        folder,
        data="visits",
        model="linear",
        scores=report.Scores(name="test_accuracy", private=0.8123457, twin=0.8434567),
        facts={"learning rate": 0.1},
    )
    return folder


@pytest.fixture(scope="session")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A logistic regression that was fitted at once."""
    folder = tmp_path_factory.mktemp("runs") / "fitted"
    folder.mkdir()
    account = hush.Ledger(folder / "ledger.db").account("training", cap=hush.Budget(epsilon=1.0, delta=1e-5))
    x = numpy.linspace(-0.5, 0.5, 400).reshape(100, 4)
    model = linear.PrivateLogisticRegression(epsilon=1.0, delta=1e-5, data_norm=2.0, classes=[0, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        linear.save(model.fit(x, numpy.arange(100) % 2, account=account), folder, account=account)
    return folder


@pytest.fixture(scope="session")
def adaptive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training whose clip norm follows the gradients."""
    folder = tmp_path_factory.mktemp("runs") / "adaptive"
    train(folder, steps=12, adaptive=AdaptiveClipping(quantile=0.5, count_stddev=5.0))
    return folder


@pytest.fixture(scope="session")
def commanded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training by `hush train` on public rows, with its twin."""
    folder = tmp_path_factory.mktemp("runs") / "digits"
    words = ("train", "--data", "digits", "--epsilon", "3", "--model", "linear", "--steps", "12")
    assert run([*words, "--out", str(folder)]) == 0
    return folder


@pytest.fixture(scope="session")
def voted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of `hush pate`, charged to a ledger that others share."""
    folder = tmp_path_factory.mktemp("runs") / "pate"
    words = ("pate", "--data", "digits", "--teachers", "20", "--student", "plain", "--student-steps", "5")
    shared = ("--ledger", str(folder.with_name("team.db")))
    assert run([*words, *shared, "--epsilon", "3", "--queries", "15", "--out", str(folder)]) == 0
    return folder


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model of random weights."""
    return tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def prompts_voted(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Path:
    """A run of `hush prompt pate`."""
    return prompt_run("votes", tmp_path_factory.mktemp("runs") / "votes", model_folder)


@pytest.fixture(scope="session")
def generated(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Path:
    """A run of `hush prompt generate`."""
    return prompt_run("generation", tmp_path_factory.mktemp("runs") / "made", model_folder)


@pytest.fixture(scope="session")
def soft_prompt(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Path:
    """A run of `hush prompt soft --run`."""
    return prompt_run("soft prompt", tmp_path_factory.mktemp("runs") / "soft", model_folder)


@pytest.fixture(scope="session")
def audited(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An audit alone."""
    folder, found = tmp_path_factory.mktemp("runs") / "audit", hush.Run.load(trained)
    assert found.audit is not None
    report.save_audit(folder, found.audit, source="a plan", event=found.event)
    return folder


@pytest.fixture(scope="session")
def everything(request: pytest.FixtureRequest) -> Callable[[str], dict[str, Any]]:
    """The report on a kind of run with what is not private, made once."""
    made: dict[str, dict[str, Any]] = {}

    def of(kind: str) -> dict[str, Any]:
        if kind not in made:
            made[kind] = report.read(request.getfixturevalue(kind), include_private=True)
        return made[kind]

    return of


@pytest.fixture(scope="session")
def content(trained: Path) -> dict[str, Any]:
    """The report on that training."""
    return report.read(trained)


@pytest.fixture
def copy(trained: Path, tmp_path: Path) -> Path:
    """A training that a test may spoil."""
    return Path(shutil.copytree(trained, tmp_path / "copy"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Headless Chromium; its logs of the page and of the network are kept."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("there is no chromium with its chromedriver on this machine")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    with tempfile.TemporaryDirectory(prefix="hush-", ignore_cleanup_errors=True) as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        found = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
        try:
            yield found
        finally:
            found.quit()
