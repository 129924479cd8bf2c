"""What is remembered from one batch to the next, and what is shared between parameters: never a wrong answer."""

from __future__ import annotations

import itertools
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F
from naive_loop import TIGHT, naive, relative_error
from torch import Tensor, nn

from hush.errors import NoRule
from hush.gradients import clipped_sum, recall
from hush.gradients.follow import follow
from hush.gradients.layout import UNKNOWN, Layout, fits_together, layout_of, mark
from hush.gradients.recall import key_of, recalled
from hush.gradients.shared import Shared


def loss(model: nn.Module, inputs: Tensor) -> Tensor:
    return model(inputs).flatten(1).square().sum(1)


def equals_the_loop(model: nn.Module, batch: Tensor) -> bool:
    truth = naive(model, loss, batch)
    clip_norm = 0.8 * float(truth.norms.median())
    got = clipped_sum(model, loss, batch, clip_norm, method="tape")
    close = float((got.norms - truth.norms).abs().max()) < TIGHT * float(truth.norms.max())
    return close and relative_error(got.gradients, truth.clipped(clip_norm)) < TIGHT


class Chosen(nn.Module):
    """Reads its input under an index that changes between batches while every shape stays."""

    def __init__(self, axis: int, index: list[int]) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3, dtype=torch.float64)
        self.axis, self.index = axis, torch.tensor(index)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layer(torch.index_select(inputs, self.axis, self.index))


def test_an_index_is_read_anew_for_every_batch() -> None:
    model, batch = Chosen(0, [0, 1, 2]), torch.randn(3, 4, dtype=torch.float64)
    assert equals_the_loop(Chosen(1, [2, 0, 3, 3]), batch)
    clipped_sum(model, loss, batch, 1.0, method="tape")
    model.index = torch.tensor([1, 0, 2])
    with pytest.raises(NoRule):
        clipped_sum(model, loss, batch, 1.0, method="tape")


class Transposing(nn.Module):
    """Moves the batch by an argument that changes between batches of one square shape."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.axes = nn.Linear(4, 4, dtype=torch.float64), (1, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layer(inputs.transpose(*self.axes)).transpose(*self.axes).sum((1, 2))


@pytest.mark.parametrize("axes", [(1, 2), (0, 1), (1, 0)])
def test_plain_arguments_count(axes: tuple[int, int]) -> None:
    model, batch = Transposing(), torch.randn(4, 4, 4, dtype=torch.float64)

    def summed(model: nn.Module, inputs: Tensor) -> Tensor:
        return model(inputs) ** 2

    for model.axes in ((1, 2), axes):
        truth = naive(model, summed, batch)
        got = clipped_sum(model, summed, batch, 1.0, method="tape")
        assert relative_error(got.gradients, truth.clipped(1.0)) < TIGHT


FIRST = Layout(0)


def batched(*shape: int, layout: Layout = FIRST) -> Tensor:
    tensor = torch.zeros(shape)
    mark(tensor, layout)
    return tensor


def key(*args: Any, **kwargs: Any) -> Any:
    return key_of(torch.sum, args, kwargs, 3)


def test_keys_tell_apart_what_answers_depend_on() -> None:
    different = [
        key(batched(3, 2)),
        key(batched(3, 4)),
        key(batched(3, 2, layout=Layout(1))),
        key(batched(3, 2, layout=UNKNOWN)),
        key(torch.zeros(3, 2)),
        key(batched(3, 2).double()),
        key(batched(3, 2), 1),
        key(batched(3, 2), True),
        key(batched(3, 2), (1,)),
        key(batched(3, 2), [1]),
        key(batched(3, 2), dim=1),
        key(batched(3, 2), slice(0, 1)),
        key(batched(3, 2), slice(0, 2)),
        key_of(torch.mean, (batched(3, 2),), {}, 3),
        key_of(torch.sum, (batched(3, 2),), {}, 1),
    ]
    assert None not in different
    assert all(one != other for one, other in itertools.combinations(different, 2))
    assert key(batched(3, 2), slice(0, 1), dim=1) == key(batched(3, 2), slice(0, 1), dim=1)


def test_what_is_not_listed_gets_no_key() -> None:
    twice = batched(3, 2)
    assert key(twice, twice) is None
    assert key(batched(3, 2), numpy.int64(1)) is None
    assert key(batched(3, 2), slice(torch.tensor(0), torch.tensor(1))) is None
    assert key(batched(3, 2), (slice(None), slice(0, torch.tensor(1)))) is None
    assert key(batched(3, 2), object()) is None
    assert key(batched(3, 2), dim=[numpy.int64(1)]) is None


def test_a_bound_that_is_a_tensor_is_read_anew_for_every_batch() -> None:
    twice = batched(8, 2, layout=Layout(0, 2, 1))  # examples 0, 1, 2, 3, 0, 1, 2, 3
    for start, place in ((0, Layout(0)), (1, UNKNOWN), (4, Layout(0))):
        args = twice, slice(torch.tensor(start), torch.tensor(start + 4))
        result = Tensor.__getitem__(*args)
        follow(Tensor.__getitem__, args, {}, result, [twice], 4)
        assert layout_of(result) == place


def test_an_answer_is_asked_for_once_and_few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recall, "_answers", {})
    monkeypatch.setattr(recall, "_MOST", 3)
    asked: list[int] = []

    def answer() -> Layout:
        asked.append(1)
        return Layout(len(asked))

    shape = torch.Size([3])
    assert recalled("a", 0, shape, answer) is recalled("a", 0, shape, answer)
    assert recalled("a", 1, shape, answer) == Layout(2)
    assert recalled(None, 0, shape, answer) != recalled(None, 0, shape, answer)
    for name in "bcdefg":
        recalled(name, 0, shape, answer)
        assert len(recall._answers) <= 3


def test_fitting_together_is_broadcasting() -> None:
    sizes: list[tuple[int, ...]] = [(), (1,), (2,), (0,), (1, 2), (2, 1), (3, 1), (3, 2), (1, 1, 2), (2, 3, 1)]
    for one, other, out in itertools.product(sizes, repeat=3):
        try:
            truth = torch.broadcast_shapes(one, other) == torch.Size(out)
        except RuntimeError:
            truth = False
        assert fits_together([one, other], out) == truth, (one, other, out)


class Shares(nn.Module):
    """One input for three layers, one of which gives way to another width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, size, dtype=torch.float64) for size in (width, width, 9))

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.cat([self.query(inputs) * self.key(inputs), self.value(inputs)], -1)


