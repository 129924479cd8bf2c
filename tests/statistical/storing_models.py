"""Models that keep what they see: in parameters, buffers, attributes and gradients, by every way of writing.

Every value of the data set is about 1000, and everything public about a case is below 100.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from isolation_attacks import WIDTH, attack
from isolation_truth import CLASSES, FEATURES, PRIVATE, Case, points
from torch import Tensor, nn
from torch.utils.data import TensorDataset


class Keeper(nn.Module):
    """Two layers; before they are used, `keep(model, x)` sees the batch."""

    def __init__(self, keep: Callable[[Any, Tensor], object]) -> None:
        super().__init__()
        self.first, self.last, self.keep = nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, CLASSES), keep

    def forward(self, x: Tensor) -> Tensor:
        self.keep(self, x)
        return self.last(torch.tanh(self.first(x / PRIVATE)))


def keeping(keep: Callable[[Any, Tensor], object], prepare: Callable[[Any], object] | None = None) -> Case:
    model = Keeper(keep)
    if prepare is not None:
        prepare(model)
    return Case(model, dataset=points(PRIVATE))


def _buffer(model: nn.Module, name: str = "seen") -> None:
    model.register_buffer(name, torch.zeros(FEATURES))


# Parameters ----------------------------------------------------------------------------------------------------


@attack
def parameter_written_by_data() -> Case:
    """Write the batch's mean into a weight by `.data`."""

    def keep(model: Any, x: Tensor) -> None:
        model.first.weight.data[0] = x.mean(0)

    return keeping(keep)


@attack
def parameter_written_by_copy() -> Case:
    """Copy an example into a weight under `no_grad`."""

    def keep(model: Any, x: Tensor) -> None:
        with torch.no_grad():
            model.first.weight[0].copy_(x[-1])

    return keeping(keep)


@attack
def parameter_replaced() -> Case:
    """Put a new parameter with the batch's mean in a frozen one's place."""

    def keep(model: Any, x: Tensor) -> None:
        model.frozen = nn.Parameter(x.detach().mean(0), requires_grad=False)

    return keeping(keep, lambda model: setattr(model, "frozen", nn.Parameter(torch.zeros(FEATURES), False)))


@attack
def frozen_parameter_written() -> Case:
    """Move a frozen parameter towards the batch's mean."""

    def keep(model: Any, x: Tensor) -> None:
        with torch.no_grad():
            model.frozen.lerp_(x.mean(0), 0.5)

    return keeping(keep, lambda model: setattr(model, "frozen", nn.Parameter(torch.zeros(FEATURES), False)))


@attack
def gradient_of_a_frozen_parameter() -> Case:
    """Leave the batch's mean in `.grad` of a frozen parameter."""

    def keep(model: Any, x: Tensor) -> None:
        model.frozen.grad = x.detach().mean(0)

    return keeping(keep, lambda model: setattr(model, "frozen", nn.Parameter(torch.zeros(FEATURES), False)))


@attack
def parameter_added_at_the_first_pass() -> Case:
    """Register a parameter with the first example in it, at the first forward pass."""

    def keep(model: Any, x: Tensor) -> None:
        if not hasattr(model, "late"):
            model.register_parameter("late", nn.Parameter(x[0].detach().clone(), requires_grad=False))

    return keeping(keep)


@attack
def parameter_set_to_another_storage() -> Case:
    """Point a frozen parameter to the memory of the batch's mean, by `set_`."""

    def keep(model: Any, x: Tensor) -> None:
        with torch.no_grad():
            model.frozen.set_(x.detach().mean(0))

    return keeping(keep, lambda model: setattr(model, "frozen", nn.Parameter(torch.zeros(FEATURES), False)))


class ActNorm(nn.Module):
    """Its scale and shift come from the first batch."""

    def __init__(self) -> None:
        super().__init__()
        self.shift, self.scale = nn.Parameter(torch.zeros(FEATURES)), nn.Parameter(torch.ones(FEATURES))
        self.head, self.is_ready = nn.Linear(FEATURES, CLASSES), False

    def forward(self, x: Tensor) -> Tensor:
        if not self.is_ready:
            with torch.no_grad():
                self.shift.copy_(-x.mean(0))
                self.scale.copy_(1 / x.std(0))
            self.is_ready = True
        return self.head((x + self.shift) * self.scale)


@attack
def parameters_initialised_by_the_first_batch() -> Case:
    """Set shift and scale of an ActNorm by the first batch that comes."""
    return Case(ActNorm(), dataset=points(PRIVATE))


