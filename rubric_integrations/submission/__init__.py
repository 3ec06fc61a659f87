"""What is graded: submissions, chat messages as text, and files of responses."""

from rubric_integrations.submission.files import ResponsesError, Row, read_responses
from rubric_integrations.submission.submission import Submission

__all__ = ["ResponsesError", "Row", "Submission", "read_responses"]
