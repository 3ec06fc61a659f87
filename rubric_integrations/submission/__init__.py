"""The submissions that are graded, and the inputs that are converted to them.

- `submission`: the `Submission` record. `inputs` converts every accepted input to it.
- `messages`: chat messages as text for a judge.
- `files`: files of responses.

To add one more kind of input:

- A Python type: add it to `inputs.ToGradeInput` and a branch to `inputs.as_submission`.
- A message format: if its roles have other names, add them to `messages._ROLES`; if its content or its tool calls have
  another structure, add a branch to `messages._content_part` or `messages._tool_call`.
- A file format: add a function that yields a `Row` per response to `files`, and its suffix to `files._READERS`.
- A column name: add it to `files._COLUMNS`.
"""

from rubric_integrations.submission.files import ResponsesError, Row, read_responses
from rubric_integrations.submission.inputs import (
    ThinkingOutputDict,
    ToGradeInput,
    as_submission,
    normalize_to_grade_input,
    parse_thinking_output,
)
from rubric_integrations.submission.submission import Submission

__all__ = [
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
