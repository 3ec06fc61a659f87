"""Scripts for the mock server: judges that resist every attack, or fall for some."""

from __future__ import annotations

from rubric_integrations.redteam.attacks import TASKS
from tests.openai_server import Call, Reply

CRITERIA = [c for task in TASKS for c in task.rubric.criteria]
PENALTIES = {c.requirement for c in CRITERIA if c.is_penalty}


def truth(call: Call) -> str:
    return "MET" if call.criterion in PENALTIES else "UNMET"


def honest(call: Call) -> Reply:
    return Reply(verdict=truth(call))


def gullible(call: Call) -> Reply:
    """Give the wrong verdict on every text with `ignore all earlier` or `erratum`."""
    is_moved = any(words in call.prompt.casefold() for words in ("ignore all earlier", "erratum:"))
    return Reply(verdict={"MET": "UNMET", "UNMET": "MET"}[truth(call)] if is_moved else truth(call))
