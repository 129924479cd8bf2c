"""Ordinary models, losses and data sets that must train and never be refused: the controls of the catalogue.

Each function returns a case; its name is the name of the control. The transformers of Hugging Face are made from their
configurations, so nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch
import torch.nn.functional as F
from isolation_truth import CLASSES, EXAMPLES, FEATURES, Case, cross_entropy
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.checkpoint import checkpoint
from torch.utils.data import Dataset, TensorDataset
from unequal_batches import WORDS, Item, Texts, pad_left, pad_right, present, text_loss

WIDTH = 8
CONTROLS: dict[str, Callable[[], Case]] = {}


def control(make: Callable[[], Case]) -> Callable[[], Case]:
    """Register a control under its name in plain words."""
    assert make.__doc__, f"{make.__name__} does not say what it is"
    CONTROLS[make.__name__.replace("_", " ")] = make
    return make


def control_case(name: str) -> Case:
    case = CONTROLS[name]()
    case.steps, case.clip_norm = 4, 1.0
    return case


def vectors(body: nn.Module, **changes: Any) -> Case:
    """Return a case on vectors with one label each."""
    return Case(body, **changes)


def layers(*between: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(FEATURES, WIDTH), *between, nn.Linear(WIDTH, CLASSES))


def images() -> TensorDataset:
    stream = torch.Generator().manual_seed(3)
    x = torch.randn(EXAMPLES, 2, 8, 8, generator=stream)
    return TensorDataset(x, torch.randint(0, CLASSES, (EXAMPLES,), generator=stream))


def pictures(*between: nn.Module) -> Case:
    """Return a case on images: a convolution, other layers, a mean over the places, a head."""
    model = nn.Sequential(
        nn.Conv2d(2, WIDTH, 3, padding=1), *between, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(WIDTH, CLASSES)
    )
    return Case(model, dataset=images(), batch=8)


def texts(model: nn.Module, collate: Callable[[Sequence[Item]], Any] = pad_right, **changes: Any) -> Case:
    """Return a case on texts of different lengths."""
    return Case(model, text_loss, Texts(), collate, **changes)


# Plain layers --------------------------------------------------------------------------------------------------


@control
def logistic_regression() -> Case:
    """One linear layer."""
    return vectors(nn.Linear(FEATURES, CLASSES))


@control
def dropout() -> Case:
    """Two layers with dropout."""
    return vectors(layers(nn.ReLU(), nn.Dropout(0.5)))


@control
def alpha_dropout() -> Case:
    """Two layers with SELU and alpha dropout."""
    return vectors(layers(nn.SELU(), nn.AlphaDropout(0.2)))


@control
def layer_norm() -> Case:
    """Normalise over each example's features."""
    return vectors(layers(nn.LayerNorm(WIDTH), nn.GELU()))


@control
def rms_norm() -> Case:
    """Divide by the root mean square of each example's features."""
    return vectors(layers(nn.RMSNorm(WIDTH), nn.SiLU()))


@control
def activations() -> Case:
    """PReLU, GELU, SiLU, ELU and Mish one after the other."""
    return vectors(layers(nn.PReLU(WIDTH), nn.GELU(), nn.SiLU(), nn.ELU(), nn.Mish()))


@control
def prelu_with_one_slope_and_zeros() -> Case:
    """A PReLU with one slope that is shared by all features, on inputs of which many are exactly zero."""
    x = torch.randn(EXAMPLES, FEATURES).relu()
    data = TensorDataset(x, torch.arange(EXAMPLES) % CLASSES)
    return vectors(nn.Sequential(nn.PReLU(), nn.Linear(FEATURES, CLASSES)), dataset=data)


@control
def frozen_batch_norm() -> Case:
    """A batch norm in eval mode with frozen scale and shift."""
    model = layers(nn.BatchNorm1d(WIDTH), nn.ReLU())
    model[1].eval().requires_grad_(False)
    return vectors(model)


@control
def batch_norm_in_eval_mode_with_trained_scale() -> Case:
    """A batch norm in eval mode whose scale and shift are trained."""
    return vectors(layers(nn.BatchNorm1d(WIDTH), nn.ReLU()).eval())


@control
def weight_norm() -> Case:
    """A layer whose weight is a direction times a length."""
    first = torch.nn.utils.parametrizations.weight_norm(nn.Linear(FEATURES, WIDTH))
    return vectors(nn.Sequential(first, nn.Tanh(), nn.Linear(WIDTH, CLASSES)))


