"""Fine-tune a transformer with LoRA, privately. Needs the extra `text`; downloads nothing.

The model is a small DistilBERT from its configuration, and the sentences are made up, so the example runs anywhere. For
real work put `AutoModelForSequenceClassification.from_pretrained(...)` and your own tokens in their place; the model is
not changed for privacy in either case.
"""

import sys

import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset
from transformers import DistilBertConfig, DistilBertForSequenceClassification

from hush import Budget, TrainingPlan, fit

EXAMPLES, LENGTH, WORDS = 2_000, 16, 60


def sentences() -> TensorDataset:
    """Random words. Class 1 speaks of words 1 to 20 more often; sentences have different lengths."""
    stream = torch.Generator().manual_seed(0)
    tokens = torch.randint(21, WORDS, (EXAMPLES, LENGTH), generator=stream)
    labels = torch.arange(EXAMPLES) % 2
    topical = torch.rand(EXAMPLES, LENGTH, generator=stream) < 0.6 * labels[:, None]
    tokens = torch.where(topical, tokens % 20 + 1, tokens)
    lengths = torch.randint(LENGTH // 2, LENGTH + 1, (EXAMPLES, 1), generator=stream)
    mask = (torch.arange(LENGTH) < lengths).long()
    return TensorDataset(tokens * mask, mask, labels)


def loss_fn(model: nn.Module, tokens: torch.Tensor, mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    logits = model(input_ids=tokens, attention_mask=mask).logits
    return functional.cross_entropy(logits, labels, reduction="none")


def main(steps: int = 60) -> float:
    config = DistilBertConfig(vocab_size=WORDS, dim=64, n_layers=2, n_heads=4, hidden_dim=128, num_labels=2)
    adapters = LoraConfig(r=4, target_modules=["q_lin", "v_lin"], modules_to_save=["classifier", "pre_classifier"])
    model = get_peft_model(DistilBertForSequenceClassification(config), adapters).eval()  # no dropout
    trainable = sum(value.numel() for value in model.parameters() if value.requires_grad)
    print(f"{trainable:,} of {sum(value.numel() for value in model.parameters()):,} parameters are trained")

    dataset = sentences()
    plan = TrainingPlan.for_budget(
        Budget(epsilon=3.0, delta=1e-5), sampling_prob=0.1, expected_batch_size=200, steps=steps, clip_norm=1.0
    )
    optimizer = torch.optim.Adam([value for value in model.parameters() if value.requires_grad], lr=1e-2)
    run = fit(plan, model, dataset, loss_fn=loss_fn, optimizer=optimizer)
    tokens, mask, labels = dataset.tensors
    with torch.no_grad():
        found = model(input_ids=tokens, attention_mask=mask).logits.argmax(1)
    accuracy = float((found == labels).double().mean())
    print(f"accuracy on its own training data {100 * accuracy:.1f} % (not private), proven {run.guarantee}")
    return accuracy


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
