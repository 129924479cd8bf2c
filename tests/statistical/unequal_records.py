"""Attacks by what lies around the model: parameters that thaw, losses that train alone, data sets with memory."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from isolation_attacks import WIDTH, Between, attack
from isolation_truth import CLASSES, EXAMPLES, FEATURES, PRIVATE, Case, cross_entropy, points
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

Item = tuple[Tensor, Tensor]


# State that is flipped while training ---------------------------------------------------------------------------


class Raw(nn.Module):
    """A frozen layer whose gradient is as large as the data, and a trained one behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.first.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x) / PRIVATE)


@attack
def parameter_that_thaws_and_keeps_a_raw_gradient() -> Case:
    """Unfreeze a layer in a callback and take a plain gradient of it in the loss, which the optimizer then applies."""

    def loss_fn(model: Any, x: Tensor, y: Tensor) -> Tensor:
        if model.first.weight.requires_grad and not torch._C._functorch.is_functorch_wrapped_tensor(x):
            (1e6 * cross_entropy(model, x, y).sum()).backward()
        return cross_entropy(model, x, y)

    model = Raw()

    def thaw(progress: Any) -> None:
        model.first.requires_grad_(True)

    # The reference applies no gradient but its own, so only trainers with an optimizer can be harmed.
    return Case(model, loss_fn, points(PRIVATE), callbacks=[thaw], is_harmful=False)


@attack
def loss_that_trains_by_itself() -> Case:
    """Take a step of plain gradient descent inside the loss."""

    def loss_fn(model: Any, x: Tensor, y: Tensor) -> Tensor:
        if not torch._C._functorch.is_functorch_wrapped_tensor(x):
            with torch.enable_grad():
                mean = F.cross_entropy(model(x), y)
                gradient = torch.autograd.grad(mean, model.weight, allow_unused=True)[0]
            with torch.no_grad():
                model.weight -= 100 * gradient
        return cross_entropy(model, x, y)

    return Case(nn.Linear(FEATURES, CLASSES), loss_fn, points(PRIVATE))


@attack
def dropout_switched_by_the_batch() -> Case:
    """Switch dropout on if the batch's sum is large: one of 40 examples almost always has it, and one alone never."""

    class Switch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, CLASSES)
            self.drop = nn.Dropout(0.9)

        def forward(self, x: Tensor) -> Tensor:
            self.drop.train(bool(x.detach().sum() > 15))
            return self.last(self.drop(torch.tanh(self.first(x))))

    return Case(Switch(), batch=40, steps=20)


@attack
def sign_switched_by_a_flag_of_the_batch_before() -> Case:
    """Turn the features over if the largest value of the batch before was above 3, kept as a Python bool."""

    class Flag(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last, self.is_turned = nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, CLASSES), False

        def forward(self, x: Tensor) -> Tensor:
            h = torch.tanh(self.first(x))
            h = -h if self.is_turned else h
            self.is_turned = bool((x.detach() > 3).any())
            return self.last(h)

    return Case(Flag(), batch=60, steps=20, crafted=(torch.full((FEATURES,), 5.0), torch.tensor(1)))


# Recurrent state and statistics that go on from batch to batch --------------------------------------------------


class CarriesState(nn.Module):
    """A recurrent network whose first state is the mean of the last states of the batch before."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.head = nn.GRU(1, WIDTH, batch_first=True), nn.Linear(WIDTH, CLASSES)
        self.state = torch.zeros(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        start = self.state.expand(1, len(x), WIDTH).contiguous()
        final = self.read(x[..., None], 5 * start)[1][0]
        self.state = final.detach().mean(0)
        return self.head(final)


@attack
def recurrent_state_carried_to_the_next_batch() -> Case:
    """Begin with the mean state in which the batch before ended."""
    return Case(CarriesState())


class RunningScale(nn.Module):
    """Normalises by running statistics of its own, which it updates first."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(FEATURES, CLASSES)
        self.register_buffer("mean", torch.zeros(FEATURES))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.mean.mul_(0.5).add_(x.mean(0), alpha=0.5)
        return self.head(x - self.mean)


@attack
def input_normalised_by_running_statistics() -> Case:
    """Normalise inputs by a running mean that the forward pass updates."""
    return Case(RunningScale(), dataset=points(PRIVATE))


@attack
def observer_of_a_quantised_model() -> Case:
    """Watch the range of the inputs by an observer of `torch.ao.quantization`."""
    from torch.ao.quantization import MinMaxObserver

    return Case(nn.Sequential(MinMaxObserver(), nn.Linear(FEATURES, CLASSES)), dataset=points(PRIVATE))


