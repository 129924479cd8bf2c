"""Every entry of the tables in `functions.py`, in every argument form: no example moves what is another's.

For each function the test calls it in many forms, with parts of a batch among its operands, and lets the tape say where
the result holds each example. Then it changes one example. What is said to be another's, or a constant, must stay, and
must have no gradient in the changed one. A function that makes no claim in any form has no place in a table.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import op_layers as layers
import pytest
import torch
import torch.nn.functional as F
from naive_loop import TIGHT, naive, relative_error
from op_calls import (
    Call,
    Forms,
    World,
    added_product_calls,
    axis_calls,
    constant_calls,
    einsum_calls,
    index_calls,
    pointwise_calls,
    product_calls,
    structure_calls,
    worlds,
)
from op_claims import CONSTANT, KNOWN, WrongClaim, survey
from rule_claims import EXACT, survey_rule
from torch import Tensor, nn
from torch.overrides import get_overridable_functions

from hush.errors import NotIsolated
from hush.gradients import clipped_sum, follow, recall
from hush.gradients import functions as kinds
from hush.gradients.layout import UNKNOWN, Layout, layout_of, mark
from hush.gradients.rules import elementwise, lookup, normalise, products
from hush.gradients.tape import RULES, Tape

NUM_WORLDS, MOST, ENOUGH = 21, 300, 10


@cache
def all_worlds(seed: int) -> list[World]:
    return list(worlds(seed))


@cache
def calls_of(seed: int, number: int, form: Forms) -> list[tuple[int, Call]]:
    world = all_worlds(seed)[number]
    world.begin(f"{form.__name__} {seed} {number}")
    return [(world.count, call) for call in form(world)]


def calls(key: str, forms: tuple[Forms, ...], seed: int = 7) -> list[tuple[int, Call]]:
    """Return each form of call in one world, drawn for this function; a sample where there are many."""
    draws, chosen = random.Random(f"{key} {seed}"), []
    for form in forms:
        pages = [calls_of(7, number, form) for number in range(NUM_WORLDS)]
        for place in range(max(map(len, pages))):
            chosen.append(draws.choice([page for page in pages if place < len(page)])[place])
    return chosen if len(chosen) <= MOST else draws.sample(chosen, MOST)


def in_all_worlds(forms: tuple[Forms, ...], seed: int = 7) -> list[tuple[int, Call]]:
    return [call for number in range(NUM_WORLDS) for form in forms for call in calls_of(seed, number, form)]


def name_of(func: Any) -> str:
    owner = getattr(getattr(func, "__self__", None), "__name__", None) or getattr(func, "__module__", "") or ""
    return f"{owner.split('.')[-1]}.{getattr(func, '__qualname__', func)}".replace("_VariableFunctionsClass", "torch")


def leading(*names: str) -> set[Any]:
    return {func for func in kinds.LEADING if any(name in func.__name__ for name in names)}


LOSSES = leading("loss", "cross_entropy")
OTHERS = leading("unpool", "grid", "group_norm", "instance_norm", "col2im") | kinds.CONVOLUTIONS | LOSSES
# Functions, and forms of calls.
ADDED_PRODUCTS = {func for func, names in kinds.PRODUCTS.items() if len(names) == 3}
TABLES: list[tuple[set[Any], tuple[Forms, ...]]] = [
    (kinds.POINTWISE, (pointwise_calls,)),
    (kinds.SLOPED, (layers.slopes,)),
    (kinds.STRUCTURAL | kinds.RESHAPING, (axis_calls, structure_calls, index_calls)),
    (kinds.REDUCING, (axis_calls, index_calls)),
    (set(kinds.ALONG), (axis_calls, index_calls)),
    (kinds.LAST, (layers.last_axis,)),
    (kinds.CONSTANT, (constant_calls,)),
    (set(kinds.PRODUCTS) - ADDED_PRODUCTS, (product_calls,)),
    (ADDED_PRODUCTS, (added_product_calls,)),
    ({kinds.EINSUM}, (einsum_calls,)),
    ({kinds.BROADCAST}, (layers.broadcast,)),
    *(
        ({func}, (layers.convolution(int(func.__name__[-2]), transposed="transpose" in func.__name__),))
        for func in kinds.CONVOLUTIONS
    ),
    (set(kinds.LEADING) - OTHERS, (layers.SPATIAL,)),
    (leading("unpool"), (layers.unpool,)),
    (leading("grid_sampler"), (layers.grid,)),
    (leading("affine_grid"), (layers.affine,)),
    (leading("group_norm"), (layers.group_norm,)),
    (leading("instance_norm"), (layers.instance_norm,)),
    (leading("col2im"), (layers.fold,)),
    (LOSSES, (layers.classes(),)),
    ({kinds.LINEAR}, (layers.linear,)),
    ({kinds.BATCH_NORM}, (layers.batch_norm,)),
    (kinds.NORMALISING, (layers.normalising,)),
    (kinds.PADDING, (layers.padding,)),
    ({kinds.EMBEDDING}, (layers.embedding,)),
    ({kinds.ATTENTION}, (layers.attention,)),
    ({torch.lstm}, (layers.recurrent(4, 2),)),
    ({torch.gru}, (layers.recurrent(3, 1),)),
    ({torch.rnn_tanh, torch.rnn_relu}, (layers.recurrent(1, 1),)),
]
ENTRIES = sorted([(name_of(func), func, forms) for table, forms in TABLES for func in table], key=lambda row: row[0])
NAMES = [name for name, _, _ in ENTRIES]
ABSENT = {Tensor.cuda}  # moves to a device that the machine may not have


def count_claims(name: str, func: Any, forms: tuple[Forms, ...]) -> int:
    """Check the calls of a function, and return in how many of them the tape made a claim.

    Some functions take few forms or shapes. They get more draws.
    """
    number = 0
    for seed in range(8):
        counts = survey(func, calls(name, forms, seed))
        number += counts[KNOWN] + (counts[CONSTANT] if func in kinds.CONSTANT else 0)
        if number >= ENOUGH:
            break
    return number


@pytest.mark.parametrize(("name", "func", "forms"), ENTRIES, ids=NAMES)
def test_entry(name: str, func: Any, forms: tuple[Forms, ...]) -> None:
    assert count_claims(name, func, forms) or func in ABSENT, f"{name} is followed in no form: take it off its table"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "func", "forms"), ENTRIES, ids=NAMES)
def test_entry_in_all_worlds(name: str, func: Any, forms: tuple[Forms, ...]) -> None:
    for seed in range(4):
        survey(func, in_all_worlds(forms, seed))


def test_every_entry_of_every_table_is_tested() -> None:
    tested = {func for table, _ in TABLES for func in table}
    # They make no tensors, end in an error, or are read by `write`, which has tests of its own.
    apart = kinds.PASSIVE | kinds.BACKWARD | kinds.SILENT
    tables = [
        value
        for name, value in vars(kinds).items()
        if name.isupper() and name[0] != "_" and isinstance(value, set | dict)
    ]
    assert len(tables) > 20
    assert {name_of(func) for table in tables for func in table if func not in tested | apart} == set()


# --- functions that are in no table -------------------------------------------------------------------------------

TABLED = {func for table, _ in TABLES for func in table}
# Of devices and kinds of tensors that the machine may not have, or outside of what torch shows to a mode (set_).
APART = ["cudnn", "mkldnn", "miopen", "quantize", "fbgemm", "module_load", "resize", "sparse", "storage", "set_"]
APART.append("share_memory")


def others() -> Iterator[Any]:
    """Yield what torch shows to a mode, and torch.nn.functional, but for what tells of a tensor and makes none."""
    shown = {func for functions in get_overridable_functions().values() for func in functions}
    shown |= {func for name, func in vars(F).items() if callable(func) and not name.startswith("_")}
    for func in sorted(shown, key=name_of):
        apart = func in kinds.PASSIVE or func in kinds.BACKWARD or isinstance(func, type)
        if not apart and not any(part in name_of(func) for part in APART):
            yield func


GENERAL = (pointwise_calls, axis_calls, structure_calls, index_calls)


@pytest.mark.parametrize("part", range(8))
def test_whatever_the_tape_says_of_any_function_of_torch(part: int) -> None:
    untabled = [func for func in others() if func not in TABLED]
    assert len(untabled) > 500
    for func in untabled[part::8]:
        some = calls(name_of(func), GENERAL)
        survey(func, random.Random(name_of(func)).sample(some, min(40, len(some))), through_tape=True)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(40))
def test_all_functions_through_the_tape_in_all_forms(part: int) -> None:
    for func in list(others())[part::40]:
        survey(func, calls(name_of(func), GENERAL), through_tape=True)


# --- rules: functions that meet a parameter -----------------------------------------------------------------------

RULE_FORMS: dict[Any, tuple[Forms, ...]] = {
    elementwise.elementwise: (pointwise_calls,), elementwise.joined: (structure_calls,),
    elementwise.attention: (layers.attention,), elementwise.prelu: (layers.slopes,), products.linear: (layers.linear,),
    products.matmul: (product_calls,), products.addmm: (added_product_calls,), products.einsum: (einsum_calls,),
    products.bilinear: (layers.bilinear,), normalise.layer_norm: (layers.normalising,),
    normalise.rms_norm: (layers.normalising,), normalise.group_norm: (layers.group_norm,),
    normalise.instance_norm: (layers.instance_norm,), normalise.batch_norm: (layers.batch_norm,),
    lookup.embedding: (layers.embedding,), lookup.embedding_bag: (layers.bags,),
}  # fmt: skip
FORMS_OF = {func: forms for table, forms in TABLES for func in table}
RULED = sorted([(name_of(func), func) for func in RULES if func not in kinds.BACKWARD], key=lambda row: row[0])


@pytest.mark.parametrize(("name", "func"), RULED, ids=[name for name, _ in RULED])
def test_rule(name: str, func: Any) -> None:
    """Constants of each form become parameters: values and per-example gradients are those of torch, or it refuses."""
    forms = RULE_FORMS.get(RULES[func]) or FORMS_OF[func]
    number = 0
    for seed in range(8):
        number += survey_rule(func, calls(name, forms, seed), seed)[EXACT]
        if number >= ENOUGH:
            break
    assert number, f"the rule of {name} serves no form"


ZEROS: dict[str, Callable[[], nn.Module]] = {
    "PReLU": nn.PReLU, "PReLU by channel": lambda: nn.PReLU(4, init=0.3), "ReLU": nn.ReLU, "LeakyReLU": nn.LeakyReLU,
    "Hardtanh": nn.Hardtanh, "Softshrink": nn.Softshrink,
}  # fmt: skip


@pytest.mark.parametrize("name", ZEROS)
def test_slopes_at_exactly_zero(name: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), ZEROS[name](), nn.Linear(4, 2)).double()
    nn.init.zeros_(model[0].bias)  # type: ignore[arg-type]
    batch = torch.randn(5, 3, dtype=torch.float64)
    batch[1:3] = 0  # the activation's input is exactly zero, and its slope reaches the first bias

    def loss(model: nn.Module, inputs: Tensor) -> Tensor:
        return model(inputs).square().sum(1)

    truth = naive(model, loss, batch)
    got = clipped_sum(model, loss, batch, 0.5, method="tape")
    assert torch.allclose(got.norms, truth.norms)
    assert relative_error(got.gradients, truth.clipped(0.5)) < TIGHT


# --- what was followed wrongly ------------------------------------------------------------------------------------


def batched(*shape: int, layout: Layout = Layout(0), dtype: torch.dtype = torch.float64) -> Tensor:  # noqa: B008
    tensor = (torch.randperm(64)[: torch.Size(shape).numel()].reshape(shape) % 4).to(dtype)
    mark(tensor, layout)
    return tensor


def claim(func: Any, *args: Any, **kwargs: Any) -> Layout | None:
    """Return where the tape says that the examples lie in the result of a call with four examples."""
    result = func(*args, **kwargs)
    follow.follow(func, args, kwargs, result, [v for v in (*args, *kwargs.values()) if isinstance(v, Tensor)], 4)
    return layout_of(result if isinstance(result, Tensor) else result[0])


X, INDEX, MASK = batched(4, 4), batched(4, dtype=torch.int64), batched(4, 4).bool()
mark(MASK, Layout(0))
UNFOLLOWABLE: dict[str, Callable[[], Layout | None]] = {
    "msort": lambda: claim(torch.msort, X),
    "Tensor.msort": lambda: claim(Tensor.msort, X),
    "sort by axis=0": lambda: claim(torch.sort, X, axis=0),
    "sort by dim=-2": lambda: claim(Tensor.sort, X, dim=-2, descending=True),
    "stable sort by axis=0": lambda: claim(torch.sort, X, stable=True, axis=0),
    "argsort by axis=0": lambda: claim(torch.argsort, X, axis=0),
    "stable argsort by axis=0": lambda: claim(Tensor.argsort, X, stable=True, axis=0),
    "fft by axis=0": lambda: claim(torch.fft.fft, X, axis=0),
    "rfft by dim": lambda: claim(torch.fft.rfft, X, None, 0),
    "new_tensor": lambda: claim(Tensor.new_tensor, X, X),
    "new_tensor of a list": lambda: claim(Tensor.new_tensor, torch.ones(2), [batched(1, layout=UNKNOWN)]),
    "new": lambda: claim(Tensor.new, X, X),
    "the batch as kernel": lambda: claim(torch.conv1d, torch.ones(4, 4, 4).double(), batched(4, 4, 1)),
    "batch and kernel": lambda: claim(torch.conv1d, batched(4, 4, 4), batched(4, 4, 1)),
    "an index along the batch": lambda: claim(Tensor.__getitem__, X, INDEX),
    "index_select along the batch": lambda: claim(torch.index_select, X, 0, INDEX),
    "gather along the batch": lambda: claim(torch.gather, X, 0, batched(4, 4, dtype=torch.int64)),
    "a mask": lambda: claim(Tensor.__getitem__, X, MASK),
    "masked_select": lambda: claim(torch.masked_select, X, MASK),
    "nonzero": lambda: claim(torch.nonzero, X),
    "where of one operand": lambda: claim(torch.where, MASK),
    "unique": lambda: claim(torch.unique, X),
    "bincount": lambda: claim(torch.bincount, INDEX),
    "histc": lambda: claim(torch.histc, X),
    "repeats from the batch": lambda: claim(torch.repeat_interleave, X, INDEX, 0),
    "one_hot without classes": lambda: claim(F.one_hot, INDEX),
    **{f"{name} by {way}": (lambda func=func, way=way: claim(func, X, batched(4, 4), reduction=way))
       for way in ("mean", "sum") for name, func in (("mse_loss", F.mse_loss), ("l1_loss", F.l1_loss),
                                                     ("huber_loss", F.huber_loss))},
    "cross_entropy by mean": lambda: claim(F.cross_entropy, X, INDEX),
    "nll_loss by sum": lambda: claim(torch._C._nn.nll_loss_nd, X, INDEX, None, 2),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:To copy construct")
@pytest.mark.parametrize("name", UNFOLLOWABLE)
def test_what_mixes_examples_or_depends_on_their_values_is_not_followed(name: str) -> None:
    assert UNFOLLOWABLE[name]() == UNKNOWN


@pytest.mark.parametrize("requires_grad", [True, False])
def test_batch_norm_in_training_mode_is_refused_by_name(requires_grad: bool) -> None:
    layer = nn.BatchNorm1d(4).requires_grad_(requires_grad)
    with pytest.raises(NotIsolated, match=r"batch_norm in training mode.*use GroupNorm.*eval mode"), Tape(layer, 4):
        layer(batched(4, 4, dtype=torch.float32))


def test_instance_norm_keeps_no_statistics_of_the_batch() -> None:
    layer = nn.InstanceNorm1d(4, track_running_stats=True)
    message = r"instance_norm in training mode writes.*track_running_stats=False"
    with pytest.raises(NotIsolated, match=message), Tape(layer, 4):
        layer(batched(4, 4, 4, dtype=torch.float32))
    with Tape(layer.eval(), 4):
        assert layout_of(layer(batched(4, 4, 4, dtype=torch.float32))) == Layout(0)


PLANTED: list[tuple[Any, tuple[Forms, ...]]] = [
    (torch.renorm, (axis_calls,)), (torch.cov, (axis_calls,)), (torch.cumsum, (axis_calls,)),
    (torch.poisson, (pointwise_calls,)), (Tensor.softmax, (axis_calls,)), (torch.fft.fft, (axis_calls,)),
    (torch.inverse, (axis_calls,)), (Tensor.sort, (axis_calls,)),
]  # fmt: skip


@pytest.mark.parametrize(("func", "forms"), PLANTED, ids=[name_of(func) for func, _ in PLANTED])
def test_wrong_entries_are_found(func: Any, forms: tuple[Forms, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Call functions that mix examples element-wise: the survey objects."""
    monkeypatch.setattr(recall, "_answers", {})
    monkeypatch.setattr(kinds, "POINTWISE", kinds.POINTWISE | {func})
    with pytest.raises(WrongClaim):
        survey(func, in_all_worlds(forms))


def test_a_wrong_axis_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recall, "_answers", {})
    monkeypatch.setitem(kinds.ALONG, torch.msort, (("input",), -1))
    with pytest.raises(WrongClaim):
        survey(torch.msort, in_all_worlds((axis_calls,)))