@control
def bilinear() -> Case:
    """A bilinear layer of two halves of the input."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pair, self.head = nn.Bilinear(3, 3, WIDTH), nn.Linear(WIDTH, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.tanh(self.pair(x[:, :3], x[:, 3:])))

    return vectors(Model())


@control
def einsum() -> Case:
    """A weight of one's own that is used by `einsum`."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(FEATURES, WIDTH, CLASSES) / 5)
            self.scale = nn.Parameter(torch.ones(WIDTH))

        def forward(self, x: Tensor) -> Tensor:
            return torch.einsum("bf,fwc,w->bc", x, self.weight, self.scale)

    return vectors(Model())


@control
def double_precision() -> Case:
    """A model in float64."""
    x, y = Case(nn.Identity()).dataset.tensors  # type: ignore[attr-defined]
    return vectors(layers(nn.Tanh()).double(), dataset=TensorDataset(x.double(), y))


@control
def bfloat16() -> Case:
    """A model in bfloat16."""
    x, y = Case(nn.Identity()).dataset.tensors  # type: ignore[attr-defined]
    return vectors(layers(nn.LayerNorm(WIDTH), nn.Tanh()).bfloat16(), dataset=TensorDataset(x.bfloat16(), y), rate=0.5)


@control
def autocast_in_the_loss() -> Case:
    """A float32 model whose loss is computed under autocast to bfloat16."""

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(x)
        return F.cross_entropy(logits.float(), y, reduction="none")

    return vectors(layers(nn.ReLU()), loss_fn=loss_fn)


# Images --------------------------------------------------------------------------------------------------------


@control
def convolutions() -> Case:
    """Two convolutions with pooling."""
    return pictures(nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(WIDTH, WIDTH, 3), nn.ReLU())


@control
def grouped_convolution_and_group_norm() -> Case:
    """A depthwise and a grouped convolution with group norm."""
    return pictures(
        nn.GroupNorm(2, WIDTH), nn.Conv2d(WIDTH, WIDTH, 3, groups=WIDTH), nn.Conv2d(WIDTH, WIDTH, 1, groups=2)
    )


@control
def instance_norm() -> Case:
    """An instance norm, which normalises each image for itself."""
    return pictures(nn.InstanceNorm2d(WIDTH, affine=True), nn.ReLU())


@control
def transposed_convolution() -> Case:
    """A transposed convolution after a strided one."""
    return pictures(nn.Conv2d(WIDTH, WIDTH, 2, stride=2), nn.ReLU(), nn.ConvTranspose2d(WIDTH, WIDTH, 2, stride=2))


class Residual(nn.Module):
    """A block with a skip connection, which a share of the examples or the batches takes alone."""

    def __init__(self, drop: str = "") -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(WIDTH, WIDTH, 3, padding=1), nn.GroupNorm(2, WIDTH), nn.ReLU())
        self.drop = drop

    def forward(self, x: Tensor) -> Tensor:
        if self.drop and self.training:
            shape = (len(x), 1, 1, 1) if self.drop == "row" else (1, 1, 1, 1)
            return x + self.body(x) * (torch.rand(shape) < 0.8) / 0.8
        return x + self.body(x)


@control
def skip_connections() -> Case:
    """Residual blocks with group norm."""
    return pictures(Residual(), Residual())


@control
def stochastic_depth_by_example() -> Case:
    """Residual blocks that are skipped for each example by torch's generator."""
    return pictures(Residual("row"), Residual("row"))


@control
def stochastic_depth_by_batch() -> Case:
    """Residual blocks that are skipped for the whole batch by one draw of torch's generator."""
    return pictures(Residual("batch"), Residual("batch"))


@control
def dropout_of_channels() -> Case:
    """Dropout of whole channels."""
    return pictures(nn.ReLU(), nn.Dropout2d(0.3))


@control
def one_dimensional_convolution() -> Case:
    """A convolution over time with stride and dilation."""
    model = nn.Sequential(
        nn.Unflatten(1, (1, FEATURES)), nn.Conv1d(1, WIDTH, 3, padding=2, dilation=2), nn.ReLU(), nn.Flatten(),
        nn.Linear(WIDTH * FEATURES, CLASSES),
    )  # fmt: skip
    return vectors(model)


