"""Forked processes, threads and equal names: no two draws of a secret `Rng` are the same."""

from __future__ import annotations

import copy
import json
import multiprocessing
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

import hush.rng as rng_module
from hush import Rng, TrainingPlan, mechanisms
from hush.errors import InvalidValue
from hush.federated import PrivateRounds
from hush.gradients.noise import NoiseSource, add_noise
from hush.rng import CipherStream, StreamLock
from hush.sampling import Poisson, draws

pytestmark = [
    pytest.mark.fresh_entropy,
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),  # Python's word on forks beside threads
]
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
Draw = Callable[[], Any]


def in_fork(work: Draw) -> Any:
    """Return what `work` gives in a forked process."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            with os.fdopen(writing, "w") as end:
                json.dump(work(), end)
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as end:
        text = end.read()
    assert os.waitpid(child, 0)[1] == 0, "the forked process failed"
    return json.loads(text)


def family(draw: Draw) -> list[Any]:
    """Return the draws of two children, a grandchild, its parent and, at last, this process."""

    def with_grandchild() -> list[Any]:
        return [in_fork(draw), draw()]

    return [in_fork(draw), in_fork(draw), *in_fork(with_grandchild), draw()]


def different(values: list[Any]) -> bool:
    return len({json.dumps(value) for value in values}) == len(values)


def plan(**settings: Any) -> TrainingPlan:
    usual = {"noise_multiplier": 1.0, "sampling_prob": 0.5, "expected_batch_size": 32, "steps": 4, "clip_norm": 1.0}
    return TrainingPlan(**{**usual, "delta": 1e-5, **settings})


def noise(rng: Rng) -> list[float]:
    return add_noise({"w": torch.zeros(6)}, 1.0, rng)["w"].tolist()


def chosen(rng: Rng) -> list[int]:
    rounds = PrivateRounds(plan(), {"w": np.zeros(3, dtype=np.float32)}, rng=rng)
    return [int(client) for client in rounds.choose(range(64))]  # type: ignore[call-overload]


def sampled(rng: Rng) -> list[int]:
    rows = TensorDataset(torch.arange(64))
    (numbers, *_) = next(iter(plan().batches(rows, rng=rng)))
    return numbers.tolist()  # type: ignore[no-any-return]


USES: dict[str, Callable[[Rng], Any]] = {
    "add_noise": noise,
    "noise source": lambda rng: NoiseSource(rng).add({"w": torch.zeros(4)}, 1.0)["w"].tolist(),
    "secure noise": lambda rng: NoiseSource(rng, secure=True).add({"w": torch.zeros(4)}, 1.0)["w"].tolist(),
    "laplace": lambda rng: mechanisms.laplace(np.zeros(4), sensitivity=1, epsilon=0.01, rng=rng).tolist(),
    "gaussian": lambda rng: mechanisms.gaussian(np.zeros(4), sensitivity=1, noise_multiplier=99, rng=rng).tolist(),
    "discrete": lambda rng: mechanisms.discrete_laplace(
        np.zeros(9, int), sensitivity=1, epsilon=0.001, rng=rng
    ).tolist(),
    "responses": lambda rng: mechanisms.randomized_response(
        np.zeros(99, int), epsilon=0.1, categories=9, rng=rng
    ).tolist(),
    "numpy": lambda rng: rng.stream("x").random(3).tolist(),
    "torch": lambda rng: torch.rand(3, generator=rng.torch_stream("x")).tolist(),
    "cipher": lambda rng: rng.cipher_stream("x").words(3).tolist(),
    "child": lambda rng: rng.child("x").stream("y").random(3).tolist(),
    "handed over": lambda rng: rng.hand_over().hex(),
    "batches": sampled,
    "clients": chosen,
}


@needs_fork
@pytest.mark.parametrize("use", USES)
def test_no_process_of_a_family_repeats_another(use: str) -> None:
    rng = Rng()
    assert different(family(lambda: USES[use](rng)))
    younger = rng.child("rank 0")  # made here, so it has this process's mark
    assert different(family(lambda: USES[use](younger)))


@needs_fork
def test_an_rng_of_a_forked_process_is_different_in_its_own_children() -> None:
    def work() -> list[Any]:
        rng = Rng()
        return family(lambda: noise(rng))

    assert different(in_fork(work))


def _put(queue: Any, rng: Rng) -> None:
    queue.put((noise(rng), sampled(rng)))


@needs_fork
def test_workers_of_a_fork_context_add_different_noise() -> None:
    context, rng = multiprocessing.get_context("fork"), Rng()
    queue = context.Queue()
    workers = [context.Process(target=_put, args=(queue, rng)) for _ in range(2)]
    for worker in workers:
        worker.start()
    found = [queue.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join(60)
    assert different([*found, (noise(rng), sampled(rng))])


OPEN: dict[str, Callable[[Rng], Draw]] = {
    "numpy": lambda rng: (lambda stream: lambda: stream.random(3).tolist())(rng.stream("x")),
    "spawned": lambda rng: (lambda stream: lambda: stream.random(3).tolist())(rng.stream("x").spawn(1)[0]),
    "torch": lambda rng: (lambda stream: lambda: torch.rand(3, generator=stream).tolist())(rng.torch_stream("x")),
    "draws": lambda rng: (lambda steps: lambda: next(steps).tolist())(
        draws(Poisson(0.5), 64, steps=9, stream=rng.stream("sampling"))
    ),
    "batches": lambda rng: (lambda batches: lambda: next(batches)[0].tolist())(
        iter(plan().batches(TensorDataset(torch.arange(64)), rng=rng))
    ),
    "clients": lambda rng: (lambda rounds: lambda: [int(one) for one in rounds.choose(range(64))])(
        PrivateRounds(plan(), {"w": np.zeros(3, dtype=np.float32)}, rng=rng)
    ),
}


@needs_fork
@pytest.mark.parametrize("kind", OPEN)
@pytest.mark.parametrize("begun", [False, True], ids=["unused", "used"])
def test_streams_that_were_open_at_the_fork_do_not_repeat(kind: str, begun: bool) -> None:
    draw = OPEN[kind](Rng())
    if begun:
        draw()
    assert different(family(draw))


@needs_fork
def test_noise_sources_of_before_the_fork_are_rejected_or_differ() -> None:
    fresh = NoiseSource(Rng())
    assert different(family(lambda: fresh.add({"w": torch.zeros(4)}, 1.0)["w"].tolist()))
    used, rounds = NoiseSource(Rng()), PrivateRounds(plan(), {"w": np.zeros(3, dtype=np.float32)})
    used.add({"w": torch.zeros(4)}, 1.0)
    rounds.choose(range(4))
    rounds.finish({})
    rounds.choose(range(4))

    def rejected(work: Draw) -> str:
        try:
            work()
        except InvalidValue as wrong:
            return str(wrong)
        return "accepted"

    for work in (lambda: used.add({"w": torch.zeros(4)}, 1.0), lambda: rounds.finish({})):
        assert "after a fork" in in_fork(lambda work=work: rejected(work))


@needs_fork
def test_a_grandchild_with_the_id_of_its_ancestor_is_not_taken_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Process ids come again, and in containers even side by side: the token tells processes apart."""
    stream, rng, number = Rng().cipher_stream("x"), Rng(), os.getpid()
    monkeypatch.setattr("os.getpid", lambda: number)
    assert different([noise(rng), in_fork(lambda: noise(rng))])

    def rejected() -> bool:
        try:
            stream.words(1)
        except InvalidValue:
            return True
        return False

    assert in_fork(rejected)


