"""The texts of `hush prompt pate|generate`: a known task, or files of one's own."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy
from numpy.typing import NDArray

from hush import data
from hush.data.encoding import in_test_part
from hush.errors import InvalidValue, UnreadableFile
from hush.prompts.templates import TASKS, Template

PUBLIC_SHARE = 0.1  # of the rows of a known task, by the hash of each text
_TEST_PART = {"sst2": "dev"}
Integers = NDArray[numpy.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Texts:
    """Private texts with labels, public texts, and texts to test on; the template and the label words are public."""

    name: str
    template: Template
    words: tuple[str, ...]
    private: list[str] = field(repr=False)
    labels: Integers = field(repr=False)
    public: list[str] = field(repr=False)
    test: list[str] = field(default_factory=list, repr=False)
    test_labels: Integers = field(default_factory=lambda: numpy.empty(0, numpy.int64), repr=False)


def known(name: str, folder: Path | None, most_tests: int) -> Texts:
    """A known task. A tenth of its training rows, by the hash of each text, is public without its labels."""
    if name not in TASKS:
        raise InvalidValue(f"--data must be one of {', '.join(sorted(TASKS))}, or give --private and --public.")
    train = data.load_labelled_texts(name, folder=folder)
    test = data.load_labelled_texts(name, _TEST_PART.get(name, "test"), folder=folder)
    is_public = in_test_part(train.texts, PUBLIC_SHARE)
    rows = numpy.flatnonzero(~is_public).tolist()
    step = max(1, len(test) // most_tests) if most_tests else 1
    tried = list(range(0, len(test), step))[:most_tests]
    return Texts(
        name=name,
        template=TASKS[name].template,
        words=TASKS[name].labels,
        private=[train.texts[row] for row in rows],
        labels=numpy.array([train.labels[row] for row in rows], dtype=numpy.int64),
        public=[train.texts[row] for row in numpy.flatnonzero(is_public).tolist()],
        test=[test.texts[row] for row in tried],
        test_labels=numpy.array([test.labels[row] for row in tried], dtype=numpy.int64),
    )


def own(private: Path, public: Path | None, words: str, instruction: str, example: str | None) -> Texts:
    """Files: private lines of text, tab, label; public lines of text."""
    labels = tuple(word.strip() for word in words.split(",") if word.strip())
    rows = [line.rsplit("\t", 1) for line in _lines(private)]
    wrong = next((number for number, row in enumerate(rows, 1) if len(row) != 2 or row[1].strip() not in labels), None)
    if wrong is not None:  # the line itself is private and is not shown
        raise UnreadableFile(f"line {wrong} of {private} must be a text, a tab and one of {', '.join(labels)}.")
    frame = Template(instruction=instruction) if example is None else Template(instruction=instruction, example=example)
    return Texts(
        name=private.stem,
        template=frame,
        words=tuple(f" {label}" for label in labels),
        private=[row[0] for row in rows],
        labels=numpy.array([labels.index(row[1].strip()) for row in rows], dtype=numpy.int64),
        public=[] if public is None else _lines(public),
    )


def texts_of(
    name: str | None,
    private: Path | None,
    public: Path | None,
    words: str | None,
    instruction: str,
    example: str | None,
    folder: Path | None,
    most_tests: int,
    *,
    needs_public: bool,
) -> Texts:
    """What was asked for: a task by its name, or files."""
    if (name is None) == (private is None):
        raise InvalidValue("name the texts: --data trec, or --private FILE with --label-words; not both.")
    if name is not None:
        return known(name, folder, most_tests)
    if words is None or (needs_public and public is None):
        needed = "--public and --label-words" if needs_public else "--label-words"
        raise InvalidValue(f"--private FILE also needs {needed}.")
    assert private is not None
    return own(private, public, words, instruction.replace("\\n", "\n"), example and example.replace("\\n", "\n"))


def _lines(path: Path) -> list[str]:
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableFile(f"cannot read {path}: {getattr(error, 'strerror', None) or 'it is not UTF-8'}.") from None
    found = [line for line in content.splitlines() if line.strip()]
    if not found:
        raise UnreadableFile(f"{path} is empty.")
    return found
