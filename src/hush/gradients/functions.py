"""The functions of torch by what they do to the axes of a tensor. What is in no list here is not followed.

A list names what is known to be right; everything else loses track of the examples and is left to another method. So a
function that is new to the tape costs speed, never a wrong gradient.
"""

from __future__ import annotations

from typing import Any

import torch

_T = torch.Tensor
_HOMES = (torch, _T, torch._C._nn, torch.special, torch.fft, torch.linalg, torch.nn.functional)


def both(*names: str) -> set[Any]:
    """The functions of these names, in torch and on tensors."""
    return {getattr(home, name) for home in (torch, _T, torch._VF) for name in names if hasattr(home, name)}


def _every(*names: str) -> set[Any]:
    """The same in all the places where torch keeps functions."""
    return {getattr(home, name) for home in _HOMES for name in names if hasattr(home, name)}


def _getters(*names: str) -> set[Any]:
    return {getattr(_T, name).__get__ for name in names if hasattr(getattr(_T, name, None), "__get__")}


# They tell of a tensor and make none.
PASSIVE: set[Any] = _getters(
    "shape", "dtype", "device", "requires_grad", "ndim", "is_leaf", "layout", "is_nested", "is_cpu", "is_cuda",
    "is_sparse", "is_quantized", "is_meta", "grad_fn", "_version", "_base", "is_mkldnn", "is_mps", "is_xla", "itemsize",
    "nbytes", "names", "_grad_fn",
) | both(
    "size", "dim", "numel", "stride", "is_floating_point", "is_contiguous", "is_complex", "element_size", "data_ptr",
    "storage_offset", "get_device", "nelement", "__len__", "is_inference", "is_nonzero", "item", "tolist",
    "is_grad_enabled", "is_autocast_enabled", "get_autocast_dtype", "finfo", "is_same_size", "result_type", "has_names",
    "__hash__", "__repr__", "is_neg", "is_conj", "is_pinned", "is_shared", "ndimension", "dim_order", "untyped_storage",
)  # fmt: skip

