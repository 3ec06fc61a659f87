"""The submissions that are graded, and the inputs that are converted to them.

- `submission`: the `Submission` record. `inputs` converts every accepted input to it.
- `thinking`: the thinking that a model writes before its answer, separated from the answer.
- `messages`: chat messages as text for a judge; `blocks` reads the content of one message.
- `attachments`: images, PDFs and other files of a submission.
- `rows`: rows of named fields. `files`: files of such rows.

To add one more kind of input:

- A Python type: add it to `inputs.ToGradeInput` and a branch to `inputs.as_submission`.
- A message format: if its roles have other names, add them to `messages._ROLES`; if its content or its tool calls have
  another structure, add a branch to `blocks.read_block` or `blocks.read_call`.
- A file format: add a function that yields an entry per response to `files`, and its suffix to `files.READERS`.
- A column name: add it to `rows.COLUMNS`.
"""

from rubric_integrations.submission.attachments import Attachment
from rubric_integrations.submission.files import ResponsesError, read_responses
from rubric_integrations.submission.inputs import (
    ThinkingOutputDict,
    ToGradeInput,
    as_submission,
    normalize_to_grade_input,
    parse_thinking_output,
)
from rubric_integrations.submission.rows import Row
from rubric_integrations.submission.submission import Submission

__all__ = [
    "Attachment",
    "ResponsesError",
    "Row",
    "Submission",
    "ThinkingOutputDict",
    "ToGradeInput",
    "as_submission",
    "normalize_to_grade_input",
    "parse_thinking_output",
    "read_responses",
]