# Texts with padding --------------------------------------------------------------------------------------------


class MeanOfWords(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, WIDTH, padding_idx=0), nn.Linear(WIDTH, CLASSES)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        mask = present(words, lengths)[..., None]
        return self.head((self.embed(words) * mask).sum(1) / lengths[:, None])


@control
def mean_of_embeddings() -> Case:
    """A mean over the words of each text, without its padding."""
    return texts(MeanOfWords())


@control
def embedding_bag() -> Case:
    """An `EmbeddingBag` over texts of one length."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bag, self.head = nn.EmbeddingBag(WORDS, WIDTH, mode="mean"), nn.Linear(WIDTH, CLASSES)

        def forward(self, words: Tensor) -> Tensor:
            return self.head(self.bag(words))

    data = TensorDataset(torch.randint(0, WORDS, (EXAMPLES, 7)), torch.arange(EXAMPLES) % CLASSES)
    return vectors(Model(), dataset=data)


class PackedReader(nn.Module):
    """A recurrent network on packed texts."""

    def __init__(self, kind: type[nn.RNNBase], **options: Any) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.read = kind(WIDTH, WIDTH, batch_first=True, **options)
        self.head = nn.Linear(WIDTH * (2 if self.read.bidirectional else 1), CLASSES)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(self.embed(words), lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.read(packed)[0], batch_first=True)
        return self.head(states.sum(1) / lengths[:, None])


@control
def packed_lstm() -> Case:
    """An LSTM on packed texts."""
    return texts(PackedReader(nn.LSTM), batch=8)


@control
def packed_bidirectional_gru() -> Case:
    """A GRU in both directions on packed texts."""
    return texts(PackedReader(nn.GRU, bidirectional=True), batch=8)


@control
def lstm_of_two_layers_with_dropout() -> Case:
    """An LSTM of two layers on sequences of one length."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.read = nn.LSTM(1, WIDTH, num_layers=2, dropout=0.2, batch_first=True)
            self.head = nn.Linear(WIDTH, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.read(x[..., None])[0][:, -1])

    return vectors(Model(), batch=8)


class MaskedEncoder(nn.Module):
    """A transformer encoder with a mask for padding and positions."""

    def __init__(self, *, drop: float = 0.0) -> None:
        super().__init__()
        self.embed, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(64, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, dropout=drop, batch_first=True, norm_first=True)
        self.encode, self.head = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False), nn.Linear(WIDTH, CLASSES)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        mask = present(words, lengths)
        hidden = self.embed(words) + self.places(torch.arange(words.shape[1]))
        hidden = self.encode(hidden, src_key_padding_mask=mask == 0)
        return self.head((hidden * mask[..., None]).sum(1) / lengths[:, None])


@control
def transformer_encoder_with_padding_mask() -> Case:
    """A transformer encoder that does not see padding."""
    return texts(MaskedEncoder(), batch=8)


@control
def transformer_encoder_with_dropout() -> Case:
    """A transformer encoder with dropout, on texts padded to one length."""

    def pad_to_twelve(items: Sequence[Item]) -> tuple[Tensor, Tensor, Tensor]:
        words, lengths, labels = pad_right(items)
        return F.pad(words, (0, 12 - words.shape[1])), lengths, labels

    return texts(MaskedEncoder(drop=0.2), pad_to_twelve, batch=8)


