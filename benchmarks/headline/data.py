"""Pictures, tables and texts with a share of their training rows."""

from __future__ import annotations

import numpy
import torch

from hush import data

Pictures = tuple[torch.Tensor, numpy.ndarray, torch.Tensor, numpy.ndarray]


def pictures(name: str, share: float, *, validate: bool = False) -> Pictures:
    """Training and test pictures; with `validate` the last sixth of the training part stands in for the test part."""
    found = data.load(name)
    assert found.test is not None
    (x, y), (test_x, test_y) = (part.tensors for part in (found.train, found.test))
    if validate:
        cut = len(x) * 5 // 6
        x, y, test_x, test_y = x[:cut], y[:cut], x[cut:], y[cut:]
    few, some = max(200, int(len(x) * share)), max(200, int(len(test_x) * share))
    shape = (-1, *found.input_shape)
    return x[:few].reshape(shape), y[:few].numpy(), test_x[:some].reshape(shape), test_y[:some].numpy()
