"""JAX-Privacy on models of the same sizes, written in plain JAX and compiled."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np


def step_of(name: str, size: int) -> Callable[[], None]:
    """One step's clipped gradients in microbatches of `size`, compiled; the first call compiles."""
    import jax
    from jax_privacy import clipping

    values, loss, batch = _MODELS[_key(name)]()
    places = tuple(range(1, 1 + len(batch)))
    pieces = None if size == len(batch[0]) else size
    function = jax.jit(clipping.clipped_grad(loss, l2_clip_norm=1.0, batch_argnums=places, microbatch_size=pieces))
    batch = tuple(jax.numpy.asarray(array) for array in batch)

    def step() -> None:
        jax.block_until_ready(function(values, *batch))

    return step


def _key(name: str) -> str:
    return next(key for key in _MODELS if name.startswith(key))


def _normal(generator: np.random.Generator, *shape: int) -> Any:
    import jax

    return jax.numpy.asarray(generator.standard_normal(shape, dtype=np.float32) / np.sqrt(shape[0]))


def _cross_entropy(logits: Any, label: Any) -> Any:
    import jax

    return -jax.nn.log_softmax(logits)[label]


def _images(count: int, *shape: int) -> tuple[Any, Any]:
    generator = np.random.default_rng(1)
    return generator.standard_normal((count, *shape), dtype=np.float32), generator.integers(0, 10, count)


def _mlp(count: int, *sizes: int) -> Any:
    import jax

    generator = np.random.default_rng(0)
    values = [(_normal(generator, a, b), jax.numpy.zeros(b)) for a, b in pairwise(sizes)]

    def loss(values: Any, inputs: Any, labels: Any) -> Any:
        hidden = inputs[0]
        for index, (weight, bias) in enumerate(values):
            hidden = hidden @ weight + bias
            hidden = jax.nn.relu(hidden) if index < len(values) - 1 else hidden
        return _cross_entropy(hidden, labels[0])

    return values, loss, _images(count, sizes[0])


