"""The submissions that are graded, and the inputs that are converted to them.

To add one more kind of input:

- A Python type: add it to `ToGradeInput`, and add a branch to `output_fields`, both in `submission/inputs.py`.
- A dialect of conversations: see `submission/dialects/`.
- A file format: add a function that yields an entry for each response, and its suffix in `READERS`, both to
  `submission/readers.py`.
- A column name: add it to `COLUMNS` in `submission/columns.py`.
"""

from rubric_integrations.submission.attachments import Attachment
from rubric_integrations.submission.files import ResponsesError, read_responses
from rubric_integrations.submission.inputs import (
    Row,
    ThinkingOutputDict,
    ToGradeInput,
    as_submission,
    normalize_to_grade_input,
    parse_thinking_output,
)
from rubric_integrations.submission.messages import Fields
from rubric_integrations.submission.selection import ShownStep, StepSelection
from rubric_integrations.submission.steps import Step, ToolCall
from rubric_integrations.submission.submission import Submission
from rubric_integrations.submission.trajectory import Trajectory

__all__ = [
    "Attachment",
    "Fields",
    "ResponsesError",
    "Row",
    "ShownStep",
    "Step",
    "StepSelection",
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