@attack
def fake_quantisation_of_the_inputs() -> Case:
    """Round the inputs by a scale that is estimated from the batch."""
    from torch.ao.quantization import FakeQuantize

    return Case(nn.Sequential(FakeQuantize(), nn.Linear(FEATURES, CLASSES)), dataset=points(PRIVATE))


@attack
def class_attribute() -> Case:
    """Keep the batch's mean in an attribute of the model's class."""

    class Shared(nn.Module):
        kept = torch.zeros(FEATURES)

        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(FEATURES, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            type(self).kept = x.detach().mean(0)
            return self.head(x)

    return Case(Shared(), dataset=points(PRIVATE))


# Power iterations change buffers by the weights alone. No example is harmed, but the check of state cannot know that.


@attack
def spectral_norm() -> Case:
    """Train a layer with `torch.nn.utils.spectral_norm`, whose forward pass writes two vectors."""
    layer = torch.nn.utils.spectral_norm(nn.Linear(FEATURES, WIDTH))
    return Case(nn.Sequential(layer, nn.Tanh(), nn.Linear(WIDTH, CLASSES)), is_harmful=False, slack=0.05)


@attack
def spectral_norm_as_parametrization() -> Case:
    """Train a layer with `torch.nn.utils.parametrizations.spectral_norm`."""
    layer = torch.nn.utils.parametrizations.spectral_norm(nn.Linear(FEATURES, WIDTH))
    return Case(nn.Sequential(layer, nn.Tanh(), nn.Linear(WIDTH, CLASSES)), is_harmful=False, slack=0.05)


# Data sets -----------------------------------------------------------------------------------------------------


class Remembers(Dataset[Item]):
    """Its item is the example plus the one that was read before it."""

    def __init__(self) -> None:
        self._x = torch.diag(torch.linspace(1, 2, 40))
        self._before = torch.zeros(40)

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Item:
        x, self._before = self._x[index] + self._before, self._x[index]
        return x, torch.tensor(index % CLASSES)


@attack
def data_set_that_adds_the_item_read_before() -> Case:
    """Read items from a data set that adds what it gave before; reading one again shows it."""
    mixed: list[bool] = []

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        if not torch._C._functorch.is_functorch_wrapped_tensor(x):
            mixed.append(bool(((x.detach().abs() > 1e-6).sum(-1) > 1).any()))
        return cross_entropy(model, x, y)

    def evidence() -> str:
        return "rows of two examples reached the loss" if any(mixed) else ""

    return Case(nn.Linear(40, CLASSES), loss_fn, Remembers(), evidence=evidence, batch=12)


class OneBuffer(Dataset[Item]):
    """Gives the same tensor for every item and writes the example into it."""

    def __init__(self) -> None:
        self._x, self._y = points().tensors
        self._buffer = torch.zeros(FEATURES)

    def __len__(self) -> int:
        return EXAMPLES

    def __getitem__(self, index: int) -> Item:
        return self._buffer.copy_(self._x[index]), self._y[index]


@attack
def data_set_that_gives_one_buffer() -> Case:
    """Read items from a data set that writes every example into one tensor, so a batch holds its last one only."""
    case = Case(Between(lambda h: h), dataset=OneBuffer())
    batches: list[bool] = []

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        if len(x) > 1 and not torch._C._functorch.is_functorch_wrapped_tensor(x):
            batches.append(bool((x == x[0]).all()))
        return cross_entropy(model, x, y)

    case.loss_fn, case.crafted = loss_fn, (torch.full((FEATURES,), 5.0), torch.tensor(1))
    case.evidence = lambda: "the last example of a batch replaced all others" if any(batches) else ""
    return case


@attack
def full_batch_whose_labels_are_written() -> Case:
    """Write into the labels in the loss, so that a full batch without a copy changes the data set."""
    data = points()
    before = data.tensors[1].clone()

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(model, x, y.sub_(y % 2))

    def evidence() -> str:
        return "" if torch.equal(before, data.tensors[1]) else "the data set was written"

    return Case(nn.Linear(FEATURES, CLASSES), loss_fn, data, sampling="full_batch", evidence=evidence, steps=3)


@attack
def full_batch_of_one_shared_row() -> Case:
    """Subtract the full batch's mean from the data set's own memory, which all later steps read."""
    x, y = points().tensors
    data, before = TensorDataset(x, y), x.clone()

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        if not torch._C._functorch.is_functorch_wrapped_tensor(x):
            with torch.no_grad():
                x.sub_(x.mean(0))
        return cross_entropy(model, x, y)

    def evidence() -> str:
        return "" if torch.equal(before, data.tensors[0]) else "the data set was written"

    return Case(nn.Linear(FEATURES, CLASSES), loss_fn, data, sampling="full_batch", evidence=evidence, steps=3)