def _conv(inputs: Any, weight: Any, bias: Any, stride: int, padding: int) -> Any:
    import jax

    pads = [(padding, padding)] * 2
    found = jax.lax.conv_general_dilated(
        inputs, weight, (stride, stride), pads, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return found + bias


def _pool(inputs: Any, stride: int) -> Any:
    import jax

    return jax.lax.reduce_window(inputs, -np.inf, jax.lax.max, (1, 2, 2, 1), (1, stride, stride, 1), "VALID")


def _kernel(generator: np.random.Generator, size: int, inside: int, outside: int) -> Any:
    import jax

    return _normal(generator, size * size * inside, outside).reshape(size, size, inside, outside), jax.numpy.zeros(
        outside
    )


def _tanh_cnn() -> Any:
    import jax

    generator = np.random.default_rng(0)
    kernels = [_kernel(generator, 8, 1, 16), _kernel(generator, 4, 16, 32)]
    dense = [(_normal(generator, 512, 32), jax.numpy.zeros(32)), (_normal(generator, 32, 10), jax.numpy.zeros(10))]

    def loss(values: Any, inputs: Any, labels: Any) -> Any:
        (first, second), (third, fourth) = values
        hidden = _pool(jax.numpy.tanh(_conv(inputs, *first, 2, 3)), 1)
        hidden = _pool(jax.numpy.tanh(_conv(hidden, *second, 2, 0)), 1).reshape(-1)
        hidden = jax.numpy.tanh(hidden @ third[0] + third[1])
        return _cross_entropy(hidden @ fourth[0] + fourth[1], labels[0])

    return (kernels, dense), loss, _images(512, 28, 28, 1)


def _cifar_cnn() -> Any:
    import jax

    generator = np.random.default_rng(0)
    sizes = (3, 32, 32, 64, 64, 128, 128)
    kernels = [_kernel(generator, 3, a, b) for a, b in pairwise(sizes)]
    dense = [(_normal(generator, 2048, 128), jax.numpy.zeros(128)), (_normal(generator, 128, 10), jax.numpy.zeros(10))]

    def loss(values: Any, inputs: Any, labels: Any) -> Any:
        kernels, (third, fourth) = values
        hidden = inputs
        for index, kernel in enumerate(kernels):
            hidden = jax.numpy.tanh(_conv(hidden, *kernel, 1, 1))
            hidden = _pool(hidden, 2) if index % 2 else hidden
        hidden = jax.numpy.tanh(hidden.reshape(-1) @ third[0] + third[1])
        return _cross_entropy(hidden @ fourth[0] + fourth[1], labels[0])

    return (kernels, dense), loss, _images(128, 32, 32, 3)


def _transformer(count: int, width: int, layers: int, length: int, vocabulary: int, heads: int, *, kind: str) -> Any:
    import jax

    numpy, generator = jax.numpy, np.random.default_rng(0)

    def dense(inside: int, outside: int) -> Any:
        return _normal(generator, inside, outside), numpy.zeros(outside)

    def norm() -> Any:
        return numpy.ones(width), numpy.zeros(width)

    values = {
        "tokens": _normal(generator, vocabulary, width),
        "positions": _normal(generator, 512 if kind == "bert" else length, width),
        "layers": [
            {"norms": (norm(), norm()), "qkv": dense(width, 3 * width), "out": dense(width, width),
             "up": dense(width, 4 * width), "down": dense(4 * width, width)}
            for _ in range(layers)
        ],
        "last": norm(),
        "head": dense(width, 10),
    }  # fmt: skip

    def normalised(hidden: Any, weights: Any) -> Any:
        centred = hidden - hidden.mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * weights[0] + weights[1]

    def attention(hidden: Any, layer: Any) -> Any:
        qkv = hidden @ layer["qkv"][0] + layer["qkv"][1]
        query, key, value = (part.reshape(length, heads, -1).transpose(1, 0, 2) for part in numpy.split(qkv, 3, -1))
        scores = query @ key.transpose(0, 2, 1) / np.sqrt(width / heads)
        if kind == "gpt":
            scores = numpy.where(numpy.tril(numpy.ones((length, length), bool)), scores, -1e9)
        mixed = (jax.nn.softmax(scores) @ value).transpose(1, 0, 2).reshape(length, width)
        return mixed @ layer["out"][0] + layer["out"][1]

    def loss(values: Any, index: Any, labels: Any) -> Any:
        hidden = values["tokens"][index[0]] + values["positions"][:length]
        for layer in values["layers"]:
            hidden = hidden + attention(normalised(hidden, layer["norms"][0]), layer)
            inner = normalised(hidden, layer["norms"][1]) @ layer["up"][0] + layer["up"][1]
            hidden = hidden + jax.nn.gelu(inner) @ layer["down"][0] + layer["down"][1]
        hidden = normalised(hidden, values["last"])
        if kind == "gpt":
            logits = jax.nn.log_softmax(hidden[:-1] @ values["tokens"].T)
            return -numpy.take_along_axis(logits, index[0][1:, None], 1).mean()
        return _cross_entropy(hidden.mean(0) @ values["head"][0] + values["head"][1], labels[0])

    draws = np.random.default_rng(1)
    return values, loss, (draws.integers(0, vocabulary, (count, length)), draws.integers(0, 10, count))


_MODELS: dict[str, Callable[[], Any]] = {
    "MLP 784-1000-10": lambda: _mlp(600, 784, 1000, 10),
    "MLP 784-2048-2048-10": lambda: _mlp(512, 784, 2048, 2048, 10),
    "tanh CNN": _tanh_cnn,
    "CIFAR CNN": _cifar_cnn,
    "transformer": lambda: _transformer(16, 256, 4, 128, 1000, 4, kind="plain"),
    "BERT-small": lambda: _transformer(8, 512, 4, 64, 30522, 8, kind="bert"),
    "GPT-2-like": lambda: _transformer(8, 256, 4, 64, 10000, 4, kind="gpt"),
}
