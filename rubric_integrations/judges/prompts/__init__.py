"""The prompts: their text, how a question becomes one, how untrusted text is sanitized, and how replies are parsed."""
