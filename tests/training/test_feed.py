"""From data sets to batches: every draw becomes exactly its rows, whatever the kind of data set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from hush import Rng
from hush.errors import InvalidValue, NotIsolated
from hush.sampling import draws
from hush.training import Lot, TrainingPlan
from hush.training.collation import Alone, Collation, Loaded
from hush.training.feed import People
from hush.training.guards import CheckedAugmentation

Make = Callable[..., TrainingPlan]


class Items(Dataset[Any]):
    """The same rows one at a time, as mappings."""

    def __init__(self, data: TensorDataset) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, row: int) -> dict[str, Tensor]:
        x, y = self.data[row]
        return {"x": x, "y": y}


def expected_rows(plan: TrainingPlan, number: int, seed: int) -> Iterator[np.ndarray]:
    rng = Rng.from_seed(seed)
    yield from draws(plan.sampler, number, steps=plan.steps, stream=rng.stream(rng.unused("sampling")))


def test_tensor_data_sets_give_the_drawn_rows(make_plan: Make, data: TensorDataset) -> None:
    plan = make_plan(steps=30, sampling_prob=0.02)
    batches = list(plan.batches(data, rng=Rng.from_seed(1)))
    assert len(batches) == 30
    for (x, y), rows in zip(batches, expected_rows(plan, 200, 1), strict=True):
        assert torch.equal(x, data.tensors[0][rows])
        assert torch.equal(y, data.tensors[1][rows])
    assert min(len(x) for x, _ in batches) == 0  # an empty batch is a step like any other


@pytest.mark.parametrize("workers", [0, 1])
def test_other_data_sets_give_the_same_rows(make_plan: Make, data: TensorDataset, workers: int) -> None:
    plan = make_plan(steps=20, sampling_prob=0.02)
    batches = list(plan.batches(Items(data), rng=Rng.from_seed(1), workers=workers))
    for batch, rows in zip(batches, expected_rows(plan, 200, 1), strict=True):
        assert torch.equal(batch["x"], data.tensors[0][rows])
        assert torch.equal(batch["y"], data.tensors[1][rows])
    assert min(len(batch["x"]) for batch in batches) == 0


def test_subsets_are_indexed_through(make_plan: Make, data: TensorDataset) -> None:
    part = Subset(Subset(data, range(100, 200)), [5, 3, 99, 0])
    plan = make_plan(sampling="full_batch", sampling_prob=1.0, steps=1)
    ((x, _),) = plan.batches(part)
    assert torch.equal(x, data.tensors[0][[105, 103, 199, 100]])


def test_full_batches_are_copies_of_the_data_set(make_plan: Make, data: TensorDataset) -> None:
    plan = make_plan(sampling="full_batch", sampling_prob=1.0, steps=2)
    before = data.tensors[0].clone()
    for x, _ in plan.batches(data):
        x.zero_()
    assert torch.equal(data.tensors[0], before)


def test_a_collate_function_is_used(make_plan: Make, data: TensorDataset) -> None:
    plan = make_plan(steps=3)
    for (x,) in plan.batches(data, collate=lambda items: (torch.stack([item[0] for item in items]),)):
        assert x.shape[1:] == (4,)


def test_sampling_leaves_the_global_generators_alone(make_plan: Make, data: TensorDataset) -> None:
    state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    for dataset in (data, Items(data)):
        list(make_plan(steps=3).batches(dataset))
    assert torch.equal(torch.get_rng_state(), state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002


def test_two_passes_over_one_secret_source_differ(make_plan: Make, data: TensorDataset) -> None:
    rng, plan = Rng.from_entropy(), make_plan(steps=5)
    first, second = ([x for x, _ in plan.batches(data, rng=rng)] for _ in range(2))
    assert any(a.shape != b.shape or not torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_truncated_batches_have_one_shape(make_plan: Make, data: TensorDataset) -> None:
    plan = make_plan(sampling="truncated_poisson", max_batch_size=22, num_examples=200, steps=30)
    sizes = set()
    for lot in plan.batches(data, rng=Rng.from_seed(1)):
        assert isinstance(lot, Lot)
        assert lot.batch[0].shape == (22, 4)
        assert lot.weights is not None
        assert lot.units == int(lot.weights.sum())
        assert (lot.weights[: lot.units] == 1).all()
        assert (lot.batch[0][lot.units :] == 0).all()
        sizes.add(lot.units)
    assert max(sizes) == 22
    assert min(sizes) < 20


def test_people_come_with_all_their_rows(make_plan: Make, data: TensorDataset) -> None:
    ids = torch.arange(200) % 37 * 10  # 37 people with 5 or 6 rows each
    indexed = TensorDataset(torch.arange(200), *data.tensors)
    plan = make_plan(unit="person", steps=20)
    for lot in plan.batches(indexed, people=ids, rng=Rng.from_seed(3)):
        assert lot.groups is not None
        rows = lot.batch[0]
        present = set(ids[rows].tolist())
        assert sorted(rows.tolist()) == [row for row in range(200) if int(ids[row]) in present]
        for group in range(len(present)):
            assert len(set(ids[rows[lot.groups == group]].tolist())) == 1


def test_people_are_drawn_as_people() -> None:
    people = People(torch.tensor([7, 3, 7, 9]), 4)
    assert people.number == 3
    rows, places = people.rows_of(np.array([1, 2]))
    assert rows.tolist() == [0, 2, 3]
    assert places.tolist() == [0, 0, 1]


def test_augmented_copies_share_a_group(make_plan: Make, data: TensorDataset) -> None:
    plan = make_plan(augmentations=3, steps=4)

    def augment(batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return batch[0] + torch.rand(len(batch[0]), 1), batch[1]

    for lot, (x, _) in zip(
        plan.batches(data, augment=augment, rng=Rng.from_seed(2)),
        make_plan(steps=4).batches(data, rng=Rng.from_seed(2)),
        strict=True,
    ):
        assert lot.batch[0].shape == (3 * len(x), 4)
        assert torch.equal(lot.groups, torch.arange(len(x)).repeat_interleave(3))
        assert lot.weights == pytest.approx(torch.full((3 * len(x),), 1 / 3))
        moved = lot.batch[0].reshape(-1, 3, 4) - x[:, None]
        assert (moved.amax(-1) - moved.amin(-1)).max() < 1e-5  # each copy is its own row, shifted


def test_augmentations_that_mix_rows_are_refused() -> None:
    batch = (torch.rand(6, 4), torch.arange(6))
    CheckedAugmentation(lambda rows: (rows[0].flip(1) + torch.rand(6, 1), rows[1]))(batch)
    for mixing in (
        lambda rows: (rows[0] - rows[0].mean(0), rows[1]),
        lambda rows: (rows[0] + rows[0].flip(0), rows[1]),
    ):
        with pytest.raises(NotIsolated, match="augment"):
            CheckedAugmentation(mixing)(batch)


def test_an_augmentation_that_begins_to_mix_later_is_refused_then() -> None:
    batch = (torch.rand(64, 4), torch.arange(64))
    is_late = False

    def augment(rows: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return (rows[0] - rows[0].mean(0) if is_late else rows[0], rows[1])

    checked = CheckedAugmentation(augment)
    for _ in range(5):
        checked(batch)
    is_late = True
    with pytest.raises(NotIsolated, match="augment"):
        checked(batch)


def test_an_augmentation_can_be_repeated_from_a_seed() -> None:
    batch = (torch.zeros(6, 4), torch.arange(6))
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        checked = CheckedAugmentation(lambda rows: (rows[0] + torch.rand(len(rows[0]), 4), rows[1]))
        found.append([checked(batch)[0] for _ in range(3)])
    assert all(map(torch.equal, found[0], found[1]))
    assert not any(map(torch.equal, found[0], found[2]))
    assert not torch.equal(found[0][0], found[0][1])


def test_an_augmentation_that_keeps_rows_is_refused_and_one_that_counts_calls_is_not() -> None:
    kept: list[Tensor] = []
    count = [0]

    def keeps(rows: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        kept.append(rows[0].mean())
        return rows

    def counts(rows: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        count[0] += 1
        return rows

    def adds_up(rows: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        count[0] += int(rows[1].sum())
        return rows

    batch = (torch.rand(6, 4), torch.arange(6))
    CheckedAugmentation(counts)(batch)
    for augment in (keeps, adds_up):
        with pytest.raises(NotIsolated, match="augment"):
            CheckedAugmentation(augment)(batch)


class RunningMean(nn.Module):
    """Subtracts the mean of the batch before, which it keeps in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, rows: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        earlier = self.mean.clone()
        self.mean.data.copy_(rows[0].mean(0))
        return rows[0] - earlier, rows[1]


