"""Calls of torch functions that stand for a whole layer or loss: parts of the batch in every operand, odd axes.

All sizes are those of the batch where torch allows it, so that a layout that was guessed from sizes would be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from op_calls import DOUBLE, Call, World
from torch import Tensor

from hush.gradients.layout import Layout, mark

FIRST = Layout(0)


def either(w: World, *shape: int) -> list[Tensor]:
    """Return a constant, and tensors with the examples on each axis of their number."""
    axes = [axis for axis, size in enumerate(shape) if size == w.count]
    return [w.const(*shape), *(w.batch(*shape, layout=Layout(axis)) for axis in axes)]


def convolution(places: int, *, transposed: bool) -> Callable[[World], Iterator[Call]]:
    def calls(w: World) -> Iterator[Call]:
        B = w.count
        inputs = [w.batch(B, B, *[4] * places), w.batch(B, *[4] * places), *either(w, B, B, *[B] * places)]
        inputs.append(w.batch(2 * B, B, *[4] * places, layout=Layout(0, 1, 2)))
        for x in inputs:
            for weight in (
                w.const(B, B, *[2] * places),
                w.const(2, B, *[1] * places),
                *either(w, B, B, *[1] * places)[1:],
            ):
                for bias in (None, w.const(B), w.batch(B)):
                    yield (x, weight, bias), {}
                    yield (x,), {"weight": weight, "bias": bias}
                yield (x, weight, None, 2, 1), {}
                yield (x, weight), {"padding": 1 if transposed else "same"}
            grouped = w.const(B, 1, *[2] * places)
            yield (x, grouped), {"groups": B}
        x = w.batch(B, B, *[B] * places)
        yield (x, x), {}
        yield (), {"input": x, "weight": w.const(B, B, *[1] * places)}

    return calls


def spatial(*options: tuple[Any, ...]) -> Callable[[World], Iterator[Call]]:
    """Pools, pads, resizes: (channels, extent, arguments) for one, two and three axes of places."""

    def calls(w: World) -> Iterator[Call]:
        B = w.count
        for places in (1, 2, 3):
            for channels in (B, 4 * B, 8):
                inputs = [
                    w.batch(B, channels, *[4] * places),
                    w.batch(B, *[4] * places),
                    w.batch(B, channels, *[B] * places),
                ]
                inputs.append(w.batch(2 * B, channels, *[4] * places, layout=Layout(0, 2, 1)))
                inputs += either(w, B, channels, *[B] * places)[2:]
                for x in inputs:
                    for option in options:
                        filled = [value * places if isinstance(value, list) else value for value in option]
                        pads = [value * (2 * places) if value == (1,) else value for value in filled]
                        yield (x, *pads), {}
                        yield (x, *option), {}

    return calls


def unpool(w: World) -> Iterator[Call]:
    B = w.count
    for shape in ((B, B, 2, 2), (B, 2, 2), (B, B, 2, 2, 2), (B, 2, 2, 2)):
        places = 3 if len(shape) == 5 or (len(shape) == 4 and shape[1] == 2) else 2
        index = torch.arange(2**places).view([2] * places).expand(shape).clone()
        marked = index.clone()
        mark(marked, FIRST)
        rest: tuple[Any, ...] = ([4] * places,) if places == 2 else ([4] * places, [2] * places, [0] * places)
        for numbers in (index, marked):
            yield from (((w.batch(*shape), numbers, *rest), {}), ((w.const(*shape), numbers, *rest), {}))


def grid(w: World) -> Iterator[Call]:
    B = w.count
    for places in (2, 3):
        for x in (w.batch(B, 2, *[3] * places), w.const(B, 2, *[3] * places), *either(w, B, B, *[B] * places)):
            for points in (w.batch(B, *[2] * places, places), w.const(B, *[2] * places, places)):
                for mode in (0, 1):
                    yield (x, points, mode, 0, False), {}


def affine(w: World) -> Iterator[Call]:
    B = w.count
    for theta in either(w, B, 2, 3):
        yield (theta, [B, 2, B, B], False), {}
        yield (theta, [B, B, 2, 2], True), {}
    yield (w.batch(B, 3, 4), [B, 2, 2, 2, 2], False), {}


def group_norm(w: World) -> Iterator[Call]:
    B = w.count
    for x in (w.batch(B, B, 4), w.batch(B, B), *either(w, B, B, B)):
        for weight in (None, w.const(B), w.batch(B)):
            for bias in (None, w.const(B), w.batch(B)):
                yield (x, 1, weight, bias), {}
                yield (x, B), {"weight": weight, "bias": bias}


def instance_norm(w: World) -> Iterator[Call]:
    B = w.count
    for x in (w.batch(B, B, 4), w.batch(B, B), *either(w, B, B, B)):
        for stats in (None, w.const(B), w.batch(B)):
            for weight in (None, w.const(B), w.batch(B)):
                for uses_input in (True, False):
                    yield (x, weight, None, stats, stats, uses_input, 0.1, 1e-5, False), {}


def batch_norm(w: World) -> Iterator[Call]:
    B = w.count
    for x in (w.batch(B, B, 4), w.batch(B, B), w.batch(B), *either(w, B, B, B)):
        for stats in (w.const(B), w.batch(B)):
            for weight in (None, w.const(B), w.batch(B)):
                for training in (True, False):
                    yield (x, weight, None, stats, stats, training, 0.1, 1e-5, False), {}
                yield (
                    (x, weight, None, stats, stats),
                    {"training": True, "momentum": 0.1, "eps": 1e-5, "cudnn_enabled": False},
                )


def classes(*before: Any) -> Callable[[World], Iterator[Call]]:
    """Losses of scores and class numbers."""

    def calls(w: World) -> Iterator[Call]:
        B = w.count
        labels = [
            w.below(B, B, layout=FIRST),
            w.below(B, B),
            w.below(B, B, B, layout=FIRST),
            w.below(B, B, B, layout=Layout(1)),
            w.below(B, B, 2, 2, layout=FIRST),
            w.below(1, B, B, layout=FIRST),
        ]
        scores = [*either(w, B, B), w.batch(B, B, B), w.batch(B, B, 2, 2), w.batch(B), w.const(B, B, B)]
        for x in scores:
            for y in (*labels, w.batch(B, B), w.batch(B, B, layout=Layout(1)), w.const(B, B), w.batch(B, B, B)):
                for weight in (None, w.const(B), w.batch(B)):
                    yield (x, y, weight, 0, -100, 0.1), {}
                    yield (x, y, weight, 0, 1), {}
                    yield (x, y, weight, 0), {}
                    yield (x, y, 1, 1.0, weight, 0), {}
                    for way in ("none", "mean", "sum"):
                        yield (x, y), {"weight": weight, "reduction": way}
                    yield (x, y, weight), {"reduction": "none", "label_smoothing": 0.1, "ignore_index": 1}
                    yield (x, y), {"weight": weight, "ignore_index": 0, "reduction": "none"}
                yield (x, y, 0), {}
                yield (x, y, 1), {}
        yield (), {"input": scores[0], "target": labels[0], "reduction": "none"}

    return calls


def linear(w: World) -> Iterator[Call]:
    B = w.count
    for x in (*either(w, B, B), w.batch(B), *either(w, 2, B, B), w.batch(B * 2, 3, layout=Layout(0, 2, 1))):
        for weight in (w.const(2, x.shape[-1]), w.const(B, x.shape[-1]), w.const(x.shape[-1]), *either(w, B, B)[1:]):
            for bias in (None, w.const(weight.shape[0]) if weight.ndim > 1 else None, w.batch(B), w.const(1)):
                yield (x, weight, bias), {}
                yield (x, weight), {"bias": bias}
    x = w.batch(B, B)
    yield from (((x, x), {}), ((), {"input": x, "weight": w.const(B, B)}))


def normalising(w: World) -> Iterator[Call]:
    B = w.count
    for x in (*either(w, B, B), *either(w, B, B, B), w.batch(2 * B, B, layout=Layout(0, 1, 2))):
        for depth in (1, 2):
            size = list(x.shape[-depth:])
            for weight in (None, w.const(*size), w.batch(*size) if size[0] == B else None):
                yield from (((x, size, weight), {}), ((x, size), {"weight": weight}), ((x, size, weight, weight), {}))
                yield (x,), {"normalized_shape": size, "weight": weight}


def padding(w: World) -> Iterator[Call]:
    for x in (
        w.batch(),
        w.batch(w.count, 3, 3),
        w.batch(3, w.count, 3, layout=Layout(1)),
        w.batch(2, 3, w.count, layout=Layout(2)),
    ):
        for pads in ([1, 1], [0, 1, 1, 0], [0, 0, 1, 0], [1, 0, 0, 0, 0, 1], [0, 0, 0, 0, 1, 0], [-1, 1], [0, 0]):
            yield from (((x, pads), {}), ((x, pads, "reflect"), {}), ((x, pads, "circular"), {}), ((x, pads, 0.5), {}))
            yield from (((x,), {"pad": pads}), ((x, pads), {"mode": "replicate"}), ((x, pads, "constant", 0.5), {}))


def embedding(w: World) -> Iterator[Call]:
    B = w.count
    for index in (w.below(B, B, layout=FIRST), w.below(B, B, B, layout=Layout(1)),
                  w.below(B, 2 * B, layout=Layout(0, 2, 1)), w.below(B, B)):  # fmt: skip
        for table in (w.const(B, B), w.const(B, 2), *either(w, B, B)[1:]):
            yield from (((table, index), {}), ((table, index, 0, False, False), {}), ((table,), {"indices": index}))


def attention(w: World) -> Iterator[Call]:
    B = w.count
    for shape in ((B, B, B, B), (B, 2, 3, 4), (2, B, 3, 4), (B, 3, 4), (2, 3, B, B)):
        queries = either(w, *shape)
        for q in queries:
            for k in queries:
                for v in (k, queries[-1]):
                    yield (q, k, v), {}
        x = queries[1]
        line = [1] * len(shape)
        line[x._hush_layout.axis] = B  # type: ignore[attr-defined]
        own = w.batch(*line[:-1], shape[-2], layout=x._hush_layout) if x._hush_layout.axis < len(shape) - 2 else x  # type: ignore[attr-defined]
        for mask in (
            w.const(shape[-2], shape[-2]),
            own,
            w.batch(B, B),
            w.batch(B, B, layout=Layout(1)),
            *either(w, B, B, B, B),
        ):
            yield from (((x, x, x, mask), {}), ((x, x, x), {"attn_mask": mask}), ((x, x, x, mask, 0.5), {}))
        yield from (((x, x, x, None, 0.0, True), {}), ((x, x, x), {"is_causal": True, "scale": 0.5}))
        yield (), {"query": x, "key": x, "value": x}
    for heads, shared in ((2 * B, B), (B, 1), (4, 2)):
        for q in (*either(w, B, heads, 3, 4), w.batch(B, heads, 3, 4)):
            for k in (
                *either(w, B, shared, 3, 4),
                w.batch(2, shared, 3, 4, layout=Layout(1)) if shared == B else w.const(B, shared, 3, 4),
            ):
                yield (q, k, k), {"enable_gqa": True}
    yield (w.const(2, 2 * B, 3, 4), *[w.batch(2, B, 3, 4, layout=Layout(1))] * 2), {"enable_gqa": True}


def recurrent(gates: int, num_states: int) -> Callable[[World], Iterator[Call]]:
    def calls(w: World) -> Iterator[Call]:
        B = w.count
        for x in (
            *either(w, B, B, B),
            w.batch(3, B, B, layout=Layout(1)),
            w.batch(3, 2 * B, B, layout=Layout(1, 2, 1)),
        ):
            for batch_first in (True, False):
                size = x.shape[0 if batch_first else 1]
                for start in (
                    w.const(2, size, B),
                    w.batch(2, size, B, layout=Layout(1)) if size == B else w.const(2, size, B),
                    w.batch(2, size, B, layout=Layout(2)),
                ):
                    for first in (w.const(gates * B, B), w.batch(gates * B, B, layout=Layout(1))):
                        weights = [first, w.const(gates * B, B), w.const(gates * B), w.const(gates * B)]
                        states: Any = [start] * num_states if num_states > 1 else start
                        yield (x, states, [*weights, *weights], True, 2, 0.0, True, False, batch_first), {}
                        yield (x, states, [*weights, *weights], True, 1, 0.0, False, True, batch_first), {}
                        if num_states > 1:
                            yield (
                                (
                                    x,
                                    [start, w.const(2, size, B)],
                                    [*weights, *weights],
                                    True,
                                    2,
                                    0.5,
                                    True,
                                    False,
                                    batch_first,
                                ),
                                {},
                            )
        packed, sizes = w.batch(2 * B, B, layout=Layout(0, 2, 1)), torch.tensor([B, B])
        weights = [w.const(gates * B, B), w.const(gates * B, B), w.const(gates * B), w.const(gates * B)]
        start = w.const(1, B, B)
        yield (
            (packed, sizes, [start] * num_states if num_states > 1 else start, weights, True, 1, 0.0, False, False),
            {},
        )

    return calls


def slopes(w: World) -> Iterator[Call]:
    B = w.count
    for x in (*either(w, B, B), *either(w, B, B, B), w.batch(B)):
        x[..., 0], x[..., -1] = 0, -1
        for slope in (w.const(1), w.const(B), w.batch(B)):
            yield from (((x, slope), {}), ((x,), {"weight": slope}))


def bags(w: World) -> Iterator[Call]:
    B = w.count
    index = w.below(B, B, 3, layout=FIRST)
    for numbers in (index, w.below(B, 3, B, layout=Layout(1)), w.below(B, B, 3)):
        for table in (w.const(B, B), w.const(B, 2)):
            yield from (
                ((numbers, table), {}),
                ((numbers, table), {"mode": "max"}),
                ((numbers, table), {"padding_idx": 1}),
            )
            yield (numbers, table), {"mode": "sum", "per_sample_weights": w.batch(B, 3)}
            yield (numbers, table), {"mode": "sum", "per_sample_weights": w.const(*numbers.shape)}
            yield (numbers.flatten(), table, torch.arange(B)), {}


def bilinear(w: World) -> Iterator[Call]:
    B = w.count
    for one in either(w, B, B):
        for other in either(w, B, B):
            for bias in (None, w.const(2)):
                yield (one, other, w.const(2, B, B), bias), {}
                yield (one, other), {"weight": w.const(2, B, B), "bias": bias}


def fold(w: World) -> Iterator[Call]:
    for shape in ((w.count, 4, 4), (4, 4, w.count), (4, 4), (w.count, 8, 4)):
        for x in either(w, *shape) if w.count in shape else [w.batch(w.count, 4, w.count, layout=Layout(2))]:
            yield (x, [4, 4], [2, 2], [1, 1], [0, 0], [2, 2]), {}
            yield (
                (x,),
                {"output_size": [4, 4], "kernel_size": [2, 2], "dilation": [1, 1], "padding": [0, 0], "stride": [2, 2]},
            )


def broadcast(w: World) -> Iterator[Call]:
    x, y, n = w.batch(), w.batch(), w.narrow()
    for parts in ([x, n], [n, x], [x, y], [x], [w.batch(w.count), w.const(2, w.count)], [x, w.turned()]):
        yield from (((parts,), {}), ((*parts,), {}))


def last_axis(w: World) -> Iterator[Call]:
    index, wide = w.batch(dtype=torch.int64), w.batch(dtype=torch.complex128)
    yield from (((index,), {}), ((index, -1), {}), ((index, 5), {}), ((index,), {"num_classes": 5}), ((wide,), {}))
    for axis in range(3):
        pairs = [2, 2, 2]
        if w.count == 2:
            yield (w.batch(*pairs, layout=Layout(axis)),), {}
    yield (w.batch(w.count, 2, dtype=DOUBLE),), {}


SPATIAL = spatial(
    (2,),
    (1,),
    ([2],),
    ([4],),
    ((1,),),
    ([8], None),
    ([8], False, None),
    ([8], True, None),
    ([2], [1], [0], [1]),
    ([2], [2], [0], [1], False),
    (2, 1, 0, 1, False, True),
    ([4], [2], [1], [0], [1]),
)
