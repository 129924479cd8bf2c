"""Texts with labels, against the sizes and counts that their publishers state."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from hush import data
from hush.errors import DataMissing, InvalidValue, UnreadableFile

# rows, and the rows of each label, from the papers' and GLUE's own descriptions
PUBLISHED = {
    ("sst2", "train"): (67_349, (29_780, 37_569)),
    ("sst2", "dev"): (872, (428, 444)),
    ("sst2", "test"): (1_821, (912, 909)),
    ("trec", "train"): (5_452, (86, 1_162, 1_250, 1_223, 835, 896)),
    ("trec", "test"): (500, (9, 138, 94, 65, 81, 113)),
    ("imdb", "train"): (25_000, (12_500, 12_500)),
    ("ag-news-sample", "test"): (7_600, (1_900, 1_900, 1_900, 1_900)),
}


@pytest.mark.parametrize(("name", "part"), PUBLISHED)
def test_sizes_are_the_published_ones(name: str, part: str) -> None:
    if "HUSH_DATA" not in os.environ:
        pytest.skip("HUSH_DATA is not set")
    try:
        found = data.load_labelled_texts(name, part)
    except DataMissing as error:
        pytest.skip(str(error))
    rows, counts = PUBLISHED[name, part]
    assert len(found) == len(found.labels) == rows
    seen = Counter(found.labels)
    assert tuple(seen[number] for number in range(len(found.label_names))) == counts
    assert all(text and text == text.strip() for text in found.texts)


def test_other_names_parts_and_files_are_refused(tmp_path: object) -> None:
    with pytest.raises(InvalidValue, match="sst2"):
        data.load_labelled_texts("sst3")
    with pytest.raises(InvalidValue, match="train"):
        data.load_labelled_texts("trec", "dev")
    with pytest.raises(DataMissing, match=r"qc\.zip"):
        data.load_labelled_texts("trec", folder=str(tmp_path))
    from pathlib import Path

    (Path(str(tmp_path)) / "test.txt").write_text("LOC:city Where ?\n")
    with pytest.raises(UnreadableFile, match="not the published file"):
        data.load_labelled_texts("trec", "test", folder=str(tmp_path))
