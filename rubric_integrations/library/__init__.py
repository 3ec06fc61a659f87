"""Ready-made rubrics with test cases, and how far recorded judges of such questions agree with people.

To add a rubric, write `NAME.yaml` with eight cases in this package, and add its name to `_SOURCES` in
`library/catalogue.py`. The tests then require that `lint` finds nothing, and that its cases are as expected.
"""

from rubric_integrations.library.catalogue import MeasuredJudge, load, measured_judges, names, text

__all__ = ["MeasuredJudge", "load", "measured_judges", "names", "text"]
