"""The tokens that stand for classes when a causal language model answers with a word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hush.errors import InvalidValue


def label_tokens(tokenizer: Any, words: Sequence[str]) -> list[int]:
    """The one token of each word, as `SoftPrompt(..., label_words=...)` takes them.

    A word that the tokenizer cuts into several, or does not know, is refused: choose another, often one with a blank
    in front. The words are a public choice; never pick them by how they do on private examples.
    """
    cut = [tokenizer(word, add_special_tokens=False)["input_ids"] for word in words]
    wrong = [f"{word!r} is {len(part)} tokens" for word, part in zip(words, cut, strict=True) if len(part) != 1]
    if wrong:
        raise InvalidValue(f"a label word must be one token for this tokenizer, but {', '.join(wrong)}; use others.")
    found = [int(part[0]) for part in cut]
    unknown = getattr(tokenizer, "unk_token_id", None)
    if unknown is not None and unknown in found:
        raise InvalidValue(f"this tokenizer does not know the word {words[found.index(unknown)]!r}; use other words.")
    if len(set(found)) < len(found):
        raise InvalidValue(f"two of the words {list(words)} have the same token.")
    return found
