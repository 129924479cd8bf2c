"""What is remembered of a row is what would be computed of it, and nothing is remembered of a row that has changed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Subset, TensorDataset

import hush
from hush import Rng
from hush.gradients import clipped_sum
from hush.gradients.batches import split, take
from hush.gradients.correlation import Correlation, Settings, use_of
from hush.gradients.recurring import Memory, Origin, note_origin, origin_of
from hush.gradients.shared import Shared

ROWS, LOT = 60, 20


def data(seed: int = 0) -> Tensor:
    return torch.randn(ROWS, 30, 7, 7, generator=torch.Generator().manual_seed(seed))


def drawn(rows: Tensor, memory: Memory, seed: int) -> Tensor:
    index = torch.randperm(ROWS, generator=torch.Generator().manual_seed(seed))[:LOT]
    return note_origin(rows[index], Origin(memory, index))


def sums(rows: Tensor) -> Tensor:
    return rows.flatten(1)[:, :3] * 2


ROW = 150


def whole(rows: Tensor) -> Tensor:
    return rows.flatten(1)[:, :ROW] * 2


class Counted:
    """How many rows were computed."""

    def __init__(self) -> None:
        self.rows = 0

    def __call__(self, rows: Tensor) -> Tensor:
        self.rows += len(rows)
        return sums(rows)


def test_each_row_is_computed_once() -> None:
    rows, count, seen = data(), Counted(), set[int]()
    memory = Memory(rows)
    for seed in range(12):
        lot = drawn(rows, memory, seed)
        origin = origin_of(lot)
        assert origin is not None
        assert torch.equal(origin.known("sums", lot, 3, count), sums(lot))
        seen |= set(origin.rows.tolist())
        assert count.rows == len(seen)


CHANGES: dict[str, Callable[[Tensor], object]] = {
    "one row by torch": lambda rows: rows[7].mul_(1.5),
    "one number by torch": lambda rows: rows[3, 0, 0, 0].add_(1.0),
    "all by numpy": lambda rows: rows.numpy()[:] .__imul__(1.5),
    "mirrored by numpy": lambda rows: rows.numpy().__setitem__(slice(None), rows.numpy()[..., ::-1].copy()),
    "shuffled by numpy": lambda rows: rows.numpy().__setitem__(slice(None), rows.numpy()[::-1].copy()),
    "a little noise by numpy": lambda rows: rows.numpy().__iadd__(0.01 * data(9).numpy()),
}  # fmt: skip


@pytest.mark.parametrize("how", CHANGES)
def test_nothing_is_recalled_of_rows_that_changed(how: str) -> None:
    check(how, data(), CHANGES[how])


def change_numbers(rows: Tensor) -> None:
    """A patch of one row that comes in the next lot."""
    rows.numpy()[torch.randperm(ROWS, generator=torch.Generator().manual_seed(1))[3], 2, :3, :3] = 0.0


def test_every_row_of_memory_that_is_not_torchs_is_compared() -> None:
    check("a patch by numpy", torch.from_numpy(data().numpy().copy()), change_numbers)


def check(how: str, rows: Tensor, change: Callable[[Tensor], object]) -> None:
    memory = Memory(rows)
    for step in range(8):
        if step == 5:
            change(rows)
        lot = drawn(rows, memory, step % 4)
        origin = origin_of(lot)
        assert origin is not None
        assert torch.equal(origin.known("sums", lot, ROW, whole), whole(lot)), how


def test_a_batch_that_was_written_into_has_no_origin() -> None:
    rows = data()
    lot = drawn(rows, Memory(rows), 0)
    assert origin_of(lot) is not None
    lot[0, 0, 0, 0] = 1.0
    assert origin_of(lot) is None
    with torch.inference_mode():
        assert origin_of(torch.zeros(3)) is None


def test_pieces_know_their_rows() -> None:
    rows = data()
    lot = drawn(rows, Memory(rows), 0)
    whole = origin_of(lot)
    assert whole is not None
    found = [origin_of(piece[0]) for piece in split((lot, torch.zeros(LOT)), 7)]
    assert torch.cat([origin.rows for origin in found if origin is not None]).tolist() == whole.rows.tolist()
    chosen = origin_of(take(lot, torch.tensor([5, 2])))
    assert chosen is not None
    assert chosen.rows.tolist() == whole.rows[[5, 2]].tolist()


def test_what_is_kept_takes_a_small_part_of_the_data() -> None:
    rows = data()  # 1470 numbers a row, of which an eighth is 183
    origin = Origin(Memory(rows), torch.arange(LOT))
    assert origin.has_room("a", rows[:LOT], 181)
    assert not origin.has_room("a", rows[:LOT], 182)
    origin.known("a", rows[:LOT], 100, lambda some: some.flatten(1)[:, :100])
    assert origin.has_room("a", rows[:LOT], 100)
    assert not origin.has_room("b", rows[:LOT], 100)


def test_norms_of_a_first_convolution_are_those_without_memory() -> None:
    rows, weight = data(), torch.randn(16, 30, 3, 3)
    memory = Memory(rows)
    settings = Settings.of(weight, 2, transposed=False, stride=3, padding=1, dilation=1, groups=1)
    for seed in range(4):
        lot = drawn(rows, memory, seed)
        outputs = torch.randn_like(F.conv2d(lot, weight, None, 3, 1))
        use = use_of(lot, outputs, settings, origin_of(lot))
        assert isinstance(use, Correlation)
        assert use.origin is not None
        for found, truth in zip(
            use.measure(Shared()), Correlation(lot, outputs, settings).measure(Shared()), strict=True
        ):
            assert found is not None
            assert truth is not None
            assert torch.allclose(found, truth, rtol=1e-5)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(30, 8, 3, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(72, 3))


def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y, reduction="none")


def plan(steps: int = 40) -> hush.TrainingPlan:
    return hush.TrainingPlan(
        noise_multiplier=1.0, sampling_prob=1 / 3, expected_batch_size=LOT, steps=steps, clip_norm=1.0, delta=1e-3
    )


@pytest.mark.parametrize("shown", [None, list(range(0, ROWS, 2))])
def test_gradients_of_a_plans_lots_are_those_of_the_same_rows_without_memory(shown: list[int] | None) -> None:
    model, labels = network(), torch.arange(ROWS) % 3
    whole = TensorDataset(data(), labels)
    dataset = whole if shown is None else Subset(whole, shown)
    recalled = 0
    for lot in plan().batches(dataset, rng=Rng.from_seed(0)):
        x, y = lot
        recalled += origin_of(x) is not None
        found, truth = (clipped_sum(model, loss_fn, batch, 1.0) for batch in ((x, y), (x.clone(), y)))
        assert torch.allclose(found.norms, truth.norms, rtol=1e-4)
        for name, value in truth.gradients.items():
            assert torch.allclose(found.gradients[name], value, rtol=1e-3, atol=1e-5)
    assert recalled == 40


def test_rows_that_hardly_come_again_are_not_remembered() -> None:
    dataset = TensorDataset(data(), torch.arange(ROWS) % 3)
    assert all(origin_of(x) is None for x, _ in plan(steps=5).batches(dataset, rng=Rng.from_seed(0)))


def test_a_model_that_writes_into_its_input_is_measured_as_it_is() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()

        def forward(self, x: Tensor) -> Tensor:
            x[x > 0.5] = 0.0
            return self.inner(x)

    model, labels = Masked(), torch.arange(ROWS) % 3
    for x, y in plan().batches(TensorDataset(data(), labels), rng=Rng.from_seed(0)):
        found, truth = (clipped_sum(model, loss_fn, batch, 1.0) for batch in ((x, y), (x.clone(), y)))
        assert torch.allclose(found.norms, truth.norms, rtol=1e-4)
