"""Stand-ins for people and models: raters, a judge that misreads two criteria, and a writer of instructions.

With them the optimizers run without a key or a network. The judge takes words for what they stand for: "refund" is a
promise of a refund to it, and "fault" blames the customer. It reads correctly what its instructions explain, and
imitates its demonstrations; one answer in twenty is wrong in any case. The gains that an optimizer reaches with it say
nothing about those that it would reach with a real model.
"""

from __future__ import annotations

import json
import random
import re
from hashlib import sha256

from rubric_integrations import Rubric, Submission
from rubric_integrations.scoring import LabelledJudgment

# What people say about a reply that has one of these phrases: the verdict by criterion, and the reason for it.
READINGS = {
    "You will get your full refund on Monday.": ("refund", "MET", "The refund is certain."),
    "A refund may be possible.": ("refund", "UNMET", "A possible refund is no promise."),
    "Your parcel is on its way.": ("refund", "UNMET", "No refund is mentioned."),
    "This is your own fault.": ("blame", "MET", "The reply accuses the customer."),
    "This was not your fault.": ("blame", "UNMET", "To say that it is not their fault blames nobody."),
    "We are sorry.": ("blame", "UNMET", "The reply accuses nobody."),
    "Dear customer,": ("greeting", "MET", "It begins with a greeting."),
    "Hello,": ("greeting", "MET", "It begins with a greeting."),
    "Re: your mail.": ("greeting", "UNMET", "There is no greeting."),
}
# The word that the judge looks for, and the words of an instruction that correct it.
MISREADINGS = {"refund": ("refund", "is no promise"), "blame": ("fault", "blames nobody")}


def labels(rubric: Rubric, count: int, seed: int = 0) -> list[LabelledJudgment]:
    """Return people's labels of random replies to customers, one for each criterion of each reply."""
    draw = random.Random(seed)  # noqa: S311 -- a simulation, not a secret
    by_criterion = {
        name: [text for text, (criterion, *_) in READINGS.items() if criterion == name] for name in rubric.keys
    }
    result: list[LabelledJudgment] = []
    for number in range(count):
        phrases = {name: draw.choice(texts) for name, texts in by_criterion.items()}
        parts = [phrases["greeting"], phrases["refund"], phrases["blame"], f"Ticket {number}."]
        submission = Submission(response=" ".join(parts))
        for name, criterion in zip(rubric.keys, rubric.criteria, strict=True):
            _, verdict, reason = READINGS[phrases[name]]
            label = LabelledJudgment(
                submission=submission, criterion=criterion, verdict=verdict, reason=reason, rater="simulated",
                sampled="random", blind=True,
            )  # fmt: skip
            result.append(label)
    return result


async def judge(system: str, user: str) -> str:
    """Decide one criterion by the phrases that the judge knows, corrected by its instructions and demonstrations."""
    texts = re.findall(r"<data \S+>\n(.*?)\n</data \S+>", user, re.S)
    *shown, (submission, criterion) = list(zip(texts[::2], texts[1::2], strict=True))
    answers = re.findall(r'"verdict": "(MET|UNMET)"|\[\[ ## verdict ## \]\]\s*(MET|UNMET)', user)
    pairs = zip(shown, answers, strict=False)
    demonstrations = {_phrase(text, own): first or second for (text, own), (first, second) in pairs}
    phrase = _phrase(submission, criterion)
    name, verdict, _ = READINGS[phrase]
    word, correction = MISREADINGS.get(name, ("", ""))
    if word and correction not in system:
        verdict = demonstrations.get(phrase, "MET" if word in phrase.lower() else "UNMET")
    if sha256(f"{submission} {criterion}".encode()).digest()[0] < 13:
        verdict = "UNMET" if verdict == "MET" else "MET"
    return _fields(user, explanation=f"it says {phrase!r}", verdict=verdict)


async def writer(_system: str, user: str) -> str:
    """Write instructions: with people's reasons, if they are in the feedback (GEPA), or else by a tip."""
    reasons = re.findall(r"People answered (?:MET|UNMET), because: (.+?)\. The judge", user)
    tip = "Do not judge by single words: what may happen is no promise, and a denial blames nobody."
    current = re.search(r"current_instruction ## \]\]\s*(.*?)\s*\[\[ ## examples", user, re.S)
    lines = [current[1] if current else "Decide whether the submission meets the criterion."]
    lines += [f"{reason}." for reason in dict.fromkeys(reasons) if reason not in lines[0]]
    text = " ".join(lines if current else [*lines, tip])
    return _fields(user, new_instruction=text, improved_instruction=text, proposed_instruction=text)


def _phrase(submission: str, criterion: str) -> str:
    name = next(name for name, word in _WORDS.items() if word in criterion)
    return next(text for text, (of, *_) in READINGS.items() if of == name and text in submission)


_WORDS = {"refund": "refund", "blame": "Blames", "greeting": "Greets"}


def _fields(user: str, **answers: str) -> str:
    """Write the reply in the form that the prompt requires."""
    form = user.rsplit("Respond with", 1)[-1]
    if "JSON object" in form:
        names = re.findall(r"`(\w+)`", form)
        return json.dumps({name: answers.get(name, "none") for name in names})
    names = [name for name in re.findall(r"\[\[ ## (\w+) ## \]\]", form) if name != "completed"]
    parts = [f"[[ ## {name} ## ]]\n{answers.get(name, next(iter(answers.values())))}" for name in names]
    return "\n\n".join([*parts, "[[ ## completed ## ]]"]) if parts else next(iter(answers.values()))
