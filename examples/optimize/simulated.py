"""Models that are not models: a student, a judge and a writer of instructions, each a few lines of rules.

They let the optimizers run for real without a key or a network. The student does what its instructions ask for and
imitates the demonstrations that it is shown; now and then it does well by itself. What an optimizer reaches with them
says nothing about what it would reach with a real model.
"""

from __future__ import annotations

import json
import re

ACCUSATION = "You should have read the label."
TIPS = ["Answer the customer.", "Greet the customer by name.", "Name the rule that applies and never blame anyone."]


async def student(system: str, user: str) -> str:
    """Reply to a customer, as well as the instructions and the demonstrations teach."""
    *shown, question = user.split("[[ ## customer ## ]]")
    customer, mail = re.findall(r"\s*(.*?)\s*\[\[ ## message ## \]\]\s*(.*?)\s*(?:Respond with|$)", question, re.S)[0]
    rule = re.search(r"R\d", mail)
    told, taught, talented = system.lower(), " ".join(shown), len(customer) % 3 == 0
    lines = [
        f"Dear {customer}," if talented or "by name" in told else "Hello,",
        f"Rule {rule[0] if rule else 'R0'} applies." if talented or "rule" in told or "Rule R" in taught else "",
        "Please send us your order number next." if talented or "next" in told or "number next" in taught else "",
        "" if talented or taught or "blame" in told else ACCUSATION,
    ]
    return _fields(user, reply=" ".join(line for line in lines if line))


async def judge(_system: str, user: str) -> str:
    """Decide one criterion by looking for the words that the student's rules would use."""
    texts = re.findall(r"<data \w+>\n(.*?)\n</data \w+>", user, re.S)
    submission, criterion = texts[-2], texts[-1]
    looked_for = {"rule": r"Rule R\d", "next": "next", "Greets": "Dear ", "Blames": re.escape(ACCUSATION)}
    found = any(key in criterion and re.search(pattern, submission) for key, pattern in looked_for.items())
    said = "the words for it occur" if found else "no words for it occur"
    return _fields(user, explanation=said, verdict="MET" if found else "UNMET")


async def writer(_system: str, user: str) -> str:
    """Write instructions: from the feedback where there is some, as for GEPA, and else one of three tips."""
    complaints = re.findall(r"(?:UNMET|PENALTY) \(weight [-\d.]+\): ([^:\n]+):", user)
    if complaints:
        told = [("Never do this: " if text.startswith("Blames") else "") + text for text in dict.fromkeys(complaints)]
        text = "Reply to the customer. " + ". ".join(told) + "."
    else:
        text = TIPS[len(user) % len(TIPS)]
    return _fields(user, new_instruction=text, improved_instruction=text, proposed_instruction=text)


def _fields(user: str, **answers: str) -> str:
    """The reply in the form that the prompt asks for."""
    how = user.rsplit("Respond with", 1)[-1]
    if "JSON object" in how:
        names = re.findall(r"`(\w+)`", how)
        return json.dumps({name: answers.get(name, "none") for name in names})
    names = [name for name in re.findall(r"\[\[ ## (\w+) ## \]\]", how) if name != "completed"]
    parts = [f"[[ ## {name} ## ]]\n{answers.get(name, next(iter(answers.values())))}" for name in names]
    return "\n\n".join([*parts, "[[ ## completed ## ]]"]) if parts else next(iter(answers.values()))
