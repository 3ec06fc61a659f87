"""Keeps the trainers of TRL from the network."""

from __future__ import annotations

import os

# Read when huggingface_hub is imported: models and tokenizers are made by the tests.
os.environ["HF_HUB_OFFLINE"] = "1"
