"""The prompts: their text, the rendering of questions, the sanitizing of untrusted text, the parsing of replies."""