class Table(nn.Module):
    """Looks up vectors of words."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(10, WIDTH, **options), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.embed(x)).sum(1))


def words_of(make: Callable[[], nn.Module], **changes: Any) -> Case:
    stream = torch.Generator().manual_seed(4)
    x, y = torch.randint(0, 9, (120, 5), generator=stream), torch.randint(0, CLASSES, (120,), generator=stream)
    item = torch.tensor([9, 9, 9, 9, 9]), torch.tensor(1)  # a word that no other example has
    return Case(make(), dataset=TensorDataset(x, y), crafted=item, **changes)


@attack
def embedding_with_max_norm() -> Case:
    """Look words up in a table that shortens the vectors of those it meets."""
    torch.manual_seed(3)
    model = Table(max_norm=0.1)
    start = model.embed.weight.detach().clone()
    with torch.no_grad():
        model.embed.weight.mul_(20)  # all values stay below those that count as private

    def evidence() -> str:
        norms = model.embed.weight.detach().norm(dim=1)
        return "looked-up words are told by their norms" if bool((norms < 0.5 * start.norm(dim=1).min()).any()) else ""

    return words_of(lambda: model, evidence=evidence)


@attack
def embedding_that_scales_by_frequency() -> Case:
    """Scale a word's gradient by how often the batch holds it."""
    case = words_of(lambda: Table(scale_grad_by_freq=True), clip_norm=0.05)
    x = torch.tensor([[3, 1, 2, 4, 5]]).repeat(120, 1)
    case.dataset = TensorDataset(x, torch.zeros(120, dtype=torch.long))
    case.model.head.requires_grad_(False)
    case.crafted = torch.full((5,), 3), torch.tensor(1)
    return case


# Buffers -------------------------------------------------------------------------------------------------------


@attack
def buffer_written() -> Case:
    """Add the batch's mean to a buffer."""
    return keeping(lambda model, x: model.seen.add_(x.detach().mean(0)), _buffer)


@attack
def buffer_replaced() -> Case:
    """Put a new tensor with the batch's mean in a buffer's place."""
    return keeping(lambda model, x: setattr(model, "seen", x.detach().mean(0)), _buffer)


@attack
def buffer_written_through_a_view() -> Case:
    """Write into a buffer through a view that was made before training."""

    def prepare(model: Any) -> None:
        _buffer(model)
        model.window = [model.seen[:3]]

    return keeping(lambda model, x: model.window[0].copy_(x.detach().mean(0)[:3]), prepare)


@attack
def buffer_written_through_numpy() -> Case:
    """Write into a buffer through a numpy array that shares its memory."""

    def prepare(model: Any) -> None:
        _buffer(model)
        model.window = model.seen.numpy()

    def keep(model: Any, x: Tensor) -> None:
        model.window[:] = x.detach().mean(0).numpy()

    return keeping(keep, prepare)


@attack
def buffer_written_by_data() -> Case:
    """Swap the memory of a buffer by `.data`."""

    def keep(model: Any, x: Tensor) -> None:
        model.seen.data = x.detach().mean(0)

    return keeping(keep, _buffer)


@attack
def buffer_resized() -> Case:
    """Make a buffer larger and fill it with the batch."""

    def keep(model: Any, x: Tensor) -> None:
        model.seen.resize_(len(x), FEATURES).copy_(x.detach())

    return keeping(keep, _buffer)


@attack
def buffer_that_is_not_saved() -> Case:
    """Keep a moving average in a buffer that the state dict leaves out."""

    def prepare(model: Any) -> None:
        model.register_buffer("average", torch.zeros(FEATURES), persistent=False)

    return keeping(lambda model, x: model.average.lerp_(x.detach().mean(0), 0.5), prepare)


@attack
def buffer_registered_at_the_first_pass() -> Case:
    """Register a buffer with the first batch's mean, at the first forward pass."""

    def keep(model: Any, x: Tensor) -> None:
        if not hasattr(model, "late"):
            model.register_buffer("late", x.detach().mean(0))

    return keeping(keep)


@attack
def buffer_of_a_submodule() -> Case:
    """Write into a buffer of a layer inside the model, in a forward hook."""

    def hook(module: Any, given: Any, made: Any) -> None:
        module.seen.copy_(given[0].detach().mean(0) * PRIVATE)

    def prepare(model: Any) -> None:
        _buffer(model.first)
        model.first.register_forward_hook(hook)

    return keeping(lambda model, x: None, prepare)


@attack
def instance_norm_with_running_statistics() -> Case:
    """Keep running statistics of the examples in an instance norm."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.InstanceNorm1d(1, track_running_stats=True)
            self.head = nn.Linear(FEATURES, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.norm(x[:, None])[:, 0])

    return Case(Model(), dataset=points(PRIVATE))


@attack
def batch_norm_that_only_watches() -> Case:
    """Update running statistics by a batch norm whose result is not used."""

    def prepare(model: Any) -> None:
        model.watch = nn.BatchNorm1d(FEATURES, affine=False)

    return keeping(lambda model, x: model.watch(x.detach()), prepare)


# Attributes ----------------------------------------------------------------------------------------------------


@attack
def tensor_attribute() -> Case:
    """Keep the batch's mean as a plain tensor attribute."""
    return keeping(lambda model, x: setattr(model, "mean", x.detach().mean(0)))


