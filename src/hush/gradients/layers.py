"""Weight and bias of a layer taken together.

A bias is a weight whose input is always 1: with inputs X and output gradients G of an example, both together have the
gradient G^T [X 1]. So where a layer's two parameters are used once, their common norm and their two sums cost hardly
more than the weight's. A use of both stands under the weight's name and knows the bias's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeGuard

import torch
from torch import Tensor

from hush.gradients import pixel_pairs
from hush.gradients.correlation import Correlation, backward
from hush.gradients.shared import Shared, squared
from hush.gradients.state import memory_of
from hush.gradients.uses import COPY, Outer, Rows, Sums, Use, blanked, scaled

_EVEN = 16  # a product is quicker where its width is a multiple of this: 64 columns than 60, by a quarter


@dataclass(frozen=True)
class Dense:
    """A linear layer that met one place of each example: inputs (batch, d) and output gradients (batch, p)."""

    inputs: Tensor
    outputs: Tensor
    transposed: bool
    bias: str

    @property
    def scales_outputs(self) -> bool:
        """Whether the sums take a scaled form of the output gradients, and not of the inputs."""
        return self.inputs.shape[1] * COPY >= self.outputs.shape[1]

    def measure(self, shared: Shared) -> tuple[Tensor, Tensor | None]:
        """Squared norms of both together, |G|^2 (|X|^2 + 1), and None: nothing cancels."""
        size = squared(self.outputs)
        return torch.addcmul(size, size, shared.squared(self.inputs)), None

    def weighted_both(self, factors: Tensor, *, scratch: bool = False) -> tuple[Tensor, Tensor]:
        """The sum for the weight, and that for the bias."""
        inputs, outputs, factors = self.inputs, self.outputs, factors.to(self.outputs.dtype)
        if self.scales_outputs:
            outputs = scaled(outputs, factors[:, None], scratch=scratch)
            weight, bias = outputs.mT @ inputs, outputs.sum(0)
        else:  # the factors are one more input: the sum for the bias comes from the same product
            count, size = inputs.shape
            wide = inputs.new_zeros(count, -(-(size + 1) // _EVEN) * _EVEN)
            torch.mul(inputs, factors[:, None], out=wide[:, :size])
            wide[:, size] = factors
            product = outputs.mT @ wide
            weight, bias = product[:, :size], product[:, size].contiguous()
        return (weight.mT if self.transposed else weight).contiguous(), bias

    def of_bias(self) -> Rows:
        """The bias's use."""
        return Rows(self.outputs)

    def held(self) -> tuple[Tensor, ...]:
        """The tensors that it keeps alive."""
        return self.inputs, self.outputs

    def without(self, broken: Tensor) -> Dense:
        """The same with zeros for the broken examples."""
        return replace(self, inputs=blanked(self.inputs, broken), outputs=blanked(self.outputs, broken))

    def take(self, index: Tensor) -> Dense:
        """The same for some of the examples."""
        return replace(self, inputs=self.inputs[index], outputs=self.outputs[index])

    def alone(self) -> Outer:
        """The weight's use."""
        return Outer(self.inputs.unsqueeze(1), self.outputs.unsqueeze(1), self.transposed)

    def rows(self) -> Tensor:
        """Each example's gradient of the weight."""
        return self.alone().rows()

    def weighted(self, factors: Tensor, *, scratch: bool = False) -> Tensor:
        """The sum for the weight."""
        return self.alone().weighted(factors, scratch=scratch)

    def grouped(self, index: Tensor, present: Tensor) -> Use:
        """Refused: the bias would be lost."""
        raise AssertionError("a use of weight and bias is taken apart before its examples are grouped.")


