"""What PromptPATE asks of a language model: one method. Anything that has it can serve, an API behind HTTP too.

    class MyModel:
        def log_probs(self, prefix, inputs, continuations): ...

For every input and continuation it gives the natural logarithms of the probabilities of the continuation's tokens, one
after another, after the text prefix + input. The prefix is the same for all inputs of a call, so that a model may keep
what it computed for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from hush import _check
from hush.errors import InvalidValue
from hush.prompts.prefix_cache import PrefixCache, run

Floats = NDArray[numpy.float64]
TokenLogProbs = list[list[list[float]]]  # input -> continuation -> token
_TOKENS_AT_ONCE = 1024
_MOST_FILLED = 1.5  # the longest row of a batch over its shortest


@runtime_checkable
class LanguageModel(Protocol):
    """A frozen language model, seen through the one method that is needed."""

    def log_probs(self, prefix: str, inputs: Sequence[str], continuations: Sequence[str], /) -> TokenLogProbs:
        """For each input, for each continuation: the log-probability of each of the continuation's tokens in turn.

        `result[i][j]` is a list of at least one number, none above 0, about the text `prefix + inputs[i]` followed by
        `continuations[j]`. A model that knows only the sum gives a list of one number.
        """


class TransformersModel:
    """A causal model of the transformers library and its tokenizer.

    Prefix, input and continuation are turned into tokens apart from each other, so that a prefix means the same tokens
    before every input. The model is put into evaluation mode and is not changed otherwise.
    """

    def __init__(self, model: Any, tokenizer: Any, *, tokens_at_once: int = _TOKENS_AT_ONCE) -> None:
        if not callable(tokenizer):
            raise InvalidValue(f"tokenizer must be the model's tokenizer; got {type(tokenizer).__name__}.")
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.tokens_at_once = _check.whole("tokens_at_once", tokens_at_once)
        self.cache = PrefixCache(self.model)
        begin = getattr(tokenizer, "bos_token_id", None)
        first = list(tokenizer("a")["input_ids"])[:1]
        self._begin: list[int] = first if begin is not None and first == [begin] else []

    def tokens(self, text: str) -> list[int]:
        """The tokens of one piece of text, without any that mark its beginning or end."""
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"]) if text else []

    def text(self, tokens: Sequence[int]) -> str:
        """The text of some tokens."""
        return str(self.tokenizer.decode(list(tokens)))

    @property
    def name(self) -> str:
        """Which model it is, for a folder that is gone on with: class, size and a fingerprint of some weights."""
        weights = list(self.model.parameters())
        content = weights[-1].detach().float().cpu().numpy().tobytes() + str(weights[-1].dtype).encode()
        size = sum(value.numel() for value in weights)
        return f"{type(self.model).__name__} {size} {hashlib.sha256(content).hexdigest()[:16]}"

    def next_token_probs(self, prefixes: Sequence[str], ending: Sequence[int], /) -> Floats:
        """Probabilities of every token after each prefix and the tokens `ending`, (prefixes, vocabulary).

        A text that is longer than the model can read loses its beginning. Each is run alone: in a batch, the length of
        one could change another's probabilities by rounding, and so one example more than one prompt.
        """
        rows = [(self._begin + self.tokens(prefix) + list(ending))[-self._longest() :] for prefix in prefixes]
        if not all(rows):
            raise InvalidValue("prefix and ending are both empty: there is no text to continue.")
        last = (run(self.model, torch.tensor([row]), None, 0, keep=1)[0, -1] for row in rows)
        return numpy.stack([logits.double().softmax(dim=-1).cpu().numpy() for logits in last])

    def log_probs(self, prefix: str, inputs: Sequence[str], continuations: Sequence[str], /) -> TokenLogProbs:
        """See `LanguageModel`. The prefix is run once; inputs of like length run together."""
        endings = [self.tokens(text) for text in continuations]
        if not all(endings):
            raise InvalidValue("every continuation must have at least one token.")
        start, questions = self._begin + self.tokens(prefix), [self.tokens(text) for text in inputs]
        result: TokenLogProbs = [[[] for _ in endings] for _ in questions]
        longest = self._longest()
        for number, question in enumerate(questions):
            if len(start) + len(question) + max(map(len, endings)) > longest:
                raise InvalidValue(f"input {number} and its prompt are longer than the model's {longest} tokens.")
        if start:
            self._fill(result, start, questions, endings)
        else:  # nothing is shared
            for number, question in enumerate(questions):
                if not question:
                    raise InvalidValue("prefix and input are both empty: there is no text to continue.")
                part: TokenLogProbs = [[[] for _ in endings]]
                self._fill(part, question, [[]], endings)
                result[number] = part[0]
        return result

    def _fill(
        self, result: TokenLogProbs, start: list[int], questions: list[list[int]], endings: list[list[int]]
    ) -> None:
        """The last token of the prefix is run again with each input, so that an empty input has a token to look at."""
        shared, last = start[:-1], start[-1:]
        paths = _paths(endings)
        rows = [
            (last + question + path, number, places)
            for number, question in enumerate(questions)
            for path, places in paths
        ]
        rows.sort(key=lambda row: len(row[0]))
        for part in self._parts(rows):
            longest = len(part[-1][0])
            tokens = torch.tensor([row + row[:1] * (longest - len(row)) for row, _, _ in part])
            looked = [len(questions[number]) for _, number, _ in part]  # the place of each question's last token
            logits = run(
                self.model, tokens, self.cache.rows(shared, len(part)), len(shared), keep=longest - min(looked)
            )
            for line, first, (_, number, places) in zip(logits, looked, part, strict=True):
                for place in places:
                    result[number][place] = _picked(line[first - min(looked) :], endings[place])

    def _parts(self, rows: list[tuple[list[int], int, list[int]]]) -> list[list[tuple[list[int], int, list[int]]]]:
        """Rows of like length together, at most `tokens_at_once` with what fills them up."""
        parts: list[list[tuple[list[int], int, list[int]]]] = []
        for row in rows:
            length = len(row[0])
            is_like = parts and length <= _MOST_FILLED * len(parts[-1][0][0]) + 1
            if is_like and length * (len(parts[-1]) + 1) <= self.tokens_at_once:
                parts[-1].append(row)
            else:
                parts.append([row])
        return parts

    def _longest(self) -> int:
        return int(getattr(self.model.config, "max_position_embeddings", None) or 10**9)


def _paths(endings: list[list[int]]) -> list[tuple[list[int], list[int]]]:
    """The rows that a question needs: all but the last token of the longest endings, and the endings that each serves.

    A row of a question and one ending also tells the first token of every other ending, because what follows changes
    nothing before it.

    >>> _paths([[5], [6], [7, 8, 9], [7, 3]])
    [([7, 8], [0, 1, 2, 3])]
    """
    starts = sorted({tuple(ending[:-1]) for ending in endings}, key=len, reverse=True)
    groups: dict[tuple[int, ...], list[int]] = {}
    for start in starts:
        if not any(other[: len(start)] == start for other in groups):
            groups[start] = []
    for place, ending in enumerate(endings):
        start = tuple(ending[:-1])
        groups[next(path for path in groups if path[: len(start)] == start)].append(place)
    return [(list(path), places) for path, places in groups.items()]


def _picked(line: Tensor, ending: list[int]) -> list[float]:
    """The log-probabilities of the ending's tokens; the line begins at the question's last token."""
    logits = line[: len(ending)].double()
    chosen = logits[torch.arange(len(ending)), torch.tensor(ending)]
    found: list[float] = (chosen - logits.logsumexp(dim=-1)).tolist()
    return found


def as_language_model(language_model: Any, tokenizer: Any = None) -> LanguageModel:
    """The object itself if it has the method; a transformers model with its tokenizer, wrapped."""
    if isinstance(language_model, LanguageModel):
        return language_model
    if isinstance(language_model, torch.nn.Module) and hasattr(language_model, "config"):
        if tokenizer is None:
            raise InvalidValue("a transformers model needs its tokenizer: tokenizer=...")
        return TransformersModel(language_model, tokenizer)
    raise InvalidValue(
        "language_model must be a transformers model, or have the method log_probs(prefix, inputs, continuations); "
        f"got {type(language_model).__name__}."
    )