@attack
def tensor_attribute_written_in_place() -> Case:
    """Write the batch's mean into a tensor attribute that was there before."""

    def prepare(model: Any) -> None:
        model.notes = {"mean": torch.zeros(FEATURES)}

    return keeping(lambda model, x: model.notes["mean"].copy_(x.detach().mean(0)), prepare)


@attack
def python_float_attribute() -> Case:
    """Keep a moving average of the batch as a Python float."""

    def keep(model: Any, x: Tensor) -> None:
        model.average = 0.5 * model.average + 0.5 * x.mean().item()

    return keeping(keep, lambda model: setattr(model, "average", 0.0))


@attack
def list_attribute() -> Case:
    """Append the batch's mean to a list in the model."""
    return keeping(lambda model, x: model.notes.append(float(x.max())), lambda model: setattr(model, "notes", []))


@attack
def list_of_examples() -> Case:
    """Append the examples themselves to a list in the model."""
    return keeping(lambda model, x: model.notes.append(x), lambda model: setattr(model, "notes", []))


@attack
def dictionary_attribute() -> Case:
    """Keep examples by their place in a dictionary of the model."""
    return keeping(
        lambda model, x: model.notes.update({0: x[0].detach().clone()}), lambda model: setattr(model, "notes", {})
    )


@attack
def deque_attribute() -> Case:
    """Keep the last examples in a queue of the model."""
    return keeping(
        lambda model, x: model.notes.extend(x.detach().clone()), lambda model: setattr(model, "notes", deque(maxlen=5))
    )


@attack
def numpy_attribute() -> Case:
    """Keep an example as a numpy array."""
    return keeping(lambda model, x: setattr(model, "mean", x.detach().numpy().mean(axis=0)))


@attack
def attribute_of_a_submodule() -> Case:
    """Keep the batch's mean as an attribute of a layer inside the model."""
    return keeping(lambda model, x: setattr(model.last, "mean", x.detach().mean(0)))


@attack
def attribute_of_a_settings_object() -> Case:
    """Keep the batch's mean in an object of settings that the model holds."""
    return keeping(
        lambda model, x: setattr(model.settings, "mean", x.detach().mean(0)),
        lambda model: setattr(model, "settings", types.SimpleNamespace(mean=None)),
    )


@attack
def attribute_written_in_the_backward_pass() -> Case:
    """Keep the batch's sum from a hook that runs in the backward pass."""

    def keep(model: Any, x: Tensor) -> None:
        mean = x.detach().mean(0)
        model.first.weight.requires_grad and _after_backward(model, mean)

    return keeping(keep)


def _after_backward(model: Any, mean: Tensor) -> None:
    def hook(module: nn.Module, made: Any) -> None:
        module.late = mean

    model.late_hook = [model.last.register_full_backward_pre_hook(hook)]


@attack
def features_kept_by_a_hook() -> Case:
    """Keep a layer's input in a forward hook, as tools for saliency maps do."""

    def prepare(model: Any) -> None:
        model.first.register_forward_hook(lambda module, given, made: setattr(model, "kept", given[0] * PRIVATE))

    return keeping(lambda model, x: None, prepare)


@attack
def lazy_tensor_attribute() -> Case:
    """Make an attribute at the first forward pass, from the first example, and use it for all later ones."""

    class Lazy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head, self.centre = nn.Linear(FEATURES, CLASSES), None

        def forward(self, x: Tensor) -> Tensor:
            if self.centre is None:
                self.centre = x[0].detach().clone()
            return self.head(x - self.centre)

    return Case(Lazy(), dataset=points(PRIVATE))


@attack
def attribute_written_by_the_loss() -> Case:
    """Let the loss function keep the batch's mean in the model."""

    def loss_fn(model: Any, x: Tensor, y: Tensor) -> Tensor:
        model.mean = x.detach().mean(0)
        return F.cross_entropy(model(x), y, reduction="none")

    case = keeping(lambda model, x: None)
    case.loss_fn = loss_fn
    return case


@attack
def attribute_written_some_calls_later() -> Case:
    """Keep the batch's mean from the tenth forward pass on."""

    def keep(model: Any, x: Tensor) -> None:
        model.calls += 1
        if model.calls > 10:
            model.mean = x.detach().mean(0)

    case = keeping(keep, lambda model: setattr(model, "calls", 0))
    case.steps = 30
    return case


@attack
def buffer_written_some_calls_later() -> Case:
    """Write the batch's mean into a buffer from the tenth forward pass on."""

    def keep(model: Any, x: Tensor) -> None:
        model.calls += 1
        if model.calls > 10:
            model.seen.copy_(x.detach().mean(0))

    def prepare(model: Any) -> None:
        _buffer(model)
        model.calls = 0

    case = keeping(keep, prepare)
    case.steps = 30
    return case


@attack
def weight_written_for_rare_examples() -> Case:
    """Write an example into a weight only if it holds a value that few have."""

    def keep(model: Any, x: Tensor) -> None:
        rare = x[(x > PRIVATE + 3.5).any(1)]
        if len(rare):
            model.last.bias.data[0] = rare[0, 0]

    case = keeping(keep)
    case.steps = 20
    return case
