"""What is remembered of a row is what would be computed of it, and nothing is remembered of a row that has changed."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
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
CHANGED = int(
    torch.randperm(ROWS, generator=torch.Generator().manual_seed(1))[7]
)  # in the second lot and not its first


def data(seed: int = 0) -> Tensor:
    return torch.randn(ROWS, 30, 7, 7, generator=torch.Generator().manual_seed(seed))


def drawn(rows: Tensor, memory: Memory, seed: int) -> Tensor:
    index = torch.randperm(ROWS, generator=torch.Generator().manual_seed(seed))[:LOT]
    return note_origin(rows[index], Origin(memory, index))


def firsts(rows: Tensor) -> Tensor:
    return rows.flatten(1)[:, :150] * 2


def roomy() -> Memory:
    return Memory(ROWS, room=100_000)


class Counted:
    """How many rows were computed."""

    def __init__(self) -> None:
        self.rows = 0

    def __call__(self, rows: Tensor) -> Tensor:
        self.rows += len(rows)
        return firsts(rows)


def test_each_row_is_computed_once() -> None:
    rows, count, seen = data(), Counted(), set[int]()
    memory = roomy()
    for seed in range(12):
        lot = drawn(rows, memory, seed)
        origin = origin_of(lot)
        assert origin is not None
        assert torch.equal(origin.known("firsts", lot, 150, count), firsts(lot))
        seen |= set(origin.rows.tolist())
        assert count.rows == len(seen)


def numpy_of(rows: Tensor) -> NDArray[np.float32]:
    return rows.numpy()


def patched(rows: Tensor) -> None:
    """A patch of one row in the middle of the next lot."""
    numpy_of(rows)[CHANGED, 2, :3, :3] = 0.0


def scaled(rows: Tensor) -> None:
    numpy_of(rows)[CHANGED] *= 1.5


def mirrored(rows: Tensor) -> None:
    numpy_of(rows)[:] = numpy_of(rows)[..., ::-1].copy()


def broken(rows: Tensor) -> None:
    numpy_of(rows)[CHANGED, 0, 0, 0] = np.nan


def huge(rows: Tensor) -> None:
    numpy_of(rows)[CHANGED] = 1e30


CHANGES: dict[str, Callable[[Tensor], object]] = {
    "a row by torch": lambda rows: rows[CHANGED].mul_(1.5),
    "a number by torch": lambda rows: rows[CHANGED, 0, 0, 0].add_(1.0),
    "a row, without a new version": lambda rows: rows.data[CHANGED].mul_(1.5),
    "channels swapped": lambda rows: rows.data.copy_(rows.flip(1)),
    "upside down": lambda rows: rows.data.copy_(rows.flip(2)),
    "rows for columns": lambda rows: rows.data.copy_(rows.transpose(2, 3).clone()),
    "two channels of one row": lambda rows: rows.data[CHANGED].copy_(rows[CHANGED].roll(1, 0)),
    "a row by numpy": scaled, "a patch by numpy": patched, "all mirrored": mirrored, "NaN": broken, "huge": huge,
}  # fmt: skip


@pytest.mark.parametrize("how", CHANGES)
def test_nothing_is_recalled_of_rows_that_changed(how: str) -> None:
    rows, memory = data(), roomy()
    for step in range(10):
        if step in (5, 8):
            CHANGES[how](rows)
        lot = drawn(rows, memory, step % 4)
        origin = origin_of(lot)
        assert origin is not None
        assert torch.equal(origin.known("firsts", lot, 150, firsts).nan_to_num(7.0), firsts(lot).nan_to_num(7.0))


def test_a_change_between_drawing_and_asking_spoils_nothing() -> None:
    rows, memory = data(), roomy()
    for step in range(12):
        lot = drawn(rows, memory, step % 4)
        if step == 5:
            rows[10:].mul_(5.0)
        if step == 6:
            lot.data[3:].mul_(2.0)
        origin = origin_of(lot)
        assert origin is not None
        assert torch.equal(origin.known("firsts", lot, 150, firsts), firsts(lot))


def test_a_batch_that_is_saved_takes_nothing_with_it() -> None:
    rows = data()
    lot, file = drawn(rows, roomy(), 0), io.BytesIO()
    torch.save(lot, file)
    assert file.tell() < lot.nbytes + 10_000
    file.seek(0)
    assert origin_of(torch.load(file)) is None
    assert origin_of(copy.deepcopy(lot)) is None


def test_pieces_know_their_rows() -> None:
    rows = data()
    lot = drawn(rows, roomy(), 0)
    whole = origin_of(lot)
    assert whole is not None
    found = [origin_of(piece[0]) for piece in split((lot, torch.zeros(LOT)), 7)]
    assert torch.cat([origin.rows for origin in found if origin is not None]).tolist() == whole.rows.tolist()
    chosen = origin_of(take(lot, torch.tensor([5, 2])))
    assert chosen is not None
    assert chosen.rows.tolist() == whole.rows[[5, 2]].tolist()


def test_what_has_no_room_is_computed_each_time() -> None:
    rows = data()[:LOT]
    origin = Origin(Memory(ROWS, room=ROWS * 110), torch.arange(LOT))
    assert origin.has_room("a", rows, 100)
    assert not origin.has_room("b", rows, 100)
    assert origin.has_room("b", rows, 6)
    assert not origin.has_room("c", rows, 1)
    assert torch.equal(origin.known("c", rows, 150, firsts), firsts(rows))


def test_norms_of_a_first_convolution_are_those_without_memory() -> None:
    rows, weight, memory = data(), torch.randn(16, 30, 3, 3), roomy()
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


def test_rows_that_hardly_come_again_or_are_augmented_are_not_remembered() -> None:
    dataset = TensorDataset(data(), torch.arange(ROWS) % 3)
    few = plan(steps=5).batches(dataset, rng=Rng.from_seed(0))
    changed = plan().batches(dataset, rng=Rng.from_seed(0), augment=lambda batch: batch)
    assert all(origin_of(x) is None for x, _ in few)
    assert all(origin_of(lot.batch[0]) is None for lot in changed)


@pytest.mark.parametrize("rows", [torch.eye(ROWS).to_sparse(), torch.zeros(ROWS, 3), torch.zeros(ROWS, 3, 7, 7).long()])
def test_other_kinds_of_data_are_drawn_as_they_were(rows: Tensor) -> None:
    with torch.inference_mode():
        for x, _ in plan().batches(TensorDataset(rows, torch.arange(ROWS)), rng=Rng.from_seed(0)):
            assert origin_of(x) is None


def test_lots_can_be_drawn_in_inference_mode() -> None:
    with torch.inference_mode():
        assert len(list(plan().batches(TensorDataset(data(), torch.arange(ROWS)), rng=Rng.from_seed(0)))) == 40


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
