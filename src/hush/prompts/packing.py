"""Many questions in one row: each sees the shared prefix and itself alone, by a mask.

Side by side, every question would need a copy of the prefix's keys and values, and filling up to the longest one. In
one row, some questions share a copy and nothing is filled up. A question with several label words branches: its words
see the question, not each other, so a question is read once. What a token sees, and its place, are those of the prompt
alone; so are its logits, to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

Tokens = list[int]
_NOBODY = -1  # owns what fills a row up, and the prefix's last token


@dataclass
class Row:
    """Tokens of some questions with their places in their own prompts; those that are looked at stand at the end.

    `found` says for (question, path) where the tokens stand whose logits tell the path, counted in `looked`.
    """

    tokens: Tokens = field(default_factory=list)
    looked: Tokens = field(default_factory=list)
    marks: list[tuple[int, int, int]] = field(default_factory=list)  # place, question, path of each token
    looked_marks: list[tuple[int, int, int]] = field(default_factory=list)
    found: dict[tuple[int, int], list[int]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.tokens) + len(self.looked)

    def add(self, number: int, question: Tokens, paths: list[Tokens], first: int) -> None:
        """A question that begins at place `first`, read once, and each of its paths after it."""
        *others, last = question
        end = first + len(others)
        self.tokens += others
        self.marks += [(first + place, number, _NOBODY) for place in range(len(others))]
        root = self._look(last, (end, number, _NOBODY))
        for path, tokens in enumerate(paths):
            steps = [self._look(token, (end + 1 + place, number, path)) for place, token in enumerate(tokens)]
            self.found[number, path] = [root, *steps]

    def _look(self, token: int, mark: tuple[int, int, int]) -> int:
        self.looked.append(token)
        self.looked_marks.append(mark)
        return len(self.looked) - 1


def pack(questions: list[Tokens], paths: list[Tokens], first: int, most: int) -> list[Row]:
    """Rows of whole questions in their order, of at most `most` tokens where one question allows it."""
    rows: list[Row] = []
    branches = sum(map(len, paths))
    for number, question in enumerate(questions):
        if not rows or len(rows[-1]) + len(question) + branches > most:
            rows.append(Row())
        rows[-1].add(number, question, paths, first)
    return rows


def tensors(rows: list[Row], shared: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens (rows, longest), their places, and what they see, (rows, 1, longest, all): 0, or the least number.

    What is looked at stands in the same last columns of all rows.
    """
    before, keep = max(len(row.tokens) for row in rows), max(len(row.looked) for row in rows)
    nothing = (0, _NOBODY, _NOBODY)
    tokens, marks = [], []
    for row in rows:
        early, late = before - len(row.tokens), keep - len(row.looked)
        tokens.append([0] * early + row.tokens + row.looked + [0] * late)
        marks.append([nothing] * early + row.marks + row.looked_marks + [nothing] * late)
    place, owner, path = torch.tensor(marks).unbind(-1)
    own = (owner[:, :, None] == owner[:, None, :]) & (place[:, :, None] >= place[:, None, :])
    own &= (path[:, None, :] == _NOBODY) | (path[:, :, None] == path[:, None, :])
    seen = torch.cat([torch.ones(*own.shape[:2], shared, dtype=torch.bool), own], dim=2)[:, None]
    mask = torch.zeros(seen.shape, dtype=dtype).masked_fill(~seen, torch.finfo(dtype).min)
    return torch.tensor(tokens), place, mask