def test_an_augmentation_whose_module_keeps_rows_is_refused() -> None:
    batch = (torch.rand(6, 4), torch.arange(6))
    with pytest.raises(NotIsolated, match="mean"):
        CheckedAugmentation(RunningMean())((batch[0][:1], batch[1][:1]))


def test_an_augmentation_that_says_something_of_the_batch_is_refused() -> None:
    batch = (torch.rand(6, 4), torch.arange(6))
    CheckedAugmentation(lambda rows: (*rows, 0.5))(batch)
    with pytest.raises(NotIsolated, match="augment"):
        CheckedAugmentation(lambda rows: (*rows, float(rows[0].max())))(batch)


@pytest.mark.parametrize("seed", range(8))
def test_an_augmentation_that_one_row_turns_is_refused_whichever_half_it_is_in(seed: int) -> None:
    torch.manual_seed(seed)
    x = torch.rand(6, 4)
    checked = CheckedAugmentation(lambda rows: (-rows[0] if bool((rows[0] > 5).any()) else rows[0], rows[1]))
    checked((x, torch.arange(6)))
    x[seed % 6, 1] = 9.0
    with pytest.raises(NotIsolated, match="augment"):
        checked((x, torch.arange(6)))


def collated(items: list[Any]) -> tuple[Tensor, Tensor]:
    x, y = torch.stack([x for x, _ in items]), torch.stack([y for _, y in items])
    return (-x if bool((x > 5).any()) else x), y


