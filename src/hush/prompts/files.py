"""A soft prompt on disk: a few kilobytes of safetensors, with what it needs to be loaded and what it cost."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from hush.errors import InvalidValue, UnreadableFile
from hush.training.files import load_weights, read_tensors, write_tensors

if TYPE_CHECKING:
    from hush.prompts.soft import SoftPrompt
    from hush.training import Run

FORMAT = 1
_MOST_ROWS = 256  # of the embedding go into the fingerprint


def save(prompt: SoftPrompt, path: str | os.PathLike[str], *, run: Run | None = None) -> None:
    """Write the trained numbers, and the guarantee of the run that trained them."""
    facts = {
        "format": FORMAT,
        "length": prompt.length,
        "per_layer": prompt.per_layer,
        "label_words": prompt.label_words,
        "train_too": list(prompt.train_too),
        "model": prompt.made_for,
        "guarantee": None if run is None else run.guarantee.to_dict(),
    }
    write_tensors(Path(path), prompt.state_dict(), {"hush prompt": json.dumps(facts)})


def load(path: str | os.PathLike[str], model: nn.Module) -> SoftPrompt:
    """The prompt in a file, before a model that has the weights it was trained with."""
    from hush.prompts.soft import SoftPrompt

    tensors, _ = read_tensors(Path(path))
    facts = facts_of(path)
    if facts["model"] != fingerprint(model):
        raise InvalidValue(f"{Path(path).name} was trained for another model: its token embeddings are different.")
    prompt = SoftPrompt(
        model,
        facts["length"],
        per_layer=facts["per_layer"],
        label_words=facts["label_words"],
        train_too=facts["train_too"],
    )
    try:
        load_weights(prompt, tensors)
    except RuntimeError:
        raise UnreadableFile(f"{Path(path).name} does not hold the numbers of such a prompt.") from None
    return prompt


def facts_of(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What the file says of the prompt; `guarantee` is what the run that trained it cost."""
    _, metadata = read_tensors(Path(path))
    try:
        facts = json.loads(metadata["hush prompt"])
        if facts["format"] != FORMAT:
            raise UnreadableFile(f"{Path(path).name} has format {facts['format']} and this Hush reads {FORMAT}.")
        return {name: facts[name] for name in ("length", "per_layer", "label_words", "train_too", "model", "guarantee")}
    except (KeyError, ValueError, TypeError) as error:
        if isinstance(error, UnreadableFile):
            raise
        raise UnreadableFile(f"{Path(path).name} is not a prompt of Hush.") from None


def fingerprint(model: nn.Module) -> str:
    """The sha256 of some token embeddings in bfloat16, so that it is the same in every precision but float16."""
    from hush.prompts.soft import embedding_of

    weight = embedding_of(model).weight.detach()
    step = max(1, len(weight) // _MOST_ROWS)
    rows = weight[::step].to("cpu", torch.bfloat16).contiguous().view(torch.int16)
    return hashlib.sha256(f"{tuple(weight.shape)}".encode() + rows.numpy().tobytes()).hexdigest()
