"""Reads SummHay and LLMBar from clones of their authors' repositories."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_LEVELS = {
    "not_covered": "NO_COVERAGE",
    "partially_covered": "PARTIAL_COVERAGE",
    "fully_covered": "FULL_COVERAGE",
}
_SUMMARIES = Path("data", "eval_benchmark_data.json")
_PAIRS = Path("Dataset", "LLMBar")
_CONFIGS = Path("LLMEvaluator", "evaluators", "config")
_SUBSETS = ("Natural", "Adversarial/Neighbor", "Adversarial/GPTInst", "Adversarial/GPTOut", "Adversarial/Manual")
# The recorded runs with complete replies and patterns on all subsets, as in docs/judges.md.
_RATINGS = (
    "GPT-4/Rating", "GPT-4/Rating_NoRules", "GPT-4/Rating_Metrics", "GPT-4/Rating_Reference",
    "GPT-4/Rating_Metrics_Reference", "ChatGPT/Rating", "ChatGPT/Rating_NoRules",
)  # fmt: skip
_CHOICES = (
    "GPT-4/Vanilla", "GPT-4/CoT", "ChatGPT/Vanilla", "ChatGPT/CoT", "LLaMA2/Vanilla", "LLaMA2/CoT", "PaLM2/Vanilla",
    "PaLM2/CoT", "Falcon/Vanilla", "Falcon/CoT", "GPT-4/Metrics_Reference",
)  # fmt: skip


def is_clone_of_summhay(folder: Path) -> bool:
    """Whether a folder is a clone of salesforce/summary-of-a-haystack."""
    return (folder / _SUMMARIES).is_file()


def is_clone_of_llmbar(folder: Path) -> bool:
    """Whether a folder is a clone of princeton-nlp/LLMBar."""
    return (folder / _PAIRS).is_dir()


def summaries_of_clone(clone: Path) -> list[dict[str, Any]]:
    """Return the summaries of SummHay as dictionaries, with the answers of annotators and published judges."""
    return [
        {
            "id": f"summary{number}",
            "subtopic_id": entry["subtopic_id"],
            "query": entry["subtopic"],
            "response": "\n".join(entry["summary"]),
            "criteria": [
                {"id": insight["insight_id"], "requirement": insight["insight"]}
                for insight in entry["reference_insights"]
            ],
            "human_labels": {label["insight_id"]: _LEVELS[label["coverage"]] for label in entry["annotation"]},
            "judge_labels": dict(_levels_of_judges(entry)),
        }
        for number, entry in enumerate(_read_json(clone / _SUMMARIES))
    ]


def _levels_of_judges(entry: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
    for key, predictions in entry.items():
        _, _, prompt_and_judge = key.partition("predictions_")
        prompt, _, judge = prompt_and_judge.partition("_")
        if judge:
            levels = {prediction["insight_id"]: prediction["coverage"] for prediction in predictions}
            yield judge + ("-9fs" if prompt == "9fs" else ""), levels


def pairs_of_clone(
    clone: Path,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, dict[str, str]]]:
    """Read the outputs and the pairs of outputs of LLMBar, with the published replies of judges.

    Returns:
        The outputs with the judges' ratings, the pairs of outputs with the human labels and the judges' choices, and
        for each judge that chooses, the patterns that find the chosen output in its reply.
    """
    outputs: list[dict[str, Any]] = []
    pairs: list[dict[str, Any]] = []
    for subset in _SUBSETS:
        folder = clone / _PAIRS / subset
        results = {run: _read_json(folder / "evaluators" / run / "result.json") for run in (*_RATINGS, *_CHOICES)}
        for number, pair in enumerate(_read_json(folder / "dataset.json")):
            # Only the last reply counts, because some prompts first request metrics and a reference.
            replies = {run: result[number]["results"][-1] for run, result in results.items()}
            pair_id = f"{subset}/{number}"
            outputs += (
                {
                    "id": f"{pair_id}/output_{output}",
                    "pair_id": pair_id,
                    "query": pair["input"],
                    "response": pair[f"output_{output}"],
                    "judge_outputs": {run: {"overall": replies[run][f"score_{output}"][0]} for run in _RATINGS},
                }
                for output in (1, 2)
            )
            choices = {
                run: {
                    order: replies[run][f"swap = {swap}"]["completion"][0]
                    for order, swap in (("ab", False), ("ba", True))
                }
                for run in _CHOICES
            }
            pairs.append({"id": pair_id, "human_labels": {"better": pair["label"]}, "judge_outputs": choices})
    patterns = {run: _read_json(clone / _CONFIGS / f"{run}.json")[-1]["parsing"] for run in _CHOICES}
    return outputs, pairs, patterns


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
