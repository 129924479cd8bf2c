"""Private adaptation of language models: soft prompts and adapters by DP-SGD, discrete prompts by PATE."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hush.prompts.collate import ExampleLoss as ExampleLoss
    from hush.prompts.fit_soft import fit_soft_prompt as fit_soft_prompt
    from hush.prompts.generate import GenerationPlan as GenerationPlan
    from hush.prompts.generate import generate_demonstrations as generate_demonstrations
    from hush.prompts.http_model import HttpModel as HttpModel
    from hush.prompts.known_models import load_language_model as load_language_model
    from hush.prompts.label_words import label_tokens as label_tokens
    from hush.prompts.language_model import LanguageModel as LanguageModel
    from hush.prompts.language_model import TransformersModel as TransformersModel
    from hush.prompts.pate import PromptPATE as PromptPATE
    from hush.prompts.scoring import label_scores as label_scores
    from hush.prompts.soft import SoftPrompt as SoftPrompt
    from hush.prompts.student import StudentPrompt as StudentPrompt
    from hush.prompts.templates import Template as Template
    from hush.prompts.trained_part import keep_trained_part as keep_trained_part
    from hush.prompts.trained_part import train_only as train_only

_HOME = {  # a name -> the module that holds it, loaded on first use
    "ExampleLoss": "hush.prompts.collate",
    "GenerationPlan": "hush.prompts.generate",
    "HttpModel": "hush.prompts.http_model",
    "LanguageModel": "hush.prompts.language_model",
    "PromptPATE": "hush.prompts.pate",
    "SoftPrompt": "hush.prompts.soft",
    "StudentPrompt": "hush.prompts.student",
    "Template": "hush.prompts.templates",
    "TransformersModel": "hush.prompts.language_model",
    "fit_soft_prompt": "hush.prompts.fit_soft",
    "generate_demonstrations": "hush.prompts.generate",
    "keep_trained_part": "hush.prompts.trained_part",
    "label_scores": "hush.prompts.scoring",
    "label_tokens": "hush.prompts.label_words",
    "load_language_model": "hush.prompts.known_models",
    "train_only": "hush.prompts.trained_part",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'hush.prompts' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
