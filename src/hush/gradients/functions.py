"""The functions of torch by what they do to the axes of a tensor. What is in no list here is not followed.

A list names what is known to be right; everything else loses track of the examples and is left to another method. So a
function that is new to the tape costs speed, never a wrong gradient.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

_T = torch.Tensor
_HOMES = (torch, _T, torch._C._nn, torch.special, torch.fft, torch.linalg, torch.nn.functional)


def both(*names: str) -> set[Any]:
    """Return the functions of these names, in torch and on tensors."""
    return _named(names, (torch, _T, torch._VF))


def _every(*names: str) -> set[Any]:
    """Return the functions of these names from all the places where torch keeps functions."""
    return _named(names, _HOMES)


def _named(names: Iterable[str], homes: Iterable[Any]) -> set[Any]:
    # Some names are also those of dtypes, modules and attributes (torch.float, torch.fft, Tensor.data): no functions.
    return {value for home in homes for name in names if callable(value := getattr(home, name, None))}


def _getters(*names: str) -> set[Any]:
    return _accessors("__get__", names)


def _accessors(way: str, names: Iterable[str]) -> set[Any]:
    return {getattr(getattr(_T, name), way) for name in names if hasattr(getattr(_T, name, None), way)}


# They tell of a tensor and make none.
PASSIVE: set[Any] = _getters(
    "shape", "dtype", "device", "requires_grad", "ndim", "is_leaf", "layout", "is_nested", "is_cpu", "is_cuda",
    "is_sparse", "is_quantized", "is_meta", "_version", "_base", "is_mkldnn", "is_mps", "is_xla", "itemsize",
    "nbytes", "names",
) | both(
    "size", "dim", "numel", "stride", "is_floating_point", "is_contiguous", "is_complex", "element_size",
    "storage_offset", "get_device", "nelement", "__len__", "is_inference",
    "is_grad_enabled", "is_autocast_enabled", "get_autocast_dtype", "finfo", "is_same_size", "result_type", "has_names",
    "__hash__", "is_neg", "is_conj", "is_pinned", "is_shared", "ndimension", "dim_order",
)  # fmt: skip

# What they tell may depend on values, where a tensor's size does (a selection by a mask).
SIZES: set[Any] = _getters("shape", "nbytes") | both(
    "size", "numel", "stride", "nelement", "__len__", "storage_offset", "is_same_size"
)

# They return nothing, and write no values or where `follow.py` sees it.
SILENT: set[Any] = (
    both("retain_grad", "_register_hook_dict")
    | _accessors("__set__", ("_backward_hooks", "requires_grad"))
    | {_T.__setitem__}
)
# They read the shape and the dtype of their first operand: the result is the same whatever the examples are. Any other
# operand (a fill value, the data of new_tensor) is copied into the result.
CONSTANT = both(
    "zeros_like", "ones_like", "full_like", "empty_like", "rand_like", "randn_like", "randint_like", "new_zeros",
    "new_ones", "new_full", "new_empty", "new_tensor", "new_empty_strided", "new",
)  # fmt: skip

_UNARY = (
    "abs", "absolute", "acos", "acosh", "angle", "arccos", "arcsin", "arctan", "asin", "asinh", "atan", "atanh",
    "bernoulli", "bfloat16", "bitwise_not", "bool", "byte", "ceil", "celu", "char", "clamp", "clamp_max", "clamp_min",
    "clip", "clone", "conj", "conj_physical", "cos", "cosh", "cpu", "cuda", "deg2rad", "detach", "digamma", "double",
    "elu", "entr", "erf", "erfc", "erfcx", "erfinv", "exp", "exp2", "expit", "expm1", "fill", "fix", "float", "floor",
    "frac", "gelu", "half", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "i0", "imag", "int", "isfinite",
    "isinf", "isnan", "isneginf", "isposinf", "isreal", "leaky_relu", "lgamma", "log", "log10", "log1p", "log2",
    "log_ndtr", "log_sigmoid", "logical_not", "logit", "long", "mish", "nan_to_num", "ndtr", "ndtri", "neg", "negative",
    "positive", "rad2deg", "real", "reciprocal", "relu", "relu6", "requires_grad_", "resolve_conj",
    "resolve_neg", "round", "rsqrt", "selu", "sgn", "short", "sigmoid", "sign", "signbit", "silu", "sin",
    "sinc", "sinh", "softplus", "softshrink", "sqrt", "square", "tan", "tanh", "threshold", "to", "trunc", "type",
    "xlogy", "zero_", "uniform_", "normal_", "bernoulli_", "exponential_", "dropout", "alpha_dropout", "native_dropout",
    "feature_dropout", "feature_alpha_dropout", "polygamma", "mvlgamma", "__pos__",
)  # fmt: skip
_BINARY = (
    "add", "addcdiv", "addcmul", "arctan2", "atan2", "bitwise_and", "bitwise_left_shift", "bitwise_or",
    "bitwise_right_shift", "bitwise_xor", "complex", "copy_", "copysign", "div", "divide", "eq",
    "float_power", "floor_divide", "fmax", "fmin", "fmod", "ge", "greater", "greater_equal", "gt", "heaviside", "hypot",
    "isclose", "ldexp", "le", "lerp", "less", "less_equal", "logaddexp", "logaddexp2", "logical_and", "logical_or",
    "logical_xor", "lt", "masked_fill", "maximum", "minimum", "mul", "multiply", "ne", "nextafter", "not_equal",
    "polar", "pow", "remainder", "rsub", "sub", "subtract", "true_divide", "type_as", "where",
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "huber_loss", "kl_div", "l1_loss", "mse_loss",
    "poisson_nll_loss", "smooth_l1_loss", "soft_margin_loss", "hinge_embedding_loss", "margin_ranking_loss",
)  # fmt: skip
_SIGNS = ("add", "sub", "mul", "truediv", "div", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift")
_DUNDERS = (
    *(f"__{way}{name}__" for name in _SIGNS for way in ("", "r", "i")),
    "__abs__", "__neg__", "__invert__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__",
)  # fmt: skip

# Element by element, with shapes aligned at the right. Random functions are here only if an element takes the same
# number of random draws whatever its value: `poisson` and `rrelu` draw more or fewer, and so shift the draws of later
# examples.
POINTWISE = (
    _every(*_UNARY, *_BINARY, *(f"{name}_" for name in _UNARY + _BINARY))
    | _named(_DUNDERS, (_T,))
    | _getters("data", "real", "imag")
)

# With fewer than three operands it returns the places of what is true: their number depends on all examples.
WHERE = both("where")
# One slope, or one for each channel: the slopes lie along axis 1, not at the right.
SLOPED = _every("prelu")
# They read only the dtype or the shape of their second operand, so a constant stays a constant.
ALIKE_DTYPE = both("to", "type_as")
ALIKE_SHAPE = both("expand_as", "view_as", "reshape_as")

EXPANDING = both("expand", "expand_as", "broadcast_to")
# The elements keep their order.
RESHAPING = both("view", "reshape", "flatten", "unflatten", "ravel", "view_as", "reshape_as", "_unsafe_view", "squeeze",
                 "unsqueeze", "contiguous")  # fmt: skip
# Elements are moved, chosen and repeated, and none is changed.
STRUCTURAL = EXPANDING | both(
    "transpose", "permute", "movedim", "moveaxis", "swapaxes", "swapdims", "t", "adjoint", "select", "narrow",
    "__getitem__", "index_select", "split", "chunk", "unbind", "tensor_split", "split_with_sizes", "flip", "roll",
    "cat", "concat", "concatenate", "stack", "unfold", "diagonal", "repeat", "tile", "repeat_interleave", "hsplit",
    "vsplit", "take_along_dim", "rot90", "masked_select", "unsafe_split", "unsafe_chunk", "gather",
    "fliplr", "flipud", "dsplit", "hstack", "vstack", "dstack", "column_stack", "row_stack",
) | _getters("T", "mT", "H", "mH")  # fmt: skip
REPEATING = both("repeat_interleave")
# They choose elements along one axis by an index that may come from the batch.
ALONG_INDEX = both("gather", "take_along_dim")
BY_INDEX = ALONG_INDEX | both("__getitem__", "index_select")

REDUCING = both(
    "sum", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "prod", "std", "var", "norm", "logsumexp", "all",
    "any", "nansum", "nanmean", "median", "std_mean", "var_mean", "count_nonzero",
) | {torch.linalg.vector_norm}  # fmt: skip
PAIRWISE = both("max", "min")  # of two tensors they work element by element
WITH_ORDER = both("norm") | {torch.linalg.vector_norm}  # the first argument is the norm's order

# They work along one axis, and all others stay: the parameters in order, and the axis where none is given.
_SPECTRAL = ("input", "n", "dim", "norm")
_AXES: dict[tuple[str, ...], tuple[tuple[str, ...], int | None]] = {
    ("softmax", "log_softmax", "cumsum", "cumprod", "logcumsumexp"): (("input", "dim", "dtype"), None),
    ("cummax", "cummin"): (("input", "dim"), None),
    ("cumsum_", "cumprod_"): (("input", "dim", "dtype"), None),
    ("scatter", "scatter_"): (("input", "dim", "index", "src", "reduce", "value"), None),
    ("scatter_add", "scatter_add_"): (("input", "dim", "index", "src"), None),
    ("index_fill", "index_fill_"): (("input", "dim", "index", "value"), None),
    ("index_add", "index_add_"): (("input", "dim", "index", "source", "alpha"), None),
    ("sort",): (("input", "dim", "descending", "stable"), -1),
    ("argsort",): (("input", "dim", "descending", "stable"), -1),
    ("msort",): (("input",), 0),
    ("glu",): (("input", "dim"), -1),
    ("topk",): (("input", "k", "dim", "largest", "sorted"), -1),
    ("diff",): (("input", "n", "dim", "prepend", "append"), -1),
}
ALONG: dict[Any, tuple[tuple[str, ...], int | None]] = {
    function: place for names, place in _AXES.items() for function in _every(*names)
} | {getattr(torch.fft, name): (_SPECTRAL, -1) for name in ("fft", "ifft", "rfft", "irfft")}
# Python functions with a parameter for warnings between the axis and the dtype.
ALONG |= {
    getattr(torch.nn.functional, name): (("input", "dim", "_stacklevel", "dtype"), None)
    for name in ("softmax", "log_softmax", "softmin")
}
# They add, or take away, a last axis.
ONE_HOT = torch.nn.functional.one_hot
LAST = {ONE_HOT, torch.view_as_real, torch.view_as_complex}

BROADCAST: Any = getattr(torch._C._VariableFunctions, "broadcast_tensors")  # noqa: B009 (unknown to type checkers)
CATENATING = both("cat", "concat", "concatenate")
# Matrix products, with the names of their operands; the first of three is added.
PRODUCTS: dict[Any, tuple[str, ...]] = {
    **dict.fromkeys(both("matmul", "__matmul__", "__rmatmul__"), ("input", "other")),
    **dict.fromkeys(both("bmm", "mm"), ("input", "mat2")),
    **dict.fromkeys(both("mv"), ("input", "vec")),
    **dict.fromkeys(both("baddbmm"), ("input", "batch1", "batch2")),
    **dict.fromkeys(both("addmm"), ("input", "mat1", "mat2")),
}

CONVOLUTIONS = _every(
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
)  # fmt: skip
# Each example (axis 0) by itself, in channels and places: how many of the first operands may come from the batch. The
# others (kernels, class weights, running statistics) meet every example.
_SINGLE = _every(
    "max_pool1d", "max_pool2d", "max_pool3d", "max_pool1d_with_indices", "max_pool2d_with_indices",
    "max_pool3d_with_indices", "avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d",
    "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d", "pixel_shuffle",
    "pixel_unshuffle", "channel_shuffle", "im2col", "col2im", "affine_grid_generator", "group_norm",
    "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "replication_pad1d", "replication_pad2d",
    "replication_pad3d", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_linear1d",
    "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d", "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d", "_upsample_nearest_exact3d",
)  # fmt: skip
_PAIRED = _every(
    "max_unpool2d", "max_unpool3d", "grid_sampler", "grid_sampler_2d", "grid_sampler_3d", "cross_entropy_loss",
    "nll_loss", "nll_loss2d", "nll_loss_nd", "multi_margin_loss", "multilabel_margin_loss",
)  # fmt: skip
# Python functions of which the outside says it all, where no weight meets the batch in them.
CLOSED = POINTWISE | {torch.nn.functional.cross_entropy}
LEADING: dict[Any, int] = dict.fromkeys(CONVOLUTIONS | _SINGLE | {torch.instance_norm}, 1) | dict.fromkeys(
    _PAIRED | {torch.nn.functional.cross_entropy}, 2
)
PADDING = {torch._C._nn.pad, torch.constant_pad_nd}
NORMALISING = {torch.layer_norm, torch.rms_norm}
RECURRENT = {torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu}
LINEAR, ATTENTION = torch._C._nn.linear, torch.nn.functional.scaled_dot_product_attention
# Backward passes inside a model: their gradients are not those of the loss.
BACKWARD = {torch.autograd.grad, _T.backward}
EINSUM, EMBEDDING = torch.functional.einsum, torch.embedding
BATCH_NORM, INSTANCE_NORM = torch.batch_norm, torch.instance_norm

# The size of their result depends on the sizes of their operands and on constants alone; see `has_fixed_size`.
_FIXED: set[Any] = {
    *POINTWISE, *REDUCING, *PRODUCTS, *ALONG, *LEADING, *NORMALISING, *PADDING, *RECURRENT, *CONVOLUTIONS, *EXPANDING,
    *RESHAPING, *CATENATING, *LAST, *STRUCTURAL, LINEAR, EMBEDDING, ATTENTION, BATCH_NORM,
} - both("masked_select", "repeat_interleave", "one_hot") - {torch.nn.functional.one_hot}  # fmt: skip


def has_fixed_size(func: Any, args: Any) -> bool:
    """Return whether the size of the result is the same whatever values the operands have."""
    if func in WHERE:
        return len(args) > 1
    if getattr(func, "__name__", "") == "__getitem__":
        places = args[1] if isinstance(args[1], tuple) else (args[1],)
        return not any(
            isinstance(place, slice | list) or (isinstance(place, torch.Tensor) and place.dtype in _MASKS)
            for place in places
            if not _is_plain_slice(place)
        )
    return func in _FIXED


def _is_plain_slice(place: Any) -> bool:
    return isinstance(place, slice) and not any(
        isinstance(bound, torch.Tensor) for bound in (place.start, place.stop, place.step)
    )


_MASKS = (torch.bool, torch.uint8)
