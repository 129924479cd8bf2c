"""Half precision is for the model's own arithmetic; norms, sums and noise are in single precision or better."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

_HALF = (torch.float16, torch.bfloat16)


def wide(tensor: Tensor) -> Tensor:
    """At least single precision: norms and sums of half precision would be wrong in the third digit."""
    return tensor.float() if tensor.dtype in _HALF else tensor


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which gradients of such parameters are added up."""
    return torch.float32 if dtype in _HALF else dtype


@contextmanager
def exact_arithmetic() -> Iterator[None]:
    """Compute without autocast and without shortened products, whatever the user's setting is.

    A norm in half precision would bound nothing: with factor 1/norm off by a part in 256, so is what each example
    contributes, and a sum of many loses whole examples.
    """
    kinds = [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]
    precision = torch.get_float32_matmul_precision()
    try:
        for kind in kinds:
            torch.set_autocast_enabled(kind, False)
        if precision != "highest":
            torch.set_float32_matmul_precision("highest")
        yield
    finally:
        for kind in kinds:
            torch.set_autocast_enabled(kind, True)
        if precision != "highest":
            torch.set_float32_matmul_precision(precision)
