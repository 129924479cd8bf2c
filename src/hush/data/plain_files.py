"""Data that are no rows and targets: texts for language models, and ratings with their times."""

from __future__ import annotations

import csv
import io

import numpy as np
import numpy.typing as npt

from hush import _check
from hush.data import files
from hush.data.images import Folder
from hush.data.registry import File, Source

_SHAKESPEARE = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
_TEXTS = {
    "tinyshakespeare": Source(
        "text-lm",
        (
            File(
                "tinyshakespeare.txt.xz",
                "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
                1_115_394,
                _SHAKESPEARE,
            ),
        ),
        "plays of Shakespeare in one file, as in github.com/karpathy/char-rnn",
        "public domain",
        "it is data/tinyshakespeare/input.txt of github.com/karpathy/char-rnn, renamed",
    ),
    "war-and-peace": Source(
        "text-lm",
        (
            File(
                "warandpeace.txt.xz",
                "bf5b273d9246268f96663c43c00a1055ae2e42c2262be32f7e43b48dd123451a",
                3_293_492,
            ),
        ),
        "Project Gutenberg's ebook 2600, as in github.com/timbmg/RNNLM",
        "public domain; Project Gutenberg licence for its frame",
        "it is data/warandpeace.txt of github.com/timbmg/RNNLM",
    ),
}
_MOVIELENS = Source(
    "movielens-latest-small",
    (File("ratings.csv.xz", "aa289ca83157595d0df6aea1be6a4ded676ddc4385472e8313a8ed9805352646", 2_483_723),),
    "GroupLens: MovieLens latest-small (9/2018)",
    "GroupLens: research use, no commercial use",
    "it is ratings.csv in ml-latest-small.zip of GroupLens",
)
_SECONDS_A_DAY = 86_400


def load_text(name: str, *, folder: Folder = None) -> str:
    """A text by its name, "tinyshakespeare" or "war-and-peace"; found and checked as `load` does."""
    source = _TEXTS[_check.one_of("name", name, tuple(_TEXTS))]
    return files.read(source.files[0], source, files.folders_of(source.name, folder)).decode("utf-8")


def load_ratings(*, folder: Folder = None) -> dict[str, npt.NDArray[np.float64]]:
    """MovieLens' 100,836 ratings of 610 people: columns record, item, rating (0.5 to 5 stars) and day."""
    content = files.read(_MOVIELENS.files[0], _MOVIELENS, files.folders_of(_MOVIELENS.name, folder))
    rows = csv.reader(io.StringIO(content.decode("utf-8"), newline=""))
    next(rows)
    table = np.array([tuple(map(float, row)) for row in rows])
    return {
        "record": table[:, 0],
        "item": table[:, 1],
        "rating": table[:, 2],
        "day": table[:, 3] / _SECONDS_A_DAY,
    }
