"""Calls of torch functions with parts of a batch among their operands: many argument forms, shapes and layouts.

A call is (args, kwargs). Tensors that depend on the batch carry a mark that says where the examples lie. A call that
torch rejects is no harm: the test skips it, so that one list of forms can serve every function of a table.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from hush.gradients.layout import Layout, mark

Call = tuple[tuple[Any, ...], dict[str, Any]]
DOUBLE, LONG = torch.float64, torch.int64


class World:
    """One batch size and one shape with the examples on one axis of it, and tensors to make calls of."""

    def __init__(self, seed: int, count: int, shape: tuple[int, ...], layout: Layout) -> None:
        self.rng, self.count, self.shape, self.layout = random.Random(seed), count, shape, layout
        self.generator = torch.Generator().manual_seed(seed)

    def begin(self, key: str) -> None:
        """Draw the same numbers for this key, whatever was drawn before."""
        self.rng.seed(key)
        self.generator.manual_seed(self.rng.getrandbits(60))

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def const(self, *shape: int, dtype: torch.dtype = DOUBLE) -> Tensor:
        """Return numbers between 0.1 and 0.9, small whole numbers, or truth values."""
        size = shape or self.shape
        if dtype == torch.bool:
            return torch.rand(size, generator=self.generator) < 0.5
        if not dtype.is_floating_point and not dtype.is_complex:
            return torch.randint(0, max(1, min(size, default=1)), size, generator=self.generator, dtype=dtype)
        values = 0.1 + 0.8 * torch.rand(size, generator=self.generator, dtype=DOUBLE)
        signs = torch.where(torch.rand(size, generator=self.generator) < self.negative, -1.0, 1.0)
        return (values * signs).to(dtype)

    negative = 0.0  # the share of negative numbers

    def batch(self, *shape: int, dtype: torch.dtype = DOUBLE, layout: Layout | None = None) -> Tensor:
        tensor = self.const(*shape, dtype=dtype)
        mark(tensor, layout if layout is not None else Layout(0) if shape else self.layout)
        return tensor

    def below(self, bound: int, *shape: int, layout: Layout | None = None) -> Tensor:
        """Return whole numbers below a bound, of the batch if a layout is given."""
        tensor = torch.randint(0, max(bound, 1), shape, generator=self.generator)
        if layout is not None:
            mark(tensor, layout)
        return tensor

    def turned(self, dtype: torch.dtype = DOUBLE) -> Tensor:
        """Return a tensor of the same shape with the examples on another axis, where an axis has their number."""
        axes = [axis for axis, size in enumerate(self.shape) if size == self.count and axis != self.layout.axis]
        return self.batch(dtype=dtype, layout=Layout(self.rng.choice(axes)) if axes else None)

    def narrow(self, dtype: torch.dtype = DOUBLE) -> Tensor:
        """Return a constant that broadcasting widens."""
        size = tuple(size if self.rng.random() < 0.5 else 1 for size in self.shape)
        return self.const(*size[self.rng.randrange(self.ndim) :], dtype=dtype)

    def axis(self) -> int:
        return self.rng.randrange(-self.ndim, self.ndim)

    def axes(self) -> list[int]:
        chosen = self.rng.sample(range(self.ndim), self.rng.randint(1, self.ndim))
        return [axis - self.ndim if self.rng.random() < 0.3 else axis for axis in chosen]

    def order(self) -> list[int]:
        return self.rng.sample(range(self.ndim), self.ndim)


def worlds(seed: int) -> Iterator[World]:
    """Yield worlds of several shapes; in many of them other axes are as long as the batch, or have length 1."""
    for number, world in enumerate(_shapes(seed)):
        world.negative = 0.4 if number % 3 == 1 else 0.0
        yield world


def _shapes(seed: int) -> Iterator[World]:
    rng = random.Random(seed)
    for count in (2, 3, 4):
        three = (count,) * 3
        yield World(rng.random().__hash__(), count, (count, rng.choice([1, 2, 3, count])), Layout(0))
        yield World(rng.random().__hash__(), count, three, Layout(rng.randrange(3)))
        yield World(rng.random().__hash__(), count, (rng.choice([1, 2, count]), 2, count), Layout(2))
        yield World(rng.random().__hash__(), count, (rng.choice([2, count]), count), Layout(1))
        outer, inner = rng.choice([(2, 1), (1, 2), (2, 2), (count, 1)])
        merged = [2, count, 1]
        axis = rng.randrange(3)
        merged[axis] = outer * count * inner
        yield World(rng.random().__hash__(), count, tuple(merged), Layout(axis, outer, inner))
        yield World(rng.random().__hash__(), count, (count,), Layout(0))
        yield World(rng.random().__hash__(), count, (count,) * 4, Layout(rng.randrange(4)))


# --- forms of element-wise functions ------------------------------------------------------------------------------


def pointwise_calls(w: World) -> Iterator[Call]:
    x, y, z, c, n = w.batch(), w.batch(), w.batch(), w.const(), w.narrow()
    m, k = w.batch(dtype=torch.bool), w.const(dtype=torch.bool)
    i, j = w.batch(dtype=LONG), w.const(dtype=LONG)
    wide = w.batch(dtype=torch.complex128)
    positional: list[tuple[Any, ...]] = [
        (x,), (i,), (m,), (wide,), (x, x), (x, y), (x, c), (c, x), (x, n), (n, x), (x, w.turned()), (i, j), (j, i),
        (i, w.turned(LONG)), (m, k), (m, w.turned(torch.bool)), (x, 0.5), (0.5, x), (x, 2), (i, 2), (2, x), (2, i),
        (x, y, z), (x, c, y), (c, x, n), (c, n, x), (x, y, 0.5), (x, 0.1, 0.8), (x, y, w.turned()), (m, x, y),
        (m, c, n), (k, x, c), (k, x, w.turned()), (x, m, y), (x, m, c), (c, m, x), (x, m, 0.5), (c, m, 0.5),
        (m, x, 0.0), (m, 0.0, 1.0), (x, k, 0.5), (x, w.turned(torch.bool), 0.5), (x, torch.float32), (x, torch.int64),
        (x, i), (i, x), (c, w.turned()), (x, 0.3, True), (x, 0.3, False), (x, c, n), (x, 0.2, 0.4, True),
        (x, torch.tensor(0.5, dtype=DOUBLE)), (torch.tensor(0.5, dtype=DOUBLE), x), (x, "cpu"), (wide, wide),
    ]  # fmt: skip
    yield from ((args, {}) for args in positional)
    loss: dict[str, Any] = {"reduction": "none"}
    yield from (((a, b), loss) for a, b in ((x, y), (x, c), (c, y), (x, n), (x, w.turned())))
    yield from (((x, y), {"reduction": way}) for way in ("mean", "sum", "batchmean"))
    yield from (((x, y, z), loss), ((x, y, n), loss), ((x, y), {"weight": n, **loss}), ((x, c, y), loss))
    yield from (((x, y), {"weight": z, **loss}), ((x, y), {"pos_weight": n, **loss}))
    yield from (((x,), {"min": y}), ((x,), {"max": c, "min": 0.2}), ((x,), {"min": w.turned()}), ((x,), {"other": y}))
    yield from (((x, y), {"alpha": 2}), ((x, y, z), {"value": 0.5}), ((x, y), {"rounding_mode": "floor"}))
    yield from (((x,), {"weight": y, "end": z}), ((x,), {"inplace": True}), ((x,), {"p": 0.5, "training": True}))
    yield from (((x,), {"dtype": torch.float32}), ((x, 0.5), {"training": False}), ((x,), {"value": 0.5, "mask": m}))
    yield from (((x, 0.5), {"train": True}), ((x,), {"other": w.turned()}), ((m,), {"input": x, "other": y}))
    for way in (0, 1, 2):  # reductions of the functions below torch.nn.functional: none, mean, sum
        yield from (((x, y, way), {}), ((x, y, None, way), {}), ((x, y, None, None, way), {}), ((x, y, n, way), {}))
        yield from (((x, y, True, False, 1e-8, way), {}), ((x, y, way, 0.5), {}), ((x, y, 0.5, way), {}))
    yield (), {"input": x, "other": y}
    yield (), {"condition": m, "input": x, "other": y}


# --- forms of functions that move, choose, reduce or work along axes ----------------------------------------------


def axis_calls(w: World) -> Iterator[Call]:
    """Axes by position and by either name, negative and several, with the flags of the many overloads."""
    for x in (w.batch(), w.batch(dtype=LONG), w.batch(dtype=torch.bool), w.batch(dtype=torch.complex128)):
        yield (x,), {}
        for axis in range(-w.ndim, w.ndim):
            yield (x, axis), {}
            yield (x,), {"dim": axis}
            yield (x,), {"axis": axis}
        a, b, axes = w.axis(), w.axis(), w.axes()
        for extra in (a, axes, tuple(axes)):
            yield from (((x, extra, True), {}), ((x, extra, False), {}), ((x, extra), {"keepdim": True}))
            yield from (((x,), {"dim": extra, "keepdim": True}), ((x,), {"axis": extra, "keepdims": True}))
            yield from (((x, 2, extra), {}), ((x, 2, extra, True), {}), ((x, 2), {"dim": extra}), ((x, 1, extra), {}))
            yield from (((x, 2.0, extra), {}), ((x, "fro", extra), {}), ((x,), {"p": 1, "dim": extra}))
            yield from (((x,), {"ord": 1, "dim": extra}), ((x, 1), {"axis": extra}), ((x, float("inf"), extra), {}))
            yield from (((x, extra, True, True), {}), ((x, extra), {"correction": 0}), ((x, extra), {"unbiased": True}))
            yield from (((x,), {"dim": extra, "descending": True}), ((x,), {"stable": True, "dim": extra}))
            yield from (
                ((x,), {"axis": extra, "stable": True, "descending": True}),
                ((x, extra, False), {"stable": True}),
            )
            yield from (((x, 1), {"dim": extra}), ((x,), {"k": 1, "axis": extra}), ((x,), {"n": 1, "dim": extra}))
            yield from (((x, extra), {"dtype": DOUBLE}), ((x, extra, 3, DOUBLE), {}), ((x, None, extra), {}))
            yield from (
                ((x, None, extra, "ortho"), {}),
                ((x, w.count, extra), {}),
                ((x,), {"stable": True, "axis": extra}),
            )
        yield from (((x, a, b), {}), ((x, (a,), (b,)), {}), ((x, True), {}), ((x, False), {}), ((x, 0, 1), {}))
        yield from (((x,), {"dim": ()}), ((x,), {"dim": None}), ((x, []), {}), ((x,), {"dim": True}))
        yield from (((x, torch.tensor(0)), {}), ((x, 1, -1, x), {}), ((x, 1, a, w.const(), w.const()), {}))
        yield from (((x,), {"dim0": a, "dim1": b}), ((x, 5), {}), ((x, -1), {}), ((x,), {"num_classes": 5}))
    x, y, c = w.batch(), w.batch(), w.const()
    yield from (((x, y), {}), ((x, c), {}), ((c, x), {}), ((x, w.turned()), {}), ((x, w.narrow()), {}))
    yield from (((x,), {"other": y}), ((x,), {"prepend": c, "dim": w.axis()}), ((x,), {"append": w.turned()}))


def structure_calls(w: World) -> Iterator[Call]:
    """Sizes, orders, shifts, joins and cuts."""
    x, y, c = w.batch(), w.batch(), w.const()
    a, b, order, numel = w.axis(), w.axis(), w.order(), x.numel()
    size = w.shape[a]
    yield from (((x, order), {}), ((x, *order), {}), ((x, a, b), {}), ((x, (a,), (b,)), {}), ((x, a, b, 0), {}))
    yield from (((x, a, 0), {}), ((x, a, size - 1), {}), ((x, a, 0, size), {}), ((x, a, 0, 1), {}))
    yield from (((x, 1, a), {}), ((x, 2, a), {}), ((x, 1, a), {}), ((x, size, a), {}), ((x, w.count), {}))
    yield from (((x, [1, size - 1], a), {}), ((x, (size,), a), {}), ((x, 2), {"dim": a}), ((x, [1]), {"dim": a}))
    yield from (((x, w.axes()), {}), ((x, 1, w.axis()), {}), ((x, (1, 2), (a, b)), {}), ((x, 1), {}), ((x,), {}))
    yield from (((x, a, 2, 1), {}), ((x, a, 1, 1), {}), ((x, a, size, 1), {}), ((x, 1, (a, b)), {}), ((x, 0, a, b), {}))
    reps = [w.rng.choice([1, 1, 2]) for _ in w.shape]
    yield from (((x, reps), {}), ((x, *reps), {}), ((x, [2, *reps]), {}), ((x, 2, *reps), {}))
    yield from (((x, 2, a), {}), ((x, w.const(size, dtype=LONG), a), {}), ((x, w.below(3, size), a), {}))
    yield from (((x, w.below(3, size, layout=Layout(0)), a), {}), ((x,), {"repeats": 2, "dim": a}), ((x.long(),), {}))
    yield (w.batch(dtype=LONG),), {}
    wide = [2, *w.shape]
    yield from (((x, wide), {}), ((x, *wide), {}), ((x, [-1] * w.ndim), {}), ((x, w.const(*wide)), {}))
    yield from (((x, y), {}), ((c, x), {}), ((x, w.batch(*wide, layout=Layout(w.layout.axis + 1))), {}))
    shapes = [(numel,), (1, numel), (numel, 1), (*w.shape, 1), (1, *w.shape), tuple(reversed(w.shape)),
              (w.count, numel // w.count), (numel // w.count, w.count), (-1,), (w.shape[0], -1)]  # fmt: skip
    for shape in shapes:
        yield from (((x, shape), {}), ((x, *shape), {}), ((x, w.const(*shape) if -1 not in shape else c), {}))
        yield (x, a, shape), {}
    yield from (((x, a, (1, size)), {}), ((x, a, (-1, 1)), {}), ((x, torch.int64), {}), ((x, torch.float32), {}))
    yield from (((x, min(a, b), max(a, b)), {}), ((x, 0, -1), {}), ((x,), {"start_dim": 0, "end_dim": a}))
    yield from (((x,), {"end_dim": a, "start_dim": b}), ((x,), {"memory_format": torch.contiguous_format}))
    for parts in ([x, y], [x, c], [c, x], [x, w.turned()], (x, y, c), [x], [x, x]):
        yield from (((parts,), {}), ((parts, a), {}), ((parts,), {"dim": a}), ((parts,), {"axis": a}))
        yield from (((parts, w.ndim), {}), ((), {"tensors": parts, "dim": a}), ((*parts,), {}))


def index_calls(w: World) -> Iterator[Call]:
    """Indices and masks, constant and of the batch, along every axis."""
    x, c, a = w.batch(), w.const(), w.axis()
    size, place = w.shape[a], w.layout
    first = Layout(0, place.outer, place.inner)
    extent, last = w.shape[place.axis], w.ndim - 1
    vectors = [torch.arange(size), torch.arange(size - 1, -1, -1), w.below(size, 2), torch.tensor(0)]
    vectors += [w.below(size, extent, layout=first), w.below(w.count, extent, layout=first)]
    wide = [
        w.below(size, *w.shape),
        w.below(size, *w.shape, layout=place),
        torch.arange(size).expand(*w.shape[:-1], size) if last == a % w.ndim else w.below(size, *w.shape),
    ]
    turned = w.turned()
    wide.append(w.below(size, *w.shape, layout=turned._hush_layout))  # type: ignore[attr-defined]
    for source in (x, c):
        for index in (*vectors, *wide):
            yield from (((source, a, index), {}), ((source, index, a), {}), ((source, index), {}))
            yield from (
                ((source, a), {"index": index}),
                ((source, index), {"dim": a}),
                ((source,), {"dim": a, "index": index}),
            )
            yield from (((source, a, index, x), {}), ((source, a, index, w.const()), {}), ((source, a, index, 0.5), {}))
            yield from (((source, a, index, turned), {}), ((source,), {"dim": a, "index": index, "value": 0.5}))
            yield from (((source,), {"dim": a, "index": index, "src": x}), ((source,), {"axis": a, "index": index}))
            yield from (
                ((source,), {"dim": a, "index": index, "source": x}),
                ((source, a, index, x), {"reduce": "add"}),
            )
            head = (slice(None),) * (a % w.ndim)
            yield from (((source, (*head, index)), {}), ((source, (..., index)), {}), ((source, (None, index)), {}))
            for axis in range(w.ndim - 1):
                rows = (slice(None),) * axis
                yield (source, (*rows, torch.arange(w.shape[axis]), index)), {}
                yield (source, (*rows, index, 0)), {}
                yield (source, (*rows, index % min(w.shape), index % min(w.shape))), {}
        for mask in (
            w.const(dtype=torch.bool),
            w.batch(dtype=torch.bool),
            w.batch(extent, dtype=torch.bool, layout=first),
            w.turned(torch.bool),
            torch.ones(w.shape[0], dtype=torch.bool),
        ):
            yield from (((source, mask), {}), ((source,), {"mask": mask}), ((source, (mask, ...)), {}))
        bound = w.below(2, 1, layout=Layout(0))
        yield (source, (slice(0, int(bound)), ...)), {}
    for index in (0, -1, slice(None), slice(0, 1), slice(None, None, 2), None, ..., [0], [0, 1], True):
        for axis in range(w.ndim):
            yield (x, (*(slice(None),) * axis, index)), {}
        yield (x, index), {}


def constant_calls(w: World) -> Iterator[Call]:
    x, y = w.batch(), w.batch()
    for rest in ((), ((2, 3),), (2, 3), (0.5,), (5,), (0, 5), ((2,), 0.5), ([1.0, 2.0],), (y,), (x,), ([x.sum()],),
                 ((2, 3), (1, 2)), (w.const(),), ((2,), y.flatten()[0])):  # fmt: skip
        yield (x, *rest), {}
    yield from (((x,), {"dtype": torch.float32}), ((x,), {"data": y}), ((x,), {"fill_value": 0.5, "size": (2,)}))
    yield from (((), {"input": x}), ((x,), {"size": (2, 2)}), ((x,), {"fill_value": 0.5}))


# --- forms of matrix products -------------------------------------------------------------------------------------


def factors(w: World) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield parts of the batch with every other operand that may be multiplied with them."""
    n, B = w.rng.choice([w.count, 2]), w.count
    for shape in ((B, n), (n, B), (B, n, n), (n, B, n), (n, n, B), (B, B, B), (n, B, n, n), (B,)):
        for axis in (axis for axis, extent in enumerate(shape) if extent == B):
            x, same = w.batch(*shape, layout=Layout(axis)), w.batch(*shape, layout=Layout(axis))
            flipped = w.batch(*reversed(shape), layout=Layout(len(shape) - 1 - axis))
            others = [
                w.const(shape[-1]),
                w.const(shape[-1], 2),
                w.const(shape[-1], B),
                w.const(*shape[:-2], shape[-1], 2),
                w.const(3, shape[-1], B),
                same,
                flipped,
                x,
                w.batch(shape[-1], B, layout=Layout(1)),
                w.batch(shape[-1], layout=Layout(0)) if shape[-1] == B else flipped,
            ]
            if len(shape) > 1:
                others += [w.const(2, shape[-2]), w.const(B, shape[-2]), x.mT.clone(), same.mT.clone()]
                others += [w.batch(*shape[:-2], shape[-1], shape[-2], layout=Layout(axis))
                           if axis < len(shape) - 2 else flipped]  # fmt: skip
            yield from ((x, other) for other in others)


