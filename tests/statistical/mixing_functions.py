"""Models that mix examples by functions of torch over the batch axis, and by values that leave torch and come back."""

from __future__ import annotations

import numpy
import torch
import torch.nn.functional as F
from isolation_attacks import WIDTH, attack, attack_at_any_time, mixing
from isolation_truth import CLASSES, FEATURES, Case
from torch import Tensor, nn

# Functions of torch over the batch axis ------------------------------------------------------------------------


@attack_at_any_time
def features_centred_over_the_batch() -> Case:
    """Subtract the batch's mean from each feature."""
    return mixing(lambda h: h - h.mean(0))


@attack_at_any_time
def features_standardised_over_the_batch() -> Case:
    """Divide by the batch's standard deviation, by `var_mean`."""

    def standardise(h: Tensor) -> Tensor:
        variance, mean = torch.var_mean(h, dim=0)
        return (h - mean) * torch.rsqrt(variance + 1e-5)

    return mixing(standardise)


@attack_at_any_time
def features_divided_by_the_largest_of_the_batch() -> Case:
    """Scale each feature by its largest value in the batch."""
    return mixing(lambda h: h / h.abs().amax(dim=-2, keepdim=True))


@attack_at_any_time
def features_minus_the_median_of_the_batch() -> Case:
    """Subtract the batch's median from each feature."""
    return mixing(lambda h: 3 * (h - h.median(dim=0).values))


@attack_at_any_time
def msort() -> Case:
    """Sort each feature over the batch by `msort`, which has no axis argument."""
    return mixing(torch.msort)


@attack_at_any_time
def sort_with_axis_0() -> Case:
    """Sort over the batch, with the axis given by its numpy name."""
    return mixing(lambda h: torch.sort(h, axis=0).values)


@attack_at_any_time
def argsort_with_axis_0() -> Case:
    """Permute the examples by the order of their first feature."""
    return mixing(lambda h: h[torch.argsort(h, axis=0)[:, 0]])


@attack_at_any_time
def cumsum_with_axis_0() -> Case:
    """Add up the examples before each one."""
    return mixing(lambda h: torch.cumsum(h, axis=0))


@attack_at_any_time
def running_maximum_over_the_batch() -> Case:
    """Give each example the largest values of those before it."""
    return mixing(lambda h: h.cummax(0).values)


@attack_at_any_time
def fft_with_axis_0() -> Case:
    """Take a Fourier transform over the batch."""
    return mixing(lambda h: torch.fft.fft(h, axis=0).real)


@attack_at_any_time
def flip_over_the_batch() -> Case:
    """Add the example at the mirrored place."""
    return mixing(lambda h: h + 5 * h.flip(0))


@attack_at_any_time
def roll_over_the_batch() -> Case:
    """Add the neighbours on both sides."""
    return mixing(lambda h: h + 3 * torch.roll(h, 1, 0) + 3 * torch.roll(h, -1, 0))


@attack_at_any_time
def rows_that_follow() -> Case:
    """Add the next example to each one: changing the first row moves no other."""
    return mixing(lambda h: h + torch.cat([h[1:].flip(0).cumsum(0).flip(0), torch.zeros_like(h[:1])]))


@attack_at_any_time
def the_last_row() -> Case:
    """Subtract the last example of the batch from all others."""
    return mixing(lambda h: h - h[-1:])


@attack
def rows_after_the_sixteenth() -> Case:
    """Mix among the examples from the seventeenth on, behind what a check of the first few sees."""

    def mix(h: Tensor) -> Tensor:
        return torch.cat([h[:16], h[16:] - h[16:].sum(0)]) if len(h) > 16 else h

    return mixing(mix, batch=30, size=40)


@attack_at_any_time
def softmax_over_the_batch() -> Case:
    """Let the examples compete in a softmax over the batch axis."""
    return mixing(lambda h: 10 * h.softmax(-2))


@attack_at_any_time
def convolution_along_the_batch() -> Case:
    """Take the batch for the time axis of a one-dimensional convolution."""
    return mixing(lambda h: F.conv1d(h.T[None], torch.ones(WIDTH, WIDTH, 3), padding=1)[0].T)


