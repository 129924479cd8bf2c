"""The tokens that stand for classes when a causal language model answers with a word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hush.errors import InvalidValue


def label_tokens(tokenizer: Any, words: Sequence[str]) -> list[int]:
    """The one token of each word, as `SoftPrompt(..., label_words=...)` takes them.

    A word that the tokenizer cuts into several is refused: choose another, often one with a blank in front. The words
    are a public choice; never pick them by how they do on private examples.
    """
    found = []
    for word in words:
        tokens = tokenizer(word, add_special_tokens=False)["input_ids"]
        if len(tokens) != 1:
            raise InvalidValue(f"{word!r} is {len(tokens)} tokens for this tokenizer; use a word that is one token.")
        found.append(int(tokens[0]))
    if len(set(found)) < len(found):
        raise InvalidValue(f"two of the words {list(words)} have the same token.")
    return found
