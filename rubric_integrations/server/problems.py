"""Why a request gets an error and no grade: the HTTP status, and the message for the caller."""

from __future__ import annotations

from typing import Any

from rubric_integrations.results.report import EvaluationReport


class RequestProblem(Exception):  # noqa: N818 -- a status that a client gets, whoever made the mistake
    """A request that is answered with an error.

    Args:
        status: The HTTP status.
        message: What is wrong and what to do, in one line.
        retry_after: Seconds after which the client should send the request again; None if that would not help.
        is_outcome: Whether a grade has ended without a score: the judge has failed or has abstained.
        report: The report of a grade whose score is undefined; None for all other problems.

    Attributes:
        status: As above.
        message: As above.
        retry_after: As above.
        is_outcome: As above.
        report: As above.
    """

    def __init__(
        self,
        status: int,
        message: str,
        retry_after: int | None = None,
        *,
        is_outcome: bool = False,
        report: EvaluationReport | None = None,
    ):
        super().__init__(message)
        self.status, self.message, self.retry_after = status, message, retry_after
        self.is_outcome, self.report = is_outcome, report

    def __reduce__(self) -> Any:
        return type(self), (self.status, self.message, self.retry_after), vars(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the body of the answer, which is JSON."""
        report = {"report": self.report.model_dump(mode="json")} if self.report else {}
        return {"error": self.message, **report}

    def about(self, place: str) -> RequestProblem:
        """Return the same problem with the part of the request that has it, such as `query[3]`."""
        message = f"{place}: {self.message}" if place else self.message
        return RequestProblem(self.status, message, self.retry_after, is_outcome=self.is_outcome, report=self.report)