@attack_at_any_time
def batch_as_convolution_kernel() -> Case:
    """Convolve every example with every other one as kernel."""
    return mixing(lambda h: F.conv1d(h[:, None], h[:, None], padding="same").sum(1))


@attack_at_any_time
def attention_over_the_batch() -> Case:
    """Let examples attend to each other."""
    return mixing(lambda h: 3 * F.scaled_dot_product_attention(h[None], h[None], h[None])[0])


class BatchFirstForgotten(nn.Module):
    """A transformer layer that takes the batch for the sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(1, WIDTH)
        self.encode = nn.TransformerEncoderLayer(WIDTH, 2, 16, dropout=0.0)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encode(self.embed(x[..., None])).mean(1))


@attack
def transformer_with_batch_first_forgotten() -> Case:
    """Hand (batch, tokens, width) to a layer that expects (tokens, batch, width)."""
    return Case(BatchFirstForgotten())


class BatchAsSequence(nn.Module):
    """An LSTM that reads the examples one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.head = nn.LSTM(FEATURES, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.read(x)[0])


@attack
def lstm_over_the_batch() -> Case:
    """Read the batch as one unbatched sequence."""
    return Case(BatchAsSequence())


@attack_at_any_time
def product_with_the_second_moments() -> Case:
    """Multiply by the batch's own covariance."""
    return mixing(lambda h: h @ (h.T @ h))


@attack_at_any_time
def einsum_over_pairs() -> Case:
    """Weigh all examples by their products with each one."""
    return mixing(lambda h: torch.einsum("id,jd,je->ie", h, h, h))


@attack_at_any_time
def distances_between_examples() -> Case:
    """Scale each example by its mean distance to the others."""
    return mixing(lambda h: h - torch.cdist(h, h).mean(1, keepdim=True))


@attack_at_any_time
def reshape_that_scrambles_examples() -> Case:
    """Reshape to (width, batch) and transpose, where a transpose was meant."""
    return mixing(lambda h: h.reshape(WIDTH, -1).T)


@attack_at_any_time
def strides_over_the_batch() -> Case:
    """Read the memory of the batch with a stride that skips into other examples."""
    return mixing(lambda h: h.contiguous().as_strided(h.shape, (1, len(h))))


@attack_at_any_time
def layer_norm_over_the_batch() -> Case:
    """Normalise over the batch by a layer norm of the transposed features."""
    return mixing(lambda h: F.layer_norm(h.T, (len(h),)).T)


@attack_at_any_time
def group_norm_with_the_batch_as_channels() -> Case:
    """Normalise with the examples as channels of one image."""
    return mixing(lambda h: F.group_norm(h[None], 1)[0])


@attack_at_any_time
def max_pooling_along_the_batch() -> Case:
    """Take the largest value of neighbouring examples."""
    return mixing(lambda h: F.max_pool1d(h.T[None], 5, stride=1, padding=2)[0].T)


@attack_at_any_time
def whitening_by_the_covariance() -> Case:
    """Decorrelate the features by the batch's covariance matrix."""
    return mixing(lambda h: torch.linalg.solve(torch.cov(h.T) + torch.eye(WIDTH), h.T).T)


@attack_at_any_time
def index_of_the_largest_example() -> Case:
    """Add the example that is largest in the first feature to every one."""
    return mixing(lambda h: h + 3 * h[h[:, 0].argmax()])


@attack_at_any_time
def scatter_into_shared_slots() -> Case:
    """Add up all examples in one slot and give the slot to each."""
    return mixing(lambda h: h - torch.zeros(1, WIDTH).index_add(0, torch.zeros(len(h), dtype=torch.long), h))


@attack_at_any_time
def vmap_over_the_features() -> Case:
    """Centre each feature inside a `torch.vmap` over the other axis."""
    return mixing(lambda h: torch.vmap(lambda column: column - column.mean(), in_dims=1, out_dims=1)(h))


