"""Tables: embeddings and bags of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hush.gradients.layout import UNKNOWN, by_example, layout_of
from hush.gradients.rules.expanded import LOOKED_UP
from hush.gradients.tape import rule
from hush.gradients.uses import Lookup

if TYPE_CHECKING:
    from hush.gradients.tape import Tape


@rule(torch.embedding)
def embedding(tape: Tape, func: Any, args: Any, kwargs: Any) -> Tensor:
    """weight[index]; the row `padding_idx` learns nothing."""
    if len(args) < 2:
        raise tape.no_rule(func, list(args), "operands by name")
    weight, index, *rest = args
    padding = kwargs.get("padding_idx", rest[0] if rest else -1)
    layout = layout_of(index)
    if kwargs.get("scale_grad_by_freq", len(rest) > 1 and rest[1]):
        raise tape.no_rule(func, [weight], "scale_grad_by_freq counts words over the whole batch")
    if layout is None:  # numbers that are the same for every batch, such as positions
        output = func(*args, **kwargs)
        if padding is None or padding < 0:
            setattr(output, LOOKED_UP, (weight, index, weight.shape[0], output._version))
        return output
    if layout is UNKNOWN:
        raise tape.no_rule(func, [weight], "its index cannot be followed back to single examples")
    output = torch.embedding(weight.detach(), index)

    def write(gradient: Tensor, index: Tensor) -> None:
        outputs = by_example(gradient, layout, tape.count).reshape(tape.count, -1, weight.shape[1])
        numbers = by_example(index, layout, tape.count).reshape(tape.count, -1).long()
        if padding is not None and padding >= 0:
            outputs = outputs.masked_fill((numbers == padding)[..., None], 0)
        tape.note(weight, Lookup(numbers, outputs, weight.shape[0]), func)

    return tape.tap(output, layout, write, index)


embedding.derives = True  # type: ignore[attr-defined]


@rule(F.embedding_bag)
def embedding_bag(tape: Tape, func: Any, args: Any, kwargs: Any) -> Tensor:
    """One bag per row: look up, then add, average or take the largest."""
    names = ("input", "weight", "offsets", "max_norm", "norm_type", "scale_grad_by_freq", "mode", "sparse",
             "per_sample_weights", "include_last_offset", "padding_idx")  # fmt: skip
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    index, weight, mode = given["input"], given["weight"], given.get("mode", "mean")
    padding, scales = given.get("padding_idx"), given.get("per_sample_weights")
    if index.ndim != 2 or given.get("max_norm") is not None or given.get("scale_grad_by_freq"):
        raise tape.no_rule(func, [weight], "only bags given as rows of a matrix, without max_norm")
    with tape:
        values = F.embedding(index, weight)
        present = torch.ones_like(index, dtype=torch.bool) if padding is None else index != padding
        if mode == "max":
            lowest = values.masked_fill(~present[..., None], -torch.inf).amax(1)
            return torch.where(present.any(1)[:, None], lowest, torch.zeros_like(lowest))
        kept = values * present[..., None]
        if scales is not None:
            kept = kept * scales[..., None]
        total = kept.sum(1)
        return total if mode == "sum" else total / present.sum(1).clamp(min=1)[:, None]
