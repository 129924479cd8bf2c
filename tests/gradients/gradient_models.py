"""Small models of every kind that private gradients promise to serve, each with a loss and a batch.

Sizes are small, and many of them are equal on purpose: a batch of 6 with 6 tokens hides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

BATCH, TOKENS, WIDTH, CLASSES, WORDS = 6, 5, 12, 3, 20


@dataclass(frozen=True)
class Example:
    """A model with what it is trained on; `vectorized` says whether vmap can serve it."""

    name: str
    make: Callable[[], nn.Module]
    inputs: Callable[[int], Tensor]
    classes: int = CLASSES
    vectorized: bool = True

    def model(self) -> nn.Module:
        torch.manual_seed(7)
        return self.make().double()

    def batch(self, count: int = BATCH) -> tuple[Tensor, Tensor]:
        torch.manual_seed(8)
        return self.inputs(count), torch.randint(0, self.classes, (count,))


def cross_entropy(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(model(inputs), targets, reduction="none")


def features(*shape: int) -> Callable[[int], Tensor]:
    return lambda count: torch.randn(count, *shape, dtype=torch.float64)


def words(*shape: int) -> Callable[[int], Tensor]:
    return lambda count: torch.randint(0, WORDS, (count, *shape))


class Pooled(nn.Module):
    """A network on tokens, averaged, with a head."""

    def __init__(self, net: nn.Module, width: int = WIDTH) -> None:
        super().__init__()
        self.net, self.head = net, nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.net(x)
        return self.head((hidden[0] if isinstance(hidden, tuple) else hidden).mean(1))


class Attention(nn.Module):
    def __init__(self, *, batch_first: bool, **options: Any) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(WIDTH, 3, batch_first=batch_first, **options)
        self.batch_first = batch_first

    def forward(self, x: Tensor) -> Tensor:
        if self.batch_first:
            return self.attend(x, x, x)[0]
        x = x.transpose(0, 1)
        return self.attend(x, x, x)[0].transpose(0, 1)


class OwnKeys(nn.Module):
    """Attention whose keys and values have widths of their own: separate projections."""

    def __init__(self) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(WIDTH, 2, kdim=4, vdim=6, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attend(x, x[..., :4], x[..., :6], need_weights=False)[0]


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], **options: Any) -> None:
        super().__init__()
        self.layer = kind(WIDTH, WIDTH, **options)

    def forward(self, x: Tensor) -> Tensor:
        if self.layer.batch_first:
            return self.layer(x)[0]
        return self.layer(x.transpose(0, 1))[0].transpose(0, 1)


class LastState(nn.Module):
    """As many layers and directions as examples, read by their last states."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.layer = kind(WIDTH, 4, num_layers=3, bidirectional=True, batch_first=True)
        self.head = nn.Linear(24, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        final = self.layer(x)[1]
        return self.head((final[0] if isinstance(final, tuple) else final).transpose(0, 1).flatten(1))


class Pixels(nn.Module):
    """A network on images (or lines, or volumes) with a head on all that it gives."""

    def __init__(self, shape: tuple[int, ...], *layers: nn.Module) -> None:
        super().__init__()
        self.net = nn.Sequential(*layers)
        with torch.no_grad():
            wide = self.net(torch.zeros(1, *shape)).numel()
        self.head = nn.Linear(wide, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.net(x).flatten(1))


class StandardisedConv(nn.Conv2d):
    def forward(self, input: Tensor) -> Tensor:
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        weight = weight / (weight.std((1, 2, 3), keepdim=True) + 1e-5)
        return F.conv2d(input, weight, self.bias, self.stride, self.padding)


class Language(nn.Module):
    """Words and places; the head may share its weight with the words."""

    def __init__(self, *, tied: bool, padding_idx: int | None = 0) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH, padding_idx=padding_idx)
        self.places = nn.Embedding(9, WIDTH)
        self.normal = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, index: Tensor) -> Tensor:
        hidden = self.words(index) + self.places(torch.arange(index.shape[1]))
        return self.head(self.normal(hidden)).mean(1)


class Bag(nn.Module):
    def __init__(self, mode: str, padding_idx: int | None = None) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(WORDS, WIDTH, mode=mode, padding_idx=padding_idx)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, index: Tensor) -> Tensor:
        return self.head(self.bag(index))


