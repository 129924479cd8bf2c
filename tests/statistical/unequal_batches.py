"""Attacks by what reaches the model: padding to the longest text, augmentation, collation and narrow floats."""

from __future__ import annotations

import os
import random
import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy
import torch
import torch.nn.functional as F
from isolation_attacks import WIDTH, Between, attack
from isolation_truth import CLASSES, FEATURES, Case, cross_entropy, points
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import Dataset, TensorDataset

WORDS, LONGEST = 30, 12
Item = tuple[Tensor, Tensor]


class Texts(Dataset[Item]):
    """Texts of 2 to 12 words with a label; word 0 is for padding. The first 48, which are measured, have 6 words.

    One text of the batch is the longest, and padding does not show in it. The example that is checked is that one with
    a probability of about 1/16, so two checks miss what padding does with a probability below 0.01.
    """

    def __init__(self, count: int = 120) -> None:
        stream = torch.Generator().manual_seed(9)
        lengths = [6] * 48 + torch.randint(2, LONGEST + 1, (count - 48,), generator=stream).tolist()
        self._texts = [torch.randint(1, WORDS, (length,), generator=stream) for length in lengths]
        self._labels = torch.randint(0, CLASSES, (count,), generator=stream)

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, index: int) -> Item:
        return self._texts[index], self._labels[index]


LONG_TEXT = torch.full((40,), 7), torch.tensor(1)


def pad_right(items: Sequence[Item]) -> tuple[Tensor, Tensor, Tensor]:
    """Return (words, lengths, labels), padded to the longest text of the batch."""
    words = pad_sequence([words for words, _ in items], batch_first=True)
    return words, torch.tensor([len(words) for words, _ in items]), torch.stack([label for _, label in items])


def pad_left(items: Sequence[Item]) -> tuple[Tensor, Tensor, Tensor]:
    words, lengths, labels = pad_right([(words.flip(0), label) for words, label in items])
    return words.flip(1), lengths, labels


def present(words: Tensor, lengths: Tensor) -> Tensor:
    return (torch.arange(words.shape[1]) < lengths[:, None]).float()


