"""Each example's gradient by torch.func: `vmap` over `grad`. Serves whatever the tape has no rule for."""

from __future__ import annotations

from torch import Tensor, nn
from torch.func import grad, vmap
from torch.nn.utils.stateless import _reparametrize_module

from hush.gradients.batches import Batch, LossFunction, call, checked_losses, mapped, num_examples, tensors
from hush.gradients.precision import wide
from hush.gradients.uses import Rows, Use


def uses(model: nn.Module, loss_fn: LossFunction, batch: Batch) -> dict[str, list[Use]]:
    """Each parameter's gradients, one per example."""
    named = {name: value for name, value in model.named_parameters() if value.requires_grad}
    fixed: dict[str, Tensor] = {name: value.clone() for name, value in model.named_buffers()}
    fixed.update({name: value.detach() for name, value in model.named_parameters() if not value.requires_grad})
    flat = list(tensors(batch))

    def loss(values: dict[str, Tensor], *rows: Tensor) -> Tensor:
        waiting = iter(rows)
        one = mapped(lambda _: next(waiting).unsqueeze(0), batch)
        with _reparametrize_module(model, {**fixed, **values}, tie_weights=True):  # the model itself, and its parts
            return checked_losses(call(loss_fn, model, one), 1)[0]

    values = {name: value.detach() for name, value in named.items()}
    places = (None, *[0] * len(flat))
    rows = vmap(grad(loss), in_dims=places, randomness="different")(values, *flat)
    assert num_examples(batch) == len(next(iter(rows.values())))
    return {name: [Rows(wide(value))] for name, value in rows.items()}