@dataclass(frozen=True)
class BiasedCorrelation(Correlation):
    """A convolution: every window has one more element, which is 1."""

    bias: str = ""

    def _of_windows(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        pairs, size = super()._of_windows(inputs)
        return pairs if self._is_small() else pairs.add_(1), size.add_(self.outputs.shape[2:].numel())

    def _folded(self, pairs: Tensor, folding: Tensor) -> Tensor:
        ones = pixel_pairs.times(self.outputs.shape[2:].numel(), pairs.dtype, pairs.device)
        return torch.addmm(ones, pairs, folding)

    def alone(self) -> Correlation:
        """The weight's use."""
        return Correlation(self.inputs, self.outputs, self.settings)

    def of_bias(self) -> Rows:
        """The bias's use."""
        return Sums(self.outputs)

    def grouped(self, index: Tensor, present: Tensor) -> Rows:
        """Refused: the bias would be lost."""
        raise AssertionError("a use of weight and bias is taken apart before its examples are grouped.")

    def weighted_both(self, factors: Tensor, *, scratch: bool = False) -> tuple[Tensor, Tensor]:
        """The sum for the weight, and that for the bias, which torch's function makes of the same maps."""
        outputs = scaled(self.outputs, factors[:, None, None, None], scratch=scratch)
        weight, bias = backward(self.inputs, outputs, self.settings, 1, has_bias=True)
        assert bias is not None
        return weight, bias


Both = Dense | BiasedCorrelation


def tells_both(use: Use) -> TypeGuard[Both]:
    """Whether a use tells of a weight and its bias."""
    return isinstance(use, Both)


def biases(uses: Mapping[str, list[Use]]) -> Iterator[tuple[str, str]]:
    """The names of weight and bias of every layer whose use tells of both."""
    for name, found in uses.items():
        if tells_both(found[0]):
            yield name, found[0].bias


def join(uses: dict[str, list[Use]]) -> None:
    """Put uses of both in the place of a weight's and its bias's, where each has one."""
    rows = {_place(found[0].values): name for name, found in uses.items() if isinstance(found[0], Rows)}
    for name, found in [*uses.items()]:
        use = found[0]
        if len(found) > 1 or not (type(use) is Outer or type(use) is Correlation):
            continue
        bias = rows.get(_place(use.outputs))
        if bias is not None and len(uses.get(bias, ())) == 1:
            both = together(name, use, bias, uses[bias][0])
            if both is not None:
                uses[name] = [both]
                del uses[bias]


def apart(uses: dict[str, list[Use]]) -> None:
    """Put uses of weights and of their biases in the place of those of both."""
    for name, bias in [*biases(uses)]:
        use = uses[name][0]
        assert tells_both(use)
        uses[name], uses[bias] = [use.alone()], [use.of_bias()]


def dense(weight: str, inputs: Tensor, outputs: Tensor, bias: str | None, *, transposed: bool) -> Dense | None:
    """The use of both, for a linear layer whose inputs and outputs are matrices."""
    if bias is None or _layer(weight) != _layer(bias) or inputs.dtype != outputs.dtype or not outputs.is_contiguous():
        return None
    return Dense(inputs, outputs, transposed, bias)


def together(weight: str, use: Use | None, bias: str | None, rows: Use | None) -> Both | None:
    """The use of both, if the second is of the bias that was added to the outputs of the first."""
    if use is None or bias is None or _layer(weight) != _layer(bias):
        return None
    if type(use) is Correlation:
        is_same = type(rows) is Sums and rows.values is use.outputs and not use.in_pieces
        made = BiasedCorrelation(use.inputs, use.outputs, use.settings, bias=bias)
        return made if is_same else None
    if type(use) is Outer and use.places == 1 and type(rows) is Rows and _is_same(rows.values, use.outputs):
        return Dense(use.inputs.squeeze(1), use.outputs.squeeze(1), use.transposed, bias)
    return None


def _place(tensor: Tensor) -> tuple[int, int]:
    return memory_of(tensor), int(tensor.storage_offset())


def _layer(name: str) -> str:
    return name.rpartition(".")[0]


def _is_same(values: Tensor, outputs: Tensor) -> bool:
    is_whole = values.numel() == outputs.numel() and values.dtype == outputs.dtype
    return is_whole and values.is_contiguous() and outputs.is_contiguous()
