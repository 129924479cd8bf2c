"""The models that `hush train` offers. Each treats every example by itself: no layer mixes a batch."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from hush.data import Dataset
from hush.errors import InvalidValue
from hush.rng import Rng

MODELS = ("linear", "kernel", "mlp", "cnn")
_FEATURES, _BANDWIDTH, _SEED = 1000, 1.5, 0  # of "kernel": public constants


class UnitLength(nn.Module):
    """Each example as a vector of length 1, its own mean taken off first."""

    def forward(self, x: Tensor) -> Tensor:
        """(batch, ...) -> (batch, features)."""
        flat = x.flatten(1)
        centred = flat - flat.mean(dim=1, keepdim=True)
        length: Tensor = torch.linalg.vector_norm(centred, dim=1, keepdim=True)
        return centred / length.clamp(min=1e-6)


class CosineFeatures(nn.Module):
    """Random cosines that stand for a Gaussian kernel [rahimi07], of length 1. Fixed by a public seed, not trained."""

    projection: Tensor
    phase: Tensor

    def __init__(self, inputs: int) -> None:
        super().__init__()
        stream = Rng.from_seed(_SEED).torch_stream("cosine features")
        self.register_buffer("projection", torch.randn(inputs, _FEATURES, generator=stream) * _BANDWIDTH)
        self.register_buffer("phase", torch.rand(_FEATURES, generator=stream) * (2 * math.pi))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, inputs) -> (batch, features)."""
        waves = torch.cos(x @ self.projection + self.phase)
        length: Tensor = torch.linalg.vector_norm(waves, dim=1, keepdim=True)
        return waves / length


def build(name: str, dataset: Dataset, rng: Rng) -> nn.Module:
    """A new model for this data; its weights start from the stream "weights" of `rng`."""
    outputs = dataset.num_classes or 1
    shape, inputs = dataset.input_shape, math.prod(dataset.input_shape)
    start = [UnitLength()] if len(shape) > 1 else []  # the rows of a table have length at most 1 already
    match name:
        case "linear":
            return _zeroed(nn.Sequential(*start, nn.Linear(inputs, outputs)))
        case "kernel":
            return _zeroed(nn.Sequential(*start, CosineFeatures(inputs), nn.Linear(_FEATURES, outputs)))
        case "mlp":
            layers = (nn.Flatten(), nn.Linear(inputs, 128), nn.Tanh(), nn.Linear(128, outputs))
            return _started(nn.Sequential(*layers), rng)
        case "cnn":
            return _started(_cnn(shape, outputs), rng)
    raise InvalidValue(f"--model must be one of {', '.join(MODELS)}; got {name!r}.")


def _cnn(shape: tuple[int, ...], outputs: int) -> nn.Sequential:
    """Small networks with tanh, which bounds the activations [papernot21]."""
    if len(shape) != 3:
        raise InvalidValue("--model cnn is for pictures; for a table use linear, kernel or mlp.")
    if shape == (1, 28, 28):  # 26 thousand parameters, the network of [papernot21]
        layers = (
            *(nn.Conv2d(1, 16, 8, stride=2, padding=2), nn.Tanh(), nn.MaxPool2d(2, stride=1)),
            *(nn.Conv2d(16, 32, 4, stride=2), nn.Tanh(), nn.MaxPool2d(2, stride=1)),
            *(nn.Flatten(), nn.Linear(512, 32), nn.Tanh(), nn.Linear(32, outputs)),
        )
        return nn.Sequential(*layers)
    channels = (32, 64, 128) if min(shape[1:]) >= 16 else (16, 32)
    blocks = [
        layer for inside, out in zip((shape[0], *channels), channels, strict=False) for layer in _block(inside, out)
    ]
    side = math.prod(size >> len(channels) for size in shape[1:])
    return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(channels[-1] * side, 128), nn.Tanh(), nn.Linear(128, outputs))


def _block(inside: int, out: int) -> tuple[nn.Module, ...]:
    first, second = nn.Conv2d(inside, out, 3, padding=1), nn.Conv2d(out, out, 3, padding=1)
    return first, nn.Tanh(), second, nn.Tanh(), nn.MaxPool2d(2)


@torch.no_grad()
def _zeroed(model: nn.Sequential) -> nn.Sequential:
    """A linear head that starts at zero: nothing is gained from a random start where the problem is convex."""
    for parameter in model.parameters():
        parameter.zero_()
    return model


@torch.no_grad()
def _started(model: nn.Sequential, rng: Rng) -> nn.Sequential:
    """torch's usual start, from our own stream: the same seed gives the same weights, and no global one is touched."""
    stream = rng.torch_stream("weights")
    for layer in model.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            bound = 1 / math.sqrt(layer.weight[0].numel())
            for parameter in layer.parameters():
                parameter.uniform_(-bound, bound, generator=stream)
    return model
