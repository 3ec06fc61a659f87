"""A model of random weights and a tokenizer of bytes, both made here: no test downloads anything."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="TRL is not installed: make test-training")
tokenizers: Any = pytest.importorskip("tokenizers", reason="TRL is not installed: make test-training")
transformers: Any = pytest.importorskip("transformers", reason="TRL is not installed: make test-training")

SPECIAL = ["<|pad|>", "<|end|>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def make_tokenizer() -> Any:
    """Return a tokenizer with one token for each byte."""
    byte_level = tokenizers.pre_tokenizers.ByteLevel
    alphabet = sorted(byte_level.alphabet())
    vocabulary = {token: number for number, token in enumerate(SPECIAL + alphabet)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = byte_level(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=SPECIAL[0], eos_token=SPECIAL[1])
    fast.chat_template = CHAT_TEMPLATE
    return fast


def make_model(tokenizer: Any) -> Any:
    """Return a small Qwen2 of random weights."""
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=256, pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
    )  # fmt: skip
    return transformers.Qwen2ForCausalLM(config)