# They look at the shape alone: the result is a constant, the same whatever the examples are.
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
    "poisson", "positive", "rad2deg", "real", "reciprocal", "relu", "relu6", "requires_grad_", "resolve_conj",
    "resolve_neg", "round", "rrelu", "rsqrt", "selu", "sgn", "short", "sigmoid", "sign", "signbit", "silu", "sin",
    "sinc", "sinh", "softplus", "softshrink", "sqrt", "square", "tan", "tanh", "threshold", "to", "trunc", "type",
    "xlogy", "zero_", "uniform_", "normal_", "bernoulli_", "exponential_", "dropout", "alpha_dropout", "native_dropout",
    "feature_dropout", "feature_alpha_dropout", "polygamma", "mvlgamma", "retain_grad", "_to_copy", "data", "__pos__",
)  # fmt: skip
_BINARY = (
    "add", "addcdiv", "addcmul", "arctan2", "atan2", "bitwise_and", "bitwise_left_shift", "bitwise_or",
    "bitwise_right_shift", "bitwise_xor", "complex", "copy_", "copysign", "dist_", "div", "divide", "eq",
    "float_power", "floor_divide", "fmax", "fmin", "fmod", "ge", "greater", "greater_equal", "gt", "heaviside", "hypot",
    "isclose", "ldexp", "le", "lerp", "less", "less_equal", "logaddexp", "logaddexp2", "logical_and", "logical_or",
    "logical_xor", "lt", "masked_fill", "maximum", "minimum", "mul", "multiply", "ne", "nextafter", "not_equal",
    "polar", "pow", "prelu", "remainder", "rsub", "sub", "subtract", "true_divide", "type_as", "where",
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "huber_loss", "kl_div", "l1_loss", "mse_loss",
    "poisson_nll_loss", "smooth_l1_loss", "soft_margin_loss", "hinge_embedding_loss", "margin_ranking_loss",
)  # fmt: skip
_SIGNS = ("add", "sub", "mul", "truediv", "div", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift")
_DUNDERS = (
    *(f"__{way}{name}__" for name in _SIGNS for way in ("", "r", "i")),
    "__abs__", "__neg__", "__invert__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__",
)  # fmt: skip

# Element by element, with shapes aligned at the right.
POINTWISE = _every(*_UNARY, *_BINARY, *(f"{name}_" for name in _UNARY + _BINARY), *_DUNDERS) | _getters(
    "data", "real", "imag"
)

EXPANDING = both("expand", "expand_as", "broadcast_to")
# The elements keep their order.
RESHAPING = both("view", "reshape", "flatten", "unflatten", "ravel", "view_as", "reshape_as", "_unsafe_view", "squeeze",
                 "unsqueeze", "contiguous")  # fmt: skip
# Elements are moved, chosen and repeated, and none is changed.
STRUCTURAL = EXPANDING | both(
    "transpose", "permute", "movedim", "moveaxis", "swapaxes", "swapdims", "t", "adjoint", "select", "narrow",
    "__getitem__", "index_select", "split", "chunk", "unbind", "tensor_split", "split_with_sizes", "flip", "roll",
    "cat", "concat", "concatenate", "stack", "unfold", "diagonal", "repeat", "tile", "repeat_interleave", "hsplit",
    "vsplit", "take_along_dim", "rot90", "masked_select", "unsafe_split", "unsafe_chunk", "__iter__", "gather",
    "fliplr", "flipud", "dsplit", "hstack", "vstack", "dstack", "column_stack", "row_stack",
) | _getters("T", "mT", "H", "mH")  # fmt: skip
# With one constant operand, the index alone says where the examples are.
BY_INDEX = both("__getitem__", "index_select", "gather", "take_along_dim")

REDUCING = both(
    "sum", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "prod", "std", "var", "norm", "logsumexp", "all",
    "any", "nansum", "nanmean", "median", "std_mean", "var_mean", "count_nonzero",
) | {torch.linalg.vector_norm}  # fmt: skip
WITH_ORDER = both("norm") | {torch.linalg.vector_norm}  # the first argument is the norm's order

# They work along one axis, and all others stay: where that axis is given, and its default.
_AXES: dict[tuple[str, ...], tuple[int, int | None]] = {
    ("softmax", "log_softmax", "_softmax", "cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"): (1, None),
    (
        "softmin",
        "scatter",
        "scatter_",
        "scatter_add",
        "scatter_add_",
        "index_fill",
        "cumsum_",
        "index_add",
        "index_add_",
    ): (1, None),
    ("sort", "argsort", "msort", "glu"): (1, -1),
    ("topk", "fft", "ifft", "rfft", "irfft", "diff"): (2, -1),
}
ALONG: dict[Any, tuple[int, int | None]] = {
    function: place for names, place in _AXES.items() for function in _every(*names)
} | {torch.nn.functional.one_hot: (99, -1), torch.view_as_real: (99, -1), torch.view_as_complex: (99, -1)}

BROADCAST: Any = getattr(torch._C._VariableFunctions, "broadcast_tensors")  # noqa: B009 (unknown to type checkers)
CATENATING = both("cat", "concat", "concatenate")
PRODUCTS = both("matmul", "__matmul__", "__rmatmul__", "bmm", "baddbmm", "mm", "addmm", "mv")

# Each example (axis 0) by itself, in channels and places.
LEADING = _every(
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "max_pool1d",
    "max_pool2d", "max_pool3d", "max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices",
    "avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d",
    "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d", "max_unpool2d", "max_unpool3d",
    "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "im2col", "col2im", "grid_sampler", "grid_sampler_2d",
    "grid_sampler_3d",
    "affine_grid_generator", "group_norm", "instance_norm", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d",
    "replication_pad1d", "replication_pad2d", "replication_pad3d", "upsample_nearest1d", "upsample_nearest2d",
    "upsample_nearest3d", "upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d",
    "_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d", "cross_entropy_loss",
    "nll_loss", "nll_loss2d", "nll_loss_nd", "multi_margin_loss", "multilabel_margin_loss",
)  # fmt: skip
# Pools that choose between two functions by a flag reach the tape under their public name.
LEADING |= {getattr(torch.nn.functional, f"{kind}max_pool{axes}d") for kind in ("", "adaptive_") for axes in (1, 2, 3)}
# Python functions of which the outside says it all, where no weight meets the batch in them.
CLOSED = POINTWISE | {torch.nn.functional.cross_entropy}
LEADING |= {torch.nn.functional.cross_entropy}
PADDING = {torch._C._nn.pad, torch.constant_pad_nd}
NORMALISING = {torch.layer_norm, torch.rms_norm}
RECURRENT = {torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu}
LINEAR, ATTENTION = torch._C._nn.linear, torch.nn.functional.scaled_dot_product_attention
# Backward passes inside a model: their gradients are not those of the loss.
BACKWARD = {torch.autograd.grad, _T.backward}
EINSUM, BATCH_NORM, EMBEDDING = torch.functional.einsum, torch.batch_norm, torch.embedding
