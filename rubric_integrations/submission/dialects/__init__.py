"""The dialects of conversations and agent runs, each read into steps and attachments.

To add one more dialect, write the functions `matches` and `read`, add its line to `DIALECTS` in
`submission/dialects/detect.py`, and an example to `tests/submission/dialects/examples.py`. If its messages have a role
and a content, `read` may only call `read_chat`. A test reads all examples with all readers: only one may match. A form
that is recognized but not read belongs to `submission/dialects/refused.py`.
"""
