"""The dialects of conversations and agent runs. Their readers convert them to messages and attachments.

To add one more dialect, write the functions `matches` and `read`, add a line to `DIALECTS` in
`submission/dialects/detect.py`, and add an example to `tests/submission/dialects/examples.py`. If the messages have a
role and a content, `read` only needs to call `read_chat`. A test checks that each example matches only one reader. A
form that is recognized but not read belongs to `submission/dialects/refused.py`.
"""
