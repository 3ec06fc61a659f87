"""The fast path to a model: `template_for` returns a prompt template that DSPy rendered once, or None.

Only `capture` and `reply` rely on DSPy internals. A filled template equals, byte for byte, what DSPy would send; with
a version of DSPy that was not tested, requests go through DSPy itself, and one warning says so.
"""

from rubric_integrations.judges._direct.template import PromptTemplate, TemplateCache, fast_path_problem, template_for

__all__ = ["PromptTemplate", "TemplateCache", "fast_path_problem", "template_for"]
