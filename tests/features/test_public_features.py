"""Features that read nothing from private rows."""

from __future__ import annotations

import numpy
import pytest

from hush.data import Category, Number, Schema
from hush.errors import InvalidValue
from hush.features import HashedNGrams, PublicBins
from hush.features.dead_leaves import dead_leaves


def test_texts_become_rows_of_length_one_whatever_stands_beside_them() -> None:
    texts = ["I saw a fine film.", "", "a film, a film, a film"]
    rows = HashedNGrams(2**12).fit_transform(texts)
    assert rows.dtype == numpy.float32
    assert numpy.allclose(numpy.linalg.norm(rows.toarray(), axis=1), [1, 0, 1])
    assert (rows[2] != HashedNGrams(2**12).transform(texts[2:])[0]).nnz == 0


def test_counts_are_rooted_and_pairs_of_words_count() -> None:
    row = HashedNGrams(2**20).transform(["b b b b c"])
    values = sorted(set(numpy.round(row.data / row.data.min(), 4)))
    assert values == [1.0, 1.7321, 2.0]  # "c" and "b c" once, "b b" three times, "b" four times
    assert HashedNGrams(2**20, longest=1).transform(["b b b b c"]).nnz == 2


def test_one_text_instead_of_a_list_is_refused() -> None:
    with pytest.raises(InvalidValue, match="list of texts"):
        HashedNGrams().transform("a text")
    for wrong in ([], [None], ["a text", 3]):
        with pytest.raises(InvalidValue, match="list of texts"):
            HashedNGrams().transform(wrong)  # type: ignore[arg-type]


def test_bins_are_those_of_the_schema() -> None:
    columns = (Number("age", 0, 100, cuts=(18.0, 65.0)), Category("sex", ("f", "m")))
    bins = PublicBins(Schema(target=Category("y", ("0", "1")), columns=columns))
    rows = bins.fit({}).transform({"age": ["17", "18", "99", "?"], "sex": ["f", "m", "x", "f"]})
    assert (rows > 0).sum(axis=1).tolist() == [2, 2, 2, 2]
    assert (numpy.linalg.norm(rows, axis=1) <= 1 + 1e-6).all()
    assert len({tuple(row) for row in rows[:, :4]}) == 4
    with pytest.raises(InvalidValue, match="mapping"):
        bins.transform([["17", "f"]])
    with pytest.raises(InvalidValue, match="same number of rows"):
        bins.transform({"age": ["17", "18"], "sex": ["f"]})
    numbers = bins.transform({"age": [17, None], "sex": numpy.array(["f", "m"])})
    assert (numbers == bins.transform({"age": ["17", "?"], "sex": ["f", "m"]})).all()


def test_pictures_of_nothing_are_the_same_for_a_seed_and_have_edges() -> None:
    pictures = dead_leaves(20, 16, 3, seed=5)
    assert (pictures == dead_leaves(20, 16, 3, seed=5)).all()
    assert not (pictures == dead_leaves(20, 16, 3, seed=6)).all()
    steps = (pictures[..., 1:] - pictures[..., :-1]).abs()
    assert float(steps.median()) < 0.05 < float(steps.quantile(0.95))
