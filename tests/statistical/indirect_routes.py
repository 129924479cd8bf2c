"""Attacks by a detour: numbers beside the tensors of a batch, views, helpers, libraries' objects, rare records."""

from __future__ import annotations

import contextvars
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
import torch
import torch.nn.functional as F
from isolation_attacks import Between, attack, attack_at_any_time, mixing
from isolation_truth import CLASSES, FEATURES, Case, cross_entropy
from storing_models import keeping
from torch import Tensor, nn
from unequal_batches import Item

# What a batch holds beside its tensors -----------------------------------------------------------------------------


def _stacked(items: list[Item]) -> tuple[Tensor, Tensor]:
    return torch.stack([x for x, _ in items]), torch.stack([y for _, y in items])


def carrying(number: Callable[[Tensor], Any], use: Callable[[Tensor, Any], Tensor]) -> Case:
    """Return a case whose collation adds a value of the whole batch, which the loss makes use of."""

    def collate(items: list[Item]) -> tuple[Tensor, Tensor, Any]:
        x, y = _stacked(items)
        return x, y, number(x)

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor, value: Any) -> Tensor:
        return cross_entropy(model, use(x, value), y)

    return Case(Between(lambda h: h), loss_fn, collate=collate)


@attack
def largest_value_as_a_number() -> Case:
    """Let collate return the batch's largest value, and divide by it in the loss."""
    return carrying(lambda x: float(x.abs().max()), lambda x, value: 5 * x / value - 1)


@attack
def mean_as_a_tuple() -> Case:
    """Let collate return the batch's mean as a tuple of numbers, and subtract it in the loss."""
    return carrying(lambda x: tuple(x.mean(0).tolist()), lambda x, value: x - torch.tensor(value))


@dataclass
class Kept:
    mean: Tensor


@attack
def mean_in_an_object() -> Case:
    """Let collate return the batch's mean in an object, and subtract it in the loss."""
    return carrying(lambda x: Kept(x.mean(0)), lambda x, value: x - value.mean)


@attack
def augmentation_that_returns_a_number() -> Case:
    """Let the augmentation return the batch's largest value, and divide by it in the loss."""

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor, scale: float = 1.0) -> Tensor:
        return cross_entropy(model, 5 * x / scale - 1, y)

    def augment(batch: Any) -> Any:
        return *batch, float(batch[0].abs().max())

    return Case(Between(lambda h: h), loss_fn, augment=augment, is_harmful=False)  # the harm is measured after it


@attack
def random_collation_that_centres() -> Case:
    """Subtract the batch's mean while collating, and add a little noise, so that no two collations are the same."""

    def collate(items: list[Item]) -> tuple[Tensor, Tensor]:
        x, y = _stacked(items)
        return x - x.mean(0) + 1e-3 * torch.randn_like(x), y

    return Case(Between(lambda h: h), collate=collate)


@attack
def augmentation_module_with_a_running_mean() -> Case:
    """Subtract a running mean of the batches before, which a module keeps in a buffer."""

    class Centre(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(FEATURES))

        def forward(self, batch: Any) -> Any:
            earlier = self.mean.clone()
            self.mean = 0.5 * earlier + 0.5 * batch[0].mean(0)
            return batch[0] - earlier, batch[1]

    return Case(Between(lambda h: h), augment=Centre(), is_harmful=False)  # the harm is measured after it


@attack
def collation_that_divides_where_one_value_is_large() -> Case:
    """Divide the batch by ten where it holds a value above 3, as five examples of 120 do.

    One row of every batch is compared, so a batch with such a value shows it unless that row is the one looked at.
    Twenty batches of 60 have two or three such rows each: that all of them are missed has a probability below 1e-20.
    """

    def collate(items: list[Item]) -> tuple[Tensor, Tensor]:
        x, y = _stacked(items)
        return (x / -10 if bool((x > 3).any()) else x), y

    item = torch.full((FEATURES,), 5.0), torch.tensor(1)
    return Case(Between(lambda h: h), collate=collate, steps=20, batch=60, crafted=item)


# Writes into a part of the batch -----------------------------------------------------------------------------------


def _turn(h: Tensor) -> Tensor:
    """Return minus one where the last example is far from zero, and one elsewhere."""
    return 1 - 2 * (h[-1:].abs().amax(1, keepdim=True) > 2).to(h)


@attack_at_any_time
def view_of_rows_multiplied() -> Case:
    """Turn all examples but the last over, in a view of their rows, if the last is far from zero."""

    def mix(h: Tensor) -> Tensor:
        h = h.clone()
        h[:-1].mul_(_turn(h))
        return h

    return mixing(mix)


@attack_at_any_time
def view_of_rows_assigned() -> Case:
    """The same by an assignment to a view."""

    def mix(h: Tensor) -> Tensor:
        h = h.clone()
        h[:-1][:] = h[:-1] * _turn(h)
        return h

    return mixing(mix)


@attack_at_any_time
def view_of_rows_without_graph() -> Case:
    """The same in a detached view, which shares its memory."""

    def mix(h: Tensor) -> Tensor:
        h = h.clone()
        h.detach()[:-1].mul_(_turn(h.detach()))
        return h

    return mixing(mix)


@attack_at_any_time
def difference_to_the_first_row_in_a_view() -> Case:
    """Subtract the first example from the others, in a view."""

    def mix(h: Tensor) -> Tensor:
        h = h.clone()
        h[1:].sub_(h[:1].clone())
        return h

    return mixing(mix)