class Raw(nn.Module):
    """Parameters used by broadcasting, joining, einsum and products, without layers."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.randn(WIDTH)), nn.Parameter(torch.randn(1, 1, WIDTH))
        self.token, self.place = nn.Parameter(torch.randn(1, 1, WIDTH)), nn.Parameter(torch.randn(1, BATCH, WIDTH))
        self.matrix, self.mix = nn.Parameter(torch.randn(WIDTH, WIDTH) / 4), nn.Parameter(torch.randn(BATCH, BATCH) / 3)
        self.gate = nn.Parameter(torch.tensor(0.3))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = x * self.scale + self.shift
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.place
        x = x + self.gate * torch.einsum("btd,ed->bte", x, self.matrix)
        x = (x + self.mix @ x) @ self.matrix
        x = (x.reshape(-1, WIDTH) + self.scale).view(-1, BATCH, WIDTH)
        return self.head(torch.tanh(x[:, 0]))


class LayerScale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.gamma = nn.Linear(WIDTH, WIDTH), nn.Parameter(torch.full((WIDTH,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.gamma * F.gelu(self.inner(x))


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.form = nn.Bilinear(WIDTH, WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.form(x, x.flip(1))


class Reused(nn.Module):
    """One layer three times, one frozen, one that is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.again, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.unused, self.frozen = nn.Linear(3, 3), nn.Linear(WIDTH, WIDTH).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = torch.tanh(self.frozen(self.again(x)))
        return self.head(x)


