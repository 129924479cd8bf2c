"""Soft prompts: trainable vectors before the input of a frozen transformers model.

    prompt = SoftPrompt(model, 10)                       # the model is frozen; 10 x width numbers are trained
    prompt = SoftPrompt(model, 10, per_layer=True)       # fresh vectors in front of every layer
    logits = prompt(input_ids, attention_mask).logits    # as the model's own, for the text's tokens alone

The model runs on the text with `length` places reserved; where the embedding gives those places' vectors, the prompt is
put instead [Lester, Al-Rfou, Constant 2021]. One prompt is expanded over the batch, so the gradient of the expanded
tensor, (batch, length, width), is every example's gradient: nothing else has to be computed for privacy.

`per_layer=True` also replaces the places' hidden states before every later layer by vectors of that layer, so that the
text attends to trained vectors in each of them [Qin, Eisner 2021; Liu et al. 2022]. Their keys and values come from the
frozen projections: half the numbers of key-value prefixes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from hush import _check
from hush.errors import InvalidValue
from hush.prompts import files
from hush.prompts.layers import hidden_of, is_causal, layers_of, with_hidden
from hush.prompts.trained_part import keep_trained_part, train_only
from hush.rng import Rng

if TYPE_CHECKING:
    from hush.training import Run


class SoftPrompt(nn.Module):
    """`length` trainable vectors before the input of a frozen model.

    It is called as the model is, with right-padded token ids and their mask, and returns what the model returns; token
    by token results are those of the text. Its `state_dict` holds the trained numbers alone.

    Args:
        model: A transformers model, or one wrapped by peft: an encoder with a classifier, or a causal language model.
            All its parameters are frozen but those of `train_too`. Put it into eval mode for a model without dropout.
        length: How many vectors.
        per_layer: Train vectors in front of each layer, not only of the first.
        label_words: For a causal language model, the token that stands for each class: logits are then (batch,
            classes), those of these words after the last token. `label_tokens` finds them.
        train_too: Modules that stay trainable, such as ("classifier",): names, or what names end in.
        rng: Where the start comes from, the embeddings of random tokens; fresh entropy if None.
    """

    def __init__(
        self,
        model: nn.Module,
        length: int,
        *,
        per_layer: bool = False,
        label_words: Sequence[int] | None = None,
        train_too: Sequence[str] = (),
        rng: Rng | None = None,
    ) -> None:
        super().__init__()
        self.length = _check.whole("length", length)
        self.per_layer = bool(per_layer)
        self.model = model
        _refuse_two_texts(model)
        causal = is_causal(model, self._embedding)
        self._place = 0 if causal else 1  # an encoder's first token is the one that classifiers read
        self.label_words = None if label_words is None else _checked_words(label_words, self._embedding)
        self.train_too = (train_too,) if isinstance(train_too, str) else tuple(train_too)
        self.made_for = files.fingerprint(model)  # before anything is trained
        train_only(model, self.train_too)
        start = _start(self._embedding, self.length, rng or Rng.from_entropy())
        self.vectors = nn.Parameter(start)
        self._layers = layers_of(model) if self.per_layer else []
        self.layer_vectors = nn.ParameterList(self._layer_start()) if self.per_layer else nn.ParameterList()
        keep_trained_part(self)

    @property
    def _embedding(self) -> nn.Embedding:
        return embedding_of(self.model)  # asked for each time: as a field it would be a second child

    @property
    def config(self) -> Any:
        """The model's configuration."""
        return getattr(self.model, "config", None)

    def save(self, path: str | os.PathLike[str], *, run: Run | None = None) -> None:
        """Write the trained numbers into a safetensors file, with the guarantee of the run that trained them."""
        files.save(self, path, run=run)

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: nn.Module) -> SoftPrompt:
        """The prompt in a file, before a fresh model with the same weights as the one it was trained for."""
        return files.load(path, model)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Any:
        """What the frozen model gives with the prompt in front; `logits` are those of the text's tokens."""
        self._refuse_checkpoints()
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        self._check_length(input_ids)
        _reject_left_padding(mask)
        given: dict[str, Any] = {
            "input_ids": self._widened(input_ids, input_ids[:, :1]),
            "attention_mask": self._widened(mask, mask.new_ones(())),
        }
        if token_type_ids is not None:
            given["token_type_ids"] = self._widened(token_type_ids, token_type_ids[:, :1])
        with self._put_in(len(input_ids)):
            output = self.model(**given)
        return self._of_the_text(output, mask)

    def _widened(self, tokens: Tensor, filler: Tensor) -> Tensor:
        """The tokens with `length` places for the prompt."""
        room = filler.expand(len(tokens), self.length)
        return torch.cat([*self._front(tokens), room, tokens[:, self._place :]], dim=1)

    def _front(self, rows: Tensor) -> list[Tensor]:
        """What stands before the prompt, if anything does."""
        return [rows[:, : self._place]] if self._place else []

    def _joined(self, hidden: Tensor, copies: Tensor) -> Tensor:
        after = hidden[:, self._place + self.length :]
        return torch.cat([*self._front(hidden), copies.to(hidden.dtype), after], dim=1)

    @contextmanager
    def _put_in(self, rows: int) -> Iterator[None]:
        """While the model runs, the places hold the prompt: one copy per example, made once and kept until the end."""
        copies, *later = [part.expand(rows, *part.shape) for part in (self.vectors, *self.layer_vectors)]

        def embedded(_: nn.Module, __: Any, output: Tensor) -> Tensor:
            return self._joined(output, copies)

        def before_layer(mine: Tensor) -> Any:
            return lambda _, args, kwargs: with_hidden(args, kwargs, self._joined(hidden_of(args, kwargs), mine))

        handles: list[Any] = [self._embedding.register_forward_hook(embedded)]
        for layer, mine in zip(self._layers[1:], later, strict=True):
            handles.append(layer.register_forward_pre_hook(before_layer(mine), with_kwargs=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _of_the_text(self, output: Any, mask: Tensor) -> Any:
        for name in ("logits", "last_hidden_state"):
            found = getattr(output, name, None)
            if isinstance(found, Tensor) and found.ndim == 3:
                after = found[:, self._place + self.length :]
                output[name] = torch.cat([*self._front(found), after], dim=1) if self._place else after
        if self.label_words is not None:
            output["logits"] = _after_last(output.logits[:, :, self.label_words], mask)
        return output

    def _refuse_checkpoints(self) -> None:
        """A checkpointed layer runs again on the way back, when its vectors are no longer put in."""
        learning = bool(self._layers) and self.model.training and torch.is_grad_enabled()
        if learning and any(getattr(part, "gradient_checkpointing", False) for part in self.model.modules()):
            raise InvalidValue("per_layer does not work with gradient checkpointing; use one of the two.")

    def _check_length(self, input_ids: Tensor) -> None:
        if input_ids.ndim != 2 or input_ids.shape[1] <= self._place:
            raise InvalidValue(
                f"input_ids must be (batch, at least {self._place + 1} tokens); got {tuple(input_ids.shape)}."
            )
        most = getattr(self.config, "max_position_embeddings", None)
        if most is not None and input_ids.shape[1] + self.length > most:
            raise InvalidValue(
                f"{input_ids.shape[1]} tokens and a prompt of {self.length} are more than the model's {most} places; "
                "truncate the texts."
            )

    @torch.no_grad()
    def _layer_start(self) -> list[Tensor]:
        """What the model itself has at the places before each later layer, when it reads the prompt alone."""
        seen: list[Tensor] = []

        def look(_: nn.Module, args: Any, kwargs: Any) -> None:
            seen.append(hidden_of(args, kwargs)[0, self._place : self._place + self.length].to(self.vectors.dtype))

        def embedded(_: nn.Module, __: Any, output: Tensor) -> Tensor:
            return self._joined(output, self.vectors[None])

        handles: list[Any] = [part.register_forward_pre_hook(look, with_kwargs=True) for part in self._layers[1:]]
        handles.append(self._embedding.register_forward_hook(embedded))
        ids = torch.zeros(1, self._place + self.length, dtype=torch.long, device=self.vectors.device)
        try:
            self.model(input_ids=ids, attention_mask=torch.ones_like(ids))
        finally:
            for handle in handles:
                handle.remove()
        return seen


def _after_last(logits: Tensor, mask: Tensor) -> Tensor:
    """(batch, tokens, classes) -> (batch, classes): the row of each text's last token, without indexing the batch."""
    counted = mask.long().cumsum(dim=1)
    is_last = (counted == counted[:, -1:]) & (mask != 0)
    return (logits * is_last[:, :, None].to(logits.dtype)).sum(dim=1)


def _reject_left_padding(mask: Tensor) -> None:
    """Raise in training where padding would stand between the prompt and the text.

    The distance between the two, and so the gradient of a text, would depend on the longest text of the batch.
    """
    if not torch.is_grad_enabled() or torch._C._functorch.is_functorch_wrapped_tensor(mask):
        return  # inside vmap no number can be read
    with torch._C.DisableTorchFunction():  # a check, and no value of the loss
        if mask.shape[0] and not bool((mask[:, 0] != 0).all()):
            raise InvalidValue(
                "a soft prompt is trained on texts that are padded on the right; set tokenizer.padding_side = 'right'."
            )


def _refuse_two_texts(model: nn.Module) -> None:
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        raise InvalidValue(f"{type(model).__name__} reads two texts; a soft prompt needs an encoder or a causal model.")


def embedding_of(model: nn.Module) -> nn.Embedding:
    """The table of token embeddings."""
    ask: Any = getattr(model, "get_input_embeddings", None)
    found = None if ask is None else ask()
    if not isinstance(found, nn.Embedding):
        raise InvalidValue(f"model must be a transformers model with token embeddings; got {type(model).__name__}.")
    return found


def _checked_words(words: Sequence[int], embedding: nn.Embedding) -> list[int]:
    found = [_check.whole("a label word's token", word, least=0) for word in words]
    if len(found) < 2 or len(set(found)) < len(found) or max(found) >= embedding.num_embeddings:
        raise InvalidValue(f"label_words must be two or more different tokens of the vocabulary; got {found}.")
    return found


def _start(embedding: nn.Embedding, length: int, rng: Rng) -> Tensor:
    """Embeddings of random tokens: closer to what the model knows than random numbers [Lester et al. 2021, 3.2]."""
    tokens = rng.stream(rng.unused("soft prompt")).integers(embedding.num_embeddings, size=length)
    rows: Tensor = embedding.weight.detach()[torch.from_numpy(tokens).to(embedding.weight.device)]
    return rows.float() if embedding.weight.dtype in (torch.bfloat16, torch.float16) else rows.clone()
