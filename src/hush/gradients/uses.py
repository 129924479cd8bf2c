"""How one parameter was used by a batch: enough to give each example's gradient norm, and then the weighted sum.

Three kinds cover every rule. For a parameter W of shape (p, d), with T places (tokens, pixels) per example:

    Outer    inputs X (batch, T, d) and output gradients G (batch, T, p): example b's gradient is G_b^T X_b
    Lookup   row numbers (batch, T) and output gradients (batch, T, d): the gradient is added into those rows
    Rows     the gradients themselves, (batch, *shape)

The norm of an `Outer` needs no gradient where T is small against W: |G^T X|^2 = <G G^T, X X^T> ("ghost norm",
Goodfellow 2015 for T = 1; Li et al. 2022). Several uses of one parameter are added before the norm is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from hush.gradients.shared import Shared, dots, squared

_BLOCKWISE = 256  # places from which the half of a symmetric product that is not needed is left out
COPY = 2  # a scaled copy costs as much as scaling this many times the elements in place
GHOST_AT = 1.0  # ghost norm where T * (d + p) is below this share of d * p, each times T


@dataclass(frozen=True)
class Outer:
    """Example b's gradient is G_b^T X_b."""

    inputs: Tensor
    outputs: Tensor
    transposed: bool = False  # the weight lies the other way: the gradient is X_b^T G_b

    def sides(self) -> tuple[Tensor, Tensor]:
        """(right, left) with gradient left^T right."""
        return (self.outputs, self.inputs) if self.transposed else (self.inputs, self.outputs)

    @property
    def scales_outputs(self) -> bool:
        """Whether the sum takes a scaled form of the output gradients, and not of the inputs."""
        return self.inputs.shape[2] * COPY >= self.outputs.shape[2]

    @property
    def places(self) -> int:
        """How many places of an example share the parameter."""
        return self.inputs.shape[1]

    def is_ghostly(self, share: float = GHOST_AT) -> bool:
        """Whether the norm is cheaper without the gradients, from products of all pairs of places."""
        d, p = self.inputs.shape[2], self.outputs.shape[2]
        return self.places > 1 and self.places * (d + p) < share * d * p

    @property
    def size(self) -> int:
        """Bytes that all examples' gradients would take."""
        return self.inputs.shape[0] * self.inputs.shape[2] * self.outputs.shape[2] * self.outputs.element_size()

    def rows(self) -> Tensor:
        """Each example's gradient."""
        right, left = self.sides()
        return left.mT @ right

    def weighted(self, factors: Tensor, *, scratch: bool = False) -> Tensor:
        """The sum over examples of factor times gradient."""
        inputs, outputs = self.inputs, self.outputs
        if outputs.stride(0) < outputs.stride(1):  # places before examples: any order gives the same sum
            inputs, outputs, factors = inputs.transpose(0, 1), outputs.transpose(0, 1), factors[None, :, None]
        else:
            factors = factors[:, None, None]
        if self.scales_outputs:
            outputs = scaled(outputs, factors, scratch=scratch)
        else:
            inputs = scaled(inputs, factors)
        right, left = (outputs, inputs) if self.transposed else (inputs, outputs)
        return left.reshape(-1, left.shape[2]).mT @ right.reshape(-1, right.shape[2])

    def without(self, broken: Tensor) -> Outer:
        """The same with zeros for the broken examples."""
        return replace(self, inputs=blanked(self.inputs, broken), outputs=blanked(self.outputs, broken))

    def held(self) -> tuple[Tensor, ...]:
        """The tensors that it keeps alive."""
        return self.inputs, self.outputs

    def take(self, index: Tensor) -> Outer:
        """The same for some of the examples."""
        return replace(self, inputs=self.inputs[index], outputs=self.outputs[index])

    def measure(self, shared: Shared) -> tuple[Tensor, Tensor | None]:
        """Squared norms, and the size of what they are summed from."""
        if self.places == 1:
            return shared.squared(self.inputs) * shared.squared(self.outputs), None
        return _paired(self.inputs, self.outputs, shared) if self.is_ghostly() else (squared(self.rows()), None)

    def grouped(self, index: Tensor, present: Tensor) -> Outer:
        """The same with the examples of one unit as more places of one example."""
        inputs, outputs = (_gathered(rows, index, present) for rows in (self.inputs, self.outputs))
        return replace(self, inputs=inputs, outputs=outputs)