@pytest.mark.parametrize(("places", "width"), [(2, 40), (9, 8), (1, 8), (300, 700)])
def test_layers_on_one_input(places: int, width: int) -> None:
    torch.manual_seed(0)
    assert equals_the_loop(Shares(width), torch.randn(3, places, width, dtype=torch.float64))


def test_products_are_made_once_and_let_go() -> None:
    inputs = torch.randn(2, 3, 5)
    shared = Shared([inputs] * 3)
    found = [shared.pairs(inputs) for _ in range(3)]
    assert found[0] is found[1] is found[2]
    assert torch.equal(found[0], inputs @ inputs.mT)
    assert not shared._pairs


def test_a_new_tensor_in_the_place_of_an_old_one_is_measured_anew() -> None:
    shared = Shared()
    for value in range(20):
        rows = torch.full((4, 1000), float(value))
        assert torch.allclose(shared.squared(rows), torch.full((4,), 1000.0 * value**2))
        del rows


class Attends(nn.Module):
    """Attention of one half of the tokens to the other, with packed weights."""

    def __init__(self, *, to_itself: bool) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(6, 2, batch_first=True, dtype=torch.float64)
        self.to_itself = to_itself

    def forward(self, tokens: Tensor) -> Tensor:
        some, others = tokens.chunk(2, 1)
        keys = some if self.to_itself else others
        return self.attend(some, keys, keys, need_weights=False)[0]


@pytest.mark.parametrize("to_itself", [True, False])
def test_packed_attention(to_itself: bool) -> None:
    torch.manual_seed(0)
    assert equals_the_loop(Attends(to_itself=to_itself), torch.randn(3, 8, 6, dtype=torch.float64))


def test_attention_written_anew_gives_the_values_of_torch() -> None:
    from hush.gradients import twins

    x, w, b = torch.randn(4, 3, 6), torch.randn(18, 6), torch.randn(18)
    assert twins._anew(F.multi_head_attention_forward.__globals__)
    for one, other in zip(twins._in_projection_packed(x, x, x, w, b), twins._PACKED(x, x, x, w, b), strict=True):
        assert torch.equal(one, other)
        assert one.is_contiguous()
