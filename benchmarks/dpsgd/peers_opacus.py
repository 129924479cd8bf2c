"""Opacus on the same models: hooks and ghost clipping, with the changes that it needs and nothing less.

`nn.MultiheadAttention` is replaced by Opacus's own; tied weights are untied where ghost clipping refuses them; position
numbers are handed to transformers models row by row. What still fails is reported as failing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.dpsgd.models import Row, Transformer
from hush.gradients.batches import split


def hooks(row: Row, size: int) -> Callable[[], None]:
    """One step's clipped gradients by Opacus's hooks, without noise, in physical batches of `size`."""
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    model, batch = _fixed(row)
    wrapped = GradSampleModule(model, loss_reduction="mean")
    optimizer = DPOptimizer(
        torch.optim.SGD(wrapped.parameters(), lr=0.0), noise_multiplier=0.0, max_grad_norm=1.0,
        expected_batch_size=_count(batch),
    )  # fmt: skip

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        for piece in split(batch, size):
            _losses(row, wrapped, piece).mean().backward()
            optimizer.clip_and_accumulate()
            for parameter in optimizer.params:
                parameter.grad_sample = None

    return step


def ghost(row: Row) -> Callable[[], None]:
    """One step's clipped gradients by Opacus's ghost clipping: two backward passes, and no gradient of one example."""
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPTensorFastGradientClipping

    model, batch = _fixed(row)
    wrapped = GradSampleModuleFastGradientClipping(
        model, max_grad_norm=1.0, use_ghost_clipping=True, loss_reduction="mean"
    )
    optimizer = DPOptimizerFastGradientClipping(
        torch.optim.SGD(wrapped.parameters(), lr=0.0), noise_multiplier=0.0, max_grad_norm=1.0,
        expected_batch_size=_count(batch), loss_reduction="mean",
    )  # fmt: skip

    def step() -> None:
        optimizer.zero_grad()
        losses = _losses(row, wrapped, batch)
        DPTensorFastGradientClipping(wrapped, optimizer, losses, "mean").backward()

    return step


def _count(batch: Any) -> int:
    return len(next(iter(batch.values())) if isinstance(batch, dict) else batch[0])


def _losses(row: Row, model: nn.Module, batch: Any) -> Tensor:
    if not isinstance(batch, dict):
        return row.loss_fn(model, *batch)
    given = {key: value for key, value in batch.items() if key != "labels"}
    logits = model(**given).logits
    if "labels" in batch:
        return nn.functional.cross_entropy(logits, batch["labels"], reduction="none")
    index = batch["input_ids"]
    return nn.functional.cross_entropy(logits[:, :-1].transpose(1, 2), index[:, 1:], reduction="none").mean(1)


class _ExpandedPositions(nn.Module):
    """The benchmark's transformer with one row of positions per example, as Opacus's hooks ask for."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.tokens, self.positions, self.layers, self.head = model.tokens, model.positions, model.layers, model.head

    def forward(self, index: Tensor) -> Tensor:
        places = torch.arange(index.shape[1]).expand(index.shape)
        return self.head(self.layers(self.tokens(index) + self.positions(places)).mean(1))


def _fixed(row: Row) -> tuple[nn.Module, Any]:
    from opacus.validators import ModuleValidator

    torch.manual_seed(0)
    model, batch = row.make(), row.batch()
    if isinstance(model, Transformer):
        model = _ExpandedPositions(model)
    if isinstance(batch, dict):
        index = batch["input_ids"]
        batch = {**batch, "position_ids": torch.arange(index.shape[1]).expand(index.shape).contiguous()}
        if hasattr(model, "bert"):
            batch["token_type_ids"] = torch.zeros_like(index)
        if hasattr(model, "transformer"):  # ghost clipping refuses tied weights
            model.lm_head.weight = nn.Parameter(copy.deepcopy(model.lm_head.weight.data))
    return ModuleValidator.fix(model).train(), batch
