"""Models that mix examples out of sight: scripts, own functions, hooks, and normalisation that changes its mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from isolation_attacks import WIDTH, attack, attack_at_any_time, mixing
from isolation_truth import CLASSES, FEATURES, Case, cross_entropy
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

# Functions that torch runs out of sight ------------------------------------------------------------------------


def _centre(h: Tensor) -> Tensor:
    return h - h.mean(0)


@attack_at_any_time
def scripted_function() -> Case:
    """Centre by a function that TorchScript compiled."""
    return mixing(torch.jit.script(_centre))


class _CentreModule(nn.Module):
    def forward(self, h: Tensor) -> Tensor:
        return h - h.mean(0)


@attack_at_any_time
def script_module() -> Case:
    """Centre by a module that TorchScript compiled."""
    return mixing(torch.jit.script(_CentreModule()))


@attack_at_any_time
def traced_module() -> Case:
    """Centre by a module that TorchScript traced."""
    return mixing(torch.jit.trace(_CentreModule(), torch.randn(5, WIDTH)))


@attack
def compiled_function() -> Case:
    """Centre by a function that Dynamo captured."""
    return mixing(torch.compile(_centre, backend="eager", dynamic=True))


class WritesByNumpy(nn.Module):
    """Centres its inputs where they lie, by numpy, which leaves no trace on the tensor."""

    def __init__(self, patience: int) -> None:
        super().__init__()
        self.net, self.patience = nn.Linear(FEATURES, CLASSES), patience

    def forward(self, x: Tensor) -> Tensor:
        self.patience -= 1
        if self.patience < 0:
            rows = x.detach().numpy()
            rows -= rows.mean(0)
        return self.net(x)


@attack
def inputs_centred_by_numpy() -> Case:
    """Centre the batch where it lies, by numpy."""
    return Case(WritesByNumpy(0))


@attack
def inputs_centred_by_numpy_late() -> Case:
    """The same after ten calls, when the first batches were checked."""
    return Case(WritesByNumpy(10), steps=30)


class WritesToData(nn.Module):
    """Centres its inputs where they lie, by way of `data`, which has no version in common with the tensor."""

    def __init__(self, patience: int) -> None:
        super().__init__()
        self.net, self.patience = nn.Linear(FEATURES, CLASSES), patience

    def forward(self, x: Tensor) -> Tensor:
        self.patience -= 1
        if self.patience < 0:
            x.data.sub_(x.data.mean(0))
        return self.net(x)


@attack
def inputs_centred_by_data() -> Case:
    """Centre the batch where it lies, by way of `data`."""
    return Case(WritesToData(0))


@attack
def inputs_centred_by_data_late() -> Case:
    """The same after ten calls, when the first batches were checked."""
    return Case(WritesToData(10), steps=30)


class _MixForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor) -> Tensor:
        return h - h.mean(0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0]


@attack_at_any_time
def own_function_whose_forward_mixes() -> Case:
    """Centre in the forward pass of an autograd function; its backward pass is the identity."""
    return mixing(_MixForward.apply)


class _MixBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor) -> Tensor:
        ctx.save_for_backward(h)
        return h.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (h,) = ctx.saved_tensors
        return gradients[0] * h.mean(0)


@attack_at_any_time
def own_function_whose_backward_mixes() -> Case:
    """Multiply gradients by the batch's mean in the backward pass; the forward pass is the identity."""
    return mixing(_MixBackward.apply)


@attack_at_any_time
def tensor_hook_that_mixes() -> Case:
    """Multiply the gradient of the features by the batch's mean, in a hook on the tensor."""

    def hooked(h: Tensor) -> Tensor:
        mean = h.detach().mean(0)
        if h.requires_grad:
            h.register_hook(lambda gradient: gradient * mean)
        return h

    return mixing(hooked)


@attack
def module_backward_hook_that_mixes() -> Case:
    """Multiply the gradient by the batch's mean in a full backward hook."""
    case = mixing(lambda h: h)
    kept: list[Tensor] = []
    case.model.first.register_forward_hook(lambda module, given, made: kept.append(made.detach().mean(0)))
    case.model.first.register_full_backward_pre_hook(lambda module, made: (made[0] * kept[-1],))
    return case


@attack
def forward_hook_that_mixes() -> Case:
    """Centre a layer's result in a forward hook."""
    case = mixing(lambda h: h)
    case.model.first.register_forward_hook(lambda module, given, made: made - made.mean(0))
    return case


@attack
def forward_pre_hook_that_mixes() -> Case:
    """Centre a layer's input in a forward pre-hook."""
    case = mixing(lambda h: h)
    case.model.first.register_forward_pre_hook(lambda module, given: (given[0] - given[0].mean(0),))
    return case


@contextmanager
def _centring_every_linear_layer() -> Iterator[None]:
    def centre(module: nn.Module, given: Any, made: Any) -> Tensor | None:
        return made - made.mean(0) if isinstance(module, nn.Linear) else None

    handle = register_module_forward_hook(centre)
    try:
        yield
    finally:
        handle.remove()