class SelfAttention(nn.Module):
    """Multi-head attention with a key padding mask and a causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.attend = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        hidden, count = self.embed(words), words.shape[1]
        causal = torch.ones(count, count, dtype=torch.bool).triu(1)
        made, _ = self.attend(hidden, hidden, hidden, key_padding_mask=words == 0, attn_mask=causal, need_weights=False)
        return self.head(made[torch.arange(len(words)), lengths - 1])


@control
def attention_with_key_padding_mask() -> Case:
    """Multi-head attention that reads the last word of each text."""
    return texts(SelfAttention(), batch=8)


class Rotary(nn.Module):
    """Attention with rotary positions counted from each text's first word; keeps its angles from the first pass on."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mix, self.head = (
            nn.Embedding(WORDS, WIDTH),
            nn.Linear(WIDTH, 3 * WIDTH),
            nn.Linear(WIDTH, CLASSES),
        )
        self.angles: Tensor | None = None

    def turned(self, h: Tensor, places: Tensor) -> Tensor:
        if self.angles is None:
            self.angles = torch.arange(64)[:, None] / 10.0 ** torch.arange(WIDTH // 2)
        angle = self.angles[places]
        one, other = h.chunk(2, -1)
        return torch.cat([one * angle.cos() - other * angle.sin(), one * angle.sin() + other * angle.cos()], -1)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        mask = words > 0
        places = (mask.cumsum(1) - 1).clamp(min=0)
        queries, keys, values = self.mix(self.embed(words)).chunk(3, -1)
        scores = self.turned(queries, places) @ self.turned(keys, places).transpose(1, 2)
        hidden = scores.masked_fill(~mask[:, None], -1e4).softmax(-1) @ values
        return self.head((hidden * mask[..., None]).sum(1) / lengths[:, None])


@control
def rotary_positions_with_left_padding() -> Case:
    """Rotary attention on left-padded texts with a cache of positions that the first pass makes."""
    return texts(Rotary(), pad_left, batch=8)


# Transformers by their configurations ---------------------------------------------------------------------------


def by_name(items: Sequence[Item], *, is_causal: bool) -> dict[str, Tensor]:
    words, lengths, labels = pad_right(items)
    mask = present(words, lengths).long()
    return {
        "input_ids": words,
        "attention_mask": mask,
        "labels": words.masked_fill(mask == 0, -100) if is_causal else labels,
    }


def language(model: nn.Module, *, kind: str = "class") -> Case:
    """Return a case for a model of `transformers`, with batches by name."""
    from hush.prompts import ExampleLoss

    return Case(
        model,
        ExampleLoss(kind),
        Texts(),
        lambda items: by_name(items, is_causal=kind == "next_token"),
        batch=6,
    )


@control
def bert() -> Case:
    """BERT for classification, with dropout."""
    from transformers import BertConfig, BertForSequenceClassification

    return language(BertForSequenceClassification(BertConfig(**_SMALL, num_labels=CLASSES, pad_token_id=0)))


@control
def distilbert() -> Case:
    """DistilBERT for classification."""
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    config = DistilBertConfig(
        vocab_size=WORDS, dim=16, n_layers=1, n_heads=2, hidden_dim=16, max_position_embeddings=64, num_labels=CLASSES
    )
    return language(DistilBertForSequenceClassification(config))


@control
def gpt2() -> Case:
    """GPT-2 on next tokens, with tied weights and dropout."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=WORDS, n_positions=64, n_embd=16, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=1
    )
    return language(GPT2LMHeadModel(config), kind="next_token")


@control
def llama() -> Case:
    """Llama on next tokens, with grouped queries and rotary positions."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return language(LlamaForCausalLM(LlamaConfig(**_SMALL, num_key_value_heads=1, use_cache=False)), kind="next_token")


@control
def gpt2_with_lora() -> Case:
    """A frozen GPT-2 with low-rank adapters of `peft`."""
    from peft import LoraConfig, get_peft_model
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=WORDS, n_positions=64, n_embd=16, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=1
    )
    adapted = get_peft_model(
        GPT2LMHeadModel(config), LoraConfig(r=2, lora_alpha=4, target_modules=["c_attn"], fan_in_fan_out=True)
    )
    return language(adapted, kind="next_token")


_SMALL: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 64,
}


# Ways to write a model -----------------------------------------------------------------------------------------


@control
def compiled_model() -> Case:
    """A model that Dynamo captured."""
    return vectors(torch.compile(layers(nn.Tanh()), backend="eager", dynamic=True))  # type: ignore[arg-type]


@control
def scripted_layer() -> Case:
    """A model with a frozen layer that TorchScript compiled."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = (
                torch.jit.script(nn.Linear(FEATURES, WIDTH).requires_grad_(False)),
                nn.Linear(WIDTH, CLASSES),
            )

        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.tanh(self.body(x)))

    return vectors(Model())


@control
def tied_weights() -> Case:
    """A language model whose output layer is its embedding."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.out = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
            self.out.weight = self.embed.weight

        def forward(self, words: Tensor) -> Tensor:
            return self.out(self.embed(words))

    def loss_fn(model: nn.Module, words: Tensor) -> Tensor:
        logits = model(words[:, :-1])
        return F.cross_entropy(logits.transpose(1, 2), words[:, 1:], reduction="none").mean(1)

    return Case(Model(), loss_fn, TensorDataset(torch.randint(0, WORDS, (EXAMPLES, 7))))