@attack_at_any_time
def expert_with_room_for_few() -> Case:
    """Send each example to an expert that serves the first four of the batch and skips the others."""

    def route(h: Tensor) -> Tensor:
        expert = F.one_hot(h[:, :2].argmax(1), 2)
        place = (expert.cumsum(0) * expert).sum(1)
        return h * torch.where(place <= 4, 1.0, -1.0)[:, None]

    return mixing(route)


@attack_at_any_time
def mask_of_another_example() -> Case:
    """Mask features by the signs of the example before."""
    return mixing(lambda h: h.masked_fill(h.roll(1, 0) > 0, -1.0))


@attack_at_any_time
def mean_without_a_gradient() -> Case:
    """Subtract the batch's mean, which is taken under `no_grad`."""

    def centre(h: Tensor) -> Tensor:
        with torch.no_grad():
            mean = h.mean(0)
        return h - mean

    return mixing(centre)


@attack_at_any_time
def written_in_place_over_the_batch() -> Case:
    """Subtract the first example from all others, by writing into a copy."""

    def change(h: Tensor) -> Tensor:
        copy = h.clone()
        copy[1:] -= h[:1]
        return copy

    return mixing(change)


@attack_at_any_time
def dropout_seeded_by_the_batch() -> Case:
    """Draw the dropout mask with a seed that is read from the batch."""

    def drop(h: Tensor) -> Tensor:
        stream = torch.Generator().manual_seed(int(1000 * h.detach().abs().sum()))
        return 2 * h * (torch.rand(WIDTH, generator=stream) < 0.5)

    return mixing(drop)


# Values that leave torch, and come back ------------------------------------------------------------------------


@attack_at_any_time
def item() -> Case:
    """Multiply by the batch's mean as a Python number, by `.item()`."""
    return mixing(lambda h: h * h.mean().item())


@attack_at_any_time
def tolist_and_torch_tensor() -> Case:
    """Subtract the batch's means as a list of Python numbers."""
    return mixing(lambda h: h - torch.tensor(h.mean(0).tolist()))


@attack_at_any_time
def new_tensor() -> Case:
    """Subtract a copy of the batch's means by `new_tensor`."""
    return mixing(lambda h: h - h.new_tensor(h.detach().mean(0)))


@attack_at_any_time
def float_of_a_statistic() -> Case:
    """Subtract the batch's largest value as a float."""
    return mixing(lambda h: h - float(h.abs().max()))


@attack_at_any_time
def int_of_a_statistic() -> Case:
    """Shift by the batch's rounded sum as an int."""
    return mixing(lambda h: h - 0.1 * int(h.sum()))


@attack_at_any_time
def numpy_round_trip() -> Case:
    """Compute the batch's means by numpy and come back by `from_numpy`."""
    return mixing(lambda h: h - torch.from_numpy(h.detach().numpy().mean(axis=0)))


@attack_at_any_time
def numpy_asarray() -> Case:
    """Let numpy read the tensor by itself, and make a new tensor."""
    return mixing(lambda h: h - torch.as_tensor(numpy.asarray(h.detach()).max(axis=0)))


@attack_at_any_time
def dlpack_round_trip() -> Case:
    """Hand the batch to numpy by DLPack, which no torch function sees, and take its means back."""
    return mixing(lambda h: h - torch.from_dlpack(numpy.from_dlpack(h.detach()).mean(axis=0)))


@attack_at_any_time
def text_round_trip() -> Case:
    """Print the batch's mean, read the number from the text and multiply by it."""
    return mixing(lambda h: h * float(f"{h.detach().mean():.4f}"))


@attack_at_any_time
def iteration_over_examples() -> Case:
    """Take the largest first feature with Python's `max` over the examples."""
    return mixing(lambda h: h - max(float(row[0]) for row in h))


@attack
def rare_branch_in_the_model() -> Case:
    """Turn the features over if any value of the batch is above 3: two checks miss it with probability 0.005."""

    class Branch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            h = torch.tanh(self.first(x))
            if (x > 3).any():
                h = -h
            return self.last(h)

    item = torch.full((FEATURES,), 5.0), torch.tensor(1)
    return Case(Branch(), steps=20, batch=60, crafted=item)
