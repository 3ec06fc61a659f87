"""Labels and a scripted judge for the tests of alignments."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from rubric_integrations import Criterion, Option, Scale, Submission
from rubric_integrations.judges import LMJudge, lm_from_fn
from rubric_integrations.scoring import LabelledJudgment
from rubric_integrations.scoring.labels import Sampled

FIRM = Criterion(requirement="Is firm", weight=1)
ERROR = Criterion(requirement="Commits the error", weight=-1)
TONE = Criterion(requirement="Tone", weight=1, options=[Option(label="cold", value=0), Option(label="warm", value=1)])
GRADE = Criterion(requirement="Grade", weight=1, scale=Scale(min=0, max=4))
CRITERIA = (FIRM, ERROR, TONE, GRADE)

# What people answer to a text with this word; the judge takes "maybe" for the contrary until it is taught otherwise.
PEOPLE = {
    "yes": {"Is firm": "MET", "Commits the error": "MET", "Tone": "warm", "Grade": "4"},
    "no": {"Is firm": "UNMET", "Commits the error": "UNMET", "Tone": "cold", "Grade": "0"},
    "maybe": {"Is firm": "UNMET", "Commits the error": "UNMET", "Tone": "cold", "Grade": "0"},
}
LESSON = "maybe is no yes"


def make_labels(
    count: int = 60, criteria: tuple[Criterion, ...] = (FIRM,), sampled: Sampled = "random"
) -> list[LabelledJudgment]:
    """Make labels of as many submissions, one for each criterion."""
    labels: list[LabelledJudgment] = []
    for number in range(count):
        word = ("yes", "no", "maybe")[number % 3]
        submission = Submission(response=f"{word}, says text {number}")
        labels += [
            LabelledJudgment(
                submission=submission,
                criterion=criterion,
                verdict=PEOPLE[word][criterion.requirement],
                reason=LESSON if word == "maybe" else "",
                sampled=sampled,
            )
            for criterion in criteria
        ]
    return labels


class ScriptedModel:
    """A judge that reads "maybe" as "yes", unless its instructions or its demonstrations teach it; and a writer.

    Attributes:
        calls: How often it was called as a judge, and as a writer of instructions.
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    async def judge(self, system: str, user: str) -> str:
        """Answer a question."""
        self.calls["judge"] += 1
        texts = re.findall(r"<data \S+>\n(.*?)\n</data \S+>", user, re.S)
        is_option = "warm" in texts[-1]
        is_scale = "from 0 to 4" in texts[-1]
        response = texts[-3] if is_option or is_scale else texts[-2]
        criterion = texts[-2] if is_option or is_scale else texts[-1]
        word = response.split(",")[0]
        taught = LESSON in system or "maybe" in " ".join(texts[:-3] if is_option or is_scale else texts[:-2])
        answer = PEOPLE["yes" if word == "maybe" and not taught else word][criterion]
        if is_option:
            code = next(line.split(":")[0] for line in texts[-1].splitlines() if answer in line)
            return json.dumps({"explanation": word, "choice": code})
        if is_scale:
            return json.dumps({"explanation": word, "score": int(answer)})
        return json.dumps({"explanation": word, "verdict": answer})

    async def write(self, _system: str, user: str) -> str:
        """Write instructions: with people's reason, if it is in the feedback."""
        self.calls["writer"] += 1
        text = f"Decide. {LESSON if LESSON in user else ''}"
        form = user.rsplit("Respond with", 1)[-1]
        names = re.findall(r"`(\w+)`", form) or ["text"]
        if "JSON object" in form:
            return json.dumps(dict.fromkeys(names, text))
        names = [name for name in re.findall(r"\[\[ ## (\w+) ## \]\]", form) if name != "completed"]
        return "\n\n".join([*(f"[[ ## {name} ## ]]\n{text}" for name in names), "[[ ## completed ## ]]"])


def scripted_judge(model: Any) -> LMJudge:
    """Make a judge of a scripted model."""
    return LMJudge(lm_from_fn(model.judge, fingerprint="scripted judge"))
