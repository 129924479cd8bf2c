"""Half precision is for the model's own arithmetic; norms and sums are taken in single precision or better."""

from __future__ import annotations

import torch
from torch import Tensor


def wide(tensor: Tensor) -> Tensor:
    """At least single precision: norms and sums of half precision would be wrong in the third digit."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
