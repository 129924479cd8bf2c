"""Spot checks: an example's gradient in the batch must be its gradient alone.

The tape proves that no function mixes examples. What it cannot see is what depends on the batch in plain Python (a
loss divided by `len(x)`, a branch on the number of rows) or happened before (padding to the longest text of the
batch). So at randomly chosen steps a few examples' gradients, as they went into the sum, are compared with those of
plain backward passes on each example alone.

| what | tolerance, relative to the layer | least difference, relative to the whole gradient |
|---|---|---|
| float64 | 1e-6 | 1e-9 |
| float32 | 1e-3 | 1e-5 |
| half precision, autocast | 0.15 | 0.03 |

Random layers draw other numbers for one example than for many. Where a pass has used random numbers, both passes are
made again with every random function replaced by a constant: with the whole batch where several examples are compared,
and with some of its rows where it is only one, to save time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from hush.errors import HushError, NotIsolated
from hush.gradients import looped
from hush.gradients.batches import Batch, LossFunction, mapped, num_examples, take
from hush.gradients.clipped import Method, Row, clipped_sum_and_rows
from hush.gradients.functions import ATTENTION, CONVOLUTIONS, LINEAR, PRODUCTS
from hush.gradients.prints import print_of
from hush.gradients.twins import twin
from hush.rng import fixed_seeds, global_states

_TOLERANCE = {torch.float64: (1e-6, 1e-9), torch.float32: (1e-3, 1e-5)}
_COARSE = (0.15, 0.03)
_FEW = 32  # rows of a batch that are computed again for one example, where randomness makes it necessary
_GROSS = 10.0  # times the tolerance: no rounding of a kink explains that


def check_rows(
    model: nn.Module,
    loss_fn: LossFunction,
    batch: Batch,
    rows: Sequence[int],
    found: Sequence[Row],
    *,
    method: Method = "auto",
    is_random: bool,
) -> None:
    """Raise `NotIsolated` where the gradient of a row in the batch is not that of the row alone.

    `found` are the gradients in the batch, of which `batch` may be a part. `is_random` says that random numbers were
    used on the way there.
    """
    if num_examples(batch) < 2 or not rows:
        return
    if is_random:
        with without_randomness():
            _, found = clipped_sum_and_rows(model, loss_fn, batch, 1.0, method=method, rows=rows)
    pairs = []
    with _Halves() as halves:
        for row, together in zip(rows, found, strict=True):
            pairs.append((together, _alone(model, loss_fn, take(batch, slice(row, row + 1)), is_random=is_random)))
    _judge(
        model,
        pairs,
        halves.seen,
        "an example's gradient in the batch is not its gradient alone: loss_fn or the model depends on the number of "
        "rows or on other examples; compute each example's loss from that example alone (no division by len(x), no "
        "mean over the batch)",
    )


def kept_rows(batch: Batch, rows: Sequence[int]) -> tuple[Batch, list[int]]:
    """Return a copy of what `check_rows` needs of a batch, and where these rows are in it."""
    if len(rows) != 1:
        return mapped(Tensor.clone, batch), list(rows)
    others = [row for row in range(min(_FEW, num_examples(batch))) if row != rows[0]]
    return take(batch, torch.tensor([*rows, *others][:_FEW])), [0]


def check_collated(model: nn.Module, loss_fn: LossFunction, pairs: Sequence[tuple[Batch, Batch]]) -> None:
    """Raise `NotIsolated` where an example collated alone has another gradient than as collated in the batch."""
    compared = []
    with _Halves() as halves:
        for alone, within in pairs:
            if print_of(alone) == print_of(within):  # constants among the tensors included
                continue
            gradients = [_alone(model, loss_fn, rows, is_random=True) for rows in (alone, within)]
            compared.append((gradients[1], gradients[0]))
    _judge(
        model,
        compared,
        halves.seen,
        "an example's gradient depends on the other examples that it is collated with, most likely by how far it is "
        "padded or by a number that collate takes of the whole batch; pad to a fixed length, or give the model an "
        "attention mask and leave padding out of the loss (hush.ExampleLoss does)",
    )


def _alone(model: nn.Module, loss_fn: LossFunction, batch: Batch, *, is_random: bool) -> Row:
    try:
        with without_randomness() if is_random else nullcontext():
            return looped.alone(model, loss_fn, batch)
    except HushError:
        raise
    except Exception as error:
        raise NotIsolated(
            f"the model or loss_fn fails on a batch of one example ({type(error).__name__}); it must be able to "
            "compute each example alone: squeeze(-1) instead of squeeze(), no statistics over the batch."
        ) from error


_PRODUCTS = {*PRODUCTS, *CONVOLUTIONS, LINEAR, ATTENTION, torch.einsum}


class _Halves(TorchFunctionMode):
    """Notices half precision, by autocast inside the loss as well."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not self.seen and func in _PRODUCTS:  # elsewhere a cast says nothing of how coarse gradients are
            self.seen = isinstance(result, Tensor) and result.dtype in (torch.bfloat16, torch.float16)
        return result