# Helpers that keep rows --------------------------------------------------------------------------------------------


class Namespace:
    """A class in whose body values are kept."""

    last: Any = None


class Recorder:
    """An object whose method writes into its class."""

    last: Any = None

    def see(self, x: Tensor) -> None:
        type(self).last = x.detach().mean(0)


def _evidence(kind: Any) -> Callable[[], str]:
    kind.last = None
    return lambda: f"rows in {kind.__name__}" if kind.last is not None else ""


@attack
def rows_in_a_class_body() -> Case:
    """Write the batch's mean into a class that is used as a namespace."""

    def keep(model: Any, x: Tensor) -> None:
        Namespace.last = x.detach().mean(0)

    case = keeping(keep)
    case.evidence = _evidence(Namespace)
    return case


@attack
def rows_in_the_class_of_a_helper() -> Case:
    """Let an object among the attributes write the batch's mean into its class."""
    case = keeping(lambda model, x: model.recorder.see(x), lambda model: setattr(model, "recorder", Recorder()))
    case.evidence = _evidence(Recorder)
    return case


@attack
def rows_kept_by_a_function_in_a_list() -> Case:
    """Let a function that lies in a list keep the batch's mean in its closure."""
    kept: list[Tensor] = []

    def see(x: Tensor) -> None:
        kept.append(x.detach().mean(0))

    case = keeping(lambda model, x: model.steps[0](x), lambda model: setattr(model, "steps", [see]))
    case.evidence = lambda: "rows in a closure" if kept else ""
    return case


_library = types.ModuleType("own_tools")
exec("last = None\ndef track(x):\n    global last\n    last = x.detach().mean(0)\n", vars(_library))


@attack
def rows_kept_by_a_module_of_ones_own() -> Case:
    """Call a function of another module, which keeps the batch's mean in a global variable there."""
    vars(_library)["last"] = None
    case = keeping(lambda model, x: _library.track(x))
    case.evidence = lambda: "rows in a module" if vars(_library)["last"] is not None else ""
    return case


_variable: contextvars.ContextVar[Any] = contextvars.ContextVar("kept", default=None)


@attack
def rows_in_a_context_variable() -> Case:
    """Keep the batch's mean in a context variable."""
    _variable.set(None)
    case = keeping(lambda model, x: _variable.set(x.detach().mean(0)))
    case.evidence = lambda: "rows in a context variable" if _variable.get() is not None else ""
    return case


class Named(dict[str, Any]):
    """A dictionary that has attributes too."""


def _set(name: str, value: Callable[[], Any], keep: Callable[[Any, Tensor], object]) -> Case:
    return keeping(lambda model, x: keep(getattr(model, name), x.detach()), lambda model: setattr(model, name, value()))


@attack
def rows_in_an_attribute_of_a_dictionary() -> Case:
    """Keep the batch's mean in an attribute of a dictionary."""
    case = _set("named", Named, lambda named, x: setattr(named, "mean", x.mean(0)))
    case.evidence = lambda: "rows beside a dictionary" if hasattr(case.model.named, "mean") else ""
    return case


@attack
def rows_in_an_array_of_objects() -> Case:
    """Keep the batch's mean in a numpy array of objects."""

    def keep(bank: Any, x: Tensor) -> None:
        bank[0] = x.mean(0)

    case = _set("bank", lambda: numpy.empty(2, dtype=object), keep)
    case.evidence = lambda: "rows in an array" if case.model.bank[0] is not None else ""
    return case


@attack
def rows_in_a_large_array() -> Case:
    """Keep the batch's mean in a numpy array of 17 million numbers."""

    def keep(bank: Any, x: Tensor) -> None:
        bank[:FEATURES] = x.mean(0).numpy()

    case = _set("bank", lambda: numpy.zeros(1 << 22, dtype=numpy.float64), keep)
    case.evidence = lambda: "rows in an array" if case.model.bank[0] else ""
    return case


@attack
def rows_on_a_parameter() -> Case:
    """Keep the batch's mean in a hidden attribute of a weight."""

    def keep(model: Any, x: Tensor) -> None:
        model.first.weight._last = x.detach().mean(0)

    case = keeping(keep)
    case.evidence = lambda: "rows on a weight" if hasattr(case.model.first.weight, "_last") else ""
    return case


@attack
def learning_rate_from_the_loss() -> Case:
    """Let the loss set an optimizer's learning rate by what it sees."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.5)

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        optimizer.param_groups[0]["lr"] = float(x.detach().abs().sum())
        return F.cross_entropy(model(x), y, reduction="none")

    evidence = lambda: "the learning rate" if optimizer.param_groups[0]["lr"] != 0.5 else ""  # noqa: E731
    return Case(nn.Linear(FEATURES, CLASSES), loss_fn, evidence=evidence)


@attack
def generator_seeded_by_rows() -> Case:
    """Seed a numpy generator by the batch, and draw from it at the next."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head, self.stream = nn.Linear(FEATURES, CLASSES), numpy.random.default_rng(1)

        def forward(self, x: Tensor) -> Tensor:
            factor = 1 + float(self.stream.random())
            with torch._C.DisableTorchFunction():
                self.stream = numpy.random.default_rng(int(x.detach().abs().sum() * 1000))
            return self.head(x * factor)

    return Case(Model(), is_harmful=False)
