"""The dialects in which conversations and the runs of agents are written, read into steps and attachments.

- `registry`: the table of dialects, and `read_conversation`, which reads any of them.
- `parts`: the texts, calls and results of messages; `joining` joins calls with their results, and makes the steps.
- `blocks` and `chat`: the blocks and the messages that OpenAI, Anthropic, LangChain and Inspect share; `media`: files.

To add one more dialect, write a module with the functions `matches` and `read`, add its line to `registry.DIALECTS`,
and an example to `tests/submission/dialects/examples.py`. If its messages have a role and a content, `read` may only
call `chat.read_message`.
"""
