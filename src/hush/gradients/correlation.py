"""Each example's gradient of a convolution's weight, by the quickest of several ways.

    grouped   all examples as the groups of one convolution: good on large maps
    windows   the input's windows, channels last, times the output gradients: good with few channels
    pairs     norms alone, from the products of all pairs of pixels; the weighted sum is then one ordinary weight
              gradient: good on small, deep maps
    pieces    the same, with norms from the windows of a few examples at a time: where memory is short

For pairs, with P(s, t) = <x_s, x_t> over pixels of the input and Q the same of the output gradients,
|gradient|^2 = sum over kernel offsets o of <P(. + o, . + o), Q>, so windows are never written out. Pixels of the
zeros around the input are left out of the sum.

Which is quickest depends on shapes and machine. It is tried once for each shape, for few and for many examples, and
then kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from hush.gradients import pixel_pairs
from hush.gradients.shared import Shared, dots, squared
from hush.gradients.uses import Rows, Use, blanked, scaled

_MOST_PAIRS = 4.0  # pairs of pixels are tried where they are at most this often as many as weights
_KEEP = 2.0  # gradients are kept where they take at most this often the place of input and output gradients

_TURNS = 4
_MOST_GROUPS = 64
_PIECE = 2**20  # elements worked on at once

_quickest: dict[Any, str] = {}


@dataclass(frozen=True)
class Settings:
    """A convolution's public facts."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]  # before and after, for each axis
    dilation: tuple[int, ...]
    groups: int
    transposed: bool
    output_padding: tuple[int, ...]

    @classmethod
    def of(
        cls,
        weight: Tensor,
        axes: int,
        *,
        transposed: bool,
        stride: Any,
        padding: Any,
        dilation: Any,
        groups: int,
        output_padding: Any = 0,
    ) -> Settings:
        """From the arguments of torch's functions."""
        steps = _each(dilation, axes)
        if padding == "same":  # may pad one side more
            total = [step * (size - 1) for step, size in zip(steps, weight.shape[2:], strict=True)]
            sides = tuple((amount // 2, amount - amount // 2) for amount in total)
        else:
            sides = tuple((side, side) for side in _each(0 if padding == "valid" else padding, axes))
        strides, extra = _each(stride, axes), _each(output_padding, axes)
        return cls(tuple(weight.shape), strides, sides, steps, groups, transposed, extra)

    @staticmethod
    @lru_cache(maxsize=256)
    def plain(
        shape: tuple[int, ...], stride: tuple[int, ...], padding: tuple[int, ...], dilation: tuple[int, ...],
        groups: int, transposed: bool, output_padding: tuple[int, ...],
    ) -> Settings:  # fmt: skip
        """From numbers, with the same padding on both sides."""
        sides = tuple((side, side) for side in padding)
        return Settings(shape, stride, sides, dilation, groups, transposed, output_padding)

    @property
    def is_flat(self) -> bool:
        """An ordinary convolution of pictures, without groups or dilation."""
        plain = self.groups == 1 and not self.transposed and set(self.dilation) == {1}
        return plain and len(self.shape) == 4

    def padded(self, inputs: Tensor) -> Tensor:
        """The input with its zeros around it."""
        sides = [side for pair in reversed(self.padding) for side in pair]
        return F.pad(inputs, sides) if any(sides) else inputs


def _each(value: Any, axes: int) -> tuple[int, ...]:
    """One number for each axis."""
    return (value,) * axes if isinstance(value, int) else tuple(value) * (axes // len(value))


def use_of(inputs: Tensor, outputs: Tensor, settings: Settings) -> Use:
    """Return how the weight was used, in the form that is quickest for these shapes."""
    ways = _ways(inputs.shape[1:], outputs.shape[1:], settings)
    if len(ways) == 1:
        return next(iter(ways.values()))(inputs, outputs, settings)
    key = (settings, inputs.shape[1:], inputs.dtype, inputs.device.type, len(inputs) > _MOST_GROUPS)
    if key not in _quickest:
        _quickest[key] = _raced(ways, inputs, outputs, settings)
    return ways[_quickest[key]](inputs, outputs, settings)


Way = Callable[[Tensor, Tensor, Settings], Use]


@lru_cache(maxsize=256)
def _ways(before: torch.Size, after: torch.Size, settings: Settings) -> dict[str, Way]:
    """The ways that serve maps of these shapes, before and after the layer."""
    ways: dict[str, Way] = {"grouped": grouped}
    if not settings.is_flat:
        return ways
    weights = torch.Size(settings.shape).numel()
    places = before[1:].numel()
    is_small = weights <= _KEEP * (before.numel() + after.numel())
    if places * places <= _MOST_PAIRS * weights:
        ways["pairs"] = Correlation
    if is_small:
        ways["windows"] = windows
    else:  # the gradients would not fit beside the activations
        del ways["grouped"]
        ways["pieces"] = partial(Correlation, in_pieces=True)
    return ways


def _raced(ways: dict[str, Way], inputs: Tensor, outputs: Tensor, settings: Settings) -> str:
    """The way with the least time for norms and weighted sum; taken in turns, so that a busy moment meets them all."""
    factors = torch.ones(len(inputs), dtype=outputs.dtype, device=outputs.device)
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(_TURNS):
        for name, way in ways.items():
            start = time.perf_counter()
            use = way(inputs, outputs, settings)
            use.measure(Shared())
            use.weighted(factors)
            best[name] = min(best[name], time.perf_counter() - start)
    return min(best, key=best.__getitem__)


def grouped(inputs: Tensor, outputs: Tensor, settings: Settings) -> Rows:
    """The examples as the groups of a convolution; few numbers of groups, since each new one is compiled anew."""
    count = len(inputs)
    size = min(_MOST_GROUPS, 1 << (count - 1).bit_length())

    def piece(start: int) -> Tensor:
        before, after = (_side_by_side(maps[start : start + size], size) for maps in (inputs, outputs))
        return backward(before, after, settings, size)[0].view(size, *settings.shape)[: count - start]

    if count <= size:
        return Rows(piece(0))
    rows = outputs.new_empty(count, *settings.shape)
    for start in range(0, count, size):
        rows[start : start + size] = piece(start)
    return Rows(rows)


def _side_by_side(maps: Tensor, size: int) -> Tensor:
    """All channels of all examples as channels of one, with zeros for examples up to `size`."""
    if len(maps) < size:
        maps = torch.cat([maps, maps.new_zeros(size - len(maps), *maps.shape[1:])])
    return maps.reshape(1, -1, *maps.shape[2:])


def backward(
    inputs: Tensor, outputs: Tensor, settings: Settings, count: int, *, has_bias: bool = False
) -> tuple[Tensor, Tensor | None]:
    """torch's own gradient of the weight, for `count` examples side by side, and of the bias."""
    padding = [before for before, _ in settings.padding]
    if any(before != after for before, after in settings.padding):
        inputs, padding = settings.padded(inputs), [0] * len(padding)
    weight = outputs.new_empty(1).expand(count * settings.shape[0], *settings.shape[1:])
    _, found, bias = torch.ops.aten.convolution_backward(
        outputs, inputs, weight, settings.shape[:1] if has_bias else None, settings.stride, padding, settings.dilation,
        settings.transposed, settings.output_padding, count * settings.groups, [False, True, has_bias],
    )  # fmt: skip
    return found, bias


@dataclass(frozen=True)
class LastRows(Rows):
    """Rows whose weights are stored with the input channel last."""

    shape: tuple[int, ...]

    def _turned(self, flat: Tensor) -> Tensor:
        outside, inside, *kernel = self.shape
        return flat.unflatten(-1, (outside, *kernel, inside)).movedim(-1, flat.ndim)

    def rows(self) -> Tensor:
        """Each example's gradient."""
        return self._turned(self.values)

    def weighted(self, factors: Tensor, *, scratch: bool = False) -> Tensor:
        """The sum over examples of factor times gradient."""
        return self._turned(factors.to(self.values.dtype) @ self.values)

    def without(self, broken: Tensor) -> Rows:
        """The same with zeros for the broken examples."""
        return LastRows(blanked(self.values, broken), self.shape)

    def grouped(self, index: Tensor, present: Tensor) -> Rows:
        """The same with the examples of one unit added up."""
        return LastRows(Rows(self.values).grouped(index, present).values, self.shape)


def windows(inputs: Tensor, outputs: Tensor, settings: Settings) -> Rows:
    """The input's windows times the output gradients, a few examples at a time."""
    (height, width), (down, right), (tall, wide) = settings.shape[2:], settings.stride, outputs.shape[2:]
    last = settings.padded(inputs).permute(0, 2, 3, 1).contiguous()
    view = last.unfold(1, height, down).unfold(2, width, right)[:, :tall, :wide].permute(0, 1, 2, 4, 5, 3)
    weights = torch.Size(settings.shape[1:]).numel()
    rows = outputs.new_empty(len(inputs), settings.shape[0], weights)
    flat = outputs.flatten(2)
    for few in _few(len(inputs), tall * wide * weights):
        torch.bmm(flat[few], view[few].reshape(-1, tall * wide, weights), out=rows[few])
    return LastRows(rows.flatten(1), settings.shape)


def _few(count: int, elements: int) -> Iterator[slice]:
    """Examples by as many as give a piece that fits the cache."""
    size = max(1, _PIECE // elements)
    return (slice(start, start + size) for start in range(0, count, size))


@dataclass(frozen=True)
class Correlation:
    """Input and output gradients of a convolution; norms without the gradients themselves."""

    inputs: Tensor
    outputs: Tensor
    settings: Settings
    in_pieces: bool = False  # make the gradients of a few examples at a time instead of pairs of pixels
    scales_outputs: ClassVar[bool] = True

    @property
    def has_bias(self) -> bool:
        """Whether the bias is measured too."""
        return False

    def _from_pieces(self) -> Tensor:
        pieces = _few(len(self.inputs), torch.Size(self.settings.shape).numel())
        rows = (windows(self.inputs[few], self.outputs[few], self.settings) for few in pieces)
        return torch.cat([squared(some.values) for some in rows])

    def _from_pairs(self, inputs: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Squared norms, and |X|^2 |G|^2."""
        before, size = self._of_windows(inputs)
        return self._together(before, size, outputs)

    def _together(self, before: Tensor, size: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Squared norms from the pairs before and after the layer, and |X|^2 |G|^2."""
        after = _pairs(outputs)
        terms = size * after.diagonal(dim1=1, dim2=2).sum(1)
        return dots(before, pixel_pairs.once(after) if self._is_small() else after), terms

    def _is_small(self) -> bool:
        return pixel_pairs.is_small(self.inputs.shape[2:], self.outputs.shape[2:])

    def _of_windows(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The products of all pairs of windows, and |X|^2: what depends on the input alone."""
        count, total = len(inputs), _pairs(inputs)
        size = total.diagonal(dim1=1, dim2=2).sum(1)
        if self._is_small():
            places, folding = self._folding()
            return self._folded(total.flatten(1).index_select(1, places), folding), size
        total = total.view(count, *inputs.shape[2:], *inputs.shape[2:])
        for axis in (0, 1):
            total = self._over_offsets(total, axis, self.outputs.shape[2 + axis])
        return total, size

    def _folded(self, pairs: Tensor, folding: Tensor) -> Tensor:
        """From pairs of pixels to pairs of windows."""
        return pairs @ folding

    def _folding(self) -> tuple[Tensor, Tensor]:
        settings, zeros = self.settings, tuple([before for before, _ in self.settings.padding])
        return pixel_pairs.of_windows(
            tuple(self.inputs.shape[2:]), tuple(self.outputs.shape[2:]), settings.shape[2:], settings.stride, zeros,
            self.inputs.dtype, self.inputs.device,
        )  # fmt: skip

    def _most_pairs(self) -> int:
        """Of pixels of one example, before or after."""
        most = max(self.inputs.shape[2:].numel(), self.outputs.shape[2:].numel())
        return most * most

    def _over_offsets(self, pairs: Tensor, axis: int, size: int) -> Tensor:
        """From pairs of the input's pixels to pairs of the output's along an axis, summed over the kernel's offsets."""
        places = self._inside(axis, pairs.shape[1 + axis], size)
        total = _both(pairs, axis, places[0][1])
        if total.shape[1 + axis] < size:  # at no offset do all output pixels lie over the input
            shape = [size if at % 2 == axis else length for at, length in enumerate(pairs.shape[1:])]
            total = pairs.new_zeros(len(pairs), *shape)
        elif len(places) > 1:
            total = total.clone(memory_format=torch.contiguous_format)
            del places[0]
        else:
            return total
        for after, before in places:
            _both(total, axis, after).add_(_both(pairs, axis, before))
        return total

    def _inside(self, axis: int, pixels: int, size: int) -> list[tuple[slice, slice]]:
        """For each offset: output pixels whose input pixel is not of the zeros around, and those; most pixels first."""
        step, (zeros, _) = self.settings.stride[axis], self.settings.padding[axis]
        found = []
        for offset in range(self.settings.shape[2 + axis]):
            first = max(0, -((offset - zeros) // step))
            last = min(size - 1, (pixels - 1 + zeros - offset) // step)
            start, stop = first * step + offset - zeros, last * step + offset - zeros + 1
            found.append((slice(first, max(first, last + 1)), slice(start, max(start, stop), step)))
        return sorted(found, key=lambda pair: pair[0].start - pair[0].stop)

    def rows(self) -> Tensor:
        """Each example's gradient."""
        return grouped(self.inputs, self.outputs, self.settings).values

    def weighted(self, factors: Tensor, *, scratch: bool = False) -> Tensor:
        """The sum over examples of factor times gradient."""
        outputs = scaled(self.outputs, factors[:, None, None, None], scratch=scratch)
        return backward(self.inputs, outputs, self.settings, 1)[0]

    def held(self) -> tuple[Tensor, ...]:
        """The tensors that it keeps alive."""
        return self.inputs, self.outputs

    def take(self, index: Tensor) -> Correlation:
        """The same for some of the examples."""
        return replace(self, inputs=self.inputs[index], outputs=self.outputs[index])

    def measure(self, shared: Shared) -> tuple[Tensor, Tensor | None]:
        """Squared norms, and the size of what they are summed from."""
        if self.in_pieces:
            return self._from_pieces(), None
        pieces = list(_few(len(self.inputs), self._most_pairs()))
        if len(pieces) == 1:
            return self._from_pairs(self.inputs, self.outputs)
        found = [self._from_pairs(self.inputs[few], self.outputs[few]) for few in pieces]
        squares, terms = (torch.cat(some) for some in zip(*found, strict=True))
        return squares, terms

    def without(self, broken: Tensor) -> Correlation:
        """The same with zeros for the broken examples."""
        return replace(self, inputs=blanked(self.inputs, broken), outputs=blanked(self.outputs, broken))

    def grouped(self, index: Tensor, present: Tensor) -> Rows:
        """The same with the examples of one unit added up."""
        return Rows(self.rows()).grouped(index, present)


def _both(pairs: Tensor, axis: int, chosen: slice) -> Tensor:
    """Some rows (axis 0) or columns (axis 1) of both pixels."""
    return pairs[:, chosen, :, chosen] if axis == 0 else pairs[:, :, chosen, :, chosen]


def _pairs(maps: Tensor) -> Tensor:
    """The products of all pairs of pixels, summed over channels."""
    flat = maps.flatten(2)
    return flat.mT @ flat