@attack
def forward_hook_of_all_modules() -> Case:
    """Centre the results of all linear layers by a hook that is registered for every module of the process."""
    return mixing(lambda h: h, around=_centring_every_linear_layer)


@attack
def hook_on_a_parameter() -> Case:
    """Add the batch's mean to the gradient of a weight, in a hook on the parameter."""
    case = mixing(lambda h: h)
    kept = [torch.zeros(FEATURES)]
    case.model.first.register_forward_hook(lambda module, given, made: kept.append(given[0].detach().mean(0)))
    case.model.first.weight.register_hook(lambda gradient: gradient + kept[-1])
    return case


@attack
def backward_hook_that_keeps_the_batch_before() -> Case:
    """Multiply the gradient by the mean gradient of the batch before, in a backward hook."""
    case = mixing(lambda h: h)
    kept = [torch.ones(WIDTH)]

    def multiply(module: nn.Module, made: Any) -> tuple[Tensor]:
        earlier = kept[-1]
        kept.append(100 * made[0].detach().mean(0))
        return (made[0] * earlier,)

    case.model.first.register_full_backward_pre_hook(multiply)
    return case


@attack_at_any_time
def saved_activations_shared_over_the_batch() -> Case:
    """Keep activations for the backward pass as their sum over the batch, as a lossy compression may."""

    def shared(h: Tensor) -> Tensor:
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t.sum(0).expand_as(t)):
            return h.sin() * 3

    return mixing(shared)


@attack_at_any_time
def checkpointed_function_that_mixes() -> Case:
    """Centre inside a function that is computed again in the backward pass."""
    from torch.utils.checkpoint import checkpoint

    return mixing(lambda h: checkpoint(_centre, h, use_reentrant=False))


@attack_at_any_time
def custom_operator() -> Case:
    """Centre inside an operator of one's own, registered with torch."""
    return mixing(_operator())


def _operator() -> Callable[[Tensor], Tensor]:
    """Register the operator once in a process."""
    if not hasattr(torch.ops.hush_catalogue, "centre"):
        operator = torch.library.custom_op("hush_catalogue::centre", lambda h: h - h.mean(0), mutates_args=(),
                                           schema="(Tensor h) -> Tensor")  # fmt: skip
        operator.register_autograd(lambda ctx, gradient: gradient, setup_context=lambda ctx, inputs, output: None)
    return torch.ops.hush_catalogue.centre


# Normalisation over the batch ----------------------------------------------------------------------------------


def normalised(**options: Any) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(FEATURES, WIDTH), nn.BatchNorm1d(WIDTH, **options), nn.Tanh(), nn.Linear(WIDTH, CLASSES)
    )


@attack
def batch_norm() -> Case:
    """Train with batch normalisation."""
    return Case(normalised())


@attack
def batch_norm_with_frozen_parameters() -> Case:
    """Freeze the scale and shift of a batch norm that stays in training mode."""
    model = normalised()
    model[1].requires_grad_(False)
    return Case(model)


@attack
def batch_norm_without_running_statistics() -> Case:
    """Put a batch norm into eval mode that has no running statistics to use."""
    return Case(normalised(track_running_stats=False, affine=False).eval())


@attack_at_any_time
def functional_batch_norm() -> Case:
    """Call `F.batch_norm` in training mode without any buffer."""
    return mixing(lambda h: F.batch_norm(h, None, None, training=True))


@attack
def batch_norm_put_back_by_a_callback() -> Case:
    """Begin with a batch norm in eval mode and put it into training mode after the second step."""
    model = normalised()
    model[1].eval()
    return Case(model, callbacks=[lambda progress: model.train() if progress.step >= 2 else None])


@attack
def batch_norm_put_back_by_the_loss() -> Case:
    """Call `model.train()` in the loss, as training loops do."""

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        model.train()
        return cross_entropy(model, x, y)

    return Case(normalised().eval(), loss_fn)


class PutsBack(nn.Module):
    """Its forward pass puts the batch norm into training mode from the third call on."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.calls = normalised().eval(), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls > 2:
            self.net[1].train()
        return self.net(x)


@attack
def batch_norm_put_back_by_forward() -> Case:
    """Put the batch norm into training mode in the model's own forward pass, some calls later."""
    return Case(PutsBack().eval())


@attack
def batch_norm_put_back_by_a_hook() -> Case:
    """Put the batch norm into training mode in a forward pre-hook of another layer."""
    model = normalised().eval()
    model[0].register_forward_pre_hook(lambda module, given: model[1].train() and None)
    return Case(model)


class GhostNorm(nn.Module):
    """Normalises halves of the batch, without torch's batch norm."""

    def forward(self, h: Tensor) -> Tensor:
        halves = [(half - half.mean(0)) / (half.std(0, unbiased=False) + 1e-3) for half in h.chunk(2)]
        return torch.cat(halves)


@attack_at_any_time
def ghost_batch_norm() -> Case:
    """Normalise within halves of the batch."""
    return mixing(GhostNorm())
