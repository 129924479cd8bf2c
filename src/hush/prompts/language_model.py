"""What PromptPATE asks of a language model: one method. Anything that has it can serve, an API behind HTTP too.

    class MyModel:
        def log_probs(self, prefix, inputs, continuations): ...

For every input and continuation it gives the natural logarithms of the probabilities of the continuation's tokens, one
after another, after the text prefix + input. The prefix is the same for all inputs of a call, so that a model may keep
what it computed for it.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from hush import _check
from hush.errors import InvalidValue
from hush.prompts.packing import Tokens, pack
from hush.prompts.prefix_cache import PrefixCache, run, run_packed

Floats = NDArray[numpy.float64]
TokenLogProbs = list[list[list[float]]]  # input -> continuation -> token
_TOKENS_AT_ONCE = 1024
_TOKENS_A_ROW = 128  # more share the prefix, but every token is compared with its whole row


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
        """See `LanguageModel`. The prefix is run once, and many inputs together, see `hush.prompts.packing`."""
        endings = [self.tokens(text) for text in continuations]
        if not all(endings):
            raise InvalidValue("every continuation must have at least one token.")
        start, questions = self._begin + self.tokens(prefix), [self.tokens(text) for text in inputs]
        longest = self._longest()
        for number, question in enumerate(questions):
            if len(start) + len(question) + max(map(len, endings)) > longest:
                raise InvalidValue(f"input {number} and its prompt are longer than the model's {longest} tokens.")
        if not start and not all(questions):
            raise InvalidValue("prefix and input are both empty: there is no text to continue.")
        if not all(
            questions
        ):  # an empty input is judged by the prefix's last token, which every input then reads again
            questions = [start[-1:] + question for question in questions]
            start = start[:-1]
        paths = _paths(endings)
        result: TokenLogProbs = [[[] for _ in endings] for _ in questions]
        for number, path, logits in self._logits(start, questions, [path for path, _ in paths]):
            for place in paths[path][1]:
                result[number][place] = _picked(logits, endings[place])
        return result

    def _logits(self, start: Tokens, questions: list[Tokens], paths: list[Tokens]) -> Iterator[tuple[int, int, Tensor]]:
        """For each question and path: the logits at the question's last token and at each token of the path."""
        if not self._packs:
            for number, question in enumerate(questions):
                for path, tokens in enumerate(paths):
                    row, keep = torch.tensor([question + tokens]), 1 + len(tokens)
                    cache = self.cache.rows(start, 1)
                    yield number, path, run(self.model, row, cache, len(start), keep=keep)[0]
            return
        rows = pack(questions, paths, len(start), min(_TOKENS_A_ROW, self.tokens_at_once))
        at_once = max(1, self.tokens_at_once // max(map(len, rows), default=1))
        for first in range(0, len(rows), at_once):
            part = rows[first : first + at_once]
            found = run_packed(self.model, part, self.cache.rows(start, len(part)), len(start))
            for packed, logits in zip(part, found, strict=True):
                for (number, path), places in packed.found.items():
                    yield number, path, logits[places]

    @functools.cached_property
    def _packs(self) -> bool:
        """Whether the model heeds a mask and places of our own; tried out once. If not, prompts run one by one."""
        config = self.model.config
        if getattr(config, "sliding_window", None) or getattr(config, "attention_chunk_size", None):
            return False
        shared, questions = [3, 2, 3], [[2, 3], [3]]
        try:
            (row,) = pack(questions, [[2], [3]], len(shared), 100)
            packed = run_packed(self.model, [row], self.cache.rows(shared, 1), len(shared))[0, row.found[1, 1]].double()
            cache = self.cache.rows(shared, 1)
            alone = run(self.model, torch.tensor([[3, 3]]), cache, len(shared), keep=2)[0].double()
        except (ValueError, TypeError, RuntimeError, IndexError):
            return False
        close = math.sqrt(torch.finfo(self.model.dtype).eps) * float(alone.abs().max())
        return bool((packed - alone).abs().max() <= close)

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