def text_loss(model: nn.Module, words: Tensor, lengths: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(model(words, lengths), labels, reduction="none")


class Reader(nn.Module):
    """Embeds words, and lets a function of (hidden, words, lengths) make one vector of each text."""

    def __init__(self, pool: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.embed, self.head, self.pool = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, CLASSES), pool

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        return self.head(torch.tanh(self.pool(self.embed(words), words, lengths)))


def reading(pool: Callable[[Tensor, Tensor, Tensor], Tensor], *, padding: float | None = None) -> Case:
    """Return a case that reads right-padded texts; `padding` sets the vector of the word for padding."""
    model = Reader(pool)
    if padding is not None:
        model.embed.weight.data[0] = padding
    return Case(model, text_loss, Texts(), pad_right, crafted=LONG_TEXT, size=24)


# Padding to the longest text -----------------------------------------------------------------------------------


@attack
def mean_over_the_padded_length() -> Case:
    """Average over all places of a text, those of the padding included."""
    return reading(lambda h, words, lengths: 5 * h.mean(1))


@attack
def maximum_over_the_padding() -> Case:
    """Take the largest value over all places, those of the padding included."""
    return reading(lambda h, words, lengths: h.amax(1), padding=2.0)


@attack
def sum_over_the_padding() -> Case:
    """Add up the vectors of all places, those of the padding included."""
    return reading(lambda h, words, lengths: h.sum(1))


@attack
def last_place_of_the_padded_text() -> Case:
    """Read the last place of the padded text, which is padding for all but the longest."""
    return reading(lambda h, words, lengths: h[:, -1] + h[:, 0])


@attack
def masked_sum_over_the_padded_length() -> Case:
    """Mask the padding, and divide by the padded length all the same."""
    return reading(lambda h, words, lengths: 30 * (h * present(words, lengths)[..., None]).sum(1) / words.shape[1])


@attack
def attention_weights_without_mask() -> Case:
    """Take a softmax over all places, those of the padding included."""
    return reading(lambda h, words, lengths: (h.sum(-1).softmax(1)[..., None] * h).sum(1), padding=1.0)


@attack
def layer_norm_over_the_padded_text() -> Case:
    """Normalise over places and features together."""
    return reading(
        lambda h, words, lengths: 3 * (F.layer_norm(h, h.shape[1:]) * present(words, lengths)[..., None]).mean(1)
    )


@attack
def positions_counted_from_the_padded_end() -> Case:
    """Weigh the words by their distance to the end of the padded text."""

    def pool(h: Tensor, words: Tensor, lengths: Tensor) -> Tensor:
        distance = torch.arange(words.shape[1]).flip(0)
        return (h * torch.cos(distance)[:, None] * present(words, lengths)[..., None]).sum(1)

    return reading(pool)


class Positions(nn.Module):
    """Adds a vector for each absolute place."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(64, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        hidden = torch.tanh(self.embed(words) + 3 * self.places(torch.arange(words.shape[1])))
        return self.head((hidden * (words > 0)[..., None]).sum(1) / lengths[:, None])


@attack
def left_padding_with_absolute_positions() -> Case:
    """Pad on the left, so that a word's absolute place depends on the longest text."""
    return Case(Positions(), text_loss, Texts(), pad_left, crafted=LONG_TEXT, size=24)


class UnpackedReader(nn.Module):
    """A recurrent network that reads the padding as if it were text."""

    def __init__(self, *, bidirectional: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.read = nn.GRU(WIDTH, WIDTH, batch_first=True, bidirectional=bidirectional)
        self.head = nn.Linear(WIDTH * (2 if bidirectional else 1), CLASSES)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        states, final = self.read(self.embed(words))
        if self.read.bidirectional:  # the backward direction begins in the padding
            return self.head(states[:, 0])
        return self.head(final[0])


@attack
def recurrent_network_that_reads_the_padding() -> Case:
    """Take the final state of a GRU after the padding."""
    return Case(UnpackedReader(bidirectional=False), text_loss, Texts(), pad_right, crafted=LONG_TEXT, size=24)


@attack
def backward_direction_that_begins_in_the_padding() -> Case:
    """Read right-padded texts from their padded end."""
    return Case(UnpackedReader(bidirectional=True), text_loss, Texts(), pad_right, crafted=LONG_TEXT, size=24)


class SortedReader(nn.Module):
    """Sorts texts by length to pack them, and forgets to put the results back into order."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.read = nn.GRU(WIDTH, WIDTH, batch_first=True)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        order = lengths.argsort(descending=True)
        packed = pack_padded_sequence(self.embed(words[order]), lengths[order], batch_first=True)
        return self.head(self.read(packed)[1][0])


@attack
def packing_in_an_order_that_is_not_undone() -> Case:
    """Pair each label with another text's result, by a sort that is not undone."""
    return Case(SortedReader(), text_loss, Texts(), pad_right, crafted=LONG_TEXT, size=24)


class Encoder(nn.Module):
    """A transformer encoder that is given no padding mask."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.encode = nn.TransformerEncoderLayer(WIDTH, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        return self.head(self.encode(3 * self.embed(words))[:, 0])


@attack
def transformer_encoder_without_padding_mask() -> Case:
    """Let the first word attend to padding."""
    return Case(Encoder(), text_loss, Texts(), pad_right, crafted=LONG_TEXT, size=24)


# Augmentation: whether the rows that reach the loss were mixed is read from the rows themselves -----------------


class Traced:
    """Each example has one feature that no other has, so a mixed row has several; the loss looks for such rows."""

    def __init__(self) -> None:
        self.mixed = 0
        x = torch.diag(torch.linspace(1, 2, 40))
        self.dataset = TensorDataset(x, torch.arange(40) % CLASSES)

    def loss_fn(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        losses = cross_entropy(model, x, y)
        plain = x.detach()
        if not torch._C._functorch.is_functorch_wrapped_tensor(plain):
            self.mixed += bool(((plain.abs() > 1e-6).sum(-1) > 1).any())
        return losses

    def evidence(self) -> str:
        return "rows of several examples were added up before the loss" if self.mixed else ""


def augmenting(augment: Callable[[Tensor], Tensor]) -> Case:
    """Return a case whose augmentation changes x by a function of the whole batch."""
    trace = Traced()
    return Case(
        nn.Sequential(nn.Linear(40, WIDTH), nn.Tanh(), nn.Linear(WIDTH, CLASSES)),
        trace.loss_fn,
        trace.dataset,
        augment=lambda batch: (augment(batch[0]), batch[1]),
        evidence=trace.evidence,
        batch=12,
    )


@attack
def mixup_by_torch() -> Case:
    """Mix each example with another one, chosen by torch's global generator."""
    return augmenting(lambda x: 0.7 * x + 0.3 * x[torch.randperm(len(x))])


@attack
def mixup_by_numpy() -> Case:
    """Mix each example with another one, chosen by numpy's global generator."""
    return augmenting(lambda x: 0.7 * x + 0.3 * x[numpy.random.permutation(len(x))])  # noqa: NPY002


@attack
def mixup_by_a_numpy_generator() -> Case:
    """Mix each example with another one, chosen by a generator of numpy that nobody else knows."""
    stream = numpy.random.default_rng()
    return augmenting(lambda x: 0.7 * x + 0.3 * x[stream.permutation(len(x))])


@attack
def mixup_by_python_random() -> Case:
    """Mix each example with another one, chosen by Python's `random`."""
    return augmenting(lambda x: 0.7 * x + 0.3 * x[random.sample(range(len(x)), len(x))])


@attack
def mixup_by_own_generator() -> Case:
    """Mix each example with another one, chosen by a torch generator of one's own."""
    stream = torch.Generator()
    stream.seed()
    return augmenting(lambda x: 0.7 * x + 0.3 * x[torch.randperm(len(x), generator=stream)])


@attack
def mixup_by_the_operating_system() -> Case:
    """Mix each example with another one, chosen by `os.urandom`, which nothing can replay."""

    def mix(x: Tensor) -> Tensor:
        order = sorted(range(len(x)), key=lambda _: os.urandom(4))
        return 0.7 * x + 0.3 * x[order]

    return augmenting(mix)


@attack
def mixup_by_secrets() -> Case:
    """Add one example to all others, chosen by `secrets`."""
    return augmenting(lambda x: x + x[secrets.randbelow(len(x))])


@attack
def cutmix_with_the_neighbour() -> Case:
    """Paste half of the features of the next example into each one."""
    return augmenting(lambda x: torch.cat([x[:, :20], x.roll(1, 0)[:, 20:]], 1) + x)


@attack
def augmentation_by_the_batch_mean() -> Case:
    """Subtract the mean over the batch, without any randomness."""
    return augmenting(lambda x: x - x.mean(0))


@attack
def augmentation_that_mixes_seldom() -> Case:
    """Mix in one call of three, by numpy's generator."""
    return augmenting(lambda x: x - x.mean(0) if numpy.random.random() < 0.33 else x)  # noqa: NPY002


@attack
def augmentation_that_mixes_late() -> Case:
    """Mix from the fourth call on."""
    calls: list[int] = []

    def augment(x: Tensor) -> Tensor:
        calls.append(1)
        return x - x.mean(0) if len(calls) > 3 else x

    return augmenting(augment)


@attack
def augmentation_with_the_rows_before() -> Case:
    """Add what the call before was given."""
    kept = [torch.zeros(40)]

    def augment(x: Tensor) -> Tensor:
        earlier, kept[0] = kept[0], x.sum(0)
        return x + 0.1 * earlier

    return augmenting(augment)


# Collation -----------------------------------------------------------------------------------------------------


def collated_by(change: Callable[[Tensor], Tensor], **changes: Any) -> Case:
    """Return a case whose collation changes x by a function of the whole batch."""

    def collate(items: list[Item]) -> tuple[Tensor, Tensor]:
        return change(torch.stack([x for x, _ in items])), torch.stack([y for _, y in items])

    return Case(Between(lambda h: h), collate=collate, **changes)


@attack
def collation_that_centres() -> Case:
    """Subtract the batch's mean while collating."""
    return collated_by(lambda x: x - x.mean(0))


@attack
def collation_that_scales_by_the_largest_value() -> Case:
    """Divide by the batch's largest value while collating."""
    return collated_by(lambda x: 5 * x / x.abs().max() - 1)


@attack
def collation_with_mixup() -> Case:
    """Mix neighbours while collating."""
    return collated_by(lambda x: x - x.roll(1, 0) - x.roll(2, 0))


@attack
def collation_that_mixes_late() -> Case:
    """Subtract the batch's mean while collating, from the sixth call on."""
    calls: list[int] = []

    def change(x: Tensor) -> Tensor:
        calls.append(1)
        return x - x.mean(0) if len(calls) > 5 else x

    return collated_by(change, steps=20)


@attack
def collation_that_shifts_the_labels() -> Case:
    """Pair each example with the label of the next one."""

    def collate(items: list[Item]) -> tuple[Tensor, Tensor]:
        return torch.stack([x for x, _ in items]), torch.stack([y for _, y in items]).roll(1)

    return Case(Between(lambda h: h), collate=collate)


@attack
def collation_with_the_batch_before() -> Case:
    """Subtract the sum of the batch before while collating."""
    kept = [torch.zeros(FEATURES)]

    def change(x: Tensor) -> Tensor:
        earlier, kept[0] = kept[0], x.sum(0)
        return x - earlier

    return collated_by(change)


def _cut_to_the_shortest(items: Sequence[Item]) -> tuple[Tensor, Tensor, Tensor]:
    shortest = min(len(words) for words, _ in items)
    return pad_right([(words[:shortest], label) for words, label in items])


@attack
def collation_that_cuts_to_the_shortest_text() -> Case:
    """Cut all texts of the batch to the length of the shortest one."""
    case = reading(lambda h, words, lengths: h.sum(1))
    case.collate, case.crafted = _cut_to_the_shortest, (torch.tensor([7]), torch.tensor(1))
    return case


# Full batches --------------------------------------------------------------------------------------------------


class WritesInput(nn.Module):
    """Centres its input in place."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.mul_(0.5))


@attack
def full_batch_written_in_place() -> Case:
    """Halve the input in place, so that a full batch without a copy changes the data set."""
    data = points()
    before = data.tensors[0].clone()

    def evidence() -> str:
        return "" if torch.equal(before, data.tensors[0]) else "the data set was written"

    return Case(WritesInput(), dataset=data, sampling="full_batch", evidence=evidence, steps=3)


@attack
def full_batch_written_by_augmentation() -> Case:
    """Halve the input in place in `augment`, so that a full batch without a copy changes the data set."""
    data = points()
    before = data.tensors[0].clone()

    def evidence() -> str:
        return "" if torch.equal(before, data.tensors[0]) else "the data set was written"

    return Case(
        nn.Linear(FEATURES, CLASSES),
        dataset=data,
        sampling="full_batch",
        augment=lambda batch: (batch[0].mul_(0.5), batch[1]),
        evidence=evidence,
        steps=3,
    )


# Narrow floats: sums lose what one example adds -----------------------------------------------------------------


class Score(nn.Module):
    """One weight for each feature; its gradient is the example itself."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(FEATURES, 1))

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.weight)[:, 0]


def narrow(
    dtype: torch.dtype,
    around: Callable[[], AbstractContextManager[Any]] = nullcontext,
    *,
    micro_batch: int | None = None,
) -> Case:
    """Return a case with a batch so large that a sum of clipped gradients in `dtype` is coarser than one of them.

    All gradients are clipped to 0.1 and equal. Near 129 the values of float16 are 1.25 clip norms apart and those of
    bfloat16 ten clip norms, so of twelve examples that are added one after the other some move the sum by that much.
    """
    x = torch.zeros(700, FEATURES, dtype=dtype)
    x[:, 0] = 1.0
    return Case(
        Score().to(dtype),
        lambda model, x, y: model(x),
        TensorDataset(x, torch.zeros(700)),
        crafted=(x[0], torch.tensor(0.0)),
        around=around,
        batch=100,
        size=1290,
        window=12,
        steps=3,
        micro_batch=micro_batch,
    )


@attack
def bfloat16_model() -> Case:
    """Train a model in bfloat16."""
    return narrow(torch.bfloat16)


@attack
def float16_model() -> Case:
    """Train a model in float16."""
    return narrow(torch.float16)


@attack
def bfloat16_model_under_autocast() -> Case:
    """Train a model in bfloat16 with autocast around `fit`."""
    return narrow(torch.bfloat16, lambda: torch.autocast("cpu", dtype=torch.bfloat16))


@attack
def autocast_around_fit() -> Case:
    """Train a model in float32 with autocast to bfloat16 around `fit`."""
    return narrow(torch.float32, lambda: torch.autocast("cpu", dtype=torch.bfloat16))


@attack
def autocast_to_float16_around_fit() -> Case:
    """Train a model in float32 with autocast to float16 around `fit`."""
    return narrow(torch.float32, lambda: torch.autocast("cpu", dtype=torch.float16))


@attack
def bfloat16_model_in_micro_batches() -> Case:
    """Train a model in bfloat16 by micro-batches of 100, whose sums are added up."""
    return narrow(torch.bfloat16, micro_batch=100)


@attack
def float16_model_in_micro_batches() -> Case:
    """Train a model in float16 by micro-batches of 100, whose sums are added up."""
    return narrow(torch.float16, micro_batch=100)


@attack
def autocast_inside_the_model() -> Case:
    """Leave autocast on in the model's forward pass, as recipes for GPUs do."""
    case = narrow(torch.float32)
    score = case.model

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return score(x).float()

    case.loss_fn, case.is_harmful = loss_fn, False  # the sum itself is taken outside autocast
    return case
