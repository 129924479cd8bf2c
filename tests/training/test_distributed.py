"""Several real processes under torchrun train as one. Each start of processes serves many tests."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import distributed_worker as worker
import pytest
import torch
from scipy import stats
from torch import Tensor

from hush import Ledger, accounting
from hush.rng import Rng
from hush.training import Run
from hush.training.files import read_tensors

WORKER = Path(worker.__file__)
HOWS = {"whole": 0, "sharded": 1}
STEPS = 300  # of a run that is killed on its way
FALSE_ALARM = 1e-7  # of each statistical comparison below

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is a POSIX signal"),
    pytest.mark.xdist_group("torchrun"),  # one start of processes serves all
]


def start(job: str, folder: Path, size: int, *options: str, **settings: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}", *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", **settings}
    return subprocess.Popen(
        [*command, str(WORKER), job, str(folder)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@dataclass
class Found:
    """What the processes of one start wrote."""

    size: int
    tensors: dict[str, Tensor]
    ranks: list[dict[str, Any]]
    folder: Path

    def same(self, name: str) -> list[Any]:
        """One entry of every process."""
        return [rank[name] for rank in self.ranks]


def found_by(job: str, folder: Path, size: int) -> Found:
    process = start(job, folder, size)
    try:
        output, _ = process.communicate(timeout=500)
    finally:
        process.terminate()  # torchrun ends its processes with itself
    assert process.returncode == 0, output
    tensors, _ = read_tensors(folder / "found.safetensors")
    ranks = [json.loads((folder / f"found {rank}.json").read_text()) for rank in range(size)]
    return Found(size, tensors, ranks, folder)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Found:
    folder = tmp_path_factory.mktemp("two")
    for how in HOWS.values():
        worker.broken_off(folder / f"alone {how}", sharded=False, stop=3)  # the two processes go on with it
    return found_by("quick", folder, 2)


@pytest.fixture(scope="module")
def alone() -> dict[str, Tensor]:
    """The weights by one process that knows of no other."""
    return worker.same(False)


# Equality ---------------------------------------------------------------------------------------------------------


def check_same(found: Found, alone: dict[str, Tensor], how: int) -> None:
    assert alone
    start = {kind: worker.make_model(kind).state_dict() for kind in worker.KINDS}
    for name, value in alone.items():
        apart = float((found.tensors[f"same/{how}/{name}"] - value).abs().max())
        assert apart <= 1e-5, (name, apart)
    for kind, weights in start.items():  # and they went somewhere
        assert max(float((alone[f"{kind}/{name}"] - value).abs().max()) for name, value in weights.items()) > 1e-2


@pytest.mark.parametrize("how", HOWS)
def test_two_processes_give_the_weights_of_one(two: Found, alone: dict[str, Tensor], how: str) -> None:
    check_same(two, alone, HOWS[how])


@pytest.mark.parametrize("how", HOWS)
def test_two_processes_go_on_with_a_run_of_one(two: Found, tmp_path: Path, how: str) -> None:
    unbroken = worker.broken_off(tmp_path / "whole", sharded=False)
    for name, value in unbroken.items():
        torch.testing.assert_close(two.tensors[f"resumed/{HOWS[how]}/{name}"], value, atol=1e-5, rtol=0)


@pytest.mark.parametrize("how", HOWS)
def test_one_process_goes_on_with_a_run_of_two(two: Found, tmp_path: Path, how: str) -> None:
    unbroken = worker.broken_off(tmp_path / "whole", sharded=False)
    resumed = worker.broken_off(two.folder / f"stopped {HOWS[how]}", sharded=False)
    run = Run.load(two.folder / f"stopped {HOWS[how]}")
    assert run.complete
    for name, value in unbroken.items():
        torch.testing.assert_close(resumed[name], value, atol=1e-5, rtol=0)


# Noise ------------------------------------------------------------------------------------------------------------


def check_noise(noise: Tensor, size: int) -> None:
    """N(0, 1) for every coordinate, and nothing that one process's coordinates say of another's or of the next step."""
    count = noise.numel()
    chance = stats.chi2.cdf(float(noise.square().sum()), count)
    assert FALSE_ALARM / 2 < chance < 1 - FALSE_ALARM / 2, f"variance {float(noise.var())}"
    limit = stats.norm.isf(FALSE_ALARM / 2)
    assert abs(float(noise.sum())) < limit * math.sqrt(count)
    slices = noise[:, : worker.WIDTH**2].chunk(size, dim=1)  # one parameter, of which each process noises a part
    pairs = [(noise[0], noise[1]), *((slices[0], other) for other in slices[1:])]
    for one, other in pairs:  # a product of two has variance 1
        assert abs(float((one * other).sum())) < 1.01 * limit * math.sqrt(one.numel())


@pytest.mark.parametrize("name", ["whole", "sharded", "secure", "seeded", "seeded sharded"])
def test_noise_has_the_plans_variance_and_is_independent(two: Found, name: str) -> None:
    check_noise(two.tensors[f"noise/{name}"], two.size)


def test_noise_that_two_processes_share_would_be_seen(two: Found) -> None:
    noise = two.tensors["noise/whole"].clone()
    half = worker.WIDTH**2 // 2
    noise[:, half : 2 * half] = noise[:, :half]
    with pytest.raises(AssertionError):
        check_noise(noise, 2)
    with pytest.raises(AssertionError):
        check_noise(two.tensors["noise/whole"] * math.sqrt(2), 2)


def test_each_process_draws_its_part_of_the_noise_alone(two: Found) -> None:
    count = two.tensors["noise/whole"].shape[1]
    one, other = two.same("drawn")
    assert len(one) == 5 * worker.REPEATS
    for mine, theirs in zip(one, other, strict=True):
        assert mine + theirs == count
        assert abs(mine - theirs) <= count / 1000


def test_secure_noise_lies_on_the_grid(two: Found) -> None:
    from hush.gradients.noise import grid_of

    stddev = worker.MULTIPLIER * worker.CLIP_NORM
    steps = two.tensors["noise/secure"] * stddev / grid_of(stddev)
    assert float((steps - steps.round()).abs().max()) < 1e-3
    assert float(steps.abs().max()) > 1000


def test_other_processes_count_other_noise(two: Found) -> None:
    """A seed gives each process a stream of its own, and none of them is that of one process."""
    single = worker.noise(False, rng=Rng.from_seed(7))
    seeded = two.tensors["noise/seeded"]
    assert float((single - seeded).abs().min()) != 0
    assert abs(float((single * seeded).mean())) < stats.norm.isf(FALSE_ALARM / 2) / math.sqrt(single.numel())


# Sampling ---------------------------------------------------------------------------------------------------------


def check_lots(found: Found) -> None:
    """Poisson sampling, whose lots are cut into even shares. n, q, T: rows, probability, steps."""
    n, q, steps = 1000, 0.1, 100
    counts, sizes = torch.zeros(n), []
    for shares in zip(*found.same("lots"), strict=True):
        rows = [row for share in shares for row in share]
        assert len(set(rows)) == len(rows)
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
        counts[rows] += 1
        sizes.append(len(rows))
    assert len(sizes) == steps
    chance = stats.binom.cdf(int(sum(sizes)), n * steps, q)
    assert FALSE_ALARM < chance < 1 - FALSE_ALARM
    for values, trials in ((counts, steps), (torch.tensor(sizes), n)):  # by row and by step
        spread = float((values - trials * q).square().sum() / (trials * q * (1 - q)))
        chance = stats.chi2.cdf(spread, len(values))  # binomials this wide are nearly normal
        assert FALSE_ALARM < chance < 1 - FALSE_ALARM


def check_seeded_lots(found: Found) -> None:
    single = worker.lots(Rng.from_seed(4), 20)
    for lot, *shares in zip(single, *found.same("seeded lots"), strict=True):
        assert sorted(row for share in shares for row in share) == lot


def test_shares_are_those_of_one_poisson_lot(two: Found) -> None:
    check_lots(two)
    check_seeded_lots(two)


# One ledger, one word ---------------------------------------------------------------------------------------------


def test_a_refused_charge_stops_all_with_the_same_error(two: Found) -> None:
    answers = two.same("capped")
    assert answers[0] == answers[1]
    kind, message, taken, epsilon = answers[0]
    assert kind == "BudgetExceeded"
    assert "over the cap of 2" in message
    account = Ledger(two.folder / "capped.db").account("few")
    charged = sum(row.count for row in account.rows()[1:])
    assert charged == taken > 0
    assert epsilon == account.spent().epsilon <= 2.0


def test_a_users_script_runs_as_it_is(two: Found) -> None:
    first, second = two.same("ordinary")
    assert (first.pop("copy"), second.pop("copy")) == (False, True)
    assert first == second  # one guarantee, one note, the losses of the whole lot
    assert first["charged"] == 12
    for name in ("ordinary", "saved"):
        run = Run.load(two.folder / name)
        assert run.complete
        assert run.guarantee.epsilon == first["epsilon"]
        assert run.guarantee.epsilon == accounting.guarantee(run.plan.event, delta=run.plan.delta).epsilon


def test_the_clip_norm_moves_alike(two: Found) -> None:
    one, other = two.same("clip norms")
    assert one == other
    assert all(before != after for before, after in pairwise(one))  # it moves at every step of these seeds


@pytest.mark.parametrize(
    ("work", "kind", "words"),
    [
        ("other_plan", "InvalidValue", "the plan of rank 1 is not that of rank 0"),
        ("other_rate", "InvalidValue", "the optimizer of rank 1 is not that of rank 0"),
        ("other_seed", "InvalidValue", "the seed of rng of rank 1"),
        ("other_data", "InvalidValue", "the data set of rank 1"),
        ("other_people", "InvalidValue", "the people of rank 1"),
        ("wrapped", "InvalidValue", "wrapped in DistributedDataParallel"),
        ("mixing", "NotIsolated", "one example changes another's"),
        ("unserved", "NoRule", "no other method than the tape"),
        ("failing loss", "HushError", "this share is bad"),
    ],
)
def test_what_one_process_meets_all_hear(two: Found, work: str, kind: str, words: str) -> None:
    for errors in two.same("errors"):
        assert errors[work][0] == kind
        assert words in errors[work][1]
        assert "\n" not in errors[work][1]


# Lost processes ---------------------------------------------------------------------------------------------------


def released(folder: Path) -> list[int]:
    path = folder / "released"
    return [int(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


@pytest.fixture
def running(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    settings = {"SHARDED": "1"} if "sharded" in request.node.name else {}
    process = start("endless", tmp_path, 2, "--monitor-interval=3", STEPS=str(STEPS), SECONDS="6", **settings)
    try:
        deadline = time.monotonic() + 300
        while len(released(tmp_path)) < 25 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        yield process
    finally:
        if process.poll() is None:
            process.terminate()  # torchrun ends its processes with itself
            with_process(tmp_path, 1, signal.SIGCONT)
        process.wait()


def with_process(folder: Path, rank: int, number: signal.Signals) -> None:
    try:
        os.kill(int((folder / f"process {rank}").read_text()), number)
    except (ProcessLookupError, FileNotFoundError):
        return


def finish_alone(folder: Path) -> None:
    before = len(released(folder))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEPS", str(STEPS))
        worker.endless(folder)
    run = Run.load(folder / "run")
    assert run.complete
    charged = sum(row.count * (-1 if row.kind == "release" else 1) for row in run.ledger.account("training").rows()[1:])
    again = released(folder)[before:]
    assert again == list(range(again[0], STEPS + 1))  # whole from the checkpoint on, which was at most ten steps before
    assert before - 10 <= again[0] - 1 <= before
    assert charged >= len(released(folder))  # steps since the checkpoint are charged again
    assert run.guarantee.epsilon == accounting.guarantee(run.plan.event_of(charged), delta=run.plan.delta).epsilon


@pytest.mark.parametrize(
    ("rank", "number"),
    [
        (1, signal.SIGKILL),
        pytest.param(0, signal.SIGKILL, marks=pytest.mark.slow),
        pytest.param(1, signal.SIGSTOP, marks=pytest.mark.slow),
        pytest.param(1, signal.SIGKILL, marks=pytest.mark.slow),
    ],
    ids=["killed", "the first killed", "stuck", "sharded and killed"],
)
def test_a_lost_process_ends_the_run_and_it_goes_on(
    running: subprocess.Popen[str], tmp_path: Path, rank: int, number: signal.Signals
) -> None:
    with_process(tmp_path, rank, number)
    if number == signal.SIGSTOP:  # torchrun would wait for it to answer its own signals
        time.sleep(9)
        with_process(tmp_path, rank, signal.SIGKILL)
    output, _ = running.communicate(timeout=300)
    assert running.returncode != 0
    assert "WorkerLost: another process of this run ended or does not answer" in output
    steps = len(released(tmp_path))
    ledger = Ledger.open(tmp_path / "run" / "ledger.db", create=False)
    ledger.verify()
    charged = sum(row.count for row in ledger.account("training").rows()[1:])
    assert steps <= charged <= steps + 11  # a block of ten, and a step whose callback did not run
    assert max(released(tmp_path)) == steps < STEPS
    finish_alone(tmp_path)


# Four processes ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Found:
    return found_by("equality", tmp_path_factory.mktemp("four"), 4)


@pytest.mark.slow
def test_four_processes_are_as_one(four: Found, alone: dict[str, Tensor]) -> None:
    for how in HOWS.values():
        check_same(four, alone, how)
    for name in ("whole", "sharded", "secure", "seeded", "seeded sharded"):
        check_noise(four.tensors[f"noise/{name}"], 4)
    check_lots(four)
    check_seeded_lots(four)