class PartlyFrozen(nn.Module):
    """Only biases and one slice learn."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.first.weight.requires_grad_(False)
        self.second.bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(F.relu(self.first(x)))


class Keywords(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.linear(input=x, weight=self.first.weight, bias=self.first.bias)
        return self.second(input=torch.tanh(hidden))


class Checkpointed(nn.Module):
    def __init__(self, *, reentrant: bool = False) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH))
        self.head, self.reentrant = nn.Linear(WIDTH, CLASSES), reentrant

    def forward(self, x: Tensor) -> Tensor:
        x = checkpoint(self.block, x, use_reentrant=self.reentrant)
        return self.head(checkpoint(self.block, x, use_reentrant=self.reentrant))


class PartWithoutGradient(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            target = torch.tanh(self.encoder(x))
        return self.head(target + 0.1 * self.encoder(x))


def batch_norm() -> nn.Module:
    """With fixed statistics."""
    return nn.Sequential(nn.Linear(WIDTH, 8), nn.BatchNorm1d(8), nn.Linear(8, CLASSES)).eval()


def weight_norm() -> nn.Module:
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, 8))
    return nn.Sequential(layer, nn.Tanh(), nn.Linear(8, CLASSES))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 8), nn.ReLU(inplace=True), nn.Linear(8, CLASSES))


def encoder(**options: Any) -> nn.Module:
    return Pooled(nn.TransformerEncoderLayer(WIDTH, 3, 16, 0.0, batch_first=True, **options))


IMAGE, LINE, VOLUME = (3, 9, 9), (WIDTH, 7), (2, 4, 4, 4)
_VECTOR, _TOKENS, _SQUARE, _IMAGE = features(WIDTH), features(TOKENS, WIDTH), features(BATCH, WIDTH), features(*IMAGE)
_LINE, _VOLUME, _WORDS = features(*LINE), features(*VOLUME), words(TOKENS)


def pixels(name: str, inputs: Callable[[int], Tensor], shape: tuple[int, ...], make: Callable[[], Any]) -> Example:
    return Example(name, lambda: Pixels(shape, *make()), inputs)


CONVOLUTIONS = (
    pixels("Conv2d", _IMAGE, IMAGE, lambda: (
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Conv2d(8, 6, 3, stride=2))),
    pixels("Conv2d grouped, depthwise, dilated", _IMAGE, IMAGE, lambda: (
        nn.Conv2d(3, 6, 3, groups=3), nn.Conv2d(6, 6, (3, 2), groups=6, padding="same", dilation=2),
        nn.Conv2d(6, 4, 3, stride=(2, 1), padding=(1, 2), dilation=(1, 2)))),
    pixels("Conv2d circular and reflecting", _IMAGE, IMAGE, lambda: (
        nn.Conv2d(3, 6, 3, padding=1, padding_mode="circular"), nn.Conv2d(6, 2, 3, padding=1, padding_mode="reflect"))),
    pixels("Conv2d weight-standardised", _IMAGE, IMAGE, lambda: (StandardisedConv(3, 6, 3), StandardisedConv(6, 4, 3))),
    pixels("Conv1d", _LINE, LINE, lambda: (nn.Conv1d(WIDTH, 4, 3, stride=2, padding=1, bias=False), nn.Tanh())),
    pixels("Conv1d grouped, depthwise, dilated", _LINE, LINE, lambda: (
        nn.Conv1d(WIDTH, 6, 3, groups=3, dilation=2, padding=1), nn.Tanh(),
        nn.Conv1d(6, 12, 2, stride=2, groups=6, dilation=3, padding="valid"))),
    pixels("Conv3d", _VOLUME, VOLUME, lambda: (nn.Conv3d(2, 4, 3, padding=1, groups=2), nn.Tanh())),
    pixels("Conv3d strided, dilated", _VOLUME, VOLUME, lambda: (
        nn.Conv3d(2, 4, (3, 2, 2), stride=(1, 2, 1), padding=(2, 1, 1), dilation=(2, 1, 3)), nn.Tanh())),
    pixels("Conv3d depthwise, strided, dilated", _VOLUME, VOLUME, lambda: (
        nn.Conv3d(2, 6, 2, stride=2, padding=1, dilation=(1, 2, 3), groups=2), nn.Tanh(),
        nn.Conv3d(6, 6, 2, padding="same", dilation=2, groups=6))),
    pixels("ConvTranspose1d", _LINE, LINE, lambda: (nn.ConvTranspose1d(WIDTH, 4, 2, stride=2), nn.Tanh())),
    pixels("ConvTranspose1d grouped, dilated", _LINE, LINE, lambda: (
        nn.ConvTranspose1d(WIDTH, 6, 3, stride=2, padding=1, output_padding=1, groups=3, dilation=2), nn.Tanh(),
        nn.ConvTranspose1d(6, 6, 2, groups=6))),
    pixels("ConvTranspose2d", _IMAGE, IMAGE, lambda: (
        nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1), nn.Tanh(),
        nn.ConvTranspose2d(4, 4, 2, groups=2, dilation=2))),
    pixels("ConvTranspose3d", _VOLUME, VOLUME, lambda: (nn.ConvTranspose3d(2, 3, 2), nn.Tanh())),
    pixels("ConvTranspose3d grouped", _VOLUME, VOLUME, lambda: (
        nn.ConvTranspose3d(2, 6, (2, 3, 1), stride=(1, 2, 1), padding=(0, 1, 0), groups=2), nn.Tanh(),
        nn.ConvTranspose3d(6, 3, 2, groups=3, dilation=2))),
    pixels("InstanceNorm3d, InstanceNorm1d", _VOLUME, VOLUME, lambda: (
        nn.Conv3d(2, 4, 2), nn.InstanceNorm3d(4, affine=True), nn.Tanh(), nn.Flatten(2),
        nn.InstanceNorm1d(4, affine=True), nn.Conv1d(4, 3, 5))),
    pixels("GroupNorm, InstanceNorm, PReLU", _IMAGE, IMAGE, lambda: (
        nn.GroupNorm(3, 3), nn.PReLU(3), nn.Conv2d(3, 6, 3), nn.InstanceNorm2d(6, affine=True), nn.PReLU())),
    pixels("pools and shuffles", _IMAGE, (3, 9, 9), lambda: (
        nn.Conv2d(3, 8, 2), nn.AvgPool2d(2), nn.PixelShuffle(2), nn.Conv2d(2, 4, 3), nn.AdaptiveAvgPool2d(3),
        nn.Upsample(scale_factor=2), nn.Conv2d(4, 2, 2))),
)  # fmt: skip

LAYERS = (
    Example("mlp", mlp, _VECTOR),
    Example("Linear on tokens", lambda: Pooled(nn.Sequential(
        nn.Linear(WIDTH, 7), nn.GELU(), nn.Linear(7, WIDTH), nn.LayerNorm(WIDTH))), _TOKENS),
    Example("Linear on 4 axes", lambda: nn.Sequential(
        nn.Linear(9, BATCH), nn.Tanh(), nn.Flatten(), nn.Linear(27 * BATCH, CLASSES)), _IMAGE),
    Example("RMSNorm", lambda: Pooled(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.RMSNorm(WIDTH))), _TOKENS),
    Example("LayerNorm over two axes", lambda: nn.Sequential(
        nn.LayerNorm((TOKENS, WIDTH)), nn.Flatten(), nn.Linear(TOKENS * WIDTH, CLASSES)), _TOKENS),
    Example("BatchNorm in eval mode", batch_norm, _VECTOR),
    Example("Bilinear", Pair, _VECTOR),
    Example("weight_norm", weight_norm, _VECTOR),
    Example("LayerScale", lambda: Pooled(LayerScale()), _TOKENS),
    Example("raw parameters", Raw, _TOKENS),
    Example("reused, unused and frozen", Reused, _VECTOR),
    Example("partly frozen", PartlyFrozen, _VECTOR),
    Example("keyword calls", Keywords, _VECTOR),
    Example("part without gradient", PartWithoutGradient, _VECTOR),
    Example("checkpointed", Checkpointed, _VECTOR, vectorized=False),
)  # fmt: skip

SEQUENCES = (
    Example("MultiheadAttention", lambda: Pooled(Attention(batch_first=True)), _TOKENS),
    Example("MultiheadAttention, tokens first", lambda: Pooled(Attention(batch_first=False)), _TOKENS),
    Example("MultiheadAttention, as many tokens as examples", lambda: Pooled(Attention(batch_first=True)), _SQUARE),
    Example("MultiheadAttention, tokens first, as many", lambda: Pooled(Attention(batch_first=False)), _SQUARE),
    Example("MultiheadAttention, learned extra key", lambda: Pooled(
        Attention(batch_first=True, add_bias_kv=True, add_zero_attn=True)), _TOKENS),
    Example("MultiheadAttention, own widths", lambda: Pooled(OwnKeys()), _TOKENS),
    Example("TransformerEncoderLayer", encoder, _TOKENS),
    Example("TransformerEncoderLayer, norm first", lambda: encoder(norm_first=True, activation="gelu"), _SQUARE),
    Example("LSTM", lambda: Pooled(Recurrent(nn.LSTM, num_layers=2, batch_first=True)), _TOKENS, vectorized=False),
    Example("LSTM, projected, time first", lambda: Pooled(Recurrent(nn.LSTM, proj_size=6), 6), _SQUARE,
            vectorized=False),
    Example("GRU, both ways", lambda: Pooled(
        Recurrent(nn.GRU, bidirectional=True, batch_first=True), 24), _TOKENS, vectorized=False),
    Example("RNN", lambda: Pooled(Recurrent(nn.RNN, nonlinearity="relu")), _TOKENS, vectorized=False),
    Example("LSTM, last states", lambda: LastState(nn.LSTM), _TOKENS, vectorized=False),
    Example("GRU, last states", lambda: LastState(nn.GRU), _SQUARE, vectorized=False),
    Example("Embedding", lambda: Language(tied=False), _WORDS, WORDS),
    Example("Embedding, tied", lambda: Language(tied=True), _WORDS, WORDS),
    Example("Embedding, tied, no padding", lambda: Language(tied=True, padding_idx=None), words(BATCH), WORDS),
    *(Example(f"EmbeddingBag {mode}", lambda mode=mode: Bag(mode), _WORDS)
      for mode in ("sum", "mean", "max")),
    *(Example(f"EmbeddingBag {mode}, padding", lambda mode=mode: Bag(mode, 3), _WORDS)
      for mode in ("sum", "mean", "max")),
)  # fmt: skip

ZOO = (*LAYERS, *CONVOLUTIONS, *SEQUENCES)
BY_NAME = {example.name: example for example in ZOO}
FEW = [BY_NAME[name] for name in ("mlp", "Embedding, tied", "raw parameters", "TransformerEncoderLayer", "Conv2d")]