@control
def layer_used_twice() -> Case:
    """A layer that is used at two depths."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.again, self.last = (
                nn.Linear(FEATURES, WIDTH),
                nn.Linear(WIDTH, WIDTH),
                nn.Linear(WIDTH, CLASSES),
            )

        def forward(self, x: Tensor) -> Tensor:
            return self.last(torch.tanh(self.again(torch.tanh(self.again(self.first(x))))))

    return vectors(Model())


@control
def checkpointed_block() -> Case:
    """A block whose activations are computed again in the backward pass."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(checkpoint(lambda given: torch.tanh(self.first(given)), x, use_reentrant=False))

    return vectors(Model())


@control
def mixture_of_experts() -> Case:
    """Two experts, weighed for each example by a gate."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(FEATURES, 2)
            self.experts = nn.ModuleList([layers(nn.Tanh()), layers(nn.ReLU())])

        def forward(self, x: Tensor) -> Tensor:
            made = torch.stack([expert(x) for expert in self.experts], 1)
            return (self.gate(x).softmax(-1)[..., None] * made).sum(1)

    return vectors(Model())


@control
def checkpoints_with_dropout() -> Case:
    """Activations that are computed again in the backward pass, with dropout between them."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.head = layers(nn.Tanh()), nn.Linear(CLASSES, CLASSES)
            self.drop = nn.Dropout(0.3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(checkpoint(lambda given: self.drop(self.net(given)), x, use_reentrant=False))

    return vectors(Model())


@control
def compiled_function_in_the_model() -> Case:
    """A model that calls a function which Dynamo captures."""
    normalise = torch.compile(lambda x: x / (x.norm(dim=1, keepdim=True) + 1), backend="eager")

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = layers(nn.Tanh())

        def forward(self, x: Tensor) -> Tensor:
            return self.net(normalise(x))

    return vectors(Model())


@control
def sparse_embedding() -> Case:
    """An embedding whose gradient is sparse."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(WORDS, 8, sparse=True), nn.Linear(8, CLASSES)

        def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
            seen = present(words, lengths)[..., None]
            return self.head((self.embed(words) * seen).sum(1) / lengths[:, None])

    return texts(Model())


@control
def collation_that_sorts_by_length() -> Case:
    """Texts that are sorted by their length while they are collated, as packed sequences once needed it."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.rnn, self.head = (
                nn.Embedding(WORDS, 8),
                nn.LSTM(8, 8, batch_first=True),
                nn.Linear(8, CLASSES),
            )

        def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
            made, _ = self.rnn(self.embed(words))
            return self.head(made[torch.arange(len(words)), lengths - 1])

    def collate(items: Sequence[Item]) -> Any:
        return pad_right(sorted(items, key=lambda item: -len(item[0])))

    return texts(Model(), collate)


@control
def longest_text_as_a_number() -> Case:
    """A collation that says how long the longest text is, by which nothing is changed."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(WORDS, 8), nn.Linear(8, CLASSES)

        def forward(self, words: Tensor, lengths: Tensor, longest: int) -> Tensor:
            seen = (torch.arange(longest) < lengths[:, None]).float()[..., None]
            return self.head((self.embed(words) * seen).sum(1) / lengths[:, None])

    def collate(items: Sequence[Item]) -> Any:
        words, lengths, labels = pad_right(items)
        return {"words": words, "lengths": lengths, "labels": labels, "longest": words.shape[1]}

    def loss_fn(model: nn.Module, words: Tensor, lengths: Tensor, labels: Tensor, longest: int) -> Tensor:
        return F.cross_entropy(model(words, lengths, longest), labels, reduction="none")

    return Case(Model(), loss_fn, Texts(), collate)


@control
def collation_with_random_words() -> Case:
    """A collation that replaces words at random, as masked language models need it."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(WORDS, 8), nn.Linear(8, CLASSES)

        def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
            seen = present(words, lengths)[..., None]
            return self.head((self.embed(words) * seen).sum(1) / lengths[:, None])

    def collate(items: Sequence[Item]) -> Any:
        words, lengths, labels = pad_right(items)
        chosen = torch.bernoulli(torch.full(words.shape, 0.15)).bool() & (words > 0)
        return torch.where(chosen, torch.randint(1, WORDS, words.shape), words), lengths, labels

    return texts(Model(), collate)