@dataclass(frozen=True)
class Lookup:
    """Example b's gradient is added into the rows that it looked up."""

    index: Tensor
    outputs: Tensor
    num_rows: int
    scales_outputs: ClassVar[bool] = True

    def _merged(self) -> tuple[Tensor, Tensor]:
        """(owner, values): equal rows of one example added up."""
        count, places = self.index.shape
        keys = (self.index + torch.arange(count, device=self.index.device)[:, None] * self.num_rows).reshape(-1)
        unique, inverse = torch.unique(keys, return_inverse=True)
        values = self.outputs.new_zeros(len(unique), self.outputs.shape[2])
        values.index_add_(0, inverse, self.outputs.reshape(count * places, -1))
        return unique // self.num_rows, values

    def _squares(self) -> Tensor:
        owner, values = self._merged()
        return self.outputs.new_zeros(len(self.index)).index_add_(0, owner, squared(values))

    def rows(self) -> Tensor:
        """Each example's gradient."""
        count, places = self.index.shape
        result = self.outputs.new_zeros(count * self.num_rows, self.outputs.shape[2])
        keys = self.index + torch.arange(count, device=self.index.device)[:, None] * self.num_rows
        result.index_add_(0, keys.reshape(-1), self.outputs.reshape(count * places, -1))
        return result.view(count, self.num_rows, -1)

    def weighted(self, factors: Tensor, *, scratch: bool = False) -> Tensor:
        """The sum over examples of factor times gradient."""
        outputs = scaled(self.outputs, factors[:, None, None], scratch=scratch)
        result = outputs.new_zeros(self.num_rows, outputs.shape[2])
        return result.index_add_(0, self.index.reshape(-1), outputs.reshape(-1, outputs.shape[2]))

    def without(self, broken: Tensor) -> Lookup:
        """The same with zeros for the broken examples."""
        return Lookup(self.index, blanked(self.outputs, broken), self.num_rows)

    def held(self) -> tuple[Tensor, ...]:
        """The tensors that it keeps alive."""
        return self.index, self.outputs

    def take(self, index: Tensor) -> Lookup:
        """The same for some of the examples."""
        return Lookup(self.index[index], self.outputs[index], self.num_rows)

    def measure(self, shared: Shared) -> tuple[Tensor, Tensor | None]:
        """Squared norms, and None: nothing cancels."""
        return self._squares(), None

    def grouped(self, index: Tensor, present: Tensor) -> Lookup:
        """The same with the examples of one unit as more places of one example."""
        numbers = self.index[index.reshape(-1)].view(index.shape[0], -1)
        return Lookup(numbers, _gathered(self.outputs, index, present), self.num_rows)


@dataclass(frozen=True)
class Rows:
    """The gradients themselves."""

    values: Tensor
    scales_outputs: ClassVar[bool] = False

    def rows(self) -> Tensor:
        """Each example's gradient."""
        return self.values

    def weighted(self, factors: Tensor, *, scratch: bool = False) -> Tensor:
        """The sum over examples of factor times gradient."""
        flat = self.values.reshape(self.values.shape[0], -1)
        return (factors.to(flat.dtype) @ flat).view(self.values.shape[1:])

    def without(self, broken: Tensor) -> Rows:
        """The same with zeros for the broken examples."""
        return Rows(blanked(self.values, broken))

    def held(self) -> tuple[Tensor, ...]:
        """The tensors that it keeps alive."""
        return (self.values,)

    def take(self, index: Tensor) -> Rows:
        """The same for some of the examples."""
        return Rows(self.rows()[index])

    def measure(self, shared: Shared) -> tuple[Tensor, Tensor | None]:
        """Squared norms, and None: nothing cancels."""
        return shared.squared(self.values), None

    def grouped(self, index: Tensor, present: Tensor) -> Rows:
        """The same with the examples of one unit added up."""
        chosen = self.values[index.reshape(-1)].reshape(*index.shape, -1).masked_fill(~present[..., None], 0)
        return Rows(chosen.sum(1).view(len(index), *self.values.shape[1:]))


@dataclass(frozen=True)
class Few(Rows):
    """The gradients of some of the examples."""

    chosen: Tensor
    count: int

    def __init__(self, index: Tensor, values: Tensor, count: int) -> None:
        object.__setattr__(self, "chosen", index)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "count", count)

    def rows(self) -> Tensor:
        """Each example's gradient."""
        return self.values.new_zeros(self.count, *self.values.shape[1:]).index_copy_(0, self.chosen, self.values)

    def weighted(self, factors: Tensor, *, scratch: bool = False) -> Tensor:
        """The sum over examples of factor times gradient."""
        return Rows(self.values).weighted(factors[self.chosen])

    def without(self, broken: Tensor) -> Rows:
        """The same with zeros for the broken examples."""
        return Few(self.chosen, blanked(self.values, broken[self.chosen]), self.count)


@dataclass(frozen=True)
class Sums(Rows):
    """Sums of maps that another use holds anyway, (batch, channels, *places); made when they are asked for."""

    def rows(self) -> Tensor:
        """Each example's gradient."""
        return self.values.flatten(2).sum(2)

    def weighted(self, factors: Tensor, *, scratch: bool = False) -> Tensor:
        """The sum over examples of factor times gradient."""
        return Rows(self.rows()).weighted(factors)

    def without(self, broken: Tensor) -> Rows:
        """The same with zeros for the broken examples."""
        return Rows(self.rows()).without(broken)

    def measure(self, shared: Shared) -> tuple[Tensor, Tensor | None]:
        """Squared norms, and None: nothing cancels."""
        return squared(self.rows()), None

    def grouped(self, index: Tensor, present: Tensor) -> Rows:
        """The same with the examples of one unit added up."""
        return Rows(self.rows()).grouped(index, present)


