"""Backward passes: the tape's own, and none besides.

A model that differentiates inside its forward pass (forces, gradient penalties) would write those inner gradients on
the tape, and its second derivatives in the parameters would be lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hush.gradients import functions
from hush.gradients.tape import _tensors, rule
from hush.gradients.twins import twin

if TYPE_CHECKING:
    from hush.gradients.tape import Tape


@rule(*functions.BACKWARD)
def backward(tape: Tape, func: Any, args: Any, kwargs: Any) -> Any:
    """Run the pass that ends at the tape's anchor; refuse others."""
    tensors = [*_tensors(args), *_tensors(kwargs.values())]
    if not any(tensor is tape.anchor for tensor in tensors):
        raise tape.no_rule(func, tensors, "a backward pass inside the model")
    with tape:
        return twin(func)(*args, **kwargs)