def test_a_fork_without_pythons_hooks_is_known_by_its_process_id(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Rng()
    twins = [copy_of(rng) for _ in range(3)]
    found = []
    for number, twin in enumerate(twins):
        monkeypatch.setattr("os.getpid", lambda number=number: -number)
        found.append(noise(twin))
    assert different(found)


def copy_of(rng: Rng) -> Rng:
    """What a fork makes of an Rng."""
    twin = Rng()
    for name in ("_root", "_process"):
        object.__setattr__(twin, name, getattr(rng, name))
    return twin


@needs_fork
def test_seeds_repeat_in_every_process() -> None:
    for use in USES.values():
        rng = Rng.from_seed(7)
        children = [in_fork(lambda use=use, rng=rng: use(rng)) for _ in range(2)]
        assert children[0] == children[1] == use(rng)
        assert rng.label == "seed 7"


@needs_fork
@pytest.mark.parametrize("workers", [0, 2])
def test_workers_of_a_loader_change_nothing_for_their_parent(workers: int) -> None:
    """A secret stream goes on as it would have: the fork reseeds the copy in the worker alone."""
    stream = Rng().stream("x")
    copy = np.random.Generator(np.random.PCG64DXSM())
    copy.bit_generator.state = stream.bit_generator.state
    loader = DataLoader(TensorDataset(torch.arange(8)), batch_size=4, num_workers=workers, multiprocessing_context=(
        "fork" if workers else None))  # fmt: skip
    assert [batch[0].tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert stream.random(5).tolist() == copy.random(5).tolist()


def test_neither_an_rng_nor_its_secret_streams_go_to_a_spawned_process() -> None:
    streams = (Rng().stream("x"), Rng().torch_stream("x"), Rng().cipher_stream("x"))
    for value in (Rng(), *streams, NoiseSource(Rng()), PrivateRounds(plan(), {"w": np.zeros(3, dtype=np.float32)})):
        with pytest.raises(TypeError, match="not written to disk"):
            pickle.dumps(value)
    context = multiprocessing.get_context("spawn")
    with pytest.raises(TypeError, match="not written to disk"):
        context.Process(target=noise, args=(Rng(),)).start()


def test_nothing_secret_is_copied() -> None:
    """A copy would give the same numbers a second time."""
    for value in (Rng(), Rng().stream("x"), Rng().torch_stream("x"), Rng().cipher_stream("x")):
        for copied in (copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="or copied"):
                copied(value)
    rounds = PrivateRounds(plan(), {"w": np.zeros(3, dtype=np.float32)})
    for owner in (NoiseSource(Rng()), rounds, {"generator": Rng().torch_stream("x")}):
        with pytest.raises(TypeError, match="not written to disk"):
            copy.deepcopy(owner)


class Drawing(Dataset[Any]):
    """Items that are drawn from a secret source, as an augmentation in a worker would."""

    def __init__(self) -> None:
        self.rng, self.stream = Rng(), Rng().torch_stream("open")

    def __len__(self) -> int:
        return 8

    def __getitem__(self, place: int) -> Any:
        return torch.tensor([*noise(self.rng), *torch.rand(2, generator=self.stream).tolist()], dtype=torch.float64)


@needs_fork
@pytest.mark.parametrize("persistent", [False, True])
def test_workers_of_a_loader_never_repeat_each_other_or_an_epoch(persistent: bool) -> None:
    loader = DataLoader(Drawing(), batch_size=2, num_workers=2, multiprocessing_context="fork",
                        persistent_workers=persistent)  # fmt: skip
    rows = torch.cat([batch for _ in range(2) for batch in loader])
    assert len(rows) == 16
    assert different(rows[:, :6].tolist())
    assert different(rows[:, 6:].tolist())


@pytest.mark.filterwarnings("ignore:Got pickle error:UserWarning")  # torch's word before it raises
def test_a_spawned_loader_rejects_a_data_set_that_holds_a_source() -> None:
    loader = DataLoader(Drawing(), num_workers=1, multiprocessing_context="spawn")
    with pytest.raises(TypeError, match="make a new one"):
        next(iter(loader))


_OF_ALL_TASKS = Rng()


def _task(_: int) -> list[float]:
    return noise(_OF_ALL_TASKS)


@needs_fork
def test_tasks_of_a_forked_pool_never_repeat() -> None:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        found = pool.map(_task, range(12), chunksize=1)
        with pytest.raises(TypeError, match="make a new one"):
            pool.apply(noise, (Rng(),))
    assert different([*found, _task(0)])


@needs_fork
def test_a_stream_that_cannot_be_reseeded_keeps_no_other_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A generator of a device that does not survive a fork raises in the child."""
    streams = [Rng().torch_stream("x") for _ in range(3)]

    class Lost:
        def manual_seed(self, _: int) -> None:
            raise RuntimeError("Cannot re-initialize CUDA in forked subprocess.")

    lost = [Lost() for _ in range(4)]
    monkeypatch.setattr(rng_module, "_torch_streams", [lost[0], streams[0], lost[1], streams[1], streams[2], *lost[2:]])
    assert different(family(lambda: [torch.rand(3, generator=stream).tolist() for stream in streams]))


# Names ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [None, 7])
def test_a_name_never_gives_the_same_stream_twice(seed: int | None) -> None:
    rng = Rng(seed)
    for use in ("numpy", "torch", "cipher", "child", "clients", "batches"):
        assert different([USES[use](rng) for _ in range(4)]), use


def test_numbered_names_are_no_other_names() -> None:
    rng = Rng.from_seed(7)
    names = ["a", "a", "a", "a#1", "a#2", rng.unused("a"), rng.unused("a"), "child/a", "a/2"]
    assert different([rng.stream(name).random(3).tolist() for name in names] + [USES["child"](rng)])
    with pytest.raises(InvalidValue, match="NUL"):
        rng.stream("a\0002")


def test_a_seed_repeats_the_first_and_the_second_stream_of_a_name() -> None:
    def both() -> list[Any]:
        rng = Rng.from_seed(7)
        return [use(rng) for use in (*USES.values(), *USES.values())]

    assert both() == both()


def test_a_stream_does_not_depend_on_the_other_names_that_were_opened() -> None:
    alone, busy = Rng.from_seed(7), Rng.from_seed(7)
    for name in ("b", "c", "b"):
        busy.stream(name)
    assert alone.stream("a").random() == busy.stream("a").random()


# Threads --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def switching() -> Iterator[None]:
    """Let threads take turns as often as they can."""
    import sys

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("switching")
def test_threads_never_open_the_same_stream() -> None:
    rng = Rng()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: int(rng.cipher_stream("x").words(1)[0]), range(800)))
        names = list(pool.map(lambda _: rng.unused("x"), range(800)))
    assert len(set(found)) == len(set(names)) == 800


@pytest.mark.usefixtures("switching")
def test_threads_that_share_a_cipher_stream_get_different_words() -> None:
    stream, alone = CipherStream(bytes(64)), CipherStream(bytes(64))
    barrier = threading.Barrier(4)

    def work(_: int) -> list[list[int]]:
        barrier.wait()
        return [stream.words(64).tolist() for _ in range(300)]  # read out at once, as the contract asks

    with ThreadPoolExecutor(4) as pool:
        found = [word for rows in pool.map(work, range(4)) for row in rows for word in row]
    assert sorted(found) == sorted(alone.words(4 * 300 * 64).tolist())  # each word once, and none lost


@pytest.mark.usefixtures("switching")
@pytest.mark.parametrize("secure", [False, True])
def test_threads_that_share_a_noise_source_get_different_noise(secure: bool) -> None:
    source, barrier = NoiseSource(Rng(), secure=secure), threading.Barrier(4)

    def work(_: int) -> list[float]:
        barrier.wait()
        steps = [source.add({"a": torch.zeros(600, dtype=torch.float64)}, 1.0)["a"] for _ in range(50)]
        return torch.cat(steps).tolist()

    with ThreadPoolExecutor(4) as pool:
        found = [value for values in pool.map(work, range(4)) for value in values]
    assert len(found) == 4 * 50 * 600
    if not secure:  # 53 bits: no two are equal by chance; on the grid of 2^-16 some are
        assert len(set(found)) == len(found)
    assert abs(float(np.corrcoef(np.array(found).reshape(8, -1))[0, 4])) < 0.05


@needs_fork
def test_a_lock_that_a_thread_held_at_the_fork_is_open_in_the_child() -> None:
    lock, rng = StreamLock(), Rng()
    with lock, rng_module._numbering:

        def work() -> list[float]:
            with lock:
                return noise(rng)

        assert len(in_fork(work)) == 6