def _judge(model: nn.Module, pairs: Sequence[tuple[Row, Row]], is_half: bool, message: str) -> None:
    """Raise where pairs of gradients differ: one of them grossly, or half of them or more, beyond rounding."""
    excess = [_excess(model, *pair, is_half=is_half) for pair in pairs]
    bad = [(size, layer) for size, layer in excess if size > 1]
    if not bad:
        return
    size, layer = max(bad)
    if size > _GROSS or 2 * len(bad) >= len(pairs):
        raise NotIsolated(f"{message} (seen at {layer}).")


def _excess(model: nn.Module, together: Row, alone: Row, *, is_half: bool) -> tuple[float, str]:
    """Return by how many times the tolerance two gradients differ, and where most; the first one is used up."""
    lengths = {name: float(torch.linalg.vector_norm(value)) for name, value in alone.items()}
    gaps = {name: float(torch.linalg.vector_norm(_difference(together[name], value))) for name, value in alone.items()}
    total = math.hypot(*lengths.values())
    if not math.isfinite(total + sum(gaps.values())):
        return 0.0, ""  # counts as zero in the sum, wherever it is computed
    kinds = {name: value.dtype for name, value in model.named_parameters()}
    worst = (0.0, "")
    for name, gap in gaps.items():
        share, least = _COARSE if is_half else _TOLERANCE.get(kinds[name], _COARSE)
        worst = max(worst, (gap / (share * lengths[name] + least * total + 1e-30), name))
    return worst


def _difference(one: Tensor, other: Tensor) -> Tensor:
    """Return the difference in the memory of the first, where that is possible: gradients can be large."""
    return one.sub_(other) if one.is_contiguous() else one - other


# --- randomness ------------------------------------------------------------------------------------------------------


@contextmanager
def watched_randomness() -> Iterator[Callable[[], bool]]:
    """Give a function that says whether random numbers were drawn since the start."""
    before = global_states()
    yield lambda: before != global_states()


@contextmanager
def without_randomness() -> Iterator[None]:
    """Replace the random functions of torch by constants, and begin those of numpy and Python at a fixed seed."""
    with fixed_seeds(), _Constant():
        yield


_F, _T = torch.nn.functional, torch.Tensor
_DROPPING = {
    _F.dropout, _F.dropout1d, _F.dropout2d, _F.dropout3d, _F.alpha_dropout, _F.feature_alpha_dropout, torch.dropout,
    torch.dropout_, torch.alpha_dropout, torch.alpha_dropout_, torch.feature_dropout, torch.feature_dropout_,
    torch.feature_alpha_dropout, torch.feature_alpha_dropout_,
}  # fmt: skip
_FILLING = {
    _T.uniform_,
    _T.normal_,
    _T.exponential_,
    _T.log_normal_,
    _T.cauchy_,
    _T.geometric_,
    _T.bernoulli_,
    _T.random_,
}
_MAKING = {torch.rand, torch.randn, torch.rand_like, torch.randn_like, torch.normal}
_RECURRENT = {torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu}


class _Constant(TorchFunctionMode):
    """Gives the same numbers to an example alone and among others."""

    def __init__(self) -> None:
        super().__init__()
        self._inside: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        named = dict(kwargs or {})
        if func in _DROPPING:
            return args[0] if args else named["input"]
        if func in _FILLING:
            return args[0].fill_(1) if func in (_T.bernoulli_, _T.random_, _T.geometric_) else args[0].fill_(0.5)
        if func in _MAKING:
            made = func(*args, **named)
            return made.detach().fill_(0.5).requires_grad_(made.requires_grad and made.is_leaf)
        if func in (torch.bernoulli, _T.bernoulli):
            return (args[0] >= 0.5).to(args[0].dtype)
        if func in (torch.randint, torch.randint_like):
            made = func(*args, **named)
            return made.fill_(int(made.min()) if not made.numel() else _least(func, args, named))
        if func is torch.randperm:
            return torch.arange(args[0] if args else named["n"], device=named.get("device")).flip(0)
        if func is _F.scaled_dot_product_attention:
            named["dropout_p"] = 0.0
            args = (*args[:4], *((0.0,) if len(args) > 4 else ()), *args[5:])
            named.pop("dropout_p") if len(args) > 4 else None
        if func in _RECURRENT and len(args) == 9:
            place = 6 if isinstance(args[4], bool) else 5  # packed sequences have one more argument
            args = (*args[:place], 0.0, *args[place + 1 :])
        if isinstance(func, FunctionType) and func not in self._inside:  # go on with what it calls
            self._inside.append(func)
            try:
                with self:
                    return twin(func)(*args, **named)
            finally:
                self._inside.pop()
        return func(*args, **named)


def _least(func: Any, args: Any, named: Mapping[str, Any]) -> int:
    numbers = [value for value in (args if func is torch.randint else args[1:]) if isinstance(value, int)]
    low = named.get("low", numbers[0] if len(numbers) > 1 else 0)
    return int(low)
