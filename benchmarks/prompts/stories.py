"""stories260K: a real language model of 260,032 parameters, and its tokenizer, from the two files of llama2.c."""

from __future__ import annotations

import hashlib
import logging
import os
import struct
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_SHA256 = {
    "stories260K.bin": "b0a507e7ad0f626624f17112325e66691f9076d622e1d3274d103d00299f2696",
    "tok512.bin": "037cb335abb25d1fa9e8ecae30ed2a3a8ace9302862ebcdc05d51a6bbb10c312",
}
BEGIN = 1


def content(name: str) -> bytes:
    found = Path(os.environ.get("HUSH_DATA", "")) / "stories260K" / name
    if not found.is_file():
        raise FileNotFoundError(f"{name} is not under HUSH_DATA/stories260K")
    held = found.read_bytes()
    if hashlib.sha256(held).hexdigest() != _SHA256[name]:
        raise ValueError(f"{found} is not the published file")
    return held


def model() -> Any:
    """The weights as a `LlamaForCausalLM`, in eval mode."""
    from transformers.models.llama.configuration_llama import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaForCausalLM

    logging.getLogger("transformers").setLevel(logging.ERROR)
    held = content("stories260K.bin")
    width, hidden, layers, heads, groups, words, length = struct.unpack("7i", held[:28])
    config = LlamaConfig(
        vocab_size=words, hidden_size=width, intermediate_size=hidden, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=groups, max_position_embeddings=length,
        tie_word_embeddings=True, rms_norm_eps=1e-5, bos_token_id=BEGIN, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    rest = torch.frombuffer(bytearray(held[28:]), dtype=torch.float32)
    small = width // heads * groups
    shapes = {
        "embed_tokens": (1, words, width), "input_layernorm": (layers, width),
        "self_attn.q_proj": (layers, width, width),
        "self_attn.k_proj": (layers, small, width), "self_attn.v_proj": (layers, small, width),
        "self_attn.o_proj": (layers, width, width), "post_attention_layernorm": (layers, width),
        "mlp.gate_proj": (layers, hidden, width), "mlp.down_proj": (layers, width, hidden),
        "mlp.up_proj": (layers, hidden, width), "norm": (1, width),
    }  # fmt: skip
    state: dict[str, Tensor] = {}
    for name, shape in shapes.items():
        size = int(torch.tensor(shape).prod())
        values, rest = rest[:size].view(shape), rest[size:]
        for place, value in enumerate(values):
            if name.endswith(("q_proj", "k_proj")):  # pairs of the rotation: neighbours there, halves here
                value = value.view(-1, width // heads // 2, 2, width).transpose(1, 2).reshape(value.shape)
            prefix = "model." if shape[0] == 1 else f"model.layers.{place}."
            state[f"{prefix}{name}.weight"] = value.clone()
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    found = LlamaForCausalLM(config)
    found.load_state_dict(state)
    return found.eval()


class Tokenizer:
    """Pairs are merged, the best score first, as in llama2.c."""

    def __init__(self) -> None:
        held = content("tok512.bin")
        place, self.pieces, self.scores = 4, list[bytes](), list[float]()
        while place < len(held):
            score, length = struct.unpack("fi", held[place : place + 8])
            self.pieces.append(held[place + 8 : place + 8 + length])
            self.scores.append(score)
            place += 8 + length
        self.number = {piece: number for number, piece in reversed(list(enumerate(self.pieces)))}

    def encode(self, text: str) -> list[int]:
        found = [BEGIN, self.number[b" "]] if text else [BEGIN]
        for letter in text:
            piece = letter.encode()
            found += [self.number[piece]] if piece in self.number else [byte + 3 for byte in piece]
        while True:
            pairs = [
                (self.scores[merged], -place, merged)
                for place in range(1, len(found) - 1)
                if (merged := self.number.get(self.pieces[found[place]] + self.pieces[found[place + 1]])) is not None
            ]
            if not pairs:
                return found
            _, place, merged = max(pairs)
            found[-place : -place + 2] = [merged]

    def decode(self, tokens: list[int]) -> str:
        return (
            b"".join(self.pieces[token] for token in tokens if token > 2).decode("utf-8", "replace").removeprefix(" ")
        )


if __name__ == "__main__":
    words = Tokenizer()
    start = torch.tensor([words.encode("Once upon a time")])
    print(words.decode(model().generate(start, max_new_tokens=60, do_sample=False)[0].tolist()))
