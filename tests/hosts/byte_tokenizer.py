"""A tokenizer of single bytes, made on the spot: trainers need one, and no test downloads one."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

END = "<|im_end|>"
"""The token that ends a response and pads it."""


def byte_tokenizer() -> Any:
    """Return the tokenizer, of the kind that Hugging Face's trainers use."""
    tokenizers: Any = import_module("tokenizers")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate(alphabet)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    fast = import_module("transformers").PreTrainedTokenizerFast
    return fast(tokenizer_object=tokenizer, eos_token=END, pad_token=END, additional_special_tokens=["<|im_start|>"])


def save_byte_tokenizer(folder: Path) -> str:
    """Save the tokenizer, and return its folder as trainers are configured with it."""
    byte_tokenizer().save_pretrained(str(folder))
    return str(folder)
