"""The prompts: their text, the rendering of questions, the sanitizing of untrusted text and the parsing of replies."""
