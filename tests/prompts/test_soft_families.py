"""What soft prompts ask of a family of models: who sees whom, and how wide embeddings and layers are."""

from __future__ import annotations

import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.gradients.naive_loop import TIGHT, relative_error
from tests.prompts.tiny_models import CAUSAL, ENCODERS, UNFOLLOWED, VOCABULARY, batch, made, plain_kernels
from torch import Tensor

from hush.errors import InvalidValue
from hush.gradients import clipped_sum
from hush.prompts import ExampleLoss, SoftPrompt
from hush.prompts.layers import is_causal
from hush.rng import Rng

pytestmark = pytest.mark.filterwarnings("ignore:TF32:UserWarning")
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}


def decides(model: Any) -> bool:
    return is_causal(model, model.get_input_embeddings())


def later_token_changes_an_earlier_place(model: Any) -> bool:
    """The truth, by behaviour: the states of the first two tokens, where the third is another."""
    ids = torch.tensor([[5, 9, 11], [5, 9, 30]])
    with torch.no_grad():
        states = model.base_model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    # Processors may round the rows of one product differently; another token that is seen moves states far more.
    return not torch.allclose(states[0, :2], states[1, :2], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", [*CAUSAL, "Llama classifier", *ENCODERS])
def test_who_sees_whom_is_what_the_model_does(name: str) -> None:
    model = made(name)
    assert decides(model) == (name not in ENCODERS)
    assert decides(model) != later_token_changes_an_earlier_place(model)
    settings = {"label_words": [3, 7]} if name in CAUSAL else {}
    assert SoftPrompt(model, 2, **settings)._place == (1 if name in ENCODERS else 0)  # type: ignore[arg-type]
    with plain_kernels():
        assert decides(made(name).to(torch.bfloat16)) == (name not in ENCODERS)


def test_an_encoder_that_was_made_a_decoder_is_causal() -> None:
    bert = import_module("transformers.models.bert.modeling_bert")
    models = [bert.BertLMHeadModel(bert.BertConfig(vocab_size=50, is_decoder=flag, **SMALL)) for flag in (True, False)]
    assert [decides(model) for model in models] == [True, False]


def test_an_adapted_model_is_judged_as_its_base_is() -> None:
    peft = pytest.importorskip("peft")
    for name, target in {"Bloom": "query_key_value", "BERT": "query"}.items():
        adapted = peft.get_peft_model(made(name), peft.LoraConfig(r=2, target_modules=[target]))
        assert decides(adapted) == (name == "Bloom")


@pytest.mark.parametrize("name", ["BERT", "Bloom"])
def test_the_trial_leaves_no_trace(name: str) -> None:
    model = made(name, hidden_dropout=0.5) if name == "Bloom" else made(name)
    part = next(module for module in model.modules() if isinstance(module, torch.nn.LayerNorm))
    model.train()
    part.eval()  # a mixture of modes comes back as it was
    modes = [module.training for module in model.modules()]
    hooks = [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()]
    state = torch.get_rng_state()
    with torch.inference_mode():
        decides(model)
    assert torch.equal(state, torch.get_rng_state())
    assert [module.training for module in model.modules()] == modes
    assert [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()] == hooks
    assert all(value.grad is None and value.requires_grad for value in model.parameters())
    broken = made(name)
    broken.forward = lambda **_: 1 / 0
    with pytest.raises(ZeroDivisionError):
        decides(broken)
    assert not any(module._forward_hooks for module in broken.modules())


def test_models_that_read_tokens_otherwise_are_refused() -> None:
    xlnet = import_module("transformers.models.xlnet.modeling_xlnet")
    small = {"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 24, "vocab_size": VOCABULARY}
    with pytest.raises(InvalidValue, match="XLNetForSequenceClassification does not turn"):
        SoftPrompt(xlnet.XLNetForSequenceClassification(xlnet.XLNetConfig(**small)), 3)


@pytest.mark.parametrize("name", UNFOLLOWED)
def test_attention_that_the_tape_cannot_follow_is_served_otherwise_with_a_warning(name: str) -> None:
    prompt = SoftPrompt(made(name), 4, per_layer=True, label_words=[7, 3, 11], rng=Rng.from_seed(1))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = clipped_sum(prompt, ExampleLoss("class"), batch(), 0.05)
    assert "SoftPrompt is not served by tape" in str(told[0].message)
    assert found.method == UNFOLLOWED[name]
    looped = clipped_sum(prompt, ExampleLoss("class"), batch(), 0.05, method="looped")
    assert relative_error(found.gradients, looped.gradients) < 1e-7


@pytest.mark.parametrize(("name", "embedding", "layer"), [("ELECTRA", 8, 16), ("OPT", 8, 16), ("BERT", 16, 16)])
def test_vectors_have_the_width_of_the_place_where_they_stand(
    name: str, embedding: int, layer: int, tmp_path: Path
) -> None:
    """ELECTRA and OPT project narrow embeddings to the layers' width."""
    words = [7, 3, 11] if name in CAUSAL else None
    prompt, given = SoftPrompt(made(name), 4, per_layer=True, label_words=words, rng=Rng.from_seed(1)), batch()
    assert prompt.vectors.shape == (4, embedding)
    assert [value.shape for value in prompt.layer_vectors] == [(4, layer)] * 2
    looped = clipped_sum(prompt, ExampleLoss("class"), given, 0.05, method="looped")
    assert all(value.any() for value in looped.gradients.values())
    for method in ("tape", "auto"):
        got = clipped_sum(prompt, ExampleLoss("class"), given, 0.05, method=method)  # type: ignore[arg-type]
        assert relative_error(got.gradients, looped.gradients) < TIGHT
    prompt.save(tmp_path / "prompt.safetensors")
    again = SoftPrompt.load(tmp_path / "prompt.safetensors", made(name))
    with torch.no_grad():
        expected, found = (part(given["input_ids"]).logits for part in (prompt, again))
    assert isinstance(expected, Tensor)
    assert torch.equal(expected, found)
