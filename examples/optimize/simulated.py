"""Stand-ins for models: a student, a judge and a writer of instructions, each a function of a few lines.

With them the optimizers run without a key or a network. The student follows its instructions and imitates its
demonstrations; for some customers it also writes a good reply without either. The scores that an optimizer reaches with
them say nothing about the scores that it would reach with a real model.
"""

from __future__ import annotations

import json
import re

ACCUSATION = "You should have read the label."
TIPS = ["Answer the customer.", "Greet the customer by name.", "Name the rule that applies and never blame anyone."]


async def student(system: str, user: str) -> str:
    """Reply to a customer, and follow the instructions and the demonstrations."""
    *demonstrations, question = user.split("[[ ## customer ## ]]")
    customer, mail = re.findall(r"\s*(.*?)\s*\[\[ ## message ## \]\]\s*(.*?)\s*(?:Respond with|$)", question, re.S)[0]
    rule = re.search(r"R\d", mail)
    # Every third customer gets a good reply in any case, so that BootstrapFewShot has something to start from.
    rules, demos, is_lucky = system.lower(), " ".join(demonstrations), len(customer) % 3 == 0
    lines = [
        f"Dear {customer}," if is_lucky or "by name" in rules else "Hello,",
        f"Rule {rule[0] if rule else 'R0'} applies." if is_lucky or "rule" in rules or "Rule R" in demos else "",
        "Please send us your order number next." if is_lucky or "next" in rules or "number next" in demos else "",
        "" if is_lucky or demos or "blame" in rules else ACCUSATION,
    ]
    return _fields(user, reply=" ".join(line for line in lines if line))


async def judge(_system: str, user: str) -> str:
    """Decide one criterion by searching for the words that the student would use."""
    texts = re.findall(r"<data \w+>\n(.*?)\n</data \w+>", user, re.S)
    submission, criterion = texts[-2], texts[-1]
    patterns = {"rule": r"Rule R\d", "next": "next", "Greets": "Dear ", "Blames": re.escape(ACCUSATION)}
    is_met = any(key in criterion and re.search(pattern, submission) for key, pattern in patterns.items())
    reason = "the words for it occur" if is_met else "no words for it occur"
    return _fields(user, explanation=reason, verdict="MET" if is_met else "UNMET")


async def writer(_system: str, user: str) -> str:
    """Write instructions: from the feedback, if there is any (GEPA), or else one of three tips."""
    complaints = re.findall(r"(?:UNMET|PENALTY) \(weight [-\d.]+\): ([^:\n]+):", user)
    if complaints:
        rules = [("Never do this: " if text.startswith("Blames") else "") + text for text in dict.fromkeys(complaints)]
        text = "Reply to the customer. " + ". ".join(rules) + "."
    else:
        text = TIPS[len(user) % len(TIPS)]
    return _fields(user, new_instruction=text, improved_instruction=text, proposed_instruction=text)


def _fields(user: str, **answers: str) -> str:
    """Write the reply in the form that the prompt requires."""
    form = user.rsplit("Respond with", 1)[-1]
    if "JSON object" in form:
        names = re.findall(r"`(\w+)`", form)
        return json.dumps({name: answers.get(name, "none") for name in names})
    names = [name for name in re.findall(r"\[\[ ## (\w+) ## \]\]", form) if name != "completed"]
    parts = [f"[[ ## {name} ## ]]\n{answers.get(name, next(iter(answers.values())))}" for name in names]
    return "\n\n".join([*parts, "[[ ## completed ## ]]"]) if parts else next(iter(answers.values()))
