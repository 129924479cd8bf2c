"""`load`: a data set by its name."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from functools import partial

from hush.data.dataset import Dataset
from hush.data.images import Folder, cifar10, digits, from_idx
from hush.data.registry import FASHION_MNIST, MNIST
from hush.data.tables import TABLES
from hush.errors import InvalidValue

_LOADERS: dict[str, Callable[[Folder], Dataset]] = {
    "digits": digits,
    "mnist": partial(from_idx, MNIST),
    "fashion-mnist": partial(from_idx, FASHION_MNIST),
    "cifar10": cifar10,
    **TABLES,
}
NAMES: tuple[str, ...] = tuple(_LOADERS)


def load(name: str, *, folder: str | os.PathLike[str] | None = None) -> Dataset:
    """A data set by its name, with fixed preprocessing: nothing is learned from its rows.

    Pixels are divided by their largest possible value. Tables become features by a schema of public bounds and
    categories; no row is longer than 1. `digits` comes with scikit-learn; the others are looked for in `folder`, or
    else under `$HUSH_DATA/<name>` and in the cache; what has a public home is downloaded. A file whose sha256 is not
    the published one is never used.

    >>> data = load("digits")
    >>> len(data.train), len(data.test), data.input_shape, data.num_classes
    (1438, 359, (1, 8, 8), 10)

    Raises:
        InvalidValue: there is no data set of this name.
        DataMissing: a file is not at hand; the message says how to get it.
        UnreadableFile: a file is not the published one.
    """
    if name not in _LOADERS:
        near = difflib.get_close_matches(str(name), NAMES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise InvalidValue(f"there is no data set {name!r}: the names are {', '.join(NAMES)}{hint}")
    return _LOADERS[name](folder)
