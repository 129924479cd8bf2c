"""Engines, on this process and on a real Ray: the same results, retries, errors, and work that goes on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from engine_tasks import DyingTree, die_always, die_once, fail_on_three, fit_logistic, ratio, square, with_dropout

from hush import Rng
from hush.attacks import lira
from hush.attacks.shadows import train_shadows_with
from hush.engines import Engine, Local, Ray, engine_of, sweep
from hush.errors import InvalidValue, ResumeRefused, WorkerLost
from hush.pate import train_teachers
from hush.pate.recipe import Recipe

pytestmark = [
    pytest.mark.xdist_group("ray"),  # one start of Ray serves all
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]


@pytest.fixture(params=["local", "ray"])
def engine(request: pytest.FixtureRequest) -> Engine:
    if request.param == "ray":
        request.getfixturevalue("cluster")
    return engine_of(request.param)


def collect(engine: Engine, task: Any, items: Any, *shared: Any) -> dict[int, Any]:
    found: dict[int, Any] = {}
    engine.run(task, items, shared=shared, done=found.__setitem__)
    return found


def test_every_item_gets_its_result(engine: Engine) -> None:
    assert collect(engine, square, range(20), 7) == {number: number * number + 7 for number in range(20)}
    assert collect(engine, square, [], 7) == {}


def test_an_error_of_a_task_is_the_error_of_the_run(engine: Engine) -> None:
    with pytest.raises(ValueError, match="three"):
        collect(engine, fail_on_three, range(6))


def test_items_are_taken_as_there_is_room(engine: Engine) -> None:
    taken = 0

    def items() -> Iterator[int]:
        nonlocal taken
        for number in range(40):
            taken += 1
            yield number

    ahead = []
    finished = 0

    def done(number: int, result: Any) -> None:
        nonlocal finished
        finished += 1
        ahead.append(taken - finished)

    engine.run(square, items(), shared=(0,), done=done)
    assert finished == 40
    assert max(ahead) <= 8


def test_shared_data_is_put_once(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    put, times = cluster.put, []
    monkeypatch.setattr(cluster, "put", lambda value: times.append(1) or put(value))
    assert collect(Ray(), square, range(9), 1)[8] == 65
    assert len(times) == 1


def test_a_killed_worker_is_replaced(cluster: Any, tmp_path: Path) -> None:
    assert collect(Ray(), die_once, range(4), str(tmp_path)) == {0: 0, 1: 1, 2: 2, 3: 3}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tried-1", "tried-3"]


def test_a_task_that_always_kills_its_worker_ends_the_run(cluster: Any) -> None:
    with pytest.raises(WorkerLost, match="also when it was tried again"):
        collect(Ray(retries=1), die_always, range(1))


@pytest.mark.parametrize("wrong", ["spark", "", 3, None, Ray, Local])
def test_unknown_engines_are_refused(wrong: Any) -> None:
    with pytest.raises(InvalidValue, match="engine must be one of local, ray"):
        engine_of(wrong)
    with pytest.raises(InvalidValue, match="cpus_per_task"):
        Ray(cpus_per_task=0)


def test_a_missing_ray_is_named() -> None:
    code = (
        "import sys; sys.modules['ray'] = None\n"
        "from hush.engines import engine_of\n"
        "from hush.errors import MissingExtra\n"
        "try:\n    engine_of('ray').run(print, [1], done=print)\n"
        "except MissingExtra as error:\n    assert 'hush[scale]' in str(error)\nelse:\n    sys.exit(1)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_engines_load_neither_ray_nor_torch() -> None:
    code = "import sys, hush.engines; sys.exit('ray' in sys.modules or 'torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


# Teachers ------------------------------------------------------------------------------------------------------

GENERATOR = numpy.random.default_rng(0)
ROWS = GENERATOR.normal(size=(240, 6))
CLASSES = (ROWS[:, 0] + 0.5 * ROWS[:, 1] > 0).astype(numpy.int64) + (ROWS[:, 2] > 1).astype(numpy.int64)
PUBLIC = GENERATOR.normal(size=(30, 6))


def states(teachers: Any) -> list[torch.Tensor]:
    return [value for kept in teachers._blocks for value in kept.block.stack.state.values()]


def train(make: Any, engine: str | Engine, **more: Any) -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng():
            torch.manual_seed(5)  # the first weights are the module's own
            return train_teachers(
                make, ROWS, CLASSES, 12, engine=engine, num_classes=3, progress=False, rng=Rng.from_seed(3),
                recipe=Recipe(steps=20), **more,
            )  # fmt: skip
    finally:
        torch.set_num_threads(threads)


@pytest.mark.usefixtures("cluster")
def test_torch_teachers_on_ray_are_those_of_this_process_bit_by_bit() -> None:
    here = train(with_dropout, "local", teachers_at_once=4)
    there = train(with_dropout, "ray", teachers_at_once=4)
    pairs = list(zip(states(here), states(there), strict=True))
    assert len(pairs) == 3 * 4
    assert all(torch.equal(one, other) for one, other in pairs)
    assert (here.votes(PUBLIC).counts == there.votes(PUBLIC).counts).all()


@pytest.mark.usefixtures("cluster")
def test_a_killed_task_trains_the_same_shard_again(tmp_path: Path) -> None:
    victim = float(ROWS[17, 0])
    (tmp_path / "died").touch()
    here = train(DyingTree(str(tmp_path), victim), "local", queries=PUBLIC)
    for name in ("died", "seen"):
        (tmp_path / name).unlink()
    there = train(DyingTree(str(tmp_path), victim), "ray", queries=PUBLIC)
    seen = (tmp_path / "seen").read_text().splitlines()
    assert (tmp_path / "died").exists()
    assert len(seen) == 2  # before it was killed, and again
    assert len(set(seen)) == 1
    assert there.failures == {} == here.failures
    assert (here.predict() == there.predict()).all()


@pytest.mark.usefixtures("cluster")
def test_teachers_on_ray_go_on_where_they_stopped(tmp_path: Path) -> None:
    more = {"teachers_at_once": 3, "queries": PUBLIC, "folder": tmp_path / "teachers"}
    whole = train(with_dropout, "local", **{**more, "folder": tmp_path / "here"})
    assert (train(with_dropout, "ray", **more).predict() == whole.predict()).all()
    (tmp_path / "teachers" / "block-00002.safetensors").unlink()
    kept = (tmp_path / "teachers" / "block-00001.safetensors").stat().st_mtime_ns
    again = train(with_dropout, "ray", **more)
    assert (tmp_path / "teachers" / "block-00001.safetensors").stat().st_mtime_ns == kept
    assert len(list((tmp_path / "teachers").glob("block-*"))) == 4
    assert (again.predict()[:6] == whole.predict()[:6]).all()
    with pytest.raises(ResumeRefused):
        train(with_dropout, "ray", **{**more, "teachers_at_once": 4})


# Shadow models and sweeps --------------------------------------------------------------------------------------


def shadows(engine: str, **more: Any) -> Any:
    return train_shadows_with(
        fit_logistic, ROWS, CLASSES, count=8, outputs="probabilities", engine=engine, rng=Rng.from_seed(2), **more
    )


@pytest.mark.usefixtures("cluster")
def test_shadow_models_on_ray_are_those_of_this_process(tmp_path: Path) -> None:
    here, there, kept = shadows("local"), shadows("ray"), shadows("ray", folder=tmp_path / "shadows")
    for other in (there, kept):
        assert (other.included == here.included).all()
        assert numpy.array_equal(other.log_probs, here.log_probs)
    members = Rng.from_seed(9).stream("target").random(len(ROWS)) < 0.5
    target = fit_logistic(ROWS[members], CLASSES[members])
    assert numpy.array_equal(lira(target, here, members).scores, lira(target, kept, members).scores)
    with pytest.raises(InvalidValue, match="pool alone"):
        kept.predict(PUBLIC)


def test_shadow_models_go_on_with_the_halves_of_their_folder(tmp_path: Path) -> None:
    first = shadows("local", folder=tmp_path)
    said = first.log_probs
    (tmp_path / "model-00003.safetensors").unlink()
    again = train_shadows_with(  # other coins: the folder's count
        fit_logistic, ROWS, CLASSES, count=8, outputs="probabilities", folder=tmp_path, rng=Rng.from_seed(77)
    )
    assert (again.included == first.included).all()
    assert numpy.array_equal(again.log_probs, said)
    with pytest.raises(ResumeRefused, match="another x"):
        train_shadows_with(fit_logistic, ROWS + 1, CLASSES, count=8, outputs="probabilities", folder=tmp_path)


def test_sweeps_write_each_answer_and_go_on(engine: Engine, tmp_path: Path) -> None:
    settings = [{"epsilon": epsilon, "seed": seed} for epsilon in (1.0, 2.0) for seed in range(3)]
    answers = sweep(ratio, settings, shared=(10,), engine=engine, folder=tmp_path)
    assert answers == [{"ratio": 10 / (item["epsilon"] + item["seed"])} for item in settings]
    files = sorted(tmp_path.iterdir())
    assert len(files) == 6
    times = {path: path.stat().st_mtime_ns for path in files[1:]}
    files[0].unlink()
    assert sweep(ratio, settings, shared=(10,), engine=engine, folder=tmp_path) == answers
    assert {path: path.stat().st_mtime_ns for path in files[1:]} == times
    with pytest.raises(InvalidValue, match="equal"):
        sweep(ratio, [{"seed": 1}, {"seed": 1}])
    with pytest.raises(InvalidValue, match="dict of numbers"):
        sweep(ratio, [{"seed": object()}])
