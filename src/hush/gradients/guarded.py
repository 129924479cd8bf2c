"""One pass that must leave model and loss function as they were, and the trial that tells counters from memories."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from hush.errors import InvalidValue, NotIsolated
from hush.gradients.batches import Batch, LossFunction, call, mapped, num_examples, take
from hush.gradients.reach import GONE, Modules
from hush.gradients.state import Snapshot, check_tables, is_equal, told_of_change
from hush.rng import kept_generators


def guarded(
    model: nn.Module,
    loss_fn: LossFunction,
    batch: Batch,
    modules: Modules,
    work: Callable[[Batch], Any],
    *,
    in_full: bool = False,
) -> Any:
    """Return `work(batch)`, one pass that must leave model and loss function as they were.

    Raises:
        NotIsolated: The pass changed something, and a forward pass on made-up rows changes it in another way.
    """
    check_tables(modules)
    before = Snapshot(model, loss_fn, modules, in_full=in_full)
    draws = torch.get_rng_state()
    try:
        with named_failures():
            result = work(batch)
    except BaseException:
        before.restore()
        raise
    found = before.changes()
    if not found:
        before.restore_flags()
        return result
    before.restore()
    after = torch.get_rng_state()
    expected = _trial(model, loss_fn, batch, modules, draws, in_full=in_full)
    others = [name for name, value in found.items() if value is GONE or expected.get(name, GONE) != value]
    counts = {name: value for name, value in found.items() if name.startswith(_OWN_STATE) and _is_number(value)}
    if not others and counts:
        before.restore()
        more = _trial(model, loss_fn, _one_more(batch), modules, draws, in_full=in_full)
        grown = [name for name, value in counts.items() if more and more.get(name, GONE) != value]
        others = [name for name in grown if counts[name] != num_examples(batch)]
        before.restore()
        if grown and not others:  # the size of the batch itself, which the next pass must not see
            torch.set_rng_state(after)
            return result
        expected = _trial(model, loss_fn, batch, modules, draws, in_full=in_full)
    torch.set_rng_state(after)
    if not others:  # the trial has made the same changes; buffers are put back all the same, as callers expect
        before.restore_buffers()
        return result
    before.restore()
    are_logs = all(name.startswith(_LOGS) and _is_log(found[name]) for name in others)
    if are_logs and _is_unread(model, loss_fn, batch, draws):
        _logged.setdefault(model, set()).update(others)
        return result
    raise NotIsolated(told_of_change(others[0]))


@contextmanager
def named_failures() -> Iterator[None]:
    """Say in one line what to do about checkpoints that allow no gradient by some of the parameters alone."""
    try:
        yield
    except RuntimeError as error:
        if "use_reentrant=True" not in str(error):
            raise
        raise InvalidValue(
            "activation checkpointing with use_reentrant=True gives no gradients of single examples; call "
            "checkpoint(..., use_reentrant=False)."
        ) from error


def _trial(
    model: nn.Module, loss_fn: LossFunction, batch: Batch, modules: Modules, draws: Tensor, *, in_full: bool
) -> dict[str, Any]:
    """Return what a pass on made-up rows changes, and leave the changes; nothing where no such rows are valid."""
    for fill in (1, 0):
        before = Snapshot(model, loss_fn, modules, in_full=in_full)
        torch.set_rng_state(draws)
        try:
            with torch.enable_grad():
                call(loss_fn, model, made_up(batch, fill))
        except Exception:  # made-up rows are not always valid ones
            before.restore()
            continue
        found = before.changes()
        before.restore_flags()
        return found
    return {}


def _one_more(batch: Batch) -> Batch:
    """Return the batch with its first row once more at the end."""
    return take(batch, torch.tensor([*range(num_examples(batch)), 0]))


def _is_number(value: Any) -> bool:
    """Return whether a print is that of a number, or of a list of numbers."""
    if type(value) in (int, float):
        return True
    if isinstance(value, tuple) and len(value) == 3 and isinstance(value[0], torch.Size):
        return value[0].numel() == 1
    return isinstance(value, tuple) and len(value) == 3 and value[1] is list and all(map(_is_number, value[2]))


_MADE_UP = 32  # rows for the first pass
_OWN_STATE = ("attribute", "buffer")
_LOGS = ("loss_fn's variable", "hook's variable")
_logged: WeakKeyDictionary[nn.Module, set[str]] = WeakKeyDictionary()


def logged_by(model: nn.Module) -> list[str]:
    """Return the variables in which a loss function kept something of its batches, as a log does."""
    return sorted(_logged.get(model, ()))


def _is_log(value: Any) -> bool:
    """Return whether a print is that of a container, a tensor or a number, and not of an object that does something."""
    kind = value[1] if isinstance(value, tuple) and len(value) > 1 else None
    return not isinstance(kind, type) or issubclass(kind, list | dict | set | deque)


def _is_unread(model: nn.Module, loss_fn: LossFunction, batch: Batch, draws: Tensor) -> bool:
    """Return whether what a pass writes down changes nothing in a second pass: it is a log, which nobody reads."""
    after = torch.get_rng_state()
    found = []
    for _ in range(2):
        torch.set_rng_state(draws)
        with torch.enable_grad():
            found.append(call(loss_fn, model, mapped(Tensor.clone, batch)).detach().clone())
    torch.set_rng_state(after)
    return is_equal(*found)


def settle(model: nn.Module, loss_fn: LossFunction, batch: Batch) -> None:
    """Run a forward pass on made-up rows, so that what is initialised at the first pass never sees private rows.

    Changes stay if a second pass makes none. Rows that the model cannot take show nothing, and leave nothing. Their
    number is fixed, so that not even the size of the batch is seen.
    """
    modules = list(model.named_modules())
    batch = take(batch, torch.arange(_MADE_UP) % num_examples(batch))
    with kept_generators():
        for fill in (1, 0):
            before = Snapshot(model, loss_fn, modules, in_full=True)
            try:
                with torch.enable_grad():
                    call(loss_fn, model, made_up(batch, fill))
                    again = Snapshot(model, loss_fn, modules, in_full=True)
                    call(loss_fn, model, made_up(batch, fill))
            except Exception:  # made-up rows are not always valid ones
                before.restore()
                continue
            if again.changes():
                before.restore()
            before.restore_flags()
            return


def refuse_changes(before: Snapshot) -> None:
    """Raise `NotIsolated` if a parameter was changed, or a buffer in silence, and put everything back."""
    for name in before.silent_changes():
        before.restore()
        raise NotIsolated(told_of_change(name))


def made_up(batch: Batch, fill: int = 1) -> Batch:
    """Return rows of the same shapes: numbers from a fixed seed between 0 and 1, and `fill` for whole numbers.

    >>> made_up((torch.zeros(2), torch.tensor([5, 7])))[1]
    tensor([1, 1])
    """
    generator = torch.Generator().manual_seed(0)

    def rows(tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point():
            return torch.full_like(tensor, fill)
        return torch.rand(tensor.shape, generator=generator).to(tensor)

    return mapped(rows, batch)