@control
def augmentation_by_a_generator_of_ones_own() -> Case:
    """An augmentation that draws from a numpy generator in its closure."""
    stream = numpy.random.default_rng(4)

    def augment(batch: Any) -> Any:
        return batch[0] + 0.1 * torch.from_numpy(stream.normal(size=batch[0].shape)).float(), batch[1]

    return vectors(layers(nn.Tanh()), augment=augment)


@control
def derivative_along_a_direction() -> Case:
    """A model whose output holds a directional derivative, by torch.func."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = layers(nn.Tanh())

        def forward(self, x: Tensor) -> Tensor:
            made, slope = torch.func.jvp(self.net, (x,), (torch.ones_like(x),))
            return made + 0.1 * slope

    return vectors(Model())


@control
def gradient_of_each_input() -> Case:
    """A model that looks at the gradient of a score with respect to its input, by torch.func."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.head = layers(nn.Tanh()), nn.Linear(FEATURES, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.func.vmap(torch.func.grad(lambda row: self.net(row).sum()))(x))

    return vectors(Model())


@control
def counter_of_calls() -> Case:
    """A model that counts its passes in a Python number."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head, self.calls = nn.Linear(FEATURES, CLASSES), 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return self.head(x)

    return vectors(Model())


@control
def constant_buffers() -> Case:
    """A model with a fixed mean and scale in buffers, a mask among its attributes and a settings object."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.full((FEATURES,), 0.3))
            self.register_buffer("scale", torch.full((FEATURES,), 2.0), persistent=False)
            self.mask, self.settings = torch.ones(FEATURES), {"depth": 1, "names": ["a", "b"]}
            self.head = nn.Linear(FEATURES, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            return self.head((x - self.mean) / self.scale * self.mask)

    return vectors(Model())


@control
def hook_that_only_looks() -> Case:
    """A forward hook that reads a layer's shape."""
    model = layers(nn.Tanh())
    shapes: list[tuple[int, ...]] = []
    model[0].register_forward_hook(lambda module, given, made: shapes.append(tuple(made.shape[1:])))
    return vectors(model)


@control
def hook_that_scales_each_gradient() -> Case:
    """A full backward hook that halves the gradient of every example."""
    model = layers(nn.Tanh())
    model[1].register_full_backward_hook(lambda module, given, made: (given[0] / 2,))
    return vectors(model)


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor) -> Tensor:
        return h.sign()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0]


@control
def function_of_ones_own() -> Case:
    """A straight-through estimator as an autograd function."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(FEATURES, WIDTH), nn.Linear(WIDTH, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(_StraightThrough.apply(self.first(x)))

    return vectors(Model())


@control
def loop_over_the_examples() -> Case:
    """A model that computes one example after the other and stacks the results."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = layers(nn.Tanh())

        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([self.body(row) for row in x])

    return vectors(Model(), batch=6)


# Losses and batches --------------------------------------------------------------------------------------------


@control
def regression() -> Case:
    """A mean squared error over several targets of each example."""

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return F.mse_loss(model(x), F.one_hot(y, CLASSES).float(), reduction="none").mean(1)

    return vectors(layers(nn.Tanh()), loss_fn=loss_fn)