class Use(Protocol):
    """What every kind can do."""

    @property
    def scales_outputs(self) -> bool:
        """Whether `weighted` scales the output gradients, so that it may want to overwrite them."""
        ...

    def rows(self) -> Tensor:
        """Each example's gradient."""
        ...

    def weighted(self, factors: Tensor, *, scratch: bool = False) -> Tensor:
        """The sum over examples of factor times gradient; scratch: the output gradients may be overwritten."""
        ...

    def held(self) -> tuple[Tensor, ...]:
        """The tensors that it keeps alive; the output gradients last."""
        ...

    def take(self, index: Tensor) -> Use:
        """The same for some of the examples."""
        ...

    def measure(self, shared: Shared) -> tuple[Tensor, Tensor | None]:
        """Squared norms, and the size of what they are summed from; None where nothing can cancel."""
        ...

    def without(self, broken: Tensor) -> Use:
        """The same with zeros for the broken examples."""
        ...

    def grouped(self, index: Tensor, present: Tensor) -> Use:
        """The same with the examples of one unit taken together."""
        ...


def merged(uses: Sequence[Use]) -> list[Use]:
    """The same gradients in as few uses as possible."""
    if len(uses) == 1:
        return list(uses)
    outers = [use for use in uses if isinstance(use, Outer)]
    lookups = [use for use in uses if isinstance(use, Lookup)]
    rows = [use.rows() for use in uses if not isinstance(use, Outer | Lookup)]
    result: list[Use] = []
    if outers:
        result.append(outers[0] if len(outers) == 1 else _joined(outers))
    if lookups:
        index = torch.cat([use.index for use in lookups], dim=1)
        result.append(Lookup(index, torch.cat([use.outputs for use in lookups], dim=1), lookups[0].num_rows))
    if rows:
        result.append(Rows(rows[0] if len(rows) == 1 else torch.stack(rows).sum(0)))
    return result


def _joined(outers: Sequence[Outer]) -> Outer:
    rights, lefts = zip(*(use.sides() for use in outers), strict=True)
    return Outer(torch.cat(rights, dim=1), torch.cat(lefts, dim=1))


def _paired(inputs: Tensor, outputs: Tensor, shared: Shared) -> tuple[Tensor, Tensor]:
    """<X X^T, G G^T> of each example, and |X|^2 |G|^2."""
    if inputs.shape[1] >= _BLOCKWISE:
        return _paired_by_blocks(inputs, outputs)
    rise, fall = shared.pairs(inputs), shared.pairs(outputs)
    sizes = (square.diagonal(dim1=1, dim2=2).sum(1) for square in (rise, fall))
    return dots(rise, fall), next(sizes) * next(sizes)


def _paired_by_blocks(inputs: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor]:
    """The same where only blocks on and above the diagonal are computed."""
    places = inputs.shape[1]
    width = -(-places // 4)
    total, sizes = inputs.new_zeros(len(inputs)), inputs.new_zeros(2, len(inputs))
    for start in range(0, places, width):
        rise, fall = (rows[:, start : start + width] @ rows[:, start:].mT for rows in (inputs, outputs))
        for size, square in zip(sizes, (rise, fall), strict=True):
            size += square.diagonal(dim1=1, dim2=2).sum(1)
        total += dots(rise[:, :, :width], fall[:, :, :width])
        if start + width < places:
            total += 2 * dots(rise[:, :, width:], fall[:, :, width:])
    return total, sizes[0] * sizes[1]


def scaled(rows: Tensor, factors: Tensor, *, scratch: bool = False) -> Tensor:
    """Each example's rows times its factor, which has as many axes."""
    scale = factors.to(rows.dtype)
    return rows.mul_(scale) if scratch else rows * scale


def is_dense(rows: Tensor) -> bool:
    """Whether each element has a place of its own in memory, in this order or with the first two axes swapped."""
    return rows.is_contiguous() or (rows.ndim > 1 and rows.transpose(0, 1).is_contiguous())


def blanked(rows: Tensor, broken: Tensor) -> Tensor:
    """The same with zeros for the broken examples."""
    return rows.masked_fill(broken.view(-1, *[1] * (rows.ndim - 1)), 0)


def _gathered(rows: Tensor, index: Tensor, present: Tensor) -> Tensor:
    """(batch, T, d) -> (units, members * T, d), zeros where a unit has fewer members."""
    chosen = rows[index.reshape(-1)].view(*index.shape, *rows.shape[1:])
    chosen = chosen.masked_fill(~present.view(*index.shape, 1, 1), 0)
    return chosen.reshape(len(index), -1, rows.shape[2])