def product_calls(w: World) -> Iterator[Call]:
    for x, other in factors(w):
        yield from (((x, other), {}), ((other, x), {}), ((x,), {"other": other}), ((x,), {"mat2": other}))
        yield from (((x,), {"vec": other}), ((), {"input": other, "mat2": x}))


def added_product_calls(w: World) -> Iterator[Call]:
    B = w.count
    for x, other in factors(w):
        for added in (w.const(1), w.const(B), w.const(B, B), w.batch(B, layout=Layout(0)), w.const(B, 1, 1),
                      w.batch(B, B, layout=Layout(0)), w.batch(B, B, layout=Layout(1))):  # fmt: skip
            yield from (((added, x, other), {}), ((added, other, x), {}), ((added, x), {"mat2": other}))
            yield (added, x, other), {"alpha": 0.5, "beta": 2}
            for one, two in (("batch1", "batch2"), ("mat1", "mat2")):
                yield from (((added,), {one: x, two: other, "beta": 0.5}), ((added,), {two: x, one: other}))


def einsum_calls(w: World) -> Iterator[Call]:
    B = w.count
    x, y, c = w.batch(B, B, layout=Layout(0)), w.batch(B, B, layout=Layout(1)), w.const(B, B)
    t, u = w.batch(B, B, B, layout=Layout(0)), w.batch(2, B, 3, layout=Layout(1))
    pairs = ["bi,ij->bj", "bi,ij", "ij,jk->ik", "ij,jk->ki", "ij,ij->i", "ij,ij->j", "ij,ij->", "ij,kj->ik", "ii,ij->i",
             "ii,jj->i", "ij,jj->i", "...i,ij->...j", "ij , jk -> ik", "ba,ac", "ij,ji->j"]  # fmt: skip
    for equation in pairs:
        for one in (x, y, c):
            for other in (x, y, c):
                yield (equation, one, other), {}
                yield (equation, [one, other]), {}
    for equation in ("ij->ji", "ii->i", "ij->i", "ij->j", "ij", "ji", "ii", "i...->...i"):
        yield from (((equation, x), {}), ((equation, y), {}))
    yield from (((equation, t, x, y), {}) for equation in ("bij,bk,lb->bl", "ijk,ij,jk->i", "bij,bj,ib->b"))
    yield from (((equation, u), {}) for equation in ("abc->bac", "abc->b", "abc->cba", "abc->ac"))
    yield from (((x, [0, 1], c, [1, 2], [0, 2]), {}), ((), {"equation": "ij->i", "operands": [x]}), ((x, [0, 1]), {}))


Forms = Callable[[World], Iterator[Call]]