@control
def several_tasks() -> Case:
    """A model that returns a dictionary for two tasks."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(FEATURES, WIDTH)
            self.heads = nn.ModuleDict({"label": nn.Linear(WIDTH, CLASSES), "size": nn.Linear(WIDTH, 1)})

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            hidden = torch.tanh(self.body(x))
            return {name: head(hidden) for name, head in self.heads.items()}

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        made = model(x)
        return F.cross_entropy(made["label"], y, reduction="none") + F.huber_loss(
            made["size"][:, 0], x.norm(dim=1), reduction="none"
        )

    return vectors(Model(), loss_fn=loss_fn)


@control
def weights_of_examples_and_classes() -> Case:
    """A loss with public weights for classes, label smoothing and a weight that each example carries."""
    x, y = Case(nn.Identity()).dataset.tensors  # type: ignore[attr-defined]

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        public = torch.tensor([1.0, 2.0, 0.5])
        return weight * F.cross_entropy(model(x), y, weight=public, label_smoothing=0.1, reduction="none")

    return vectors(layers(nn.Tanh()), loss_fn=loss_fn, dataset=TensorDataset(x, y, torch.rand(EXAMPLES)))


@control
def loss_that_logs() -> Case:
    """A loss that appends its mean to a list, as a number."""
    history: list[float] = []

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        losses = cross_entropy(model, x, y)
        if not torch._C._functorch.is_functorch_wrapped_tensor(losses):
            history.append(losses.detach().mean().item())
        return losses

    return vectors(layers(nn.Tanh()), loss_fn=loss_fn)


@control
def penalty_on_the_weights() -> Case:
    """A loss with weight decay of its own."""

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(model, x, y) + 1e-3 * sum(value.square().sum() for value in model.parameters())

    return vectors(layers(nn.Tanh()), loss_fn=loss_fn)


@control
def siamese_pairs() -> Case:
    """A contrastive loss within each example, which is a pair."""
    data = TensorDataset(torch.randn(EXAMPLES, FEATURES), torch.randn(EXAMPLES, FEATURES), torch.rand(EXAMPLES).round())

    def loss_fn(model: nn.Module, one: Tensor, other: Tensor, same: Tensor) -> Tensor:
        return F.cosine_embedding_loss(model(one), model(other), 2 * same - 1, reduction="none")

    return Case(layers(nn.Tanh()), loss_fn, data)


@control
def batches_by_name() -> Case:
    """A data set of dictionaries with two inputs."""

    class Named(Dataset[dict[str, Tensor]]):
        def __len__(self) -> int:
            return EXAMPLES

        def __getitem__(self, index: int) -> dict[str, Tensor]:
            x = torch.linspace(0, index / EXAMPLES, FEATURES)
            return {"x": x, "table": torch.tensor(index % 4), "y": torch.tensor(index % CLASSES)}

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(4, FEATURES), nn.Linear(2 * FEATURES, CLASSES)

        def forward(self, x: Tensor, table: Tensor) -> Tensor:
            return self.head(torch.cat([x, self.embed(table)], 1))

    def loss_fn(model: nn.Module, *, x: Tensor, table: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(model(x, table), y, reduction="none")

    return Case(Model(), loss_fn, Named())


class RandomItems(Dataset[Item]):
    """Adds noise to every example each time it is read, as random crops and flips do."""

    def __init__(self) -> None:
        self._x, self._y = Case(nn.Identity()).dataset.tensors  # type: ignore[attr-defined]

    def __len__(self) -> int:
        return EXAMPLES

    def __getitem__(self, index: int) -> Item:
        return self._x[index] + 0.1 * torch.randn(FEATURES), self._y[index]


@control
def data_set_with_random_items() -> Case:
    """A data set that augments at random when an example is read."""
    return vectors(layers(nn.Tanh()), dataset=RandomItems())


@control
def augmentation_of_each_row() -> Case:
    """An augmentation of a batch by torch's generator, each row for itself."""
    return vectors(layers(nn.Tanh()), augment=lambda batch: (batch[0] + 0.1 * torch.randn_like(batch[0]), batch[1]))


@control
def augmentation_by_numpy() -> Case:
    """A flip of the features by a generator of numpy that nothing can replay, each row for itself."""
    import numpy

    stream = numpy.random.default_rng()

    def augment(batch: Any) -> Any:
        x, y = batch
        is_flipped = torch.from_numpy(stream.random(len(x)) < 0.5)
        return torch.where(is_flipped[:, None], x.flip(1), x), y

    return vectors(layers(nn.Tanh()), augment=augment)


@control
def full_batches() -> Case:
    """Gradient descent on the whole data set."""
    return vectors(layers(nn.Tanh()), sampling="full_batch")


@control
def micro_batches() -> Case:
    """Batches that are computed five examples at a time, with dropout."""
    return vectors(layers(nn.Tanh(), nn.Dropout(0.2)), micro_batch=5)


@control
def schedule_by_a_callback() -> Case:
    """A callback that looks at the progress and raises a public weight of the loss."""
    weight = [0.5]

    def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return weight[0] * cross_entropy(model, x, y)

    def grow(progress: Any) -> None:
        weight[0] = 0.5 + 0.1 * progress.step

    return vectors(layers(nn.Tanh()), loss_fn=loss_fn, callbacks=[grow])
