"""The submissions that are graded, and the inputs that are converted to them.

- `submission`: the `Submission` record. `inputs` converts every accepted input to it.
- `thinking`: the thinking that a model writes before its answer, separated from the answer.
- `dialects`: conversations in every dialect, read into steps and attachments. `messages` writes them as text for a
  judge, and `conversations` converts those in the fields of a submission.
- `trajectory` and `steps`: the steps of an agent; `attachments`: files that belong to a submission.
- `rows`: rows of named fields. `files`: files of such rows.

To add one more kind of input:

- A Python type: add it to `inputs.ToGradeInput` and a branch to `inputs.as_submission`.
- A dialect of conversations: add a module to `dialects`, and its line to `dialects.registry.DIALECTS`.
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
from rubric_integrations.submission.steps import Step, ToolCall
from rubric_integrations.submission.submission import Submission
from rubric_integrations.submission.trajectory import Trajectory

__all__ = [
    "Attachment",
    "ResponsesError",
    "Row",
    "Step",
    "Submission",
    "ThinkingOutputDict",
    "ToGradeInput",
    "ToolCall",
    "Trajectory",
    "as_submission",
    "normalize_to_grade_input",
    "parse_thinking_output",
    "read_responses",
]
