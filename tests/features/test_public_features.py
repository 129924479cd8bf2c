"""Features that read nothing from private rows."""

from __future__ import annotations

import numpy
import pytest
import torch

from hush.data import Category, Number, Schema
from hush.errors import InvalidValue
from hush.features import HashedNGrams, Patches, PrivateTransformer, PublicBins
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


def test_words_after_a_negation_are_other_words_up_to_the_end_of_the_clause() -> None:
    plain, marked = HashedNGrams(2**20, longest=1), HashedNGrams(2**20, longest=1, negations=True)
    as_it_is = ["It's funny.", "Not so, but funny", "no a b c d funny"]
    negated = ["It isn't very funny.", "NEVER FUNNY", "isn’t funny"]
    funny = plain.transform(["funny"]).indices[0]
    assert all(plain.transform(as_it_is + negated)[:, [funny]].toarray() > 0)
    assert all(marked.transform(as_it_is)[:, [funny]].toarray() > 0)
    assert not any(marked.transform(negated)[:, [funny]].toarray() > 0)
    assert (marked.transform(["a fine film"]) != plain.transform(["a fine film"])).nnz == 0


def test_patches_read_nothing_but_the_shape() -> None:
    draws = torch.Generator().manual_seed(0)
    one, other = (torch.rand(count, 1, 12, 12, generator=draws) for count in (3, 40))
    first, second = (Patches(8, patch_size=3, cells=2).fit(x) for x in (one, other))
    assert (first.transform(other) == second.transform(other)).all()
    assert numpy.allclose(first.transform(other)[:1], first.transform(other[:1]), atol=1e-6)
    assert not isinstance(first, PrivateTransformer)
    with pytest.raises(InvalidValue, match="as in fit"):
        first.transform(torch.rand(2, 1, 12, 16))
    for name, wrong in (("overlap", 0.0), ("ridge", -1.0), ("contrast", -0.1), ("threshold", float("nan"))):
        with pytest.raises(InvalidValue, match=name):
            Patches(8, patch_size=3, cells=2, **{name: wrong}).fit(one)


def test_narrow_hills_are_points() -> None:
    hills = Patches(8, patch_size=3, cells=2, overlap=1e-3)._hills(10)
    assert hills.tolist() == [[0, 0, 1, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0, 1, 0, 0]]


def test_a_large_ridge_leaves_patches_as_they_are() -> None:
    model = Patches(8, patch_size=3, cells=2, ridge=1e9).fit(torch.rand(2, 1, 12, 12))
    assert torch.allclose(model.whitening_ * 1e9**0.5, torch.eye(9), atol=1e-3)


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