def test_a_row_that_is_not_as_in_its_batch_is_compared_though_no_check_was_due() -> None:
    items = [(torch.rand(4), torch.tensor(number)) for number in range(6)]
    collate = Collation(collated, keeps_order=False)
    look = Alone([2], is_due=False)
    assert isinstance(collate([*items, look]), tuple)  # as in the batch: nothing to compare
    items[4][0][1] = 9.0
    found = collate([*items, look])
    assert isinstance(found, Loaded)
    assert found.rows == [2]
    ((alone, within),) = found.pairs
    assert torch.equal(alone[0], -within[0])


def test_what_is_always_different_is_compared_a_few_times_and_at_records() -> None:
    def padded_to_longest(items: list[Any]) -> tuple[Tensor, Tensor]:
        return torch.nn.utils.rnn.pad_sequence(items, batch_first=True), torch.zeros(len(items))

    collate, kinds = Collation(padded_to_longest, keeps_order=False), []
    for longest in (5, 5, 5, 5, 5, 5, 5, 5, 4, 9, 9, 9):
        kinds.append(isinstance(collate([torch.ones(2), torch.ones(longest), Alone([0], is_due=False)]), Loaded))
    assert kinds == [True] * 6 + [False, False, True, True, False, False]


def test_a_collation_that_sorts_is_found_again_but_not_where_people_are_told_apart_by_places() -> None:
    items = [(torch.rand(4), torch.tensor(number)) for number in range(6)]

    def backwards(items: list[Any]) -> tuple[Tensor, Tensor]:
        return torch.stack([x for x, _ in items[::-1]]), torch.stack([y for _, y in items[::-1]])

    assert isinstance(Collation(backwards, keeps_order=False)([*items, Alone([1], is_due=False)]), tuple)
    with pytest.raises(NotIsolated, match="order"):
        Collation(backwards, keeps_order=True)([*items, Alone([1], is_due=False)])


class Together(Items):
    """Gives many items at once, less what the others have on average if told to."""

    mixes = False

    def __getitems__(self, rows: list[int]) -> list[dict[str, Tensor]]:
        x = torch.stack([self.data[row][0] for row in rows])
        x = x - x.mean(0) if self.mixes else x
        return [{"x": one, "y": self.data[row][1]} for one, row in zip(x, rows, strict=True)]


def test_items_that_depend_on_those_asked_for_with_them_are_refused(make_plan: Make, data: TensorDataset) -> None:
    dataset = Together(data)
    assert len(list(make_plan(steps=3).batches(dataset))) == 3
    dataset.mixes = True
    with pytest.raises(NotIsolated, match="__getitems__"):
        list(make_plan(steps=3).batches(dataset))


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter([torch.zeros(2)])


@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        ({"unit": "person"}, {}, "people must be given"),
        ({}, {"people": torch.zeros(200)}, "people must be given"),
        ({"unit": "person"}, {"people": torch.zeros(3)}, "one number per row"),
        ({"augmentations": 2}, {}, "augment"),
        ({}, {"workers": -1}, "workers"),
        ({}, {"augment": lambda rows: (rows[0][:1], rows[1][:1])}, "as many rows"),
    ],
)
def test_what_does_not_fit_is_refused(
    make_plan: Make, data: TensorDataset, change: dict[str, Any], arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidValue, match=message):
        list(make_plan(**change).batches(data, **arguments))


@pytest.mark.parametrize("dataset", [Stream(), TensorDataset(torch.zeros(0, 2))])
def test_data_sets_without_rows_are_refused(make_plan: Make, dataset: Dataset[Any]) -> None:
    with pytest.raises(InvalidValue, match=r"map-style|empty"):
        list(make_plan().batches(dataset))
